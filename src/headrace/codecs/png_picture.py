"""Pictures from PNG: every chunk is checked here, libpng (through OpenCV) does the pixels."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .inflate import find_inflater
from .picture import Finish, Layout, Region, finish, load_cv2
from .source import DEFLATE_RATIO, MAX_BYTES, Data, Source

Pixels = npt.NDArray[Any]
PngMode = Literal["rgb", "gray", "unchanged"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: {1, 2, 4, 8, 16}, 2: {8, 16}, 3: {1, 2, 4, 8}, 4: {8, 16}, 6: {8, 16}}


@dataclass(frozen=True, slots=True)
class PngFacts:
    """What a picture's header says."""

    height: int
    width: int
    depth: int
    color: int

    @property
    def row_bytes(self) -> int:
        return (self.width * _CHANNELS[self.color] * self.depth + 7) // 8


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
            facts = read_chunks(source, encoded, max_bytes)
            pixels = _decode(source, encoded, facts, mode)
            timed.nbytes = pixels.nbytes
        wanted = Finish(size=size, layout=layout, region=region)
        if out is None and wanted.keeps(*pixels.shape[:2]):
            return pixels
        with stage("picture finish") as timed:
            result = finish(source, pixels, wanted, out)
            timed.nbytes = result.nbytes
            return result


def read_chunks(source: Source, data: memoryview, max_bytes: int) -> PngFacts:
    """Check every chunk and that the pixels can be all there."""
    if bytes(data[:8]) != _SIGNATURE:
        raise source.damaged("not a PNG", first_bytes=bytes(data[:8]).hex(" "))
    crc32 = find_inflater().crc32
    facts: PngFacts | None = None
    at, packed, is_ended = 8, 0, False
    while not is_ended:
        if at + 12 > len(data):
            raise source.damaged("the PNG is cut short", offset=at)
        length, kind = int.from_bytes(data[at : at + 4], "big"), bytes(data[at + 4 : at + 8])
        if at + 12 + length > len(data):
            raise source.damaged("the PNG is cut short inside a chunk", offset=at, chunk=kind, length=length)
        body = data[at + 8 : at + 8 + length]
        if crc32(data[at + 4 : at + 8 + length]) != int.from_bytes(data[at + 8 + length : at + 12 + length], "big"):
            raise source.damaged("damaged PNG: a chunk's CRC is wrong", offset=at, chunk=kind, length=length)
        if facts is None:
            facts = _header(source, kind, body)
            unpacked = facts.row_bytes * facts.height
        elif kind == b"IDAT":
            packed += length
        is_ended = kind == b"IEND"
        at += 12 + length
    assert facts is not None
    source.check_claim(unpacked, held=packed, ratio=DEFLATE_RATIO, max_bytes=max_bytes, what="the picture")
    return facts


def _header(source: Source, kind: bytes, body: memoryview) -> PngFacts:
    if kind != b"IHDR" or len(body) != 13:
        raise source.damaged("damaged PNG: it does not begin with its header", offset=8, chunk=kind)
    width, height, depth, color, method, filtering, interlace = struct.unpack(">2L5B", body)
    if depth not in _DEPTHS.get(color, ()) or method or filtering or interlace > 1 or not width or not height:
        raise source.damaged(
            "damaged PNG: its header makes no sense", width=width, height=height, bits=depth, color_type=color
        )
    return PngFacts(height, width, depth, color)


def _decode(source: Source, encoded: memoryview, facts: PngFacts, mode: PngMode) -> Pixels:
    cv2 = load_cv2("PNG decoding")
    flags = {"rgb": cv2.IMREAD_COLOR, "gray": cv2.IMREAD_GRAYSCALE, "unchanged": cv2.IMREAD_UNCHANGED}[mode]
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise source.damaged(f"damaged PNG: {str(error).strip()}", offset=8) from None
    if pixels is None or pixels.shape[:2] != (facts.height, facts.width):
        raise source.damaged("damaged PNG: its pixels cannot be decoded", width=facts.width, height=facts.height)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    else:
        order = cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGBA
        pixels = cv2.cvtColor(pixels, order, dst=pixels)
    found: Pixels = pixels
    return found
