"""What a tar header block says: one block in plain Python, or all blocks of a window at once."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

BLOCK = 512
REGULAR = (b"0", b"\0", b"7")
LONG_NAME, LONG_LINK, PAX, PAX_OLD, PAX_GLOBAL, SPARSE = b"L", b"K", b"x", b"X", b"g", b"S"
HARD_LINK, CONTINUED = b"1", b"M"
NEVER_FIELDS = (b"5", b"D", b"V")  # directories, their listings, the name of the volume
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, directories: a size there means nothing
_GNU_KINDS = (LONG_NAME, LONG_LINK, SPARSE)
ZEROS = bytes(BLOCK)
_MOST_BYTES = 1 << 50  # a member that says it is larger has a damaged header


class Header(NamedTuple):
    """One valid header block."""

    name: bytes
    size: int
    kind: bytes  # the type flag, one byte
    checksum: int
    is_extended: bool = False  # a sparse member's map goes on in the next block
    link: bytes = b""

    @property
    def data_blocks(self) -> int:
        return 0 if self.kind in _WITHOUT_DATA else blocks_of(self.size)


def blocks_of(size: int) -> int:
    return (size + BLOCK - 1) // BLOCK


def parse_header(block: bytes) -> Header | None:
    """Read a header block; None where its checksum is wrong, its size cannot be, or it is no header at all."""
    if len(block) != BLOCK:
        return None
    checksum = _number(block[148:156])
    size = _number(block[124:136])
    if checksum is None or size is None or not 0 <= size <= _MOST_BYTES:
        return None
    counted = block[:148] + b" " * 8 + block[156:]
    if checksum != sum(counted) and checksum != sum(counted) - 256 * sum(byte > 127 for byte in counted):
        return None  # some old programs summed signed bytes; both are right
    name, kind = _text(block[0:100]), block[156:157]
    prefix = _text(block[345:500])
    if kind == b"\0" and name.endswith(b"/"):
        kind = b"5"  # how tar wrote a directory before it had type flags
    if prefix and kind not in _GNU_KINDS:
        name = prefix + b"/" + name
    return Header(name, size, kind, checksum, kind == SPARSE and block[482] != 0, _text(block[157:257]))


def parse_pax(data: bytes) -> dict[bytes, bytes] | None:
    """Read the records of a pax header ("29 path=…"); None where they are damaged."""
    records: dict[bytes, bytes] = {}
    at, data = 0, data.rstrip(b"\0")
    while at < len(data):
        space = data.find(b" ", at, at + 20)
        if space < 0 or not data[at:space].isdigit():
            return None
        end = at + int(data[at:space])
        keyword, equals, value = data[space + 1 : end - 1].partition(b"=")
        if end > len(data) or end <= space or not equals or data[end - 1 : end] != b"\n":
            return None
        records[keyword] = value
        at = end
    size = records.get(b"size") or b"0"
    return records if size.isdigit() and len(size) <= 20 and int(size) <= _MOST_BYTES else None


def _number(field: bytes) -> int | None:
    """Return a number as tar writes it: octal digits, or base 256 where the first bit is set."""
    if field[0] in (0x80, 0xFF):
        value = int.from_bytes(field[1:], "big")
        return value if field[0] == 0x80 else value - 256 ** (len(field) - 1)
    text = field.partition(b"\0")[0].strip()
    try:
        return int(text or b"0", 8)
    except ValueError:
        return None


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


# ------------------------------------------------------------------ all blocks of a window

_POWERS_11 = 8 ** np.arange(10, -1, -1, dtype=np.int64)
_POWERS_6 = 8 ** np.arange(5, -1, -1, dtype=np.int64)
PLAIN_LINK, PAX_LINK = 1, 2  # what `Scan.link` holds; 0: needs `parse_header`


@dataclass(frozen=True)
class Scan:
    """The valid headers of a window that are of the usual form, in order; columns of one length."""

    block: Numbers  # which block of the window
    size: Numbers
    link: Bytes  # PLAIN_LINK: a regular member; PAX_LINK: what precedes one
    checksum: Numbers
    after: Numbers  # the block where the next header lies
    leads: npt.NDArray[np.bool_]  # whether that is the next row, and of the usual form
    names: Bytes  # (n, 100)
    name_len: Numbers
    prefixes: Bytes  # (n, 155)

    def name(self, row: int) -> bytes:
        name, prefix = self.names[row, : self.name_len[row]].tobytes(), _text(self.prefixes[row].tobytes())
        return prefix + b"/" + name if prefix else name


def scan_blocks(window: Bytes) -> Scan:
    """Find the headers of the usual form in a window, wherever they lie; its length is a multiple of `BLOCK`.

    A block counts when its checksum is right. What lies inside a member's data may be found too: who walks from
    header to header passes over it.
    """
    blocks = window.reshape(-1, BLOCK)
    # Two digits of the checksum are looked at in all blocks; what remains is nearly always a header.
    found = np.flatnonzero(((blocks[:, 152] & 0xF8) == 48) & ((blocks[:, 153] & 0xF8) == 48))
    headers = blocks[found]
    said = headers[:, 148:154]
    summed = headers.sum(axis=1, dtype=np.int64) - headers[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * 32
    ends = headers[:, 154]
    usual = ((said & 0xF8) == 48).all(axis=1) & ((ends == 0) | (ends == 32))
    usual &= ((said.astype(np.int64) - 48) @ _POWERS_6) == summed
    found, headers, summed = found[usual], headers[usual], summed[usual]
    digits = headers[:, 124:135]
    size = (digits.astype(np.int64) - 48) @ _POWERS_11
    ends, kind = headers[:, 135], headers[:, 156]
    names = headers[:, :100]
    has_end = names == 0
    name_len = np.where(has_end.any(axis=1), has_end.argmax(axis=1), 100)
    plain = ((digits & 0xF8) == 48).all(axis=1) & ((ends == 0) | (ends == 32))
    plain &= name_len > 0
    last = names[np.arange(len(names)), np.maximum(name_len, 1) - 1]
    link = np.zeros(len(found), np.uint8)
    link[plain & (kind == ord("0"))] = PLAIN_LINK
    link[plain & (kind == 0) & (last != ord("/"))] = PLAIN_LINK
    link[plain & (kind == ord("x"))] = PAX_LINK
    after = found + 1 + (size + BLOCK - 1) // BLOCK
    leads = np.append((after[:-1] == found[1:]) & (link[1:] != 0), False)
    return Scan(found, size, link, summed, after, leads, names, name_len, headers[:, 345:500])


def find_header(window: Bytes) -> int | None:
    """Return the first block of a window that is a valid header of any form; None where there is none."""
    blocks = window.reshape(-1, BLOCK)
    for at in np.flatnonzero(((blocks[:, 152] & 0xF8) == 48) & (blocks[:, 0] != 0)):
        if parse_header(blocks[at].tobytes()) is not None:
            return int(at)
    return None
