"""How many samples a second come out of tar shards?

`Shards` against `webdataset` over the same six shards, in the page cache. Undecoded, in one process: W3 (3 KB and a
label) and W1 (JPEG + NPZ, 3.5 MB a sample); fields are bytes in both. "Stream" iterates shard after shard, "no index"
does so with none made before; "shuffled" fetches by index in random order, one by one or 256 at a time. Decoded: W1
with the same decode function in two workers, batches of 8; WebDataset with torch's loader, `Shards` with torch's and
ours.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import Sampler

from harness import Bar, Contender, Options, Question, Result, ask
from loop import Plan, drive
from tar_shards import ensure_shards, warm_shards
from workloads import decode_sa1b

W3, W1, DECODED = "W3 undecoded", "W1 undecoded", "W1 decoded, 2 workers"
WEBDATASET, STREAM, NO_INDEX = "webdataset", "Shards, stream", "Shards, stream, no index"
SHUFFLED, SHUFFLED_BATCH = "Shards, shuffled", "Shards, shuffled, 256 at a time"
WDS_TORCH, SHARDS_TORCH, OURS = "webdataset + torch", "Shards + torch", "Shards + headrace"
WORKLOAD = {W3: "small", W1: "sa1b", DECODED: "sa1b"}


def samples_of(name: str, paths: list[str], index_dir: str) -> Callable[[], Iterator[dict[str, Any]]]:
    """Return what gives the samples of one epoch."""
    import numpy as np

    from headrace import Shards

    if name == WEBDATASET:
        import webdataset

        return lambda: iter(webdataset.WebDataset(paths, shardshuffle=False, empty_check=False))
    if name == NO_INDEX:
        return lambda: iter(Shards(paths, index_dir=tempfile.mkdtemp(dir=index_dir)))
    shards = Shards(paths, index_dir=index_dir).prepare()
    if name == STREAM:
        return lambda: iter(shards)
    order = np.random.default_rng(0).permutation(len(shards)).tolist()
    if name == SHUFFLED:
        return lambda: (shards[index] for index in order)
    fetch = shards.__getitems__ or (lambda indices: [shards[index] for index in indices])
    return lambda: (sample for at in range(0, len(order), 256) for sample in fetch(order[at : at + 256]))


def read(group: str, name: str, options: Options) -> Result:
    """Go through the shards again and again, and count."""
    paths = ensure_shards(WORKLOAD[group], options.size)
    warm_shards(paths)
    fields = ("x", "cls") if group == W3 else ("jpg", "npz")
    with tempfile.TemporaryDirectory() as folder:
        epoch = samples_of(name, [str(path) for path in paths], folder)
        begin = time.perf_counter()
        first = next(epoch())
        first_s = time.perf_counter() - begin
        if not all(isinstance(first[field], bytes) for field in fields):
            raise SystemExit(f"{name} gave {first.keys()}")
        num = num_bytes = 0
        begin = time.perf_counter()
        while (elapsed_s := time.perf_counter() - begin) < options.seconds:
            for sample in epoch():
                num += 1
                num_bytes += len(sample[fields[0]]) + len(sample[fields[1]])
                if not num % 64 and time.perf_counter() - begin > 4 * options.seconds:
                    break
    return {"samples_per_s": num / elapsed_s, "mb_per_s": num_bytes / elapsed_s / 1e6, "first_sample_ms": 1e3 * first_s}


# ------------------------------------------------------------------ decoded


def decode(sample: dict[str, Any]) -> tuple[Any, Any, int]:
    """What every contender does with a sample."""
    return (*decode_sa1b(sample["jpg"], sample["npz"]), int(sample["__key__"]))


class Endless(Sampler[int]):
    """The samples in order, again and again: no run sees the end of an epoch."""

    def __init__(self, num: int) -> None:
        self.num = num

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from range(self.num)


def load(name: str, options: Options) -> Result:
    import cv2  # noqa: F401 - before workers are forked, as in a training script
    import simplejpeg  # noqa: F401
    from torch.utils.data import DataLoader

    import headrace

    paths: list[Path] = ensure_shards("sa1b", options.size)
    warm_shards(paths)
    plan = Plan(warmup_s=0.1 if options.quick else 2.5, seconds=options.seconds, align=2)
    with tempfile.TemporaryDirectory() as folder:

        def make() -> Any:
            if name == WDS_TORCH:
                import webdataset

                urls = [str(path) for path in paths]
                stream = webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).repeat().map(decode)
                return DataLoader(stream, batch_size=8, num_workers=2)
            shards = headrace.Shards(paths, index_dir=folder, map=decode).prepare()
            kind: Any = DataLoader if name == SHARDS_TORCH else headrace.DataLoader
            return kind(shards, batch_size=8, num_workers=2, sampler=Endless(len(shards)))

        return drive(make, plan)


def contenders(options: Options) -> list[Contender]:
    found = []
    for group in (W3, W1):
        names = (WEBDATASET, STREAM, NO_INDEX, SHUFFLED, *((SHUFFLED_BATCH,) if group == W3 else ()))
        for name in names:
            needs = ("webdataset",) if name == WEBDATASET else ()
            found.append(Contender(name, partial(read, group, name, options), group, needs=needs))
    for name in (WDS_TORCH, SHARDS_TORCH, OURS):
        needs = ("webdataset",) if name == WDS_TORCH else ()
        found.append(Contender(name, partial(load, name, options), DECODED, needs=needs))
    return found


def bars(_: Options) -> list[Bar]:
    rate = partial(Bar, measure="samples_per_s")
    found = []
    for group, least in ((W3, 10.0), (W1, 2.0)):
        theirs = (f"{group}/{WEBDATASET}",)
        found.append(rate(f"{group}: {STREAM} / webdataset", f"{group}/{STREAM}", over=theirs, at_least=least))
        names = (NO_INDEX, SHUFFLED, *((SHUFFLED_BATCH,) if group == W3 else ()))
        found += [rate(f"{group}: {name} / webdataset", f"{group}/{name}", over=theirs) for name in names]
    theirs = (f"{DECODED}/{WDS_TORCH}",)
    found.append(rate(f"{DECODED}: {OURS} / {WDS_TORCH}", f"{DECODED}/{OURS}", over=theirs, at_least=1.2))
    found.append(rate(f"{DECODED}: {SHARDS_TORCH} / {WDS_TORCH}", f"{DECODED}/{SHARDS_TORCH}", over=theirs))
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    columns=("samples_per_s", "mb_per_s", "first_sample_ms", "first_batch_s", "wait_median_ms", "wait_worst_ms"),
    rounds=3,
    seconds=2.0,
    quick_seconds=0.2,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
