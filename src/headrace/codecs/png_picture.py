"""Pictures from PNG: every chunk is checked here, libpng (through OpenCV) does the pixels."""

import struct
from typing import Any, Literal

import numpy as np

from headrace.model import stage

from .inflate import find_inflater
from .picture import Finish, Layout, Pixels, Region, finish, load_cv2
from .source import DEFLATE_RATIO, MAX_BYTES, Data, Source

PngMode = Literal["rgb", "gray", "unchanged"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


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
            size_there = _check_chunks(source, encoded, max_bytes)
            pixels = _decode(source, encoded, size_there, mode)
            timed.nbytes = pixels.nbytes
        wanted = Finish(size=size, layout=layout, region=region)
        if out is None and wanted.keeps(*pixels.shape[:2]):
            return pixels
        return finish(source, pixels, wanted, out)


def _check_chunks(source: Source, data: memoryview, max_bytes: int) -> tuple[int, int]:
    """Return height and width, once every chunk is checked and the pixels can be all there: libpng passes over both."""
    if bytes(data[:8]) != _SIGNATURE:
        raise source.damaged("not a PNG", first_bytes=bytes(data[:8]).hex(" "))
    crc32 = find_inflater().crc32
    at, packed, kind, header = 8, 0, b"", b""
    while kind != b"IEND":
        if at + 12 > len(data):
            raise source.damaged("the PNG is cut short", offset=at)
        length, kind = int.from_bytes(data[at : at + 4], "big"), bytes(data[at + 4 : at + 8])
        if at + 12 + length > len(data):
            raise source.damaged("the PNG is cut short inside a chunk", offset=at, chunk=kind, length=length)
        if crc32(data[at + 4 : at + 8 + length]) != int.from_bytes(data[at + 8 + length : at + 12 + length], "big"):
            raise source.damaged("damaged PNG: a chunk's CRC is wrong", offset=at, chunk=kind, length=length)
        if not header:
            if kind != b"IHDR" or length != 13:
                raise source.damaged("damaged PNG: it does not begin with its header", offset=8, chunk=kind)
            header = bytes(data[at + 8 : at + 8 + length])
        elif kind == b"IDAT":
            packed += length
        at += 12 + length
    width, height, depth, color, *_ = struct.unpack(">2L5B", header)
    unpacked = height * ((width * _CHANNELS.get(color, 4) * depth + 7) // 8)
    source.check_claim(unpacked, held=packed, ratio=DEFLATE_RATIO, max_bytes=max_bytes, what="the picture")
    return height, width


def _decode(source: Source, encoded: memoryview, size: tuple[int, int], mode: PngMode) -> Pixels:
    cv2 = load_cv2("PNG decoding")
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
