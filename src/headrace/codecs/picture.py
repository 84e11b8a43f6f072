"""What is done with decoded pixels: region, orientation, size, layout, all into one result."""

import contextlib
import functools
import multiprocessing
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import NotSupported
from headrace.model import stage

from .buffers import check_out, hand_out, new_result, scratch
from .source import Source, load_library

Pixels: TypeAlias = npt.NDArray[Any]
Layout: TypeAlias = Literal["hwc", "chw"]
Region: TypeAlias = tuple[int, int, int, int]  # top, left, height, width


@dataclass(frozen=True, kw_only=True)
class Finish:
    """What the caller wants of a picture."""

    size: tuple[int, int] | None
    layout: Layout
    region: Region | None
    orientation: int = 1

    def __post_init__(self) -> None:
        if self.layout not in ("hwc", "chw"):
            raise ValueError(f"layout={self.layout!r}: choose 'hwc' or 'chw'")
        if self.size is not None and (len(tuple(self.size)) != 2 or min(self.size) < 1):
            raise ValueError(f"size={self.size!r}: give (height, width), both at least 1")

    def keeps(self, height: int, width: int) -> bool:
        """Whether the result is the decoded picture as it is, so that it can be decoded straight into its place."""
        return (
            self.layout == "hwc"
            and self.orientation == 1
            and self.region in (None, (0, 0, height, width))
            and self.size in (None, (height, width))
        )


def turn(pixels: Pixels, orientation: int) -> Pixels:
    """Return a view turned and mirrored as EXIF's orientation (1 to 8) says."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def finish(source: Source, pixels: Pixels, wanted: Finish, out: Pixels | None) -> Pixels:
    """Return the wanted part of some pixels (height, width, channels), which may be memory that is used again."""
    with stage("picture finish") as timed:
        result = _finish(source, pixels, wanted, out)
        timed.nbytes = result.nbytes
        return result


def _finish(source: Source, pixels: Pixels, wanted: Finish, out: Pixels | None) -> Pixels:
    pixels = turn(pixels, wanted.orientation)
    if wanted.region is not None:
        pixels = _cut(source, pixels, wanted.region)
    height, width, channels = pixels.shape
    size = wanted.size or (height, width)
    shape = (*size, channels) if wanted.layout == "hwc" else (channels, *size)
    check_out(source.name, out, shape, pixels.dtype)
    takes_it = out is not None and out.flags.c_contiguous and out.dtype == pixels.dtype
    result = out if takes_it and out is not None else new_result(shape, pixels.dtype)
    is_split = wanted.layout == "chw"
    if size != (height, width):
        resized = _like(pixels, (*size, channels), "resized") if is_split else result
        _resize(pixels, resized)
        pixels = resized
    if is_split:
        _split(pixels, result)
    elif pixels is not result:
        np.copyto(result, pixels)
    return hand_out(source.name, result, out)


def _cut(source: Source, pixels: Pixels, region: Region) -> Pixels:
    top, left, height, width = region
    if min(top, left) < 0 or min(height, width) < 1 or top + height > len(pixels) or left + width > pixels.shape[1]:
        raise ValueError(
            f"{source.name}: region (top {top}, left {left}, height {height}, width {width}) is not inside the "
            f"picture, which is {len(pixels)} high and {pixels.shape[1]} wide"
        )
    return pixels[top : top + height, left : left + width]


def _like(pixels: Pixels, shape: tuple[int, ...], purpose: str) -> Pixels:
    """Memory of this thread's own, for a picture that is not handed out."""
    nbytes = int(np.prod(shape)) * pixels.itemsize
    return scratch(purpose, nbytes).view(pixels.dtype).reshape(shape)


def _resize(pixels: Pixels, result: Pixels) -> None:
    """Bilinear, as OpenCV does it, without smoothing first."""
    cv2 = load_cv2("resizing pictures")
    height, width, channels = result.shape
    if pixels.strides[1:] != (channels * pixels.itemsize, pixels.itemsize) or pixels.strides[0] < 0:
        turned = _like(pixels, pixels.shape, "turned")
        np.copyto(turned, pixels)
        pixels = turned
    done = cv2.resize(pixels, (width, height), dst=result, interpolation=cv2.INTER_LINEAR)
    if done.ctypes.data != result.ctypes.data:  # it drops a last axis of length 1
        np.copyto(result, done.reshape(result.shape))


def _split(pixels: Pixels, result: Pixels) -> None:
    if len(result) > 1 and pixels.flags.c_contiguous:
        with contextlib.suppress(NotSupported):
            load_cv2("splitting channels").split(pixels, list(result))  # six times as fast as numpy's transposed copy
            return
    np.copyto(result, pixels.transpose(2, 0, 1))


@functools.cache
def load_cv2(need: str) -> Any:
    """Return OpenCV, for what `need` says ("resizing pictures")."""
    cv2 = load_library("cv2", f"{need} needs OpenCV (opencv-python-headless)")
    if multiprocessing.parent_process() is not None:
        # a worker is one of many: threads inside each would fight over the same cores, and hang after a fork
        cv2.setNumThreads(1)
    return cv2
