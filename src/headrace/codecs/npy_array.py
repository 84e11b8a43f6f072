"""Arrays in numpy's own format: the header, and the data as a view."""

from __future__ import annotations

import ast
import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .claims import MAX_BYTES, check_claim
from .output import hand_out
from .source import Data, Source

MAGIC = b"\x93NUMPY"
# numpy refuses longer ones too: parsing a literal of any length is a way to run out of stack
LONGEST_HEADER = 10_000
_LONGEST_PREFIX = 12

Array = npt.NDArray[Any]


class BadHeader(Exception):
    """A header that is not one of numpy's. Codecs say whose it is."""


@functools.lru_cache(maxsize=256)
def parse_header(text: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Return dtype, Fortran order and shape. The files of a data set mostly share one header, so it is kept."""
    try:
        header = ast.literal_eval(text.decode("utf-8" if not text.isascii() else "ascii"))
    except (ValueError, SyntaxError, MemoryError, RecursionError, UnicodeDecodeError) as error:
        raise BadHeader(f"the array's header cannot be read: {error}") from None
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        raise BadHeader("the array's header must have exactly descr, fortran_order and shape")
    shape, is_fortran = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise BadHeader(f"the array's shape is not one: {shape!r}")
    if not isinstance(is_fortran, bool):
        raise BadHeader(f"the array's fortran_order is not True or False: {is_fortran!r}")
    try:
        dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(header["descr"])
    except Exception as error:  # numpy raises whatever it trips over
        raise BadHeader(f"the array's dtype is not one: {error}") from None
    return dtype, is_fortran, shape


def split_header(data: memoryview) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Return dtype, order, shape and the offset of the data, from an array's first bytes."""
    start = bytes(data[:_LONGEST_PREFIX])
    if not start.startswith(MAGIC) or len(start) < 10:
        raise BadHeader("not an array in numpy's format")
    major = start[6]
    if major == 1:
        at, length = 10, int.from_bytes(start[8:10], "little")
    elif major in (2, 3) and len(start) == _LONGEST_PREFIX:
        at, length = 12, int.from_bytes(start[8:12], "little")
    else:
        raise BadHeader(f"version {major} of numpy's format is not known")
    if length > LONGEST_HEADER:
        raise BadHeader(f"the array's header claims {length} bytes, more than {LONGEST_HEADER}")
    if at + length > data.nbytes:
        raise BadHeader("the array is cut short in its header")
    return *parse_header(bytes(data[at : at + length])), at + length


def view_array(source: Source, data: memoryview, *, what: str, max_bytes: int) -> Array:
    """Return the array whose npy bytes these are, as a view of them (a copy where they are not aligned)."""
    try:
        dtype, is_fortran, shape, at = split_header(data)
    except BadHeader as error:
        raise source.damaged(f"{what}: {error}") from None
    if dtype.hasobject:
        raise source.damaged(
            f"{what} holds Python objects, which are pickled: loading them can run any code",
            dtype=dtype,
            next_step="save plain arrays, or numpy.load(..., allow_pickle=True) on files that you made yourself",
        )
    num = math.prod(shape)
    check_claim(source, num * dtype.itemsize, held=data.nbytes - at, max_bytes=max_bytes, what=what)
    if num * dtype.itemsize > data.nbytes - at:
        raise source.damaged(
            f"{what} is cut short",
            shape=shape,
            dtype=dtype,
            wanted=f"{num * dtype.itemsize} bytes",
            there_are=f"{data.nbytes - at} bytes",
        )
    if not num or not dtype.itemsize:
        return np.empty(shape, dtype, order="F" if is_fortran else "C")
    flat: Array = np.frombuffer(data, dtype, count=num, offset=at)
    if not flat.flags.aligned:
        flat = flat.copy()
    return flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)


def npy(data: Data, *, out: Array | None = None, name: str | None = None, max_bytes: int = MAX_BYTES) -> Array:
    """Return the array of an `.npy` file.

    From bytes in memory it is a view of them, read-only if they are (a copy where they are not aligned for their
    dtype). `out` is filled and returned if given. Arrays of Python objects are refused.
    """
    with Source(data, name) as source, stage("npy decode") as timed:
        array = view_array(source, source.whole(), what="the array", max_bytes=max_bytes)
        timed.nbytes = array.nbytes
        return hand_out(source, array, out)
