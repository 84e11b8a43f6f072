"""What a sample and a worker take of memory, measured: a worker fetches a few samples, as one of a loader would."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from headrace.errors import CannotLoadTarget
from headrace.model import describe_error, leaves_of, nbytes_of
from headrace.signals.system import read_rollup, read_status, sizes_of_references, trim_heap

from .memory import SampleCost

_LARGE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a target."""

    cost: SampleCost
    num_fetched: int
    least_bytes: int  # of the samples that were fetched
    greatest_bytes: int
    sample_s: float  # the median time of a sample, in one worker
    is_peak_measured: bool
    file_bytes: int | None = None  # of its shards: what the page cache would like to hold


def measure(target: Any, num_samples: int) -> Measured:
    """Measure a target of `load_target`, in a process that has done nothing else; raises `CannotLoadTarget`."""
    import torch.multiprocessing

    gc.collect()
    training = read_rollup(os.getpid())
    context = getattr(target.loader, "multiprocessing_context", None) or torch.multiprocessing.get_context()
    ours, theirs = context.Pipe(duplex=False)
    parent, is_forked = os.getpid(), context.get_start_method() == "fork"
    facts = {"training_bytes": training.pss_bytes if training else 0, "parent": parent, "is_forked": is_forked}
    worker = context.Process(target=_tell, args=(theirs, replace(target, loader=None), num_samples), kwargs=facts)
    worker.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        found = None
    worker.join()
    if isinstance(found, Measured):
        return found
    ended = f"a worker ended with {worker.exitcode} while it fetched a sample"
    raise CannotLoadTarget(ended if found is None else f"a sample failed: {found}")


def _tell(connection: Any, target: Any, num_samples: int, **facts: Any) -> None:
    try:
        connection.send(_measured(target, num_samples, **facts))
    except Exception as error:
        connection.send(str(describe_error(error)))


def _measured(target: Any, num_samples: int, *, parent: int, training_bytes: int, is_forked: bool) -> Measured:
    """Do what a worker does, and look at what it has of its own meanwhile."""
    import torch
    from torch.utils.data import default_collate

    from headrace.loader import most_read_ahead
    from headrace.storage import Shards

    torch.set_num_threads(1)
    gc.freeze()  # as our workers do: what a collection over everything copies is counted apart
    parents_own = _own_bytes(parent)  # a page that this process copies is the parent's alone from then on
    samples = _samples(target, num_samples + 1)
    kept = list(islice(samples, 1))  # it imports what it needs, which is no sample's own
    if not kept:
        raise CannotLoadTarget("it has no sample")
    sizes, layouts = [_bytes_of(kept[0])], {_layout_of(kept[0])}
    peaks, times, can_reset = [], [], True
    while True:
        trim_heap()  # what malloc holds of freed memory is no peak of the next sample's
        before, files = _status_bytes("VmRSS"), _status_bytes("RssFile")
        can_reset = can_reset and _reset_peak()
        started = time.perf_counter()
        found = list(islice(samples, 1))
        took, peak = time.perf_counter() - started, _status_bytes("VmHWM")
        if not found:
            break
        times.append(took)
        peak -= before + max(0, _status_bytes("RssFile") - files)
        sizes.append(_bytes_of(found))
        layouts.add(_layout_of(found[0]))
        peaks.append(max(peak if can_reset else 0, sizes[-1]))
        kept = found if sizes[-1] > _LARGE_BYTES else [*kept[-1:], *found]  # two are enough to collate
        del found
    try:
        batch_sample_bytes = _bytes_of(target.collate_fn(list(kept))) // len(kept)
    except Exception:  # what torch cannot stack comes as it is
        batch_sample_bytes = sum(sizes) // len(sizes)
    kept.clear()
    trim_heap()
    own, copied = _own_bytes(os.getpid()), _own_bytes(parent) - parents_own
    gc.unfreeze()
    gc.collect()
    trim_heap()
    collected = _own_bytes(os.getpid()) - own
    all_copied, tracked = sizes_of_references(target.dataset) if is_forked else (0, 0)
    cost = SampleCost(
        sample_bytes=sum(sizes) // len(sizes),
        batch_sample_bytes=batch_sample_bytes,
        fetch_peak_bytes=max(peaks, default=max(sizes)),
        worker_bytes=own - min(all_copied, max(0, copied)),
        collected_bytes=max(0, collected - tracked),
        dataset_bytes=all_copied,
        training_bytes=training_bytes,
        read_ahead_bytes=most_read_ahead(None) if hasattr(target.dataset, "extents") else 0,
        uses_rows=len(layouts) == 1 and target.collate_fn is default_collate,
        worst_sample_s=max(times, default=0.0),
    )
    return Measured(
        cost=cost,
        num_fetched=len(sizes),
        least_bytes=min(sizes),
        greatest_bytes=max(sizes),
        sample_s=sorted(times)[len(times) // 2] if times else 0.0,
        is_peak_measured=can_reset and bool(peaks),
        file_bytes=sum(map(os.path.getsize, target.dataset.paths)) if isinstance(target.dataset, Shards) else None,
    )


def _samples(target: Any, count: int) -> Iterator[Any]:
    """Some samples from all over a data set that has an index; the first ones of another."""
    if not target.is_indexed:
        return islice(iter(target.dataset), count)
    length = len(target.dataset)
    return (target.dataset[place * (length - 1) // max(1, count - 1)] for place in range(min(count, length)))


def _bytes_of(sample: Any) -> int:
    return nbytes_of(sample) + sum(len(leaf) for leaf in leaves_of(sample) if isinstance(leaf, (bytes, str)))


def _layout_of(sample: Any) -> tuple[Any, ...]:
    return tuple((type(leaf).__name__, tuple(getattr(leaf, "shape", ()))) for leaf in leaves_of(sample))


def _own_bytes(pid: int) -> int:
    rollup = read_rollup(pid)
    return rollup.own_bytes if rollup is not None else 0


def _status_bytes(name: str) -> int:
    return int(read_status(Path("/proc/self")).get(name, "0 kB").split()[0]) << 10


def _reset_peak() -> bool:
    """Let the kernel count this process's peak from here on; False where it does not."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return True
    except OSError:
        return False
