"""Where results lie: memory that is used again, or the caller's own buffer."""

import threading
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]

# Fresh memory costs a page fault every 4 KiB, up to 1.8 µs each: a third of the time of a 67 MB volume. A larger
# buffer is not kept: a thread must not sit on gigabytes because one sample was huge.
_MOST_KEPT_BYTES = 256 << 20

# The kernel copies a file's bytes half as fast to an address that is no multiple of 32 (8 and 15 GB/s on an AMD EPYC),
# and malloc puts what it maps by itself 16 bytes behind one.
_ALIGNED_BYTES = 64

_local = threading.local()


def _aligned(nbytes: int) -> Bytes:
    """Return fresh memory that begins at a multiple of `_ALIGNED_BYTES`."""
    raw = np.empty(nbytes + _ALIGNED_BYTES, np.uint8)
    begin = -raw.ctypes.data % _ALIGNED_BYTES
    return raw[begin : begin + nbytes]


def scratch(purpose: str, nbytes: int) -> Bytes:
    """Return `nbytes` of memory with no particular content, valid until this thread asks for `purpose` again."""
    kept: dict[str, Bytes] = _local.__dict__
    buffer = kept.get(purpose)
    if buffer is None or buffer.nbytes < nbytes:
        buffer = _aligned(nbytes)
        if nbytes <= _MOST_KEPT_BYTES:
            kept[purpose] = buffer
    return buffer[:nbytes]


# Results below this come from malloc's own lists, which are as good; all that wait together stay below the second.
_LEAST_RESULT_BYTES = 1 << 20
_MOST_WAITING_BYTES = 128 << 20

_waiting: dict[int, list[Bytes]] = {}
_waiting_bytes = 0


class _Piece:
    """What a result's memory belongs to: when the result and all views of it are gone, it waits for the next one."""

    __slots__ = ("__array_interface__", "_buffer")

    def __init__(self, buffer: Bytes) -> None:
        self._buffer = buffer
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        global _waiting_bytes
        nbytes = self._buffer.nbytes
        if _waiting_bytes + nbytes <= _MOST_WAITING_BYTES:
            _waiting_bytes += nbytes
            _waiting.setdefault(nbytes, []).append(self._buffer)


def result_memory(nbytes: int) -> Bytes:
    """Return bytes for a result, with no particular content: those of an earlier one that nobody holds any more."""
    global _waiting_bytes
    if nbytes < _LEAST_RESULT_BYTES or nbytes > _MOST_KEPT_BYTES:
        return np.empty(nbytes, np.uint8)
    try:
        buffer = _waiting[nbytes].pop()
    except (KeyError, IndexError):
        buffer = _aligned(nbytes)
    else:
        _waiting_bytes -= nbytes
    piece: Any = _Piece(buffer)
    return np.asarray(piece)


def new_result(shape: tuple[int, ...], dtype: np.dtype[Any], *, order: str = "C") -> Array:
    """Return an array for a result, in memory from `result_memory`."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    flat = result_memory(nbytes).view(dtype)
    return flat.reshape(shape) if order == "C" else flat.reshape(shape[::-1]).T


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
    """Return an array with no particular content, as `np.empty` does, in the memory of an earlier result if it can.

    For what a data set puts together itself, such as a sequence of scans: `clouds = empty((8, 16384, 4))`, then
    `points(path, out=clouds[k])`. Memory of 1 MiB and more comes back when the array and all views of it are gone.
    """
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"empty: {kind} holds Python objects, which cannot lie in memory that is used again")
    return new_result((shape,) if isinstance(shape, int) else tuple(shape), kind)


def release() -> None:
    """Give back what the calling thread keeps, and what waits for the next result."""
    global _waiting_bytes
    _local.__dict__.clear()
    _waiting.clear()
    _waiting_bytes = 0


def check_out(name: str, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless `out` can take a result of this shape and dtype."""
    if out is None:
        return
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a numpy array, not {type(out).__name__}; a tensor's is tensor.numpy()")
    if out.shape != shape:
        raise ValueError(f"{name}: out has shape {out.shape}, the result {shape}")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise ValueError(f"{name}: out has dtype {out.dtype}, which does not take {dtype}")


def hand_out(name: str, result: Array, out: Array | None) -> Array:
    if out is None or out is result:
        return result
    check_out(name, out, result.shape, result.dtype)
    np.copyto(out, result, casting="same_kind")
    return out
