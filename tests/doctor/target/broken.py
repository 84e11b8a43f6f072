"""Data sets that are broken in one way each, and healthy ones: what `headrace doctor` is tried on."""

import ctypes
import io
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    default_collate,
    get_worker_info,
)

FOLDER = Path(os.environ.get("BROKEN_FOLDER", "."))


class Plain(Dataset[Any]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((4, 8), float(index)), "label": index}


class Random(Plain):
    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(np.random.rand(8)) + torch.rand(8) + random.random()


class Flipped(Plain):
    def __getitem__(self, index: int) -> Any:
        return -index if random.random() < 0.1 else index


class Split(IterableDataset[Any]):
    def __iter__(self) -> Any:
        info = get_worker_info()
        for number in range(200):
            if info is None or number % info.num_workers == info.id:
                yield torch.full((4,), number)


class OpensLate(Plain):
    """As it should be: each process opens the file itself."""

    def __init__(self) -> None:
        self.path, self.file = _numbers(), None

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(8 * index)
        return np.frombuffer(self.file.read(8), np.int64).copy()

    def __getstate__(self) -> Any:
        return {**vars(self), "file": None}


class Mapped(Plain):
    def __init__(self) -> None:
        self.values = np.memmap(_numbers(), np.int64, "r")
        self.log = open(FOLDER / "log.txt", "w")  # noqa: SIM115

    def __getitem__(self, index: int) -> Any:
        return int(self.values[index])

    def __getstate__(self) -> Any:
        return {**vars(self), "log": None}


class Buckets:
    """Batches of samples whose shapes are alike; nobody asks how many."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        yield from (np.array([index]) for index in range(24))


def _of_eight(samples: list[Any]) -> Any:
    assert len(samples) == 8
    return default_collate(samples)


class LongStream(Split):
    def __len__(self) -> int:
        return 48


HEALTHY = {
    "plain": Plain,
    "random": Random,
    "flipped": Flipped,
    "split": Split,
    "opens_late": OpensLate,
    "one_buffer_one_by_one": lambda: DataLoader(OneBuffer(), batch_size=1),
    "mapped": Mapped,
    "persistent": lambda: DataLoader(Random(), batch_size=4, num_workers=2, persistent_workers=True),
    "ragged": lambda: DataLoader(Shapes(), batch_size=4, collate_fn=list),
    "single": lambda: DataLoader(Shapes(), batch_size=None),
    "buckets": lambda: DataLoader(Shapes(), batch_sampler=Buckets(), num_workers=2),
    "some_frames": lambda: DataLoader(Damaged(), sampler=SubsetRandomSampler(range(8)), batch_size=4),
    "full_batches": lambda: DataLoader(Plain(), batch_size=8, drop_last=True, collate_fn=_of_eight),
    "no_length_but_a_sampler": lambda: DataLoader(NoLength(), batch_size=4, sampler=range(24)),
}


def _numbers() -> Path:
    path = FOLDER / "numbers.bin"
    if not path.exists():
        path.write_bytes(np.arange(4096, dtype=np.int64).tobytes())
    return path


def _archive() -> Path:
    path = FOLDER / "archive.npz"
    if not path.exists():
        np.savez_compressed(path, **{f"a{at}": np.random.rand(60, 60) for at in range(48)})
    return path


class Damaged(Plain):
    def __getitem__(self, index: int) -> Any:
        if index == 31:
            raise ValueError("bad magic number")
        return index


class AllFail(Plain):
    def __getitem__(self, index: int) -> Any:
        raise FileNotFoundError(2, "No such file or directory", f"/data/{index}.npz")


class Hangs(Plain):
    def __getitem__(self, index: int) -> Any:
        if index == 31:
            time.sleep(3600)
        return index


class Shapes(Plain):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3, 10 + (index == 17))


class Nothing(Plain):
    def __getitem__(self, index: int) -> Any:
        return None if index == 17 else index


class Lambda(Plain):
    def __init__(self) -> None:
        self.steps = [str, lambda value: value]

    def __getitem__(self, index: int) -> Any:
        return self.steps[1](index)


class SharedFile(Plain):
    def __init__(self) -> None:
        self.file = open(_numbers(), "rb")  # noqa: SIM115

    def __getitem__(self, index: int) -> Any:
        self.file.seek(8 * index)
        return np.frombuffer(self.file.read(8), np.int64).copy()


class SharedArchive(Plain):
    def __init__(self) -> None:
        self.archive = np.load(_archive())

    def __getitem__(self, index: int) -> Any:
        return self.archive[f"a{index}"]


class ManyObjects(Plain):
    def __init__(self) -> None:
        self.items = [(f"/data/train/{at:09d}.jpg", at) for at in range(600_000)]

    def __getitem__(self, index: int) -> Any:
        return self.items[index][1]


class LargeArray(Plain):
    def __init__(self) -> None:
        self.volume = np.zeros(300 << 20, dtype=np.uint8)


class OwnGenerator(Plain):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        return self.rng.random(4)


def _same_seed(worker: int) -> None:
    np.random.seed(worker)
    torch.manual_seed(worker)
    random.seed(worker)


class Same(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from (torch.full((4,), number) for number in range(200))


class HeldLock(Plain):
    """A thread of the training process holds a lock for ever; a fork takes the lock along, and not the thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._hold, daemon=True)
        self.thread.start()

    def _hold(self) -> None:
        while True:
            with self.lock:
                time.sleep(0.2)

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            return index

    def __getstate__(self) -> Any:
        return {}

    def __setstate__(self, _: Any) -> None:
        self.__init__()  # type: ignore[misc]


