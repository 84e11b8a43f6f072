"""Runs one candidate for a stretch, in a process of its own: what hangs there, or dies, is a result.

A *host* process imports the target once, for that takes seconds. Each probe is a fork of it, which ends with it:
nothing is carried over from one probe to the next. The command watches time and memory from outside, and ends what goes
on for too long. What a sample and a worker take of memory is measured there, too.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from headrace.errors import CannotLoadTarget, HeadraceError, InternalError, UnusableInput
from headrace.loader import Orders, TargetProcess, end_with_parent, usable_processors
from headrace.model import Count, describe_error, format_bytes, format_seconds
from headrace.signals.system import find_number, read_schedule, read_text, read_tree_memory, set_worker_gains, walk_tree

from .measuring import Measured, measure
from .memory import SampleCost
from .model import Candidate, Service
from .search import Failure, ProbeOutcome

_LOOK_EVERY_S = 0.1
_STOP_S = 5.0
_WARM_S = 0.2
_FEWEST_ROUNDS = 4
_LONG_BATCH_S = 0.25
_LOCK_LOOK_S, _LOCK_LATE_S = 0.002, 0.0004
_OFTEN = 0.5  # of the samples: files that are opened more rarely are not theirs


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """What the host found behind the target."""

    dataset: str
    is_indexed: bool
    num_samples: int | None  # of what is indexed
    batch_size: int | None  # of the loader; None where there is none, or it makes no batches
    reads_ahead: bool  # it says where its samples lie
    pin_memory: bool
    baseline: Candidate | None


class ProbeHost(TargetProcess):
    """A process that has the target (with None: no data of anyone's), and forks a process for each probe."""

    def __init__(self, target: str | None, *, memory_bytes: int | None = None, patience_s: float = 20.0) -> None:
        self._target, self._memory_bytes = target, memory_bytes
        self.patience_s = patience_s  # of a probe, beside what its stretch takes
        self._started = time.monotonic()
        self.service: Service | None = None  # of the last probe that was in-process
        super().__init__(__name__, {"target": target})
        baseline = self.told["subject"].pop("baseline")
        self.subject = TargetFacts(**self.told["subject"], baseline=baseline and Candidate(**baseline))

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def run(self, candidate: Candidate, seconds: float) -> ProbeOutcome:
        """Try a candidate for a stretch; a failure is a result, too."""
        began, said_before = self.elapsed_s, self.num_said
        order = {"candidate": asdict(candidate), "seconds": seconds}
        facts, why, peak = self._ask(order, self.patience_s + 4 * seconds)
        said = facts.get("what", "")
        if why is None and "figures" not in facts:
            why = Failure.ERROR if said else Failure.DIED
            said = said or f"{_ending(facts['code'])}\n{self.said(since=said_before)}"
        if service := facts.get("service"):
            self.service = Service(**service)
        return ProbeOutcome(
            candidate=candidate,
            at_s=self.elapsed_s,
            took_s=self.elapsed_s - began,
            peak_bytes=peak,
            failure=why,
            said=said,
            **facts.get("figures", {}),
        )

    def measure(self, *, num_samples: int = 6, seconds: float = 60.0) -> Measured:
        """Measure what a sample and a worker take of memory; raises `CannotLoadTarget` where that cannot be."""
        facts, why, peak = self._ask({"num_samples": num_samples}, seconds)
        if why is None and (found := facts.get("measured")):
            return Measured(**{**found, "cost": SampleCost(**found["cost"])})
        said = facts.get("what") or f"it took more than {format_seconds(seconds)}"
        if why is Failure.MEMORY:
            said = f"it took {format_bytes(peak)}, and {format_bytes(self._memory_bytes or 0)} are free for it"
        raise CannotLoadTarget(
            f"{self._target or 'an interpreter'} could not be measured: {said}",
            it_said=self.said()[-300:] or "nothing",
            next_step="--sample-bytes, such as 25MB, instead of a target",
        )

    def _ask(self, order: Any, seconds: float) -> tuple[dict[str, Any], Failure | None, int]:
        """Give an order; returns what was said of it, why it had to be ended, the most memory of all processes."""
        self.tell(order)
        facts: dict[str, Any] = {}
        why, peak, is_ending, deadline = None, 0, False, time.monotonic() + seconds
        while "code" not in facts:
            event = self.event(_LOOK_EVERY_S)
            if event is not None and (not is_ending or "code" in event):
                facts |= event
                deadline = time.monotonic() + _STOP_S  # there is nothing left but to end
            if self.has_ended:
                what = f"the process that holds {self._target} has ended: {_ending(self.child.wait())}"
                raise UnusableInput(what, it_said=self.said())
            peak = max(peak, read_tree_memory(self.child.pid) or 0)  # with the pages that it shares with the host
            is_too_large, is_late = peak > (self._memory_bytes or math.inf), time.monotonic() > deadline
            if is_ending and is_late and "code" not in facts:
                raise InternalError("a probe could not be ended", it_said=self.said())
            if not is_ending and (is_too_large or is_late):
                why = Failure.MEMORY if is_too_large else None if facts else Failure.HUNG
                is_ending, deadline = True, time.monotonic() + _STOP_S
                self.end([pid for pid in self.processes() if pid != self.child.pid])
        return facts, why, peak


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


# ---------------------------------------------------------------------------------- inside the host, and its forks


def main() -> int:
    """Find the target, then fork a process for each probe that is asked for."""
    orders = Orders()
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that are started here would be missing in the forks, which wait for them
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # All that a probe needs is imported before it: each would pay for it anew.
    from headrace.loader import DataLoader, Target, count_rows, load_target  # noqa: F401

    try:
        named = orders.start["target"]
        target = Target("", range(64)) if named is None else load_target(named)
    except HeadraceError as error:
        orders.refuse(error)
        return 0
    orders.say("ready", subject=asdict(_subject_of(target)))
    for number, order in enumerate(orders):
        code = 0
        if "num_samples" in order:  # by this process: a fork would share its pages
            try:
                orders.say("measured", measured=asdict(measure(target, order["num_samples"])))
            except HeadraceError as error:
                orders.say("failed", what=str(error))
        elif pid := os.fork():
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        else:
            end_with_parent()
            torch.set_num_threads(num_threads)
            torch.manual_seed(number)
            _probe(target, Candidate(**order["candidate"]), order["seconds"], orders)
            os._exit(0)
        orders.say("ended", code=code)
    return 0


def _subject_of(target: Any) -> TargetFacts:
    given, baseline = target.loader, None
    if given is not None:
        workers, factor = given.num_workers, given.prefetch_factor
        baseline = Candidate(
            loader="headrace" if type(given).__module__.startswith("headrace.") else "torch",
            num_workers=workers,
            backend="thread" if getattr(given, "backend", "") == "thread" else "process",
            batch_size=given.batch_size,
            batches_ahead=workers * factor if workers and factor not in (None, 2) else None,  # 2: what torch takes
            io_depth=getattr(given, "io_depth", None),
        )
    return TargetFacts(
        dataset=type(target.dataset).__name__,
        is_indexed=target.is_indexed,
        num_samples=len(target.dataset) if target.is_indexed else None,
        batch_size=getattr(given, "batch_size", None),
        reads_ahead=hasattr(target.dataset, "extents"),
        pin_memory=bool(getattr(given, "pin_memory", False)),
        baseline=baseline,
    )


def _make_loader(target: Any, candidate: Candidate) -> Any:
    """Return a loader over the target with a candidate; all else is as the given loader has it."""
    import torch
    import torch.utils.data as torch_data

    from headrace.loader import DataLoader

    given = target.loader
    if given is not None and candidate == _subject_of(target).baseline:
        return given
    workers, size = candidate.num_workers, candidate.batch_size
    settings: dict[str, Any] = {"num_workers": workers, "collate_fn": target.collate_fn, "batch_size": size}
    if given is None and target.is_indexed:  # drawn without end: a permutation of a huge data set would not fit
        settings["sampler"] = torch_data.RandomSampler(target.dataset, replacement=True, num_samples=1 << 40)
    elif given is not None:
        settings |= {"pin_memory": given.pin_memory and torch.cuda.is_available(), "drop_last": given.drop_last}
        names = ("worker_init_fn", "timeout", "multiprocessing_context") if workers else ()
        settings |= {name: getattr(given, name) for name in names}
        if given.batch_size is None and given.batch_sampler is not None:
            settings |= {"batch_size": 1, "drop_last": False, "batch_sampler": given.batch_sampler}
        elif not isinstance(target.dataset, torch_data.IterableDataset):
            settings["sampler"] = given.sampler
    if workers:
        settings |= {"persistent_workers": True, "prefetch_factor": candidate.prefetch_factor}
    if candidate.loader == "torch":
        if candidate.keeps_heap or candidate.threads:
            settings["worker_init_fn"] = partial(_begin_worker, settings.get("worker_init_fn"), candidate)
        return torch_data.DataLoader(target.dataset, **settings)
    settings |= {"backend": candidate.backend, "io_depth": candidate.io_depth, "memory": candidate.memory_bytes}
    return DataLoader(target.dataset, cpus=candidate.cpus, **settings)


def _begin_worker(init_fn: Any, candidate: Candidate, worker: int) -> None:
    """Do what a worker begins with, then set what `headrace run` sets for an unchanged script."""
    if init_fn is not None:
        init_fn(worker)
    set_worker_gains(keeps_heap=candidate.keeps_heap, threads=candidate.threads)


def _probe(target: Any, candidate: Candidate, seconds: float, orders: Orders) -> None:
    """Run one candidate, in a fork of the host; what comes out of it is said."""
    try:
        if not candidate.num_workers and target.is_indexed and candidate.batch_size:
            candidate = replace(candidate, batch_size=_short_batch(target.dataset, candidate.batch_size))
        loader = _make_loader(target, candidate)
        orders.say("stretched", **_stretch(loader, candidate, seconds))
        del loader  # and its workers
    except BaseException as error:
        orders.say("failed", what=str(describe_error(error)))


def _short_batch(dataset: Any, batch_size: int) -> int:
    """Return how many samples to fetch at a time in-process: fewer where a batch of slow ones would take long."""
    for index in (len(dataset) // 2, len(dataset) // 3):  # the first may import what it needs
        began = time.perf_counter()
        dataset[index]
        fits = int(_LONG_BATCH_S / max(time.perf_counter() - began, 1e-9))
    return max(1, min(batch_size, fits))


def _stretch(loader: Any, candidate: Candidate, seconds: float) -> dict[str, Any]:
    """Take batches as fast as they come for a stretch, and return the figures."""
    # A round of torch's loader is one batch of each worker: they end together.
    workers = candidate.num_workers
    round_length = workers if workers and candidate.loader == "torch" else 1
    arrivals = _arrivals(loader, otherwise=candidate.batch_size or 1)
    first_s, _ = next(arrivals)
    warm_s = 0.0
    for count in range(4 * round_length):
        warm_s += next(arrivals)[0]
        if count + 1 >= round_length and warm_s >= _WARM_S:
            break
    watch = None if workers else _SampleWatch(loader.dataset)
    (cpu_s, faults), elapsed_s, taken = _used()[:2], 0.0, []
    while elapsed_s < 3 * seconds:
        taken.append(next(arrivals))
        elapsed_s += taken[-1][0]
        if elapsed_s >= seconds and len(taken) >= _FEWEST_ROUNDS * round_length and len(taken) % round_length == 0:
            break
    used_cpu_s, used_faults, threads = _used()
    cores, per_s = (used_cpu_s - cpu_s) / elapsed_s, sum(rows for _, rows in taken) / elapsed_s
    figures = {
        "samples_per_s": per_s,
        "measured_s": elapsed_s,
        "first_batch_s": first_s,
        "cores": cores,
        "faults_per_s": (used_faults - faults) / elapsed_s,
        "threads": threads,
        "batches_ahead": loader.stats().prefetch_batches if hasattr(loader, "stats") else candidate.batches_ahead or 0,
    }
    return {"figures": figures, "service": watch and watch.service(per_s, cores, per_s * elapsed_s)}


def _arrivals(loader: Any, *, otherwise: int) -> Iterator[tuple[float, int]]:
    """Yield how long each batch took to come, and its rows, pass after pass: of a later pass all but the first."""
    from headrace.loader import count_rows

    for number in itertools.count():
        last, count = time.perf_counter(), 0
        for batch in loader:
            now, rows = time.perf_counter(), count_rows(batch, otherwise=otherwise)
            del batch
            if not number or count:
                yield now - last, rows
            last, count = time.perf_counter() if not number and not count else now, count + 1
        if count < 2:
            raise UnusableInput(
                f"the loader gives {Count(count):batch(es)} in a pass: too few to measure its rate",
                next_step="a smaller --batch-size, or more data",
            )


def _used() -> tuple[float, int, int]:
    """Return what was used so far: processor time, the workers' page faults; and the most threads that one has."""
    workers = walk_tree([os.getpid()])[1:]
    cpu_s = time.process_time() + sum(one.cpu_s + one.cpu_children_s for one in workers)
    return cpu_s, sum(one.minor_faults for one in workers), max((one.threads for one in workers), default=0)


class _SampleWatch:
    """What samples are seen to do in this process: hold the interpreter's lock, open files, read from storage."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._looks, self._late, self._is_over = dataset, 0, 0, False
        self._opened: Counter[str] = Counter()
        self._disk_bytes, self._no_core_s = _disk_bytes(), _no_core_s()
        sys.addaudithook(self._hear)  # for good: this process ends with its probe
        threading.Thread(target=self._watch_lock, daemon=True, name="headrace-lock").start()

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and "/proc/" not in args[0]:  # that is ours
            self._opened[os.path.dirname(args[0])] += 1

    def _watch_lock(self) -> None:
        """Wake up again and again: whoever wakes while the lock is held comes late."""
        no_core_s = _no_core_s()
        while not self._is_over:
            asleep_at = time.perf_counter()
            time.sleep(_LOCK_LOOK_S)
            late_s = time.perf_counter() - asleep_at - _LOCK_LOOK_S
            before_s, no_core_s = no_core_s, _no_core_s()  # a processor that is not free is not the lock
            self._looks += 1
            self._late += late_s - (no_core_s - before_s) > _LOCK_LATE_S

    def service(self, per_s: float, cores: float, num_rows: float) -> dict[str, Any]:
        """Return what was seen, as the fields of a `Service`."""
        from headrace.storage.media import Medium, kind_of

        self._is_over = True
        depth, storage = 0, ""
        place, count = next(iter(self._opened.most_common(1)), ("", 0.0))
        if hasattr(self._dataset, "extents"):  # it says where samples lie, and may keep its files open
            place, count = self._dataset.extents(0)[0][0], num_rows
        if count >= _OFTEN * num_rows:
            kind = kind_of(place or ".")
            storage = str(kind)
            has_read = _disk_bytes() > self._disk_bytes
            depth = kind.starting_depth if kind.medium is not Medium.MEMORY and has_read else 0
        return {
            "sample_s": 1 / per_s,
            "cpu_s": cores / per_s,
            "cores": usable_processors(),
            # not beyond the time of a sample: what came behind the last one is in it, too
            "no_core_s": max(0.0, min((_no_core_s() - self._no_core_s) / num_rows, (1 - cores) / per_s)),
            "lock_share": self._late / self._looks if self._looks else 1.0,
            "storage_depth": depth,
            "storage": storage,
        }


def _no_core_s() -> float:
    """Return how long this thread was ready to run and did not, so far."""
    schedule = read_schedule(os.getpid(), tid=threading.get_native_id())
    return schedule[1] if schedule is not None else 0.0


def _disk_bytes() -> int:
    """Return what this process has read from storage so far; 0 where the kernel does not tell."""
    return find_number(read_text("/proc/self/io"), "read_bytes:") or 0


if __name__ == "__main__":
    sys.exit(main())
