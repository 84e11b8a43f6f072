"""The directory of a zip archive, read directly: which members there are and where their bytes lie."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .source import Source

STORED, DEFLATED, ZSTD = 0, 8, 93

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 0xFFFF
_ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive, as the directory describes it."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    offset: int  # of the local header
    flags: int


def read_directory(source: Source) -> dict[str, Member]:
    """Return the members by name; of two with one name the later counts, as in Python's zipfile."""
    end, num, size, offset, shift = _find_end(source)
    if size > source.size or offset + shift < 0:
        raise source.damaged("the zip directory does not fit into the file", offset=end, size=f"{size} bytes")
    directory = source.read(offset + shift, size)
    members: dict[str, Member] = {}
    at = 0
    for _ in range(num):
        if at + _ENTRY.size > size:
            raise source.damaged("the zip directory is cut short", offset=offset + shift + at, members=num)
        fields = _ENTRY.unpack_from(directory, at)
        if fields[0] != b"PK\x01\x02":
            raise source.damaged("not a zip directory entry", offset=offset + shift + at)
        flags, method, crc, packed, full = fields[3], fields[4], fields[7], fields[8], fields[9]
        name_len, extra_len, comment_len, header = fields[10], fields[11], fields[12], fields[16]
        names_at = at + _ENTRY.size
        extra_at = names_at + name_len
        at = extra_at + extra_len + comment_len
        if at > size:
            raise source.damaged("the zip directory is cut short", offset=offset + shift + names_at, members=num)
        name = bytes(directory[names_at:extra_at]).decode("utf-8" if flags & 0x800 else "cp437", "replace")
        if 0xFFFFFFFF in (packed, full, header):
            extra = bytes(directory[extra_at : extra_at + extra_len])
            full, packed, header = _wide(source, name, extra, full, packed, header)
        members[name] = Member(name, method, crc, packed, full, header + shift, flags)
    return members


def _find_end(source: Source) -> tuple[int, int, int, int, int]:
    """Find the end record: (its offset, members, size and offset of the directory, bytes before the archive)."""
    if source.size < _END.size:
        raise source.damaged("not a zip archive: too short", size=f"{source.size} bytes")
    tail_at = max(0, source.size - _END.size)
    tail = source.read(tail_at, source.size - tail_at)
    found = 0 if bytes(tail[:4]) == b"PK\x05\x06" and bytes(tail[-2:]) == b"\0\0" else -1
    if found < 0:
        tail_at = max(0, source.size - _END.size - _LONGEST_COMMENT)
        raw = bytes(source.read(tail_at, source.size - tail_at))
        found, tail = raw.rfind(b"PK\x05\x06", 0, len(raw) - _END.size + 4), memoryview(raw)
    if found < 0:
        raise source.damaged("not a zip archive, or cut short: its end record is missing", size=f"{source.size} bytes")
    end = tail_at + found
    _, _, _, _, num, size, offset, _ = _END.unpack_from(tail, found)
    directory_end = end
    if 0xFFFF in (num,) or 0xFFFFFFFF in (size, offset):
        locator_at = end - _END64_LOCATOR.size
        if locator_at >= 0:
            locator = _END64_LOCATOR.unpack(source.read(locator_at, _END64_LOCATOR.size))
            if locator[0] == b"PK\x06\x07":
                # a file with something before the archive has it there, just before the locator
                wide_at = locator_at - _END64.size
                wide = _END64.unpack(source.read(max(0, wide_at), _END64.size))
                if wide[0] != b"PK\x06\x06":
                    raise source.damaged("the zip archive's 64-bit end record is missing", offset=wide_at)
                num, size, offset, directory_end = wide[7], wide[8], wide[9], wide_at
    return end, num, size, offset, directory_end - size - offset


def _wide(source: Source, name: str, extra: bytes, *values: int) -> tuple[int, int, int]:
    """Take the 64-bit values of an entry from its extra field, in the order (size, packed size, offset)."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            wide, found = extra[at + 4 : at + 4 + length], []
            for value in values:
                if value != 0xFFFFFFFF:
                    found.append(value)
                elif len(wide) >= 8:
                    found.append(int.from_bytes(wide[:8], "little"))
                    wide = wide[8:]
                else:
                    raise source.damaged(f"the 64-bit sizes of member {name!r} are missing")
            return found[0], found[1], found[2]
        at += 4 + length
    raise source.damaged(f"the 64-bit sizes of member {name!r} are missing")


def packed_bytes(source: Source, member: Member) -> tuple[int, memoryview]:
    """Return a member's packed bytes and where they begin, after a look at its local header."""
    if member.flags & _ENCRYPTED:
        raise source.damaged(f"member {member.name!r} is encrypted")
    header = _LOCAL.unpack(source.read(member.offset, _LOCAL.size))
    if header[0] != b"PK\x03\x04":
        raise source.damaged(f"member {member.name!r} does not begin with a zip header", offset=member.offset)
    if header[3] != member.method:
        raise source.damaged(
            f"member {member.name!r}: its header and the directory disagree", offset=member.offset, method=header[3]
        )
    start = member.offset + _LOCAL.size + header[9] + header[10]
    # stored members are handed out as views, packed ones are only unpacked
    read = source.read if member.method == STORED else source.borrow
    return start, read(start, member.packed)
