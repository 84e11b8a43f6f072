"""Does a slow disk bring all it can, with two workers?

A disk of 100 MB/s with 5 ms before each read, cold: one epoch, from before the loader is made to its last batch. Ours
reads tar shards ahead along the planned order while 2 workers decode; torch's loader reads loose files inside 2, 8 or
16 workers, each of which reads, then decodes. Two kinds of samples: W1 (JPEG + NPZ, 2.5 MB, decoded), where a sample's
transfer takes five times as long as the delay before it, and 96 KiB of plain bytes, where it takes a fifth.
*disk* reads the tar from begin to end, 4 MiB at a time with 8 threads, and decodes nothing: what the disk can bring.
How the disk is made slow is in `throttled_disk.py`; it needs to be root.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

import headrace
from harness import Bar, Contender, Options, Question, Result, ask  # first: it finds headrace
from headrace.storage.reading import Extent
from headrace.storage.shards import Shards
from synthetic import cool, ensure
from throttled_disk import SlowDisk, slow_disk, why_not
from workloads import decode_sa1b

BYTES_PER_S, DELAY_S = 100_000_000, 0.005
TORCH_WORKERS = (2, 8, 16)
PLAIN_BYTES = 96 << 10
_HERE = "HEADRACE_SLOW_DISK"  # the disk, for the contenders' processes


class Kind(NamedTuple):
    """A kind of samples."""

    title: str
    endings: tuple[str, ...]
    sample_bytes: int  # about
    shard_samples: int
    batch_size: int


KINDS = {
    "w1": Kind("W1: JPEG + NPZ, 2.5 MB, decoded", ("jpg", "npz"), 2_500_000, 64, 8),
    "plain": Kind("96 KiB of plain bytes", ("bin",), PLAIN_BYTES, 1024, 64),
}


class Samples(Dataset[Any]):
    """Samples of one kind. `read` gets the bytes of the fields."""

    def __init__(self, folder: Path, kind: str) -> None:
        if kind == "w1":
            import cv2  # noqa: F401
            import simplejpeg  # noqa: F401
        self.kind = kind
        index = json.loads((folder / f"{kind}.json").read_text())
        self.files: list[list[str]] = index["files"]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        fields = self.read(index)
        if self.kind == "w1":
            return *decode_sa1b(*fields), index
        return torch.from_numpy(np.array(memoryview(fields[0]))), index

    def read(self, index: int) -> list[Any]:
        raise NotImplementedError


class Loose(Samples):
    """Each field a file of its own."""

    def read(self, index: int) -> list[Any]:
        return [Path(path).read_bytes() for path in self.files[index]]

    def paths(self, index: int) -> list[str]:
        return self.files[index]


class Tarred(Samples):
    """The fields in tar shards, through `headrace.Shards` and its indexes."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder, kind)
        self.endings = KINDS[kind].endings
        self.shards = Shards(str(folder / f"{kind}-*.tar"), fields=self.endings, views=True)
        len(self.shards)  # opens the indexes, which `fill` has made

    def extents(self, index: int) -> tuple[Extent, ...]:
        return self.shards.extents(index)

    def read(self, index: int) -> list[Any]:
        sample = self.shards[index]
        return [sample[ending] for ending in self.endings]


def fill(folder: Path, kind: str, num_samples: int, size: str) -> None:
    """Put samples on the disk twice, as loose files and in tar shards, with an index of both."""
    _, endings, _, shard_samples, _ = KINDS[kind]
    loose = folder / kind
    loose.mkdir()
    if kind == "w1":
        source = ensure("sa1b", size) / "sa1b" / "loose"
        stems = sorted(path.stem for path in source.glob("*.jpg"))[:num_samples]
    else:
        stems = [f"{number:06d}" for number in range(num_samples)]
    index: dict[str, Any] = {"files": []}
    for first in range(0, len(stems), shard_samples):
        shard = folder / f"{kind}-{first // shard_samples:06d}.tar"
        with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as tar:
            for stem in stems[first : first + shard_samples]:
                paths = [loose / f"{stem}.{ending}" for ending in endings]
                for path in paths:
                    if kind == "w1":
                        shutil.copy(source / path.name, path)
                    else:
                        path.write_bytes(np.random.default_rng(int(stem)).bytes(PLAIN_BYTES))
                    tar.add(path, path.name)
                index["files"].append([str(path) for path in paths])
    (folder / f"{kind}.json").write_text(json.dumps(index))
    assert len(Shards(str(folder / f"{kind}-*.tar"))) == len(stems)
    os.sync()


# ------------------------------------------------------------------ contenders


Run = Callable[[], dict[str, float]]


def on_slow_disk(kind: str, prepare: Callable[[Path], Run]) -> Result:
    """Run with nothing cached, under the limit; the rate is that of the bytes of all samples. Imports come before."""
    facts = json.loads(os.environ[_HERE])
    folder = Path(facts["folder"])
    loose = list((folder / kind).iterdir())
    num_bytes = sum(path.stat().st_size for path in loose)
    run = prepare(folder)
    cool([*folder.glob(f"{kind}-*.tar"), *loose])
    SlowDisk(folder, Path(facts["group"]), {}, "").enter()
    started = time.perf_counter()
    measured = run()
    seconds = time.perf_counter() - started
    return {"mb_per_s": num_bytes / seconds / 1e6, "epoch_s": seconds, **measured}


