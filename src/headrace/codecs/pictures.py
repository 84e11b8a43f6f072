"""Pictures from JPEG, by libjpeg-turbo (simplejpeg), and from PNG, by libpng (OpenCV): region, size and layout."""

import contextlib
import functools
import multiprocessing
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import NotSupported
from headrace.model import stage

from .buffers import check_out, hand_out, new_result, scratch
from .inflate import find_inflater
from .source import DEFLATE_RATIO, JPEG_RATIO, MAX_BYTES, Data, Source, load_library

Pixels: TypeAlias = npt.NDArray[Any]
Pixels8: TypeAlias = npt.NDArray[np.uint8]
Layout: TypeAlias = Literal["hwc", "chw"]
Region: TypeAlias = tuple[int, int, int, int]  # top, left, height, width
Mode = Literal["rgb", "gray"]
Shrink = Literal[1, 2, 4, 8, "auto"]
PngMode = Literal["rgb", "gray", "unchanged"]

_SIMPLEJPEG = ("simplejpeg", "JPEG decoding needs the simplejpeg package")
_BARE = {0x01, *range(0xD0, 0xD8)}  # markers without a length
# each scan of a progressive picture runs over all of it: a few kilobytes of scans can keep a decoder busy for minutes
_MOST_SCANS = 256
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD = struct.Struct(">16x2L2B")  # width, height, bits, kind of colour
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


@dataclass(frozen=True, kw_only=True)
class _Finish:
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


