"""Does a slow disk bring all it can, with two workers?

W1 samples (JPEG + NPZ, about 2.7 MB each) on a disk of 100 MB/s with 5 ms before each read, cold: one epoch, from before
the loader is made to its last batch. Ours reads tar shards ahead along the planned order while 2 workers decode. torch's
loader reads loose files, or members of the same tar, inside 2, 8 or 16 workers, each of which reads, then decodes.
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
from typing import Any

import torch
from torch.utils.data import Dataset

from harness import Bar, Contender, Options, Question, Result, ask
from synthetic import cool, ensure
from throttled_disk import SlowDisk, slow_disk, why_not
from workloads import decode_sa1b

BYTES_PER_S, DELAY_S = 100_000_000, 0.005
NUM_FULL, NUM_QUICK, BATCH = 160, 8, 8
SHARD_SAMPLES = 40
TORCH_WORKERS = (2, 8, 16)
_HERE = "HEADRACE_SLOW_DISK"  # the disk, for the contenders' processes


class Loose(Dataset[Any]):
    """W1 over loose files."""

    def __init__(self, folder: Path) -> None:
        import cv2  # noqa: F401
        import simplejpeg  # noqa: F401

        self.files = sorted(str(path) for path in (folder / "loose").glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        jpg, npz = (Path(path).read_bytes() for path in self.paths(index))
        return *decode_sa1b(jpg, npz), index

    def paths(self, index: int) -> list[str]:
        return [self.files[index], f"{self.files[index].removesuffix('.jpg')}.npz"]


class Tarred(Dataset[Any]):
    """W1 in tar shards; the index is made beforehand, on the quick side of the disk."""

    def __init__(self, folder: Path) -> None:
        import cv2  # noqa: F401
        import simplejpeg  # noqa: F401

        from headrace.storage import Extent

        index = json.loads((folder / "index.json").read_text())
        self.samples = [tuple(Extent(*extent) for extent in sample) for sample in index]

    def __len__(self) -> int:
        return len(self.samples)

    def extents(self, index: int) -> Any:
        return self.samples[index]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        from headrace.storage import read_extent

        jpg, npz = (read_extent(extent) for extent in self.samples[index])
        return *decode_sa1b(jpg, npz), index  # type: ignore[arg-type]  # views serve as bytes do


def fill(folder: Path, num_samples: int, size: str) -> None:
    """Put W1 on the disk twice: as loose files, and in tar shards with an index."""
    source = ensure("sa1b", size) / "sa1b" / "loose"
    stems = sorted(path.stem for path in source.glob("*.jpg"))[:num_samples]
    (folder / "loose").mkdir()
    index = []
    for first in range(0, len(stems), SHARD_SAMPLES):
        shard = folder / f"{first // SHARD_SAMPLES:06d}.tar"
        with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as tar:
            for stem in stems[first : first + SHARD_SAMPLES]:
                extents = []
                for kind in ("jpg", "npz"):
                    path = source / f"{stem}.{kind}"
                    shutil.copy(path, folder / "loose")
                    extents.append((str(shard), tar.offset + tarfile.BLOCKSIZE, path.stat().st_size))
                    tar.add(path, path.name)
                index.append(extents)
    (folder / "index.json").write_text(json.dumps(index))
    os.sync()


# ------------------------------------------------------------------ contenders


Run = Callable[[], dict[str, float]]


def on_slow_disk(prepare: Callable[[Path], Run]) -> Result:
    """Run with nothing cached, under the limit; the rate is that of the bytes of all samples. Imports come before."""
    facts = json.loads(os.environ[_HERE])
    folder = Path(facts["folder"])
    files = [*folder.glob("*.tar"), *(folder / "loose").iterdir()]
    num_bytes = sum(path.stat().st_size for path in (folder / "loose").iterdir())
    measured_run = prepare(folder)
    cool(files)
    SlowDisk(folder, Path(facts["group"]), {}, "").enter()
    started = time.perf_counter()
    measured = measured_run()
    seconds = time.perf_counter() - started
    return {"mb_per_s": num_bytes / seconds / 1e6, "epoch_s": seconds, **measured}


def read_all(folder: Path) -> Run:
    """The disk alone."""
    piece = 4 << 20
    shards = sorted(folder.glob("*.tar"))
    fds = [os.open(path, os.O_RDONLY) for path in shards]
    places = [(fd, at) for fd, path in zip(fds, shards, strict=True) for at in range(0, path.stat().st_size, piece)]

    def run() -> dict[str, float]:
        with ThreadPoolExecutor(8) as pool:
            return {"read_mb": sum(pool.map(lambda at: len(os.pread(at[0], piece, at[1])), places)) / 1e6}

    return run


def epoch(library: str, kind: type[Dataset[Any]], settings: dict[str, Any], folder: Path) -> Run:
    """One epoch of a loader."""
    if library == "torch":
        from torch.utils.data import DataLoader as Loader
    else:
        from headrace import DataLoader as Loader  # type: ignore[assignment]
    dataset: Any = kind(folder)
    if settings.pop("readahead", False):
        settings["readahead"] = dataset.paths

    def run() -> dict[str, float]:
        started, seen, first_s = time.perf_counter(), 0, 0.0
        loader = Loader(dataset, batch_size=BATCH, **settings)
        for images, _features, _index in loader:
            first_s = first_s or time.perf_counter() - started
            seen += len(images)
        assert seen == len(dataset)
        found = {"first_batch_s": first_s}
        if library == "headrace" and (reader := loader.stats().reader) is not None:  # type: ignore[attr-defined]
            found |= {"hits": reader.hits, "self_reads": reader.self_reads, "io_depth": reader.depth}
            found["reads"] = reader.reads or reader.files
        return found

    return run


def contenders(options: Options) -> list[Contender]:
    skip = why_not()

    def one(name: str, prepare: Callable[[Path], Run]) -> Contender:
        env = json.loads(os.environ.get(_HERE, "{}")).get("environment", {})
        return Contender(name, partial(on_slow_disk, prepare), needs=("cv2", "simplejpeg"), env=env, skip=skip)

    found = [one("disk", read_all)]
    ours = {
        "headrace, tar, 2 workers": (Tarred, {"num_workers": 2}),
        "headrace, tar, shuffled, 2 workers": (Tarred, {"num_workers": 2, "shuffle": True}),
        "headrace, loose + readahead, 2 workers": (Loose, {"num_workers": 2, "readahead": True}),
        "headrace, loose, 2 workers": (Loose, {"num_workers": 2}),
    }
    found += [one(name, partial(epoch, "headrace", kind, settings)) for name, (kind, settings) in ours.items()]
    for workers in TORCH_WORKERS:
        found.append(one(f"torch, loose, {workers} workers", partial(epoch, "torch", Loose, {"num_workers": workers})))
    found.append(one("torch, tar, 2 workers", partial(epoch, "torch", Tarred, {"num_workers": 2})))
    return found


def bars(_: Options) -> list[Bar]:
    ours, rate = "headrace, tar, 2 workers", "mb_per_s"
    torchs = tuple(f"torch, loose, {workers} workers" for workers in TORCH_WORKERS)
    return [
        Bar("rate, headrace over tar / disk", ours, rate, ("disk",), at_least=0.9),
        Bar("rate, headrace over tar / best of torch over loose files", ours, rate, torchs, at_least=1.0),
        Bar("rate, headrace over tar, shuffled / disk", "headrace, tar, shuffled, 2 workers", rate, ("disk",)),
        Bar("rate, readahead over loose files / disk", "headrace, loose + readahead, 2 workers", rate, ("disk",)),
        Bar("first batch, headrace over tar / best of torch", ours, "first_batch_s", torchs, at_most=1.0),
    ]


def remarks(options: Options, rounds: Sequence[Mapping[str, Result]]) -> Iterable[str]:
    if _HERE in os.environ:
        yield f"the disk: {json.loads(os.environ[_HERE])['how']}"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, help=f"samples of the epoch ({NUM_FULL})")
    parser.add_argument("--how", default="", help=argparse.SUPPRESS)


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
    if "--contender" in sys.argv or "--list" in sys.argv or why_not() is not None:
        return ask(QUESTION)
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--quick", action="store_true")
    known, _ = parser.parse_known_args()
    if "--help" in sys.argv or "-h" in sys.argv:
        return ask(QUESTION)
    num_samples = known.samples or (NUM_QUICK if known.quick else NUM_FULL)
    with slow_disk(size_bytes=(64 << 20) + num_samples * 7_000_000, bytes_per_s=BYTES_PER_S, delay_s=DELAY_S) as disk:
        fill(disk.folder, num_samples, "quick" if known.quick else "full")
        facts = {"folder": str(disk.folder), "group": str(disk.group), "how": disk.how, "environment": disk.environment}
        os.environ[_HERE] = json.dumps(facts)
        return ask(QUESTION)


if __name__ == "__main__":
    sys.exit(main())
