"""Arrays from `.npz` files: zipfile reads the directory, and only what is asked for is unpacked."""

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import IO, cast, overload

from headrace.model import stage

from .buffers import Array, hand_out, result_memory, scratch
from .inflate import BadStream, find_inflater
from .plain_arrays import view_array
from .source import DEFLATE_RATIO, MAX_BYTES, Data, Source

_RATIOS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}
_LOCAL = struct.Struct("<4s5H3L2H")
_ENCRYPTED = 0x1


@overload
def npz(
    data: Data, only: str, *, out: Array | None = None, name: str | None = None, max_bytes: int = MAX_BYTES
) -> Array: ...
@overload
def npz(
    data: Data,
    only: list[str] | tuple[str, ...] | None = None,
    *,
    out: Mapping[str, Array] | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Array]: ...
def npz(
    data: Data,
    only: str | list[str] | tuple[str, ...] | None = None,
    *,
    out: Array | Mapping[str, Array] | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Array | dict[str, Array]:
    """Return the arrays of an `.npz` file by name; with `only="feat"` that array itself.

    Members may be deflated or stored; each is checked against its CRC. A stored one is a view of the bytes given,
    read-only if they are. `out` is an array (with `only="feat"`) or arrays by name, which are filled and returned.
    Arrays of Python objects are refused. `max_bytes` bounds each array.
    """
    with Source(data, name) as source, stage("npz decode") as timed:
        members = _read_directory(source)
        if isinstance(only, str):
            wanted, given = [only], cast("Mapping[str, Array]", {} if out is None else {only: out})
        else:
            wanted, given = _arrays_of(members) if only is None else list(only), cast("Mapping[str, Array]", out or {})
        arrays = {}
        for key in wanted:
            buffer = given.get(key)
            arrays[key] = hand_out(source.name, _load(source, members, key, max_bytes, keeps=buffer is None), buffer)
            timed.nbytes += arrays[key].nbytes
        return arrays[only] if isinstance(only, str) else arrays


def npz_member(source: Source, key: str | None, max_bytes: int) -> Array:
    """Return one array (the only one, if no key is given) in memory that the next call on this thread reuses."""
    members = _read_directory(source)
    if key is None:
        keys = _arrays_of(members)
        if not keys:
            raise source.damaged("an NPZ without an array", members=", ".join(members) or "none")
        if len(keys) != 1:
            raise ValueError(f"{source.name} holds {len(keys)} arrays ({', '.join(keys)}): say which with member=")
        (key,) = keys
    return _load(source, members, key, max_bytes, keeps=False)


def _arrays_of(members: Mapping[str, zipfile.ZipInfo]) -> list[str]:
    return [name.removesuffix(".npy") for name in members if name.endswith(".npy")]


def _load(source: Source, members: Mapping[str, zipfile.ZipInfo], key: str, max_bytes: int, *, keeps: bool) -> Array:
    """Unpack one array: into fresh memory if the caller keeps it, otherwise into the thread's own."""
    member = members.get(f"{key}.npy") or members.get(key)
    if member is None:
        there_are = ", ".join(sorted(name.removesuffix(".npy") for name in members)) or "none"
        raise KeyError(f"{source.name} holds no array {key!r}; there are: {there_are}")
    what = f"array {key!r}"
    if member.compress_type not in _RATIOS:
        raise source.damaged(f"{what} is packed with zip method {member.compress_type}; known are stored and deflate")
    # the array and its header; the header's part is checked when it is read
    ratio, most = _RATIOS[member.compress_type], max_bytes + 2**16
    source.check_claim(member.file_size, held=member.compress_size, ratio=ratio, max_bytes=most, what=what)
    offset, unpacked = _packed_bytes(source, member)
    inflater = find_inflater()
    if member.compress_type != zipfile.ZIP_STORED:
        buffer = result_memory(member.file_size) if keeps else scratch("unpacked", member.file_size)
        try:
            inflater.inflate(unpacked, buffer)
        except BadStream as error:
            raise source.damaged(f"{what}: {error}", offset=offset) from None
        unpacked = buffer.data
    if inflater.crc32(unpacked) != member.CRC:
        raise source.damaged(f"{what}: wrong CRC, the data is damaged", offset=offset, size=f"{member.file_size} bytes")
    return view_array(source, unpacked, what=what, max_bytes=max_bytes)


class _File:
    """A source as zipfile reads it. Never more is read than it asks for, of what is there."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset if whence == io.SEEK_SET else self._source.size + offset
        if at < 0:
            raise OSError("an offset before the beginning")  # as a file says it
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._source.size - self._at)
        data = bytes(self._source.read(self._at, left if size < 0 else min(size, left))) if left else b""
        self._at += len(data)
        return data


def _read_directory(source: Source) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; of two with one name the later counts."""
    try:
        archive = zipfile.ZipFile(cast("IO[bytes]", _File(source)))
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, struct.error, OverflowError) as error:
        raise source.damaged(f"not a zip archive, or cut short: {error}", size=f"{source.size} bytes") from None
    return archive.NameToInfo


def _packed_bytes(source: Source, member: zipfile.ZipInfo) -> tuple[int, memoryview]:
    """Return a member's packed bytes and where they begin, after a look at its local header."""
    if member.flag_bits & _ENCRYPTED:
        raise source.damaged(f"member {member.filename!r} is encrypted")
    at = member.header_offset
    header = _LOCAL.unpack(source.read(at, _LOCAL.size))
    if header[0] != b"PK\x03\x04":
        raise source.damaged(f"member {member.filename!r} does not begin with a zip header", offset=at)
    start = at + _LOCAL.size + header[9] + header[10]
    # stored members are handed out as views, packed ones are only unpacked
    read = source.read if member.compress_type == zipfile.ZIP_STORED else source.borrow
    return start, read(start, member.compress_size)
