"""Runs one candidate for a stretch, in a process of its own: what hangs there, or dies, is a result.

A *host* process imports the target once, for that takes seconds. Each probe is a fork of it, in a process group of its
own, which ends with it: nothing is carried over from one probe to the next. The command and the host talk in lines of
JSON; the command watches time and memory from outside, and ends what goes on for too long.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import logging
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import IO, Any, Self

from headrace.errors import CannotLoadTarget, HeadraceError, InternalError, UnusableInput
from headrace.model import Count, describe_error
from headrace.signals.system import read_all_stats, read_text, read_tree_memory, walk_tree

from .model import Candidate, Service
from .search import Failure, ProbeOutcome

_START_S = 180.0  # to import torch and the user's module, on a slow network disk
_LOOK_EVERY_S = 0.25
_STOP_S = 5.0
_FORK_S = 20.0
_MOST_TEXT = 2000
_PR_SET_PDEATHSIG = 1
_WARM_S = 0.2
_FEWEST_ROUNDS = 4
_LONG_BATCH_S = 0.25
_LOCK_LOOK_S, _LOCK_LATE_S = 0.002, 0.0004
_OFTEN = 0.5  # of the samples: files that are opened more rarely are not theirs


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """What the host found behind the target."""

    dataset: str
    num_samples: int | None  # None: it does not say
    is_indexed: bool
    batch_size: int | None  # of the loader; None where there is none, or it makes no batches
    reads_ahead: bool  # it says where its samples lie
    cores: int  # that may be used
    baseline: Candidate | None


class ProbeHost:
    """A process that has the target, and forks a process for each probe."""

    def __init__(self, target: str, *, memory_bytes: int | None = None, patience_s: float = 20.0) -> None:
        self._target, self._memory_bytes, self._patience_s = target, memory_bytes, patience_s
        self._buffer, self._num_probes, self._started = b"", 0, time.monotonic()
        self.service: Service | None = None  # of the last probe that was in-process

    def __enter__(self) -> Self:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # closed in __exit__
        self._read, write = os.pipe()
        path = os.pathsep.join(part or os.getcwd() for part in sys.path)
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=[write],
            start_new_session=True,  # Ctrl-C is for the command, which ends the session
            env={**os.environ, "PYTHONPATH": path},
        )
        os.close(write)
        try:
            self._tell({"target": self._target, "fd": write})
            first = self._event(_START_S)
            if first is None:
                raise CannotLoadTarget(
                    f"importing {self._target} ended the process that did it, or takes more than {_START_S:.0f} s",
                    it_said=self._said(),
                )
            if first["event"] == "refused":
                raise CannotLoadTarget(first["what"], next_step=first["next_step"], **first["evidence"])
            baseline = first["subject"].pop("baseline")
            self.subject = TargetFacts(**first["subject"], baseline=baseline and Candidate(**baseline))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Its session is its own: whoever is in it belongs to a probe. Several looks, for one may just be forking.
        for _look in range(3):
            for one in [one for one in read_all_stats().values() if one.session == self._child.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            assert self._child.stdin is not None
            self._child.stdin.close()
        self._child.wait()
        os.close(self._read)
        self._errors.close()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def run(self, candidate: Candidate, seconds: float) -> ProbeOutcome:
        """Try a candidate for a stretch; a failure is a result, too."""
        began, self._num_probes = self.elapsed_s, self._num_probes + 1
        self._errors.seek(0, os.SEEK_END)
        said_before = self._errors.tell()
        self._tell({"candidate": asdict(candidate), "seconds": seconds, "seed": self._num_probes})
        started = self._event(_FORK_S)
        if started is None:
            raise InternalError("the process that starts probes does not answer", it_said=self._said())
        pid, found, why, peak = started["pid"], None, None, 0
        deadline = time.monotonic() + self._patience_s + 4 * seconds
        while found is None and why is None:
            found = self._event(_LOOK_EVERY_S)
            peak = max(peak, read_tree_memory(self._child.pid) or 0)  # with the pages that it shares with the host
            if self._memory_bytes is not None and peak > self._memory_bytes:
                why = Failure.MEMORY
            elif time.monotonic() > deadline:
                why = Failure.HUNG
            elif found is None and self._child.poll() is not None:
                raise UnusableInput(
                    f"the process that holds {self._target} has ended: {_ending(self._child.returncode)}",
                    it_said=self._said(),
                )
        facts: dict[str, Any] = dict(found or {})
        is_over = facts.get("event") == "ended" or (why is None and self._has_ended())
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # whoever is left
        if not is_over and not self._has_ended():
            raise InternalError("a probe could not be ended", it_said=self._said())
        said = ""
        if facts.get("event") == "failed":
            why, said = Failure.ERROR, facts["what"]
        elif facts.get("event") == "ended":
            why, said = Failure.DIED, f"{_ending(facts['code'])}\n{self._said(said_before)}"
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

    def _tell(self, document: Any) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(document).encode() + b"\n")
            self._child.stdin.flush()

    def _event(self, patience_s: float) -> dict[str, Any] | None:
        """Return what the host says next; None where nothing came in time, or it has ended."""
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self._read, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _has_ended(self) -> bool:
        """Whether the probe ends in time, whatever it still has to say."""
        while (event := self._event(_STOP_S)) is not None:
            if event["event"] == "ended":
                return True
        return False

    def _said(self, since: int = 0) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(since, size - _MOST_TEXT))
        return self._errors.read().decode(errors="replace").strip()


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


# ---------------------------------------------------------------------------------- inside the host, and its forks


def main() -> int:
    """Find the target, then fork a process for each probe that is asked for."""
    _end_with_parent()
    orders = open(0, "rb", buffering=0)  # noqa: SIM115  # unbuffered: a fork takes nothing of the next one along
    start = json.loads(orders.readline())
    say = partial(_say, start["fd"])
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that are started here would be missing in the forks, which wait for them
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # All that a probe needs is imported before it: each would pay for it anew.
    from headrace.loader import DataLoader, count_rows, load_target, usable_processors  # noqa: F401

    try:
        target = load_target(start["target"])
    except HeadraceError as error:
        evidence = {name: str(value) for name, value in error.evidence.items()}
        say("refused", what=error.what, next_step=error.next_step, evidence=evidence)
        return 0
    say("ready", subject=asdict(_subject_of(target)))
    for line in iter(orders.readline, b""):
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            _end_with_parent()
            orders.close()
            torch.set_num_threads(num_threads)
            _probe(target, json.loads(line), say)
            os._exit(0)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # by both: whoever comes first
        say("started", pid=pid)
        say("ended", code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return 0


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(fd: int, event: str, **facts: Any) -> None:
    line = json.dumps({"event": event, **facts}).encode() + b"\n"
    while line:
        line = line[os.write(fd, line) :]


def _subject_of(target: Any) -> TargetFacts:
    from headrace.loader import usable_processors

    given, baseline = target.loader, None
    if given is not None:
        is_ours = type(given).__module__.startswith("headrace.")
        workers, factor = given.num_workers, given.prefetch_factor
        baseline = Candidate(
            loader="headrace" if is_ours else "torch",
            num_workers=workers,
            backend="thread" if getattr(given, "backend", "") == "thread" else "process",
            batch_size=given.batch_size,
            batches_ahead=workers * factor if workers and factor not in (None, 2) else None,  # 2: what torch takes
            io_depth=getattr(given, "io_depth", None),
        )
    count = None
    with contextlib.suppress(Exception):
        count = len(target.dataset)
    return TargetFacts(
        dataset=type(target.dataset).__name__,
        num_samples=count,
        is_indexed=target.is_indexed,
        batch_size=given.batch_size if given is not None else None,
        reads_ahead=hasattr(target.dataset, "extents"),
        cores=usable_processors(),
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
    settings: dict[str, Any] = {"num_workers": workers, "collate_fn": target.collate_fn}
    if given is None:
        settings["batch_size"] = size
        if target.is_indexed:  # drawn without end: a permutation of a huge data set would not fit
            settings["sampler"] = torch_data.RandomSampler(target.dataset, replacement=True, num_samples=1 << 40)
    else:
        settings["pin_memory"] = given.pin_memory and torch.cuda.is_available()
        if workers:
            names = ("worker_init_fn", "timeout", "multiprocessing_context")
            settings |= {name: getattr(given, name) for name in names}
        if given.batch_size is None and given.batch_sampler is not None:
            settings["batch_sampler"] = given.batch_sampler
        elif isinstance(target.dataset, torch_data.IterableDataset):
            settings |= {"batch_size": size, "drop_last": given.drop_last}
        else:
            settings |= {"batch_size": size, "drop_last": given.drop_last, "sampler": given.sampler}
    ahead = candidate.batches_ahead
    if workers:
        settings |= {"persistent_workers": True, "prefetch_factor": ahead and math.ceil(ahead / workers)}
    if candidate.loader == "torch":
        return torch_data.DataLoader(target.dataset, **settings)
    settings |= {"backend": candidate.backend, "io_depth": candidate.io_depth, "memory": candidate.memory_bytes}
    return DataLoader(target.dataset, **settings)


def _probe(target: Any, order: dict[str, Any], say: Callable[..., None]) -> None:
    """Run one candidate, in a fork of the host; what comes out of it is said."""
    import torch

    try:
        torch.manual_seed(order["seed"])
        candidate = Candidate(**order["candidate"])
        if not candidate.num_workers and target.is_indexed and candidate.batch_size:
            candidate = replace(candidate, batch_size=_short_batch(target.dataset, candidate.batch_size))
        loader = _make_loader(target, candidate)
        say("measured", **_measure(loader, candidate, order["seconds"]))
        del loader  # and its workers
    except BaseException as error:
        say("failed", what=str(describe_error(error)))


def _short_batch(dataset: Any, batch_size: int) -> int:
    """Return how many samples to fetch at a time in-process: fewer where a batch of slow ones would take long."""
    for index in (len(dataset) // 2, len(dataset) // 3):  # the first may import what it needs
        began = time.perf_counter()
        dataset[index]
        fits = int(_LONG_BATCH_S / max(time.perf_counter() - began, 1e-9))
        if fits >= batch_size:
            break
    return max(1, min(batch_size, fits))


def _measure(loader: Any, candidate: Candidate, seconds: float) -> dict[str, Any]:
    """Take batches as fast as they come for a stretch, and return the figures."""
    import numpy as np

    from headrace.causes.recorded import mean_of

    # A round of torch's loader is one batch of each worker: they end together.
    workers = candidate.num_workers
    round_length = workers if workers and candidate.loader == "torch" else 1
    arrivals = _arrivals(loader, otherwise=candidate.batch_size or 1)
    first_s, _ = next(arrivals)
    look, warm_s = (None if workers else _SampleWatch(loader.dataset)), 0.0
    for count in range(4 * round_length):
        warm_s += next(arrivals)[0]
        if count + 1 >= round_length and warm_s >= _WARM_S:
            break
    if look is not None:
        look.start()
    began_cpu_s, elapsed_s, taken = _cpu_s(), 0.0, []
    while elapsed_s < 3 * seconds:
        taken.append(next(arrivals))
        elapsed_s += taken[-1][0]
        if elapsed_s >= seconds and len(taken) >= _FEWEST_ROUNDS * round_length and len(taken) % round_length == 0:
            break
    cores, num_rows = (_cpu_s() - began_cpu_s) / elapsed_s, sum(rows for _, rows in taken)
    each_s = np.array([interval_s / rows for interval_s, rows in taken])
    mean, stats = mean_of(each_s, round_length=round_length), loader.stats() if hasattr(loader, "stats") else None
    times = stats.sample_times if stats is not None else None
    figures = {
        "samples_per_s": num_rows / elapsed_s,
        "error": min(1.0, mean.error / mean.value),
        "measured_s": elapsed_s,
        "num_batches": len(taken),
        "first_batch_s": first_s,
        "cores": cores,
        "batches_ahead": stats.prefetch_batches if stats is not None else candidate.batches_ahead or 0,
        "io_depth": stats.reader.depth if stats is not None and stats.reader is not None else 0,
        "worst_sample_s": times.worst_s if times is not None else 0.0,
    }
    service = look.service(num_rows / elapsed_s, cores, num_rows, float(each_s.max())) if look is not None else None
    return {"figures": figures, "service": service}


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


def _cpu_s() -> float:
    """Return the processor time of this process and its workers so far."""
    others = sum(one.cpu_s + one.cpu_children_s for one in walk_tree([os.getpid()])[1:])
    return time.process_time() + others


class _SampleWatch:
    """What samples are seen to do in this process: hold the interpreter's lock, open files, read from storage."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._looks, self._late, self._is_over = dataset, 0, 0, False
        self._opened: Counter[str] = Counter()
        self._read_bytes, self._no_core_s = -1, 0.0
        sys.addaudithook(self._hear)  # for good: this process ends with its probe

    def start(self) -> None:
        if self._read_bytes < 0:
            self._read_bytes, self._no_core_s = _read_bytes(), _no_core_s()
            self._opened.clear()
            threading.Thread(target=self._watch_lock, daemon=True, name="headrace-lock").start()

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and not args[0].startswith("/proc/"):  # ours
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

    def service(self, per_s: float, cores: float, num_rows: int, worst_s: float) -> dict[str, Any]:
        """Return what was seen, as the fields of a `Service`."""
        from headrace.storage.media import Medium, kind_of

        self._is_over = True
        depth, storage = 0, ""
        place, count = next(iter(self._opened.most_common(1)), ("", 0))
        if hasattr(self._dataset, "extents"):  # it says where samples lie, and may keep its files open
            place, count = self._dataset.extents(0)[0][0], num_rows
        if count >= _OFTEN * num_rows:
            kind = kind_of(place or ".")
            storage = str(kind)
            has_read = _read_bytes() > self._read_bytes
            depth = kind.starting_depth if kind.medium is not Medium.MEMORY and has_read else 0
        return {
            "sample_s": 1 / per_s,
            "cpu_s": cores / per_s,
            "no_core_s": (_no_core_s() - self._no_core_s) / num_rows,
            "lock_share": self._late / self._looks if self._looks else 1.0,
            "worst_s": worst_s,
            "storage_depth": depth,
            "storage": storage,
        }


def _no_core_s() -> float:
    """Return how long this thread was ready to run and did not, so far."""
    fields = read_text("/proc/thread-self/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def _read_bytes() -> int:
    """Return what this process has read from storage so far; 0 where the kernel does not tell."""
    lines = dict(line.split(": ") for line in read_text("/proc/self/io").splitlines() if ": " in line)
    return int(lines.get("read_bytes", 0))


if __name__ == "__main__":
    sys.exit(main())
