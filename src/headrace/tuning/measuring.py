"""What a sample and a worker cost, measured: a few samples are fetched by a worker in a process of its own.

`measure_target` starts that process, which is bounded in time and memory: the user's code runs there, not in ours. It
finds the target and starts a worker as a loader would, by fork or anew, and tells what that one has for itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from headrace.errors import CannotLoadTarget, HeadraceError
from headrace.model import describe_error, format_bytes, format_seconds, leaves_of, nbytes_of
from headrace.signals.system import read_resident, read_rollup, read_status, read_tree_memory, trim_heap

from .memory import SampleCost

_PAGE = 4096
_LOOKED_INTO = 1000  # parts of one container whose sizes stand for those of all
_DEEPEST = 6
_LARGE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a target; a loader's own settings where it was one."""

    cost: SampleCost
    dataset: str  # the name of its class
    num_samples: int | None  # that it has
    num_fetched: int
    least_bytes: int  # of the samples that were fetched
    greatest_bytes: int
    sample_s: float  # the median time of a sample, in one worker
    worst_sample_s: float
    cpu_share: float  # processor time of a sample over its duration
    uses_rows: bool  # samples that torch's rule collates, of one layout
    is_peak_measured: bool
    start_method: str
    file_bytes: int | None = None  # of its shards: what the page cache would like to hold
    batch_size: int | None = None
    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool = False


def measure_target(target: str | None, *, num_samples: int = 6, seconds: float = 60.0, memory_bytes: int) -> Measured:
    """Measure a target, or with None an interpreter that has imported torch and nothing else.

    Raises `CannotLoadTarget` with what the target said where it fails, takes longer or takes more memory.
    """
    read, write = os.pipe()
    with tempfile.TemporaryFile() as said, open(read, "rb") as answer:
        child = subprocess.Popen(
            [sys.executable, "-m", "headrace.tuning.measuring"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            pass_fds=[write],
            start_new_session=True,  # so that whatever it starts can be ended with it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path)},
        )
        try:
            os.close(write)
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError), child.stdin as stdin:
                stdin.write(json.dumps({"target": target, "num_samples": num_samples, "fd": write}).encode())
            why = _wait(child, seconds=seconds, memory_bytes=memory_bytes)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it and all that it started
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        told = answer.read() if why is None else b""
        if not told:
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").split("\n")
            raise CannotLoadTarget(
                f"{target or 'an interpreter'} could not be measured: {why or f'it ended with {child.returncode}'}",
                it_said=next((line[:300] for line in reversed(lines) if line.strip()), "nothing"),
                next_step="--sample-bytes, such as 25MB, instead of a target",
            )
    document = json.loads(told)
    if "refused" in document:
        raise CannotLoadTarget(document["refused"], next_step=document["next_step"], **document["evidence"])
    return Measured(**{**document, "cost": SampleCost(**document["cost"])})


def _wait(child: subprocess.Popen[bytes], *, seconds: float, memory_bytes: int) -> str | None:
    """Wait until it has ended; returns why not, in a sentence, where it would go beyond what it was given."""
    deadline = time.monotonic() + seconds
    while child.poll() is None:
        if time.monotonic() > deadline:
            return f"it took more than {format_seconds(seconds)}"
        if (used := read_tree_memory(child.pid) or 0) > memory_bytes:
            return f"it took {format_bytes(used)}, and {format_bytes(memory_bytes)} are free for it"
        time.sleep(0.05)
    return None


# ------------------------------------------------------------------ in the process of its own


def main() -> int:
    """Load what stdin names, measure it, and tell it as one JSON document."""
    asked = json.loads(sys.stdin.read())
    with open(asked["fd"], "w") as answer:
        try:
            document = asdict(_measure(asked["target"], asked["num_samples"]))
        except HeadraceError as error:
            evidence = {name: str(value) for name, value in error.evidence.items()}
            document = {"refused": error.what, "next_step": error.next_step, "evidence": evidence}
        json.dump(document, answer)
    return 0


