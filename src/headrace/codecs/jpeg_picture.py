"""Pictures from JPEG, by libjpeg-turbo (simplejpeg)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .claims import JPEG_RATIO, MAX_BYTES, check_claim
from .extras import load_simplejpeg
from .jpeg_markers import JpegFacts, read_markers
from .output import check_out
from .picture import Finish, Layout, Region, finish
from .scratch import new_result, scratch
from .source import Data, Source

Pixels = npt.NDArray[np.uint8]
Mode = Literal["rgb", "gray"]
Shrink = Literal[1, 2, 4, 8, "auto"]


def jpeg(
    data: Data,
    *,
    mode: Mode = "rgb",
    size: tuple[int, int] | None = None,
    region: Region | None = None,
    shrink: Shrink = 1,
    orient: bool = False,
    layout: Layout = "hwc",
    out: Pixels | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Pixels:
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
            facts = read_markers(source, encoded)
            wanted = Finish(size=size, layout=layout, region=region, orientation=facts.orientation if orient else 1)
            factor = _factor(shrink, facts, wanted)
            height, width = -(-facts.height // factor), -(-facts.width // factor)
            channels = 1 if mode == "gray" else 3
            nbytes = height * width * channels
            check_claim(source, nbytes, held=source.size, ratio=JPEG_RATIO, max_bytes=max_bytes, what="the picture")
            place = _place(source, wanted, (height, width, channels), out)
            buffer = scratch("pixels", nbytes) if place is None else place.reshape(-1)
            pixels = _decode(source, encoded, facts, factor, (height, width, channels), buffer)
            timed.nbytes = nbytes
        if place is not None and np.shares_memory(pixels, place):
            return place
        with stage("picture finish") as timed:
            result = finish(source, pixels, wanted, out)
            timed.nbytes = result.nbytes
            return result


def _factor(shrink: Shrink, facts: JpegFacts, wanted: Finish) -> int:
    if shrink != "auto":
        if shrink not in (1, 2, 4, 8):
            raise ValueError(f"shrink={shrink!r}: choose 1, 2, 4, 8 or 'auto'")
        return shrink
    if wanted.size is None or wanted.region is not None:
        raise ValueError("shrink='auto' needs size=, to know how small is too small, and no region=")
    height, width = wanted.size if wanted.orientation < 5 else wanted.size[::-1]
    fitting = [k for k in (2, 4, 8) if -(-facts.height // k) >= height and -(-facts.width // k) >= width]
    return max(fitting, default=1)


def _place(source: Source, wanted: Finish, shape: tuple[int, int, int], out: Pixels | None) -> Pixels | None:
    """Where the decoder can write the result itself, if it can."""
    if not wanted.keeps(*shape[:2]):
        return None
    check_out(source, out, shape, np.dtype(np.uint8))
    if out is None:
        return new_result(shape, np.dtype(np.uint8))
    return out if out.flags.c_contiguous and out.dtype == np.uint8 else None


def _decode(
    source: Source,
    encoded: memoryview,
    facts: JpegFacts,
    factor: int,
    shape: tuple[int, int, int],
    buffer: Pixels,
) -> Pixels:
    height, width, channels = shape
    is_cmyk = facts.channels == 4
    space = "CMYK" if is_cmyk else "GRAY" if channels == 1 else "RGB"
    least: dict[str, Any] = {} if factor == 1 else {"min_height": height, "min_width": width, "min_factor": factor}
    try:
        pixels: Pixels = load_simplejpeg().decode_jpeg(encoded, space, buffer=None if is_cmyk else buffer, **least)
    except ValueError as error:
        raise source.damaged(
            f"damaged JPEG: {error}", height=facts.height, width=facts.width, encoded=f"{source.size} bytes"
        ) from None
    if is_cmyk:
        pixels = _from_cmyk(pixels, is_adobe=facts.is_adobe)
        if channels == 1:
            weights = np.array([299, 587, 114], np.uint32)
            pixels = ((pixels @ weights + 500) // 1000).astype(np.uint8)[..., None]
    if pixels.shape != shape:
        raise source.damaged("damaged JPEG: its headers disagree about its size", markers=shape, decoded=pixels.shape)
    return pixels


def _from_cmyk(inks: Pixels, *, is_adobe: bool) -> Pixels:
    """Printers' colours as screen colours, without a colour profile; Adobe's files hold them inverted."""
    light = inks if is_adobe else 255 - inks
    product = light[..., :3].astype(np.uint16) * light[..., 3:]
    return ((product + 128 + ((product + 128) >> 8)) >> 8).astype(np.uint8)