def read_all(kind: str, folder: Path) -> Run:
    """The disk alone."""
    piece = 4 << 20
    shards = sorted(folder.glob(f"{kind}-*.tar"))
    fds = [os.open(path, os.O_RDONLY) for path in shards]
    places = [(fd, at) for fd, path in zip(fds, shards, strict=True) for at in range(0, path.stat().st_size, piece)]

    def run() -> dict[str, float]:
        with ThreadPoolExecutor(8) as pool:
            return {"read_mb": sum(pool.map(lambda at: len(os.pread(at[0], piece, at[1])), places)) / 1e6}

    return run


def epoch(library: str, kind: str, dataset_class: type[Samples], settings: dict[str, Any], folder: Path) -> Run:
    """One epoch of a loader."""
    loader_class = torch.utils.data.DataLoader if library == "torch" else headrace.DataLoader
    dataset: Any = dataset_class(folder, kind)
    if settings.pop("readahead", False):
        settings["readahead"] = dataset.paths

    def run() -> dict[str, float]:
        started, seen, first_s = time.perf_counter(), 0, 0.0
        loader = loader_class(dataset, batch_size=KINDS[kind].batch_size, **settings)
        for batch in loader:
            first_s = first_s or time.perf_counter() - started
            seen += len(batch[-1])
        assert seen == len(dataset)
        found = {"first_batch_s": first_s}
        if isinstance(loader, headrace.DataLoader) and (reader := loader.stats().reader) is not None:
            found |= {"hits": reader.hits, "self_reads": reader.self_reads, "io_depth": reader.depth}
            found["reads"] = reader.reads or reader.files
        return found

    return run


def contenders(_: Options) -> list[Contender]:
    skip, found = why_not(), []
    env = json.loads(os.environ.get(_HERE, "{}")).get("environment", {})
    for kind, (title, *_rest) in KINDS.items():

        def one(name: str, prepare: Callable[[Path], Run], kind: str = kind, title: str = title) -> Contender:
            needs = ("cv2", "simplejpeg") if kind == "w1" else ()
            return Contender(name, partial(on_slow_disk, kind, prepare), title, needs=needs, env=env, skip=skip)

        found.append(one("disk", partial(read_all, kind)))
        ours: dict[str, tuple[type[Samples], dict[str, Any]]] = {
            "headrace, tar, 2 workers": (Tarred, {"num_workers": 2}),
            "headrace, tar, shuffled, 2 workers": (Tarred, {"num_workers": 2, "shuffle": True}),
            "headrace, loose + readahead, 2 workers": (Loose, {"num_workers": 2, "readahead": True}),
            "headrace, loose, 2 workers": (Loose, {"num_workers": 2}),
        }
        for name, (dataset_class, settings) in ours.items():
            found.append(one(name, partial(epoch, "headrace", kind, dataset_class, settings)))
        for workers in TORCH_WORKERS:
            run = partial(epoch, "torch", kind, Loose, {"num_workers": workers})
            found.append(one(f"torch, loose, {workers} workers", run))
        found.append(one("torch, tar, 2 workers", partial(epoch, "torch", kind, Tarred, {"num_workers": 2})))
    return found


def bars(_: Options) -> list[Bar]:
    found = []
    for kind, (title, *_rest) in KINDS.items():
        ours, rate, disk = f"{title}/headrace, tar, 2 workers", "mb_per_s", (f"{title}/disk",)
        torchs = tuple(f"{title}/torch, loose, {workers} workers" for workers in TORCH_WORKERS)
        ahead, shuffled = "headrace, loose + readahead, 2 workers", "headrace, tar, shuffled, 2 workers"
        found += [
            Bar(f"{kind}: headrace over tar / disk", ours, rate, disk, at_least=0.9),
            Bar(f"{kind}: headrace over tar / best of torch over loose files", ours, rate, torchs, at_least=1.0),
            Bar(f"{kind}: headrace over tar / torch with 2 workers", ours, rate, torchs[:1]),
            Bar(f"{kind}: headrace over tar, shuffled / disk", f"{title}/{shuffled}", rate, disk),
            Bar(f"{kind}: readahead over loose files / disk", f"{title}/{ahead}", rate, disk),
            Bar(f"{kind}: first batch, headrace over tar / best of torch", ours, "first_batch_s", torchs, at_most=1.0),
        ]
    return found


def remarks(_: Options, __: Sequence[Mapping[str, Result]]) -> Iterable[str]:
    if _HERE in os.environ:
        yield f"the disk: {json.loads(os.environ[_HERE])['how']}"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mb", type=float, help="megabytes of an epoch, of each kind (400)")


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    remarks=remarks,
    columns=("mb_per_s", "epoch_s", "first_batch_s", "hits", "self_reads", "reads", "io_depth"),
    rounds=3,
    seconds=0,
)


def main() -> int:
    if {"--contender", "--list", "--help", "-h"} & set(sys.argv) or why_not() is not None:
        return ask(QUESTION)
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--mb", type=float)
    parser.add_argument("--quick", action="store_true")
    known, _ = parser.parse_known_args()
    num_bytes = int(1e6 * (known.mb or (20 if known.quick else 400)))
    with slow_disk(size_bytes=(128 << 20) + 5 * num_bytes, bytes_per_s=BYTES_PER_S, delay_s=DELAY_S) as disk:
        for name, kind in KINDS.items():
            fill(disk.folder, name, max(1, num_bytes // kind.sample_bytes), "quick" if known.quick else "full")
        facts = {"folder": str(disk.folder), "group": str(disk.group), "how": disk.how, "environment": disk.environment}
        os.environ[_HERE] = json.dumps(facts)
        return ask(QUESTION)


if __name__ == "__main__":
    sys.exit(main())
