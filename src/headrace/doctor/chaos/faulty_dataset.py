"""A data set that fails as a plan says, and whose samples carry their index and a digest of their content."""

import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from .fault_acts import strike
from .fault_plan import Fault

# what a sample becomes: its index, the digest of its content, and itself
Marked = tuple[int, int, Any]

_RECORD = struct.Struct("<qq")


class FaultLog:
    """Which fault struck when: a file to which whoever is struck appends before, so that it survives a dying worker."""

    def __init__(self, path: str) -> None:
        self.path = path
        # at once: later there may be no descriptor left to open it
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        os.close(self._fd)

    def add(self, fault: int) -> None:
        """Note that a fault strikes now. A record is a single append, so it is there whole or not at all."""
        os.write(self._fd, _RECORD.pack(fault, time.monotonic_ns()))

    def strikes(self) -> list[tuple[int, float]]:
        """Return (fault, when on the clock that all processes share), oldest first."""
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        return [(fault, ns / 1e9) for fault, ns in _RECORD.iter_unpack(data)]

    def __reduce__(self) -> "tuple[type[FaultLog], tuple[str]]":
        return FaultLog, (self.path,)


class FaultyDataset:
    """Wraps a data set: some samples fail, the others come with their index and a digest."""

    def __init__(self, base: Any, faults: Sequence[Fault], log: FaultLog, *, slow_s: float, is_default: bool) -> None:
        self._base, self._log, self._slow_s = base, log, slow_s
        self._faults = {fault.index: fault for fault in faults if fault.is_inside and not fault.in_collation}
        self._is_default = is_default  # only then can a sample be found again in its batch

    def __len__(self) -> int:
        return len(self._base)

    def __getitem__(self, index: int) -> Marked:
        _strike_once(self._faults.get(index), index, self._log, self._slow_s)
        return self._mark(index, self._base[index])

    def _mark(self, index: int, sample: Any) -> Marked:
        return index, digest_of_row(default_collate([sample]), 0) if self._is_default else digest_of_all(sample), sample


class FaultyListDataset(FaultyDataset):
    """The same for a data set that fetches several samples at once (`__getitems__`)."""

    def __getitems__(self, indices: Sequence[int]) -> list[Marked]:
        for index in indices:
            _strike_once(self._faults.get(index), index, self._log, self._slow_s)
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
    if fault is not None and (fault.always or all(one != fault.number for one, _ in log.strikes())):
        log.add(fault.number)
        strike(fault.kind, index=index, always=fault.always, slow_s=slow_s)


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
    return _digest(leaf[row] for leaf in _leaves(batch))


def digest_of_all(value: Any) -> int:
    """Return a digest of everything in a batch that is an array, a number or a text."""
    return _digest(_leaves(value))


def _digest(leaves: Iterable[Any]) -> int:
    return reduce(lambda digest, leaf: zlib.crc32(_bytes_of(leaf), digest), leaves, 0)


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


class PracticeSamples:
    """What `headrace chaos` uses when it is given no data set: arrays, a number and a text, all made from the index."""

    def __len__(self) -> int:
        return 2400

    def __getitem__(self, index: int) -> dict[str, Any]:
        volume = np.random.default_rng(index).random((24, 24, 24), dtype=np.float32)
        return {"volume": volume, "label": index % 7, "name": f"practice_{index:05d}"}
