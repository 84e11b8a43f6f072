"""Batches that are given to a training more than once, and stay what they were.

Containers are built anew each time. Tensors are given as they are as long as the training does not write into them,
which torch counts (`_version`); from then on each time as a copy. Arrays and unknown objects are always copied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def batch_bytes(batch: Any) -> dict[str, int]:
    """Return what the tensors and arrays of a batch hold, by the kind of memory: `cpu`, `cuda`, …"""
    sizes: dict[str, int] = {"cpu": 0}
    for leaf in _leaves(batch):
        if _is_tensor(leaf):
            sizes[leaf.device.type] = sizes.get(leaf.device.type, 0) + int(leaf.nbytes)
        elif _is_array(leaf):
            sizes["cpu"] += int(leaf.nbytes)
    return sizes


class KeptBatch:
    """One batch, copied when it came."""

    def __init__(self, batch: Any, *, may_be_pinned: bool = False) -> None:
        self._batch = _mapped(batch, lambda tensor: _copied(tensor, may_be_pinned=may_be_pinned))
        self._may_be_pinned = may_be_pinned
        self._marks = WriteMarks(self._batch)

    def give(self, *, as_copy: bool) -> Any:
        """Return the batch again."""
        if as_copy:
            return _mapped(self._batch, lambda tensor: _copied(tensor, may_be_pinned=self._may_be_pinned))
        # an alias: it shares memory and count of writes, not what else one can do to a tensor
        return _mapped(self._batch, lambda tensor: tensor.detach())

    @property
    def is_written(self) -> bool:
        """Whether somebody wrote into it since it was kept: it is not what it was."""
        return self._marks.are_written


class WriteMarks:
    """Which state the tensors of a batch were in, to see later whether anybody wrote into them."""

    def __init__(self, batch: Any) -> None:
        self._marks = [(tensor, _version(tensor)) for tensor in _leaves(batch) if _is_tensor(tensor)]

    @property
    def are_written(self) -> bool:
        return any(_version(tensor) != version for tensor, version in self._marks)


def _mapped(batch: Any, function: Callable[[Any], Any]) -> Any:
    """Return a batch with its tensors mapped, in containers of its own."""
    if isinstance(batch, _PLAIN):
        return batch
    if _is_tensor(batch):
        return function(batch)
    if isinstance(batch, MutableMapping):
        clone = copy.copy(batch)
        clone.update({key: _mapped(value, function) for key, value in batch.items()})
        return clone
    if isinstance(batch, tuple):
        parts = [_mapped(part, function) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if isinstance(batch, list):
        items = copy.copy(batch)  # of a subclass, too
        items[:] = [_mapped(part, function) for part in batch]
        return items
    return copy.deepcopy(batch)


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from _leaves(value)
    elif isinstance(batch, (tuple, list)):
        for value in batch:
            yield from _leaves(value)
    else:
        yield batch


def _copied(tensor: Any, *, may_be_pinned: bool) -> Any:
    if may_be_pinned and tensor.device.type == "cpu" and tensor.is_pinned():  # else its copy to the device is slower
        import torch

        try:
            return torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        except RuntimeError:  # no more page-locked memory to be had
            pass
    return tensor.detach().clone()


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "nbytes")


def _version(tensor: Any) -> int:
    try:
        return int(tensor._version)
    except RuntimeError:  # a tensor made in inference mode counts nothing
        return 0
