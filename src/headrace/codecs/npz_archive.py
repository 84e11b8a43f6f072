"""Arrays from `.npz` files: the zip directory is read directly, and only what is asked for is unpacked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, overload
from zipfile import ZipInfo

import numpy as np
import numpy.typing as npt

from headrace.errors import NotSupported
from headrace.model import stage

from .buffers import hand_out, result_memory, scratch
from .inflate import BadStream, find_inflater
from .plain_arrays import view_array
from .source import DEFLATE_RATIO, INSTALL, MAX_BYTES, ZSTD_RATIO, Data, Source
from .zip_directory import DEFLATED, STORED, ZSTD, packed_bytes, read_directory

Array = npt.NDArray[Any]

_RATIOS = {STORED: 1, DEFLATED: DEFLATE_RATIO, ZSTD: ZSTD_RATIO}


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

    Members may be deflated, stored or packed with zstd; each is checked against its CRC. A stored one is a view of
    the bytes given, read-only if they are. `out` is an array (with `only="feat"`) or arrays by name, which are filled
    and returned. Arrays of Python objects are refused. `max_bytes` bounds each array.
    """
    with Source(data, name) as source, stage("npz decode") as timed:
        members = read_directory(source)
        if isinstance(only, str):
            array = hand_out(
                source.name, _load(source, members, only, max_bytes, keeps=out is None), cast("Array | None", out)
            )
            timed.nbytes = array.nbytes
            return array
        given = cast("Mapping[str, Array]", out or {})
        if only is None:
            wanted = [key.removesuffix(".npy") for key in members if key.endswith(".npy")]
        else:
            wanted = list(only)
        arrays = {}
        for key in wanted:
            buffer = given.get(key)
            arrays[key] = hand_out(source.name, _load(source, members, key, max_bytes, keeps=buffer is None), buffer)
            timed.nbytes += arrays[key].nbytes
        return arrays


def npz_member(source: Source, key: str | None, max_bytes: int) -> Array:
    """Return one array (the only one, if no key is given) in memory that the next call on this thread reuses."""
    members = read_directory(source)
    if key is None:
        keys = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
        if not keys:
            raise source.damaged("an NPZ without an array", members=", ".join(members) or "none")
        if len(keys) != 1:
            raise ValueError(f"{source.name} holds {len(keys)} arrays ({', '.join(keys)}): say which with member=")
        (key,) = keys
    return _load(source, members, key, max_bytes, keeps=False)


def _load(source: Source, members: Mapping[str, ZipInfo], key: str, max_bytes: int, *, keeps: bool) -> Array:
    """Unpack one array: into fresh memory if the caller keeps it, otherwise into the thread's own."""
    member = members.get(f"{key}.npy") or members.get(key)
    if member is None:
        there_are = ", ".join(sorted(name.removesuffix(".npy") for name in members)) or "none"
        raise KeyError(f"{source.name} holds no array {key!r}; there are: {there_are}")
    what = f"array {key!r}"
    if member.compress_type not in _RATIOS:
        raise source.damaged(
            f"{what} is packed with zip method {member.compress_type}; known are stored, deflate and zstd"
        )
    # the array and its header; the header's part is checked when it is read
    ratio, most = _RATIOS[member.compress_type], max_bytes + 2**16
    source.check_claim(member.file_size, held=member.compress_size, ratio=ratio, max_bytes=most, what=what)
    offset, packed = packed_bytes(source, member)
    inflater = find_inflater()
    if member.compress_type == STORED:
        if member.compress_size != member.file_size:
            raise source.damaged(f"{what} is stored, yet has two sizes", offset=member.header_offset)
        unpacked = packed
    else:
        buffer = result_memory(member.file_size) if keeps else scratch("unpacked", member.file_size)
        try:
            if member.compress_type == DEFLATED:
                inflater.inflate(packed, buffer)
            else:
                _unpack_zstd(packed, buffer)
        except BadStream as error:
            raise source.damaged(f"{what}: {error}", offset=offset) from None
        unpacked = buffer.data
    if inflater.crc32(unpacked) != member.CRC:
        raise source.damaged(f"{what}: wrong CRC, the data is damaged", offset=offset, size=f"{member.file_size} bytes")
    return view_array(source, unpacked, what=what, max_bytes=max_bytes)


def _unpack_zstd(packed: memoryview, out: npt.NDArray[np.uint8]) -> None:
    try:
        import zstandard
    except ImportError:
        raise NotSupported(
            "this archive is packed with zstd, which needs the zstandard package",
            next_step=INSTALL,
        ) from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            done, view = 0, out.data
            while done < out.nbytes:
                got = reader.readinto(view[done:])
                if not got:
                    raise BadStream(f"the stream ended after {done} of {out.nbytes} bytes")
                done += got
            if reader.read(1):
                raise BadStream("the stream gives more than it should")
    except zstandard.ZstdError as error:
        raise BadStream(str(error)) from None