def _measure(target: str | None, num_samples: int) -> Measured:
    import torch.multiprocessing
    from torch.utils.data import default_collate

    from headrace.loader import Target, load_target, most_read_ahead
    from headrace.storage import Shards

    found = Target("", range(64)) if target is None else load_target(target)
    gc.collect()
    training = read_rollup(os.getpid())
    loader, dataset = found.loader, found.dataset
    context = getattr(loader, "multiprocessing_context", None) or torch.multiprocessing.get_context()
    ours, theirs = context.Pipe()
    worker = context.Process(target=_fetch_some, args=(replace(found, loader=None), num_samples, theirs))
    worker.start()
    theirs.close()
    shared: list[int] = []
    try:
        while (told := ours.recv()) in ("started", "fetched"):
            # a page that the worker copies is this process's alone from then on
            shared.append(own.own_bytes if (own := read_rollup(os.getpid())) is not None else 0)
            ours.send("go on")
    except EOFError:
        worker.join()
        raise CannotLoadTarget(f"a worker of {target} ended with {worker.exitcode} while it fetched a sample") from None
    worker.join()
    if "failed" in told:
        raise CannotLoadTarget(f"a sample of {target} failed: {told['failed']}", next_step="headrace chaos says more")
    sizes, is_forked = told.pop("sizes"), context.get_start_method() == "fork"
    copied, tracked = sizes_of_references(dataset) if is_forked and target is not None else (0, 0)
    copied_already = min(copied, max(0, shared[1] - shared[0])) if len(shared) == 2 else 0
    cost = SampleCost(
        sample_bytes=sum(sizes) // len(sizes),
        batch_sample_bytes=told.pop("batch_sample_bytes"),
        fetch_peak_bytes=told.pop("peak_bytes"),
        worker_bytes=told.pop("own_bytes") - copied_already,
        collected_bytes=max(0, told.pop("collected_bytes") - tracked),
        dataset_bytes=copied,
        training_bytes=training.pss_bytes if training is not None else 0,
        read_ahead_bytes=most_read_ahead(None) if hasattr(dataset, "extents") else 0,
    )
    return Measured(
        cost=cost,
        dataset=type(dataset).__name__,
        num_samples=len(dataset) if hasattr(dataset, "__len__") else None,
        num_fetched=len(sizes),
        least_bytes=min(sizes),
        greatest_bytes=max(sizes),
        uses_rows=told.pop("is_even") and found.collate_fn is default_collate,
        start_method=context.get_start_method(),
        file_bytes=sum(map(os.path.getsize, dataset.paths)) if isinstance(dataset, Shards) else None,
        batch_size=getattr(loader, "batch_size", None),
        num_workers=getattr(loader, "num_workers", None),
        prefetch_factor=getattr(loader, "prefetch_factor", None),
        pin_memory=bool(getattr(loader, "pin_memory", False)),
        **told,
    )


def _fetch_some(target: Any, num_samples: int, connection: Any) -> None:
    """What a worker does, and what it has of its own meanwhile."""
    try:
        connection.send(_fetched(target, num_samples, connection))
    except Exception as error:
        connection.send({"failed": str(describe_error(error))})


