"""Any Python object in one block of shared memory: large buffers lie there as they are, only the rest is pickled."""

import io
import os
import pickle
import struct
import sys
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import numpy.typing as npt

from .arena import Arena
from .blocks import Region, release_block

_HEAD = struct.Struct("<qqq")  # bytes of pickle, number of buffers, bytes in all
_PAIR = struct.Struct("<qq")
_ALIGN = 64
# smaller buffers are cheaper inside the pickle than as a view that keeps a block leased
_IN_BAND_BYTES = 1024
_REDUCERS: dict[type, Callable[[Any], Any]] = getattr(ForkingPickler, "_extra_reducers", {})


def dump(value: object, region: Region, arena: Arena, *, ask: Callable[[int], None] | None = None) -> tuple[int, int]:
    """Write an object into a new block; returns its offset and its size. `ask` is told the size before it is taken."""
    buffers: list[pickle.PickleBuffer] = []

    def out_of_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        if raw.nbytes < _IN_BAND_BYTES:
            return True
        buffers.append(buffer)
        return False

    stream = io.BytesIO()
    _Pickler(stream, 5, buffer_callback=out_of_band).dump(value)
    pickled = stream.getbuffer()
    at = _HEAD.size + _PAIR.size * len(buffers)
    table = []
    end = -(-(at + len(pickled)) // _ALIGN) * _ALIGN
    raws = [buffer.raw() for buffer in buffers]
    for raw in raws:
        table.append((end, raw.nbytes))
        end = -(-(end + raw.nbytes) // _ALIGN) * _ALIGN
    if ask is not None:
        ask(end)
    offset = region.take(end)
    memory = arena.view(offset, end)
    _HEAD.pack_into(memory, 0, len(pickled), len(buffers), end)
    for number, pair in enumerate(table):
        _PAIR.pack_into(memory, _HEAD.size + number * _PAIR.size, *pair)
    memory[at : at + len(pickled)] = pickled
    for (start, size), raw in zip(table, raws, strict=True):
        np.copyto(np.frombuffer(memory, np.uint8, size, start), np.frombuffer(raw, np.uint8))
    return offset, end


def load(arena: Arena, offset: int, *, on_release: Callable[[], None] | None = None) -> Any:
    """Read an object back; its arrays and tensors are views of the block.

    The block is freed (or `on_release` called) when the last of those views is gone; where there are none, at once.
    What a forked child does with its copies of the views frees nothing.
    """
    count, size = _HEAD.unpack_from(arena.bytes, offset)[1:]
    words = arena.bytes.cast("q")
    release = on_release or (lambda: release_block(arena, words, offset))
    if not count:
        try:
            return read_block(arena.view(offset, size))
        finally:
            release()
    owner: npt.NDArray[np.uint8] = np.frombuffer(arena.map, np.uint8, size, offset)
    weakref.finalize(owner, _release_for, os.getpid(), release).atexit = False
    return read_block(owner.data)


def _release_for(taker_pid: int, release: Callable[[], None]) -> None:
    if os.getpid() == taker_pid:
        release()


def read_block(memory: memoryview) -> Any:
    """Read an object out of the memory of its block; its arrays and tensors are views of that."""
    pickled_bytes, count, _ = _HEAD.unpack_from(memory)
    at = _HEAD.size + _PAIR.size * count
    pairs = (_PAIR.unpack_from(memory, _HEAD.size + i * _PAIR.size) for i in range(count))
    return pickle.loads(memory[at : at + pickled_bytes], buffers=[memory[a : a + n] for a, n in pairs])


def block_bytes(arena: Arena, offset: int) -> int:
    return int(_HEAD.unpack_from(arena.bytes, offset)[2])


def peek(arena: Arena, offset: int) -> Any:
    """Read an object whose block somebody else frees later; views of it must not outlive that."""
    return load(arena, offset, on_release=lambda: None)


class _Pickler(pickle.Pickler):
    """Pickles tensors as buffers; everything else as usual, or as `ForkingPickler` was told to."""

    def reducer_override(self, value: Any) -> Any:
        torch: Any = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            reduce = _REDUCERS.get(type(value))
            # torch's own would put each storage into a segment of /dev/shm
            return NotImplemented if reduce is None or reduce.__module__.startswith("torch.") else reduce(value)
        kind = type(value)
        plain = kind is torch.Tensor
        if not plain and (kind.__reduce_ex__ is not torch.Tensor.__reduce_ex__ or kind is torch.nn.Parameter):
            return NotImplemented
        if (
            value.layout is not torch.strided
            or value.is_nested
            or value.device.type != "cpu"
            or value.is_quantized
            or value.is_conj()
            or value.is_neg()
            or (value.requires_grad and not value.is_leaf)
            or not value.numel()
        ):
            return NotImplemented
        base = value.detach() if plain else value.detach().as_subclass(torch.Tensor)
        strides = tuple(base.stride())
        if not _is_dense(base):
            base, strides = base.contiguous(), ()
        flat = base.as_strided((base.numel(),), (1,))
        raw = flat.view(torch.uint8).numpy() if flat.dtype is not torch.uint8 else flat.numpy()
        extra = None if plain else (kind, dict(value.__dict__))
        dtype, shape = str(value.dtype), tuple(value.shape)
        return rebuild_tensor, (pickle.PickleBuffer(raw), dtype, shape, strides, value.requires_grad, extra)


def _is_dense(tensor: Any) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in whatever order of axes."""
    if tensor.is_contiguous():
        return True
    order = sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis), tensor.size(axis)), reverse=True)
    return bool(tensor.permute(order).is_contiguous())


def rebuild_tensor(
    buffer: Any,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    extra: tuple[type, dict[str, Any]] | None,
) -> Any:
    """Make the tensor over a buffer, without a copy."""
    import torch

    if isinstance(buffer, bytes):  # in band: small and read-only
        buffer = bytearray(buffer)
    tensor = torch.frombuffer(buffer, dtype=torch.uint8).view(getattr(torch, dtype.removeprefix("torch.")))
    tensor = tensor.as_strided(shape, strides) if strides else tensor.view(shape)
    if requires_grad:
        tensor.requires_grad_(True)
    if extra is not None:
        cls, state = extra
        subclassed: Any = tensor.as_subclass(cls)
        subclassed.__dict__.update(state)
        return subclassed
    return tensor
