"""Arrays from numpy's files, `.npy` and `.npz`, and point clouds (`.bin`, `.npy`): views where they lie as they are."""

import ast
import functools
import io
import math
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, cast, overload

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .buffers import Array, check_out, hand_out, new_result, result_memory, scratch
from .inflate import BadStream, find_inflater
from .source import DEFLATE_RATIO, MAX_BYTES, Data, Source

MAGIC = b"\x93NUMPY"
# numpy refuses longer ones too: parsing a literal of any length is a way to run out of stack
LONGEST_HEADER = 10_000
_LONGEST_PREFIX = 12

Choice = npt.ArrayLike | Callable[[int], npt.ArrayLike]


@functools.lru_cache(maxsize=256)
def parse_header(text: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Return dtype, Fortran order and shape. The files of a data set mostly share one header, so it is kept."""
    try:
        header = ast.literal_eval(text.decode())
        shape, is_fortran = header["shape"], header["fortran_order"]
        dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(header["descr"])
        makes_sense = len(header) == 3 and isinstance(shape, tuple) and isinstance(is_fortran, bool)
    except Exception as error:  # numpy raises whatever it trips over
        raise ValueError(f"the array's header cannot be read: {error!r}") from None
    if not makes_sense or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"the array's header makes no sense: {repr(header)[:200]}")
    return dtype, is_fortran, shape


def split_header(data: memoryview) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Return dtype, order, shape and the offset of the data, from an array's first bytes."""
    start = bytes(data[:_LONGEST_PREFIX])
    if not start.startswith(MAGIC) or len(start) < 10:
        raise ValueError("not an array in numpy's format")
    major = start[6]
    if major == 1:
        at, length = 10, int.from_bytes(start[8:10], "little")
    elif major in (2, 3) and len(start) == _LONGEST_PREFIX:
        at, length = 12, int.from_bytes(start[8:12], "little")
    else:
        raise ValueError(f"version {major} of numpy's format is not known")
    if length > LONGEST_HEADER:
        raise ValueError(f"the array's header claims {length} bytes, more than {LONGEST_HEADER}")
    if at + length > data.nbytes:
        raise ValueError("the array is cut short in its header")
    return *parse_header(bytes(data[at : at + length])), at + length


def view_array(source: Source, data: memoryview, *, what: str, max_bytes: int) -> Array:
    """Return the array whose npy bytes these are, as a view of them (a copy where they are not aligned)."""
    try:
        dtype, is_fortran, shape, at = split_header(data)
    except ValueError as error:
        raise source.damaged(f"{what}: {error}") from None
    if dtype.hasobject:
        raise source.damaged(
            f"{what} holds Python objects, which are pickled: loading them can run any code",
            dtype=dtype,
            next_step="save plain arrays, or numpy.load(..., allow_pickle=True) on files that you made yourself",
        )
    num = math.prod(shape)
    source.check_claim(num * dtype.itemsize, held=data.nbytes - at, max_bytes=max_bytes, what=what)
    if num * dtype.itemsize > data.nbytes - at:
        raise source.damaged(
            f"{what} is cut short",
            shape=shape,
            dtype=dtype,
            wanted=f"{num * dtype.itemsize} bytes",
            there_are=f"{data.nbytes - at} bytes",
        )
    return as_array(data[at:], dtype, shape, is_fortran=is_fortran)


def as_array(data: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...], *, is_fortran: bool = False) -> Array:
    """Return the array that bytes begin with, as a view of them (a copy where they are not aligned)."""
    num = math.prod(shape)
    if not num or not dtype.itemsize:
        return np.empty(shape, dtype, order="F" if is_fortran else "C")
    flat: Array = np.frombuffer(data, dtype, count=num)
    flat = flat if flat.flags.aligned else flat.copy()
    return flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)


def npy(data: Data, *, out: Array | None = None, name: str | None = None, max_bytes: int = MAX_BYTES) -> Array:
    """Return the array of an `.npy` file.

    From bytes in memory it is a view of them, read-only if they are (a copy where they are not aligned for their
    dtype). `out` is filled and returned if given. Arrays of Python objects are refused.
    """
    with Source(data, name) as source, stage("npy decode") as timed:
        array = view_array(source, source.read(0, source.size), what="the array", max_bytes=max_bytes)
        timed.nbytes = array.nbytes
        return hand_out(source.name, array, out)


# ------------------------------------------------------------------ point clouds


def points(
    data: Data,
    *,
    columns: int = 4,
    dtype: npt.DTypeLike = "<f4",
    choose: Choice | None = None,
    out: Array | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Array:
    """Return a point cloud (points, columns) from raw numbers (KITTI's `.bin`) or an `.npy` file.

    `choose` are indices of points, in any order and as often as you like, or a function that gets the number of points
    and returns them (`lambda n: rng.integers(0, n, 16384)`): only these are copied, into `out` if given. Without it
    a cloud in memory is returned as a view. `columns` and `dtype` describe a `.bin`; an `.npy` says it itself.
    """
    with Source(data, name) as source, stage("points decode") as timed:
        source.check_claim(source.size, held=source.size, max_bytes=max_bytes, what="the point cloud")
        # chosen points are copied out of memory that is used again; all are read into place
        held = (source.read if choose is None else source.borrow)(0, source.size)
        if bytes(held[: len(MAGIC)]) == MAGIC:
            cloud = view_array(source, held, what="the point cloud", max_bytes=max_bytes)
            if cloud.ndim != 2:
                raise source.damaged("a point cloud has two axes, points and columns", shape=cloud.shape)
        else:
            cloud = _raw(source, held, columns, np.dtype(dtype))
        result = hand_out(source.name, cloud, out) if choose is None else _take(source, cloud, choose, out)
        timed.nbytes = result.nbytes
        return result


def _raw(source: Source, held: memoryview, columns: int, dtype: np.dtype[Any]) -> Array:
    if columns < 1 or dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"columns={columns}, dtype={dtype}: a point is at least one number")
    if held.nbytes % (columns * dtype.itemsize):
        raise source.damaged(
            "the point cloud is cut short, or its points have another form",
            size=f"{held.nbytes} bytes",
            a_point=f"{columns} x {dtype.name}, {columns * dtype.itemsize} bytes",
        )
    return as_array(held, dtype, (held.nbytes // (columns * dtype.itemsize), columns))


def _take(source: Source, cloud: Array, choose: Choice, out: Array | None) -> Array:
    chosen = np.asarray(choose(len(cloud)) if callable(choose) else choose)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise TypeError(f"choose takes whole numbers along one axis, not {chosen.dtype} of shape {chosen.shape}")
    chosen = chosen.astype(np.intp, copy=False)
    # as unsigned numbers, those below 0 are the largest: one look finds both ends
    if chosen.size and chosen.view(np.uintp).max() >= len(cloud):
        raise IndexError(
            f"{source.name}: choose asks for points {chosen.min()} to {chosen.max()}, there are {len(cloud)}"
        )
    shape = (len(chosen), cloud.shape[1])
    check_out(source.name, out, shape, cloud.dtype)
    if not len(chosen):
        return np.empty(shape, cloud.dtype) if out is None else out
    if out is None:
        out = new_result(shape, cloud.dtype)
    if out.dtype == cloud.dtype and out.flags.c_contiguous:
        # the indices were checked above: "clip" only spares numpy a second buffer
        return cloud.take(chosen, axis=0, out=out, mode="clip")
    return hand_out(source.name, cloud.take(chosen, axis=0, mode="clip"), out)


# ------------------------------------------------------------------ several arrays in a zip file

# zipfile reads the directory, and only what is asked for is unpacked
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