def jpeg(
    data: Data,
    *,
    mode: Mode = "rgb",
    size: tuple[int, int] | None = None,
    region: Region | None = None,
    shrink: Shrink = 1,
    orient: bool = False,
    layout: Layout = "hwc",
    out: Pixels8 | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Pixels8:
    """Return a picture as uint8: (height, width, channels), or (channels, height, width) with `layout="chw"`.

    - `size=(height, width)` resizes bilinearly, as OpenCV does.
    - `shrink=2`, 4 or 8 decodes at that fraction of the size, which is faster; `"auto"` takes the largest that is
      still at least `size`. Other fractions are not offered: libjpeg decodes 5/8 to 7/8 slower than the whole.
    - `orient=True` turns the picture as its EXIF tag says; `region=(top, left, height, width)` is cut from the picture
      (turned, and shrunk if it is). The region saves the resize and the copy of the rest, not its decoding.

    Data that is cut short or damaged is an error, not a picture that is grey at the bottom.
    """
    if mode not in ("rgb", "gray"):
        raise ValueError(f"mode={mode!r}: choose 'rgb' or 'gray'")
    with Source(data, name) as source:
        encoded = source.borrow(0, source.size)
        with stage("jpeg decode") as timed:
            facts = _read_facts(source, encoded)
            wanted = _Finish(size=size, layout=layout, region=region, orientation=facts.orientation if orient else 1)
            factor = _factor(shrink, facts, wanted)
            height, width = -(-facts.height // factor), -(-facts.width // factor)
            channels = 1 if mode == "gray" else 3
            nbytes = height * width * channels
            source.check_claim(nbytes, held=source.size, ratio=JPEG_RATIO, max_bytes=max_bytes, what="the picture")
            place = _place(source, wanted, (height, width, channels), out)
            buffer = scratch("pixels", nbytes) if place is None else place.reshape(-1)
            pixels = _decode_jpeg(source, encoded, facts, factor, (height, width, channels), buffer)
            timed.nbytes = nbytes
        if place is not None and np.shares_memory(pixels, place):
            return place
        return _finish(source, pixels, wanted, out)


def png(
    data: Data,
    *,
    mode: PngMode = "rgb",
    size: tuple[int, int] | None = None,
    region: Region | None = None,
    layout: Layout = "hwc",
    out: Pixels | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Pixels:
    """Return a picture: (height, width, channels), or (channels, height, width) with `layout="chw"`.

    `mode="rgb"` and `"gray"` give uint8 and drop transparency; `"unchanged"` keeps 16 bits, gray and alpha as they are
    in the file (gray with alpha as RGBA, palettes as their colours), for label maps and depth. Every chunk is checked
    against its CRC. `size`, `region` and `out` are as for `jpeg`.
    """
    if mode not in ("rgb", "gray", "unchanged"):
        raise ValueError(f"mode={mode!r}: choose 'rgb', 'gray' or 'unchanged'")
    with Source(data, name) as source:
        encoded = source.borrow(0, source.size)
        with stage("png decode") as timed:
            size_there = _read_size(source, encoded, max_bytes)
            pixels = _decode_png(source, encoded, size_there, mode)
            timed.nbytes = pixels.nbytes
        wanted = _Finish(size=size, layout=layout, region=region)
        if out is None and wanted.keeps(*pixels.shape[:2]):
            return pixels
        return _finish(source, pixels, wanted, out)


# ------------------------------------------------------------------ JPEG


@dataclass(frozen=True, slots=True)
class _Facts:
    height: int
    width: int
    is_cmyk: bool
    is_adobe: bool
    orientation: int  # as EXIF counts, 1 to 8


def _factor(shrink: Shrink, facts: _Facts, wanted: _Finish) -> int:
    if shrink != "auto":
        if shrink not in (1, 2, 4, 8):
            raise ValueError(f"shrink={shrink!r}: choose 1, 2, 4, 8 or 'auto'")
        return shrink
    if wanted.size is None or wanted.region is not None:
        raise ValueError("shrink='auto' needs size=, to know how small is too small, and no region=")
    height, width = wanted.size if wanted.orientation < 5 else wanted.size[::-1]
    fitting = [k for k in (2, 4, 8) if -(-facts.height // k) >= height and -(-facts.width // k) >= width]
    return max(fitting, default=1)


def _place(source: Source, wanted: _Finish, shape: tuple[int, int, int], out: Pixels8 | None) -> Pixels8 | None:
    """Where the decoder can write the result itself, if it can."""
    if not wanted.keeps(*shape[:2]):
        return None
    check_out(source.name, out, shape, np.dtype(np.uint8))
    if out is None:
        return new_result(shape, np.dtype(np.uint8))
    return out if out.flags.c_contiguous and out.dtype == np.uint8 else None


def _decode_jpeg(
    source: Source, encoded: memoryview, facts: _Facts, factor: int, shape: tuple[int, int, int], buffer: Pixels8
) -> Pixels8:
    height, width, channels = shape
    space = "CMYK" if facts.is_cmyk else "GRAY" if channels == 1 else "RGB"
    least: dict[str, Any] = {} if factor == 1 else {"min_height": height, "min_width": width, "min_factor": factor}
    try:
        pixels: Pixels8 = load_library(*_SIMPLEJPEG).decode_jpeg(
            encoded, space, buffer=None if facts.is_cmyk else buffer, **least
        )
    except ValueError as error:
        raise source.damaged(
            f"damaged JPEG: {error}", height=facts.height, width=facts.width, encoded=f"{source.size} bytes"
        ) from None
    if facts.is_cmyk:
        pixels = _from_cmyk(pixels, is_adobe=facts.is_adobe)
        if channels == 1:
            weights = np.array([299, 587, 114], np.uint32)
            pixels = ((pixels @ weights + 500) // 1000).astype(np.uint8)[..., None]
    if pixels.shape != shape:
        raise source.damaged("damaged JPEG: its header says another size", header=shape, decoded=pixels.shape)
    return pixels


def _from_cmyk(inks: Pixels8, *, is_adobe: bool) -> Pixels8:
    """Printers' colours as screen colours, without a colour profile; Adobe's files hold them inverted."""
    light = inks if is_adobe else 255 - inks
    product = light[..., :3].astype(np.uint16) * light[..., 3:]
    return ((product + 128 + ((product + 128) >> 8)) >> 8).astype(np.uint8)


def _read_facts(source: Source, data: memoryview) -> _Facts:
    """Read what stands before the pixels: libjpeg the size, the markers below what it does not tell."""
    try:
        height, width, space, _ = load_library(*_SIMPLEJPEG).decode_jpeg_header(data)
    except ValueError as error:
        raise source.damaged(f"not a JPEG, or damaged: {error}", first_bytes=bytes(data[:4]).hex(" ")) from None
    orientation, is_adobe, is_baseline = 1, False, False
    for marker, body in _markers(data):
        if marker == 0xE1 and orientation == 1:
            orientation = _orientation(bytes(body))
        elif marker == 0xEE:
            is_adobe = bytes(body[:5]) == b"Adobe"
        is_baseline |= marker in (0xC0, 0xC1)
    if not is_baseline and (num_scans := bytes(data).count(b"\xff\xda")) > _MOST_SCANS:
        raise source.damaged("this JPEG is made to be slow: no camera writes so many scans", scans=num_scans)
    return _Facts(height, width, space in ("CMYK", "YCCK"), is_adobe, orientation)


def _markers(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the markers up to the first scan, each with what it holds. That they are whole, libjpeg has checked."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and (marker := data[at + 1]) != 0xDA:
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _BARE:
            at += 2
        else:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            yield marker, data[at + 4 : at + 2 + length]
            at += 2 + length


def _orientation(body: bytes) -> int:
    """EXIF's orientation tag; 1 where there is none or it makes no sense, as every viewer does."""
    if not body.startswith(b"Exif\0\0"):
        return 1
    tiff = body[6:]
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "L", tiff, 4)
        (num,) = struct.unpack_from(order + "H", tiff, start)
        for k in range(num):
            tag, kind, count, value = struct.unpack_from(order + "HHLH", tiff, start + 2 + 12 * k)
            if tag == 0x112:
                return value if kind == 3 and count == 1 and 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


# ------------------------------------------------------------------ PNG


def _read_size(source: Source, data: memoryview, max_bytes: int) -> tuple[int, int]:
    """Return height and width, once all chunks are checked and the pixels can be there: libpng drops what it doubts."""
    if bytes(data[:8]) != _PNG_SIGNATURE or bytes(data[12:16]) != b"IHDR" or len(data) < _PNG_HEAD.size:
        raise source.damaged("not a PNG, or cut short in its header", first_bytes=bytes(data[:16]).hex(" "))
    at, kind, crc32 = 8, b"", find_inflater().crc32
    while kind != b"IEND":  # behind it anything may follow
        kind, end = bytes(data[at + 4 : at + 8]), at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            raise source.damaged("the PNG is cut short", offset=at, chunk=kind)
        if crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise source.damaged("damaged PNG: a chunk's CRC is wrong", offset=at, chunk=kind)
        at = end + 4
    width, height, depth, color = _PNG_HEAD.unpack_from(data)
    unpacked = height * ((width * _PNG_CHANNELS.get(color, 4) * depth + 7) // 8)
    source.check_claim(unpacked, held=source.size, ratio=DEFLATE_RATIO, max_bytes=max_bytes, what="the picture")
    return height, width


def _decode_png(source: Source, encoded: memoryview, size: tuple[int, int], mode: PngMode) -> Pixels:
    cv2 = _load_cv2("PNG decoding")
    flags = {"rgb": cv2.IMREAD_COLOR, "gray": cv2.IMREAD_GRAYSCALE, "unchanged": cv2.IMREAD_UNCHANGED}[mode]
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise source.damaged(f"damaged PNG: {str(error).strip()}", offset=8) from None
    if pixels is None or pixels.shape[:2] != size:
        raise source.damaged("damaged PNG: its pixels cannot be decoded", width=size[1], height=size[0])
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    else:
        order = cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGBA
        pixels = cv2.cvtColor(pixels, order, dst=pixels)
    found: Pixels = pixels
    return found


# ------------------------------------------------------------------ what is done with decoded pixels


def _turn(pixels: Pixels, orientation: int) -> Pixels:
    """Return a view turned and mirrored as EXIF's orientation (1 to 8) says."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _finish(source: Source, pixels: Pixels, wanted: _Finish, out: Pixels | None) -> Pixels:
    """Return the wanted part of some pixels (height, width, channels), which may be memory that is used again."""
    with stage("picture finish") as timed:
        pixels = _turn(pixels, wanted.orientation)
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
        result = hand_out(source.name, result, out)
        timed.nbytes = result.nbytes
        return result


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
    cv2 = _load_cv2("resizing pictures")
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
            _load_cv2("splitting channels").split(pixels, list(result))  # six times as fast as numpy's transposed copy
            return
    np.copyto(result, pixels.transpose(2, 0, 1))


@functools.cache
def _load_cv2(need: str) -> Any:
    """Return OpenCV, for what `need` says ("resizing pictures")."""
    cv2 = load_library("cv2", f"{need} needs OpenCV (opencv-python-headless)")
    if multiprocessing.parent_process() is not None:
        # a worker is one of many: threads inside each would fight over the same cores, and hang after a fork
        cv2.setNumThreads(1)
    return cv2
