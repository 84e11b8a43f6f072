"""The data of a training, with causes injected for real: samples that cost, workers that hang, shards, collation."""

from __future__ import annotations

import io
import itertools
import os
import random
import signal
import tarfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

Spec = dict[str, Any]
HUNG = "hung"  # the file by which a worker tells that it now hangs


def burn(seconds: float) -> None:
    """Compute with the interpreter's lock released most of the time, as decoders do."""
    end = time.perf_counter() + seconds
    packed = zlib.compress(np.arange(40_000, dtype=np.int32).tobytes(), 1)
    while time.perf_counter() < end:
        zlib.decompress(packed)


def burn_in_threads(seconds: float, num_threads: int) -> None:
    """Compute what would take one core so long, in many threads at once, as decoders with pools of their own do."""
    packed = zlib.compress(np.arange(40_000, dtype=np.int32).tobytes(), 1)

    def work() -> None:
        while time.thread_time() < seconds / num_threads:
            zlib.decompress(packed)

    threads = [threading.Thread(target=work) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def burn_python(seconds: float) -> None:
    """Compute in pure Python: the interpreter's lock is held."""
    end, total = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        total += sum(range(200))


class Samples(Dataset[Any]):
    """What a sample costs is in the spec: waiting, computing, reading."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.files = sorted(Path(spec["files"]).glob("*.*")) if spec.get("files") else []
        self.kept: list[Any] = []
        self.num_fetched = 0
        self.num_cores = max(2, len(os.sched_getaffinity(0)))

    def __len__(self) -> int:
        return int(self.spec["num_samples"])

    def __getitem__(self, index: int) -> Any:
        spec = self.spec
        if self.files:
            self._read(self.files[index % len(self.files)])
        time.sleep(spec.get("sleep_s", 0.0))
        if spec.get("burn_threads"):
            burn_in_threads(spec["burn_s"] * self.num_cores / 2, spec["burn_threads"])
        elif spec.get("burn_s"):
            burn(spec["burn_s"])
        if spec.get("python_s"):
            burn_python(spec["python_s"])
        if spec.get("heavy_every") and index % spec["heavy_every"] == spec["heavy_every"] // 2:
            burn(spec["heavy_s"])
        self._misbehave()
        tensor = torch.full((int(spec.get("floats", 1024)),), float(index))
        return (tensor, np.random.random((spec["numbers"],)).tolist()) if spec.get("numbers") else (tensor, index)

    def _misbehave(self) -> None:
        spec, worker = self.spec, get_worker_info()
        is_first = worker is not None and worker.id == 0
        if spec.get("slow_worker_s") and is_first:
            time.sleep(spec["slow_worker_s"])
        if spec.get("leaks_files"):
            self.kept.append(open(os.devnull))  # noqa: SIM115  # a leak is the point
        self.num_fetched += 1
        if spec.get("dies_after") == self.num_fetched and is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        if spec.get("hangs_after") == self.num_fetched and is_first:
            Path(spec["folder"], HUNG).touch()
            parent = os.getppid()
            while os.getppid() == parent:  # for good; but nobody is left behind by a training that was killed
                time.sleep(0.2)

    def _read(self, path: Path) -> None:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                arrays["values"].sum()
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            if self.spec.get("is_cold"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            with os.fdopen(os.dup(fd), "rb") as file:
                zlib.adler32(file.read())
        finally:
            os.close(fd)


class ShardSamples(IterableDataset[Any]):
    """The samples of tar shards without end; every worker reads shards of its own, one after the other."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.shards = sorted(Path(spec["shards"]).glob("*.tar"))

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        mine = self.shards[worker.id :: worker.num_workers] if worker is not None else list(self.shards)
        rng = random.Random(self.spec["seed"])
        for _ in itertools.count():
            rng.shuffle(mine)
            for path in mine:
                yield from self._samples(path)

    def _samples(self, path: Path) -> Iterator[Any]:
        if self.spec["shard_start"] == "fetched":
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                archive = tarfile.open(fileobj=io.BytesIO(file.read()))  # noqa: SIM115  # closed below
        else:
            time.sleep(self.spec["shard_start_s"])
            archive = tarfile.open(path, mode="r|")  # noqa: SIM115
        with archive:
            for number, member in enumerate(archive):
                extracted = archive.extractfile(member)
                assert extracted is not None
                zlib.adler32(extracted.read())
                yield torch.full((int(self.spec.get("floats", 1024)),), float(number)), number


class SlowCollate:
    """Collation that computes, as padding and augmentation of whole batches do."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, samples: list[Any]) -> Any:
        burn(self.seconds)
        return default_collate(samples)


def keep_lists(samples: list[Any]) -> Any:
    """Collation that leaves annotations as they are: lists of numbers."""
    return torch.stack([tensor for tensor, _ in samples]), [numbers for _, numbers in samples]


def read_all(spec: Spec) -> None:
    """Read every file once before training, as those do who want them in memory."""
    data = Samples(spec)
    for path in data.files:
        data._read(path)


def make_loader(spec: Spec) -> Any:
    """The loader of a spec, torch's or ours."""
    dataset: Any = ShardSamples(spec) if spec.get("shards") else Samples(spec)
    settings: dict[str, Any] = {
        "batch_size": spec["batch_size"],
        "num_workers": spec["num_workers"],
        "timeout": spec.get("timeout", 0),
    }
    if not spec.get("shards"):
        settings["shuffle"] = True
    if spec.get("collate_s"):
        settings["collate_fn"] = SlowCollate(spec["collate_s"])
    elif spec.get("numbers"):
        settings["collate_fn"] = keep_lists
    if spec["num_workers"]:
        settings["persistent_workers"] = spec.get("persistent", False)
        settings["prefetch_factor"] = spec.get("prefetch_factor", 2)
        if spec.get("start_method"):
            settings["multiprocessing_context"] = spec["start_method"]
    if spec.get("loader") == "headrace":
        import headrace

        return headrace.DataLoader(dataset, backend=spec.get("backend", "auto"), **settings)
    return DataLoader(dataset, **settings)