class Crashes(Plain):
    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is not None:
            ctypes.string_at(0)
        return index


class CrashesLate(Plain):
    def __getitem__(self, index: int) -> Any:
        if index == len(self) - 1 and get_worker_info() is not None:
            os.abort()
        return index


class Leaves(Plain):
    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is not None and index == 3:
            os._exit(7)
        return index


class Sleeps(Plain):
    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is not None:
            time.sleep(3600)
        return index


class Greedy(Plain):
    kept: list[bytes] = []  # noqa: RUF012

    def __getitem__(self, index: int) -> Any:
        self.kept.append(os.urandom(1 << 20) * 64)
        return index


class TouchesCuda(Plain):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3).cuda() if get_worker_info() is not None else torch.zeros(3)


class KeepsOpen(Plain):
    kept: list[io.IOBase] = []  # noqa: RUF012

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Any:
        self.kept.append(open(_numbers(), "rb"))  # noqa: SIM115
        return index


class LeavesAt(Plain):
    """One sample calls `sys.exit`, as argparse does."""

    def __getitem__(self, index: int) -> Any:
        if index == 31:
            print("error: no such tile")
            sys.exit(3)
        return index


class Few(Plain):
    def __init__(self, length: int = 3) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


class OneBuffer(Plain):
    """Every sample lies in the same memory."""

    def __init__(self) -> None:
        self.buffer = np.zeros(8, np.float32)

    def __getitem__(self, index: int) -> Any:
        self.buffer[:] = index
        return {"x": self.buffer, "label": index}


class NoLength:
    def __getitem__(self, index: int) -> Any:
        return index


class OfBatches(Plain):
    """Asked for a batch at a time; it hangs in workers."""

    def __getitems__(self, indices: list[int]) -> Any:
        if get_worker_info() is not None:
            time.sleep(3600)
        return [self[index] for index in indices]


class SlowAt(Plain):
    """One sample of many takes its time."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(1.5 if index == 31 else 0)
        return index


class WithLambda(Plain):
    """Its samples hold what no process can be sent; in-process nobody minds."""

    def __getitem__(self, index: int) -> Any:
        return {"x": index, "crop": lambda image: image[:index]}


def _missing_folder(worker: int) -> None:
    os.chdir(f"/no/such/folder/{worker}")


def _not_in_workers(samples: list[Any]) -> Any:
    if get_worker_info() is not None:
        raise ValueError("no GPU in a worker")
    return default_collate(samples)


BROKEN = {
    "collate_fails_in_workers": lambda: DataLoader(Plain(), batch_size=4, collate_fn=_not_in_workers),
    "no_batches": lambda: DataLoader(Few(), batch_size=8, drop_last=True),
    "no_samples": lambda: Few(0),
    "no_length": NoLength,
    "shared_buffer": OneBuffer,
    "corrupt_sample": Damaged,
    "sample_fails": AllFail,
    "sample_hangs": Hangs,
    "shapes_differ": Shapes,
    "collate_fails": Nothing,
    "unpicklable": Lambda,
    "shared_handle": SharedFile,
    "shared_handle_npz": SharedArchive,
    "copied_dataset": ManyObjects,
    "copied_dataset_by_spawn": lambda: DataLoader(LargeArray(), num_workers=1, multiprocessing_context="spawn"),
    "frozen_random": OwnGenerator,
    "frozen_random_init": lambda: DataLoader(Random(), num_workers=2, worker_init_fn=_same_seed),
    "not_split": Same,
    "fork_deadlock": HeldLock,
    "worker_dies": Crashes,
    "worker_dies_exit": Leaves,
    "worker_dies_late": CrashesLate,
    "worker_hangs": Sleeps,
    "out_of_memory": Greedy,
    "cuda_in_worker": TouchesCuda,
    "fd_limit": KeepsOpen,
    "init_fn_fails": lambda: DataLoader(Plain(), batch_size=4, num_workers=2, worker_init_fn=_missing_folder),
    "batch_not_sent": lambda: DataLoader(WithLambda(), batch_size=4, num_workers=2, collate_fn=list),
}

NOTED = {"wrong_length": LongStream, "slow_sample": SlowAt}  # it works, and whoever trains with it should know

globals().update({f"healthy_{name}": make for name, make in HEALTHY.items()})
globals().update({f"broken_{name}": make for name, make in BROKEN.items()})
globals().update({f"noted_{name}": make for name, make in NOTED.items()})
