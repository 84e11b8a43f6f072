"""A data set that fails as a plan says, and whose samples carry their index and a digest of their content."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from .fault_acts import strike
from .fault_log import FaultLog
from .fault_plan import Fault

# what a sample becomes: its index, the digest of its content, and itself
Marked = tuple[int, int, Any]


class FaultyDataset:
    """Wraps a data set: some samples fail, the others come with their index and a digest."""

    def __init__(self, base: Any, faults: Sequence[Fault], log: FaultLog, *, slow_s: float, is_default: bool) -> None:
        self._base, self._log, self._slow_s = base, log, slow_s
        self._faults = {fault.index: fault for fault in faults if fault.is_inside and not fault.in_collation}
        self._is_default = is_default  # only then can a sample be found again in its batch

    def __len__(self) -> int:
        return len(self._base)

    def __getitem__(self, index: int) -> Marked:
        self._suffer(index)
        return self._mark(index, self._base[index])

    def _suffer(self, index: int) -> None:
        _strike_once(self._faults.get(index), index, self._log, self._slow_s)

    def _mark(self, index: int, sample: Any) -> Marked:
        return index, digest_of_row(default_collate([sample]), 0) if self._is_default else digest_of_all(sample), sample


class FaultyListDataset(FaultyDataset):
    """The same for a data set that fetches several samples at once (`__getitems__`)."""

    def __getitems__(self, indices: Sequence[int]) -> list[Marked]:
        for index in indices:
            self._suffer(index)
        samples = self._base.__getitems__(list(indices))
        return [self._mark(index, sample) for index, sample in zip(indices, samples, strict=True)]


class MarkedCollation:
    """Wraps a collation of the user's: the batch comes with its indices, those that came changed, and a digest."""

    def __init__(
        self, collate: Callable[[list[Any]], Any], faults: Sequence[Fault], log: FaultLog, *, slow_s: float
    ) -> None:
        self._collate, self._log, self._slow_s = collate, log, slow_s
        self._faults = {fault.index: fault for fault in faults if fault.in_collation}

    def __call__(self, samples: list[Marked]) -> tuple[list[int], list[int], int, Any]:
        changed = [index for index, digest, sample in samples if digest_of_all(sample) != digest]
        batch = self._collate([sample for _, _, sample in samples])
        for index, _, _ in samples:
            _strike_once(self._faults.get(index), index, self._log, self._slow_s)
        return [index for index, _, _ in samples], changed, digest_of_all(batch), batch


def _strike_once(fault: Fault | None, index: int, log: FaultLog, slow_s: float) -> None:
    """Let a fault happen, if there is one, and if it has not happened or happens always."""
    log.open()
    if fault is not None and (fault.always or not log.count(fault.number)):
        log.add(fault.number)
        strike(fault.kind, index=index, always=fault.always, slow_s=slow_s)


def wrap(base: Any, faults: Sequence[Fault], log: FaultLog, *, slow_s: float, is_default: bool) -> FaultyDataset:
    """Return the data set to give to the loader."""
    cls = FaultyListDataset if hasattr(base, "__getitems__") else FaultyDataset
    return cls(base, faults, log, slow_s=slow_s, is_default=is_default)


def take_apart(batch: Any, *, is_default: bool) -> tuple[list[int], list[int]]:
    """Return the indices in a batch, and those of them whose content is not what its worker made."""
    if not is_default:
        found, changed, digest, content = batch
        return list(found), list(changed) if digest == digest_of_all(content) else list(found)
    indices, digest, content = batch
    found = indices.tolist()
    wrong = [i for row, i in enumerate(found) if digest_of_row(content, row) != int(digest[row])]
    return found, wrong


def digest_of_row(batch: Any, row: int) -> int:
    """Return a digest of one sample of a batch that the default collation made.

    >>> digest_of_row({"x": torch.tensor([1, 2])}, 1) == digest_of_row({"x": torch.tensor([2])}, 0)
    True
    """
    digest = 0
    for leaf in _leaves(batch):
        part = leaf[row]
        digest = zlib.crc32(_bytes_of(part), digest)
    return digest


def digest_of_all(value: Any) -> int:
    """Return a digest of everything in a batch that is an array, a number or a text."""
    digest = 0
    for leaf in _leaves(value):
        digest = zlib.crc32(_bytes_of(leaf), digest)
    return digest


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name in value:
            yield from _leaves(value[name])
    elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (str, bytes)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tobytes()
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, int, float, bool, type(None), list, tuple)):
        return repr(value).encode()
    return b"?"  # an object of the user's own: nothing is known of its content
