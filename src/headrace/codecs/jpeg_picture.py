"""Pictures from JPEG, by libjpeg-turbo (simplejpeg)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .buffers import check_out, new_result, scratch
from .picture import Finish, Layout, Region, finish
from .source import JPEG_RATIO, MAX_BYTES, Data, Source, load_library

Pixels = npt.NDArray[np.uint8]
Mode = Literal["rgb", "gray"]
Shrink = Literal[1, 2, 4, 8, "auto"]

_BARE = {0x01, *range(0xD0, 0xD8)}  # markers without a length
_SIMPLEJPEG = ("simplejpeg", "JPEG decoding needs the simplejpeg package")
# each scan of a progressive picture runs over all of it: a few kilobytes of scans can keep a decoder busy for minutes
_MOST_SCANS = 256


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
            facts = _read_facts(source, encoded)
            wanted = Finish(size=size, layout=layout, region=region, orientation=facts.orientation if orient else 1)
            factor = _factor(shrink, facts, wanted)
            height, width = -(-facts.height // factor), -(-facts.width // factor)
            channels = 1 if mode == "gray" else 3
            nbytes = height * width * channels
            source.check_claim(nbytes, held=source.size, ratio=JPEG_RATIO, max_bytes=max_bytes, what="the picture")
            place = _place(source, wanted, (height, width, channels), out)
            buffer = scratch("pixels", nbytes) if place is None else place.reshape(-1)
            pixels = _decode(source, encoded, facts, factor, (height, width, channels), buffer)
            timed.nbytes = nbytes
        if place is not None and np.shares_memory(pixels, place):
            return place
        return finish(source, pixels, wanted, out)


@dataclass(frozen=True, slots=True)
class _Facts:
    height: int
    width: int
    is_cmyk: bool
    is_adobe: bool
    orientation: int  # as EXIF counts, 1 to 8


def _factor(shrink: Shrink, facts: _Facts, wanted: Finish) -> int:
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
    check_out(source.name, out, shape, np.dtype(np.uint8))
    if out is None:
        return new_result(shape, np.dtype(np.uint8))
    return out if out.flags.c_contiguous and out.dtype == np.uint8 else None


def _decode(
    source: Source, encoded: memoryview, facts: _Facts, factor: int, shape: tuple[int, int, int], buffer: Pixels
) -> Pixels:
    height, width, channels = shape
    space = "CMYK" if facts.is_cmyk else "GRAY" if channels == 1 else "RGB"
    least: dict[str, Any] = {} if factor == 1 else {"min_height": height, "min_width": width, "min_factor": factor}
    try:
        pixels: Pixels = load_library(*_SIMPLEJPEG).decode_jpeg(
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


def _from_cmyk(inks: Pixels, *, is_adobe: bool) -> Pixels:
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
