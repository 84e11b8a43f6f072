"""A data set that fails as a plan says, and whose samples carry their index and a digest of their content."""

import ctypes
import errno
import mmap
import os
import signal
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import default_collate

from headrace.model import FaultKind

from ..contents import digest_of
from .fault_plan import Fault

# what a sample becomes: its index, the digest of its content, and itself
Marked = tuple[int, int, Any]

_RECORD = struct.Struct("<qq")
_HOG_BYTES = 256 << 20


class InjectedFault(ValueError):
    """The exception of a sample that was made bad on purpose."""


def strike(kind: FaultKind, *, index: int, always: bool, slow_s: float) -> None:
    """Let a fault happen here and now. Returns only from the harmless ones."""
    if kind is FaultKind.EXCEPTION:
        if always:
            raise InjectedFault(f"sample {index} is bad on purpose")
        raise OSError(errno.EIO, "an input/output error on purpose, which passes")
    if kind is FaultKind.SLOW:
        time.sleep(slow_s)
        return
    _ACTS[kind]()


def _read_behind_the_end() -> None:
    """Map a file, cut it, and read what is gone: what happens when somebody rewrites a data set that is in use."""
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE) as mapped:
            file.truncate(0)
            print(mapped[mmap.PAGESIZE])  # noqa: T201  # never reached


def _hang() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # nobody will release it


def _hog() -> None:
    # not in one piece: as a data set does that keeps what it reads
    kept = [bytearray(os.urandom(64) * (1 << 14)) for _ in range(_HOG_BYTES >> 20)]
    time.sleep(0.2)
    kept.clear()


_ACTS: dict[FaultKind, Callable[[], object]] = {
    FaultKind.KILL: lambda: os.kill(os.getpid(), signal.SIGKILL),
    FaultKind.SEGV: lambda: ctypes.string_at(0),
    FaultKind.BUS: _read_behind_the_end,
    FaultKind.EXIT: lambda: os._exit(3),
    FaultKind.ABORT: os.abort,
    FaultKind.HANG: _hang,
    FaultKind.STOP: lambda: os.kill(os.getpid(), signal.SIGSTOP),
    FaultKind.HOG: _hog,
}


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
        return index, digest_of(default_collate([sample]), 0) if self._is_default else digest_of(sample), sample


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
        changed = [index for index, digest, sample in samples if digest_of(sample) != digest]
        batch = self._collate([sample for _, _, sample in samples])
        for index, _, _ in samples:
            _strike_once(self._faults.get(index), index, self._log, self._slow_s)
        return [index for index, _, _ in samples], changed, digest_of(batch), batch


def _strike_once(fault: Fault | None, index: int, log: FaultLog, slow_s: float) -> None:
    """Let a fault happen, if there is one, and if it has not happened or happens always."""
    if fault is not None and (fault.always or all(one != fault.number for one, _ in log.strikes())):
        log.add(fault.number)
        strike(fault.kind, index=index, always=fault.always, slow_s=slow_s)


def take_apart(batch: Any, *, is_default: bool) -> tuple[list[int], list[int]]:
    """Return the indices in a batch, and those of them whose content is not what its worker made."""
    if not is_default:
        found, changed, digest, content = batch
        return list(found), list(changed) if digest == digest_of(content) else list(found)
    indices, digest, content = batch
    found = indices.tolist()
    wrong = [i for row, i in enumerate(found) if digest_of(content, row) != int(digest[row])]
    return found, wrong


class PracticeSamples:
    """What `headrace chaos` uses when it is given no data set: arrays, a number and a text, all made from the index."""

    def __len__(self) -> int:
        return 2400

    def __getitem__(self, index: int) -> dict[str, Any]:
        volume = np.random.default_rng(index).random((24, 24, 24), dtype=np.float32)
        return {"volume": volume, "label": index % 7, "name": f"practice_{index:05d}"}
