"""Data sets of every kind that the loader tests use; at module level, so that they travel to any process."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import namedtuple
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Pair = namedtuple("Pair", "left right")

FITTING = ("number", "array", "tensors", "nested", "large", "text")
OTHERS = ("only text", "odd dtype", "odd shape", "odd key", "odd type", "late text")
RAGGED = ("ragged", "object", "unpicklable")


def make_sample(layout: str, i: int) -> Any:
    """Sample `i`, of a layout that fits slots, or does not, or does for most samples only."""
    is_odd = i % 11 == 7
    if layout == "number":
        return i
    if layout == "array":
        return {"x": np.full((3, 2), i, "f4"), "i": i, "s": np.int16(i), "b": i % 2 == 0}
    if layout == "tensors":
        return torch.full((2, 3), i, dtype=torch.bfloat16), float(i), torch.tensor(i)
    if layout == "nested":
        return Pair({"a": [np.full((), i), torch.arange(4) + i], "e": np.zeros((0, 2))}, (i, f"text {i}", b"x"))
    if layout == "large":
        return np.full((50, 200), i, "f4"), i
    if layout == "text":
        return f"text {i}", i
    if layout == "only text":
        return f"text {i}"
    if layout == "odd dtype":
        return np.full(3, i, "f8" if is_odd else "f4")
    if layout == "odd shape":
        return np.full(3 + is_odd, i, "f4"), i
    if layout == "odd key":
        return {"b": i, "a": i + 1} if is_odd else {"a": i, "b": i + 1}
    if layout == "odd type":
        return (i, None if is_odd else i)
    if layout == "late text":
        return f"text {i}" if i >= 9 else i, i
    if layout == "ragged":
        return torch.arange(i % 5 + 1) + i
    if layout == "object":
        return {"name": f"n{i}", "points": np.full((i % 4, 3), i, "f8"), "none": None}
    assert layout == "unpicklable"
    return lambda: torch.full((2,), i)


def gather(samples: Any) -> Any:
    """A collation of the user's own."""
    return [s() if callable(s) else s for s in samples], torch.tensor(len(samples))


def pad(samples: Sequence[Any]) -> Any:
    """A collation that makes one tensor of ragged samples."""
    values = [torch.as_tensor(s() if callable(s) else s).reshape(-1) for s in samples]
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)


class Mapped(Dataset):
    """A map-style data set; an index may also be a tuple."""

    def __init__(self, layout: str, size: int) -> None:
        self.layout, self.size = layout, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return make_sample(self.layout, int(index[0] if isinstance(index, tuple) else index))


class Batched(Mapped):
    """Fetches several samples at once, as a list."""

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        return [self[index] for index in indices]


class Ready(Mapped):
    """Fetches a batch that is ready; the collation only passes it on."""

    def __getitems__(self, indices: list[Any]) -> torch.Tensor:
        return torch.tensor([int(index[0] if isinstance(index, tuple) else index) for index in indices])


def pass_on(batch: Any) -> Any:
    return batch


class Streamed(IterableDataset):
    """Each worker reads its own share: every n-th sample, or shares of different lengths."""

    def __init__(self, layout: str, size: int, *, is_uneven: bool = False) -> None:
        self.layout, self.size, self.is_uneven = layout, size, is_uneven

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, count = (info.id, info.num_workers) if info else (0, 1)
        own = range(worker, self.size, count)
        if self.is_uneven:
            own = range(1000 * worker, 1000 * worker + self.size // (1 + 3 * worker))
        for i in own:
            yield make_sample(self.layout, i)


class Augmented(Dataset):
    """Draws from the generators of Python, NumPy and torch; `late` only from its 50th sample on."""

    def __init__(self, size: int, kinds: Sequence[str] = ("random", "numpy", "torch"), *, late: bool = False) -> None:
        self.size, self.kinds, self.late = size, tuple(kinds), late

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> list[float]:
        if self.late and index < 50:
            return [0.0] * len(self.kinds)
        draw = {"random": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(()).item()}
        return [draw[kind]() for kind in self.kinds]


class AugmentedBatches(Augmented):
    """Draws once for several samples, so its batches must not be split."""

    def __getitems__(self, indices: list[int]) -> list[list[float]]:
        shift = random.random()
        return [[shift, random.random(), float(index)] for index in indices]


class Failing(Dataset):
    """Raises at certain samples."""

    def __init__(self, size: int, errors: dict[int, BaseException | type[BaseException]]) -> None:
        self.size, self.errors = size, errors

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in self.errors:
            raise self.errors[index]
        return torch.tensor(index)


class LocalError(Exception):
    """An error whose constructor wants more than a text."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)


class Waiting(Dataset):
    """Waits at certain samples until a file appears."""

    def __init__(self, size: int, path: str, at: Sequence[int]) -> None:
        self.size, self.path, self.at = size, path, tuple(at)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        while index in self.at and not os.path.exists(self.path):
            time.sleep(0.005)  # the file is the event; a data set has no other way to wait for the test
        return index


class Deadly(Dataset):
    """Ends its own process at one sample, in a given way."""

    def __init__(self, size: int, at: int, how: str) -> None:
        self.size, self.at, self.how = size, at, how

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index == self.at:
            if self.how == "exit":
                os._exit(0)
            if self.how == "sys.exit":
                raise SystemExit(0)
            os.kill(os.getpid(), int(self.how))
        return index


class DeadlyStream(IterableDataset):
    """An iterable data set that leaves its process as `sys.exit()` does."""

    def __iter__(self) -> Iterator[int]:
        yield 1
        raise SystemExit(0)


class StartsOnce(IterableDataset):
    """Cannot be begun a second time."""

    def __init__(self) -> None:
        self.begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        if self.begun == 2:
            raise ConnectionError("begun twice")
        return iter(range(8))


class WhoAmI(Dataset):
    """Says which worker it runs in, as `get_worker_info` tells. With a folder, workers wait there for each other."""

    def __init__(self, size: int, *, meeting: str = "", num_workers: int = 0) -> None:
        self.size = size
        self.marks: list[int] = []
        self.meeting, self.num_workers = meeting, num_workers

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> list[int]:
        info = get_worker_info()
        if info is None:
            return [-1] * 6
        time.sleep(0.002)  # so that every worker gets a share
        if self.meeting:
            open(os.path.join(self.meeting, str(info.id)), "a").close()
            while len(os.listdir(self.meeting)) < self.num_workers:
                time.sleep(0.002)
        marks = info.dataset.marks
        return [info.id, info.num_workers, info.seed, os.getpid(), threading.get_ident(), marks[-1] if marks else -1]


def mark_worker(worker: int) -> None:
    """A worker_init_fn that leaves a mark in the worker's own copy of the data set."""
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.marks.append(100 + worker)


def refuse_to_start(worker: int) -> None:
    raise FileNotFoundError(f"worker {worker} misses its files")