def _fetched(target: Any, num_samples: int, connection: Any) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # as our workers do: what a collection over everything copies is counted apart
    _ask(connection, "started")
    samples = _samples(target, num_samples + 1)
    kept = list(islice(samples, 1))  # it imports what it needs, which is no sample's own
    if not kept:
        raise CannotLoadTarget("it has no sample")
    sizes, layouts = [_bytes_of(kept[0])], {_layout_of(kept[0])}
    peaks, times, cpu_s, can_reset = [], [], 0.0, True
    while True:
        (before, files), can_reset = _settled(), can_reset and _reset_peak()
        started, cpu_before = time.perf_counter(), time.process_time()
        found = list(islice(samples, 1))
        took, cpu_s = time.perf_counter() - started, cpu_s + time.process_time() - cpu_before
        peak = _status_bytes("VmHWM") - before - max(0, _status_bytes("RssFile") - files)
        if not found:
            break
        times.append(took)
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
    own = _own_bytes()
    _ask(connection, "fetched")
    gc.unfreeze()
    gc.collect()
    return {
        "sizes": sizes,
        "peak_bytes": max(peaks, default=max(sizes)),
        "batch_sample_bytes": batch_sample_bytes,
        "own_bytes": own,
        "collected_bytes": _own_bytes() - own,
        "is_even": len(layouts) == 1,
        "is_peak_measured": can_reset and bool(peaks),
        "sample_s": sorted(times)[len(times) // 2] if times else 0.0,
        "worst_sample_s": max(times, default=0.0),
        "cpu_share": min(1.0, cpu_s / max(sum(times), 1e-9)),
    }


def _ask(connection: Any, word: str) -> None:
    connection.send(word)
    connection.recv()


def _samples(target: Any, count: int) -> Iterator[Any]:
    """Some samples from all over a data set that has an index; the first ones of another."""
    if target.is_indexed:
        length = len(target.dataset)
        return (target.dataset[place * (length - 1) // max(1, count - 1)] for place in range(min(count, length)))
    return islice(iter(target.dataset), count)


def _bytes_of(sample: Any) -> int:
    return nbytes_of(sample) + sum(len(leaf) for leaf in leaves_of(sample) if isinstance(leaf, (bytes, str)))


def _layout_of(sample: Any) -> tuple[Any, ...]:
    return tuple((type(leaf).__name__, tuple(getattr(leaf, "shape", ()))) for leaf in leaves_of(sample))


def _settled() -> tuple[int, int]:
    """Resident bytes, and those of mapped files, when what malloc holds of freed memory was given back."""
    trim_heap()
    resident = read_resident(os.getpid())
    return resident[0] if resident is not None else 0, _status_bytes("RssFile")


def _own_bytes() -> int:
    _settled()
    rollup = read_rollup(os.getpid())
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


def sizes_of_references(value: Any) -> tuple[int, int]:
    """Return the bytes that a forked worker copies of a value by looking at all of it; those that a collection copies.

    Looking at an object writes the count of its references, and with it copies its page; the buffer of a large list or
    array is not written. Long containers are judged by some of their parts.

    >>> names = [f"image_{number:09}.jpg" for number in range(100_000)]
    >>> 6.5e6 < sizes_of_references(names)[0] < 8e6, sizes_of_references(bytes(10**7))
    (True, (4096, 0))
    """
    seen: set[int] = set()
    return _references(value, seen, depth=0)


def _references(value: Any, seen: set[int], *, depth: int) -> tuple[int, int]:
    if id(value) in seen or isinstance(value, (type, type(os), type(None), bool)) or callable(value):
        return 0, 0
    seen.add(id(value))
    size = min(sys.getsizeof(value, 64), _PAGE)
    all_bytes, tracked = size, size if gc.is_tracked(value) else 0
    if isinstance(value, Mapping):
        parts, count = [part for pair in islice(value.items(), _LOOKED_INTO) for part in pair], 2 * len(value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        step = max(1, len(value) // _LOOKED_INTO)
        parts, count = list(islice(value, 0, None, step)), len(value)
    else:
        inner = getattr(value, "__dict__", None)
        parts, count = (list(inner.values()), len(inner)) if isinstance(inner, dict) else ([], 0)
    if not parts or depth >= _DEEPEST:
        return all_bytes, tracked
    sums = [_references(part, seen, depth=depth + 1) for part in parts]
    scale = count / len(parts)
    return all_bytes + int(scale * sum(one[0] for one in sums)), tracked + int(scale * sum(one[1] for one in sums))


if __name__ == "__main__":
    sys.exit(main())
