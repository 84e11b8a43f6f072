"""The markers of a JPEG before its pixels: size, kind, EXIF orientation. Nothing is decoded."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .source import Source

# start-of-frame markers; C4, C8 and CC are other things
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
_BARE = {0x01, *range(0xD0, 0xD8)}  # markers without a length
# each scan of a progressive picture runs over all of it: a few kilobytes of scans can keep a decoder busy for minutes
_MOST_SCANS = 256


@dataclass(frozen=True, slots=True)
class JpegFacts:
    """What a picture's markers say."""

    height: int
    width: int
    channels: int
    is_progressive: bool
    orientation: int  # as EXIF counts, 1 to 8
    is_adobe: bool


def read_markers(source: Source, data: memoryview) -> JpegFacts:
    """Walk over the markers up to the first scan."""
    if bytes(data[:2]) != b"\xff\xd8":
        raise source.damaged("not a JPEG: it does not begin with FF D8", first_bytes=bytes(data[:4]).hex(" "))
    at, orientation, is_adobe = 2, 1, False
    frame: tuple[int, int, int, bool] | None = None
    while True:
        while at < len(data) and data[at] == 0xFF and at + 1 < len(data) and data[at + 1] == 0xFF:
            at += 1  # fill bytes
        if at + 4 > len(data):
            raise source.damaged("the JPEG is cut short before its picture begins", offset=at)
        if data[at] != 0xFF:
            raise source.damaged("damaged JPEG: a marker should be here", offset=at)
        marker = data[at + 1]
        if marker in _BARE:
            at += 2
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        if length < 2 or len(body) != length - 2:
            raise source.damaged("the JPEG is cut short inside a marker", offset=at, marker=f"FF {marker:02X}")
        if marker in _FRAMES:
            if len(body) < 6:
                raise source.damaged("damaged JPEG: its frame header is too short", offset=at)
            height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
            frame = height, width, body[5], marker in _PROGRESSIVE
        elif marker == 0xE1 and orientation == 1:
            orientation = _orientation(bytes(body))
        elif marker == 0xEE:
            is_adobe = bytes(body[:5]) == b"Adobe"
        elif marker == 0xD9:
            raise source.damaged("the JPEG ends before its picture begins", offset=at)
        elif marker == 0xDA:
            break
        at += 2 + length
    if frame is None:
        raise source.damaged("damaged JPEG: it has no frame header", offset=at)
    height, width, channels, is_progressive = frame
    if not height or not width:
        raise source.damaged("damaged JPEG: its size is 0", height=height, width=width)
    if is_progressive and (num_scans := bytes(data).count(b"\xff\xda")) > _MOST_SCANS:
        raise source.damaged("this JPEG is made to be slow: no camera writes so many scans", scans=num_scans)
    return JpegFacts(height, width, channels, is_progressive, orientation, is_adobe)


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
