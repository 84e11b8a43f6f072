"""A line of code for those who prefer one: `for batch in headrace.monitor(loader):`, `with headrace.phase("save"):`.

At its end: the recording of this very process that `monitor(record=)` makes.
"""

import atexit
import logging
import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import ContextDecorator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pstdev
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from headrace.errors import UnusableInput
from headrace.model import EventKind, find_rank, format_share, recording_place

from .child import leave_python_path, new_run_directory, with_site
from .tape import now, tape

_T = TypeVar("_T")
_Record = bool | str | os.PathLike[str]
_EPOCH, _WAIT, _PHASE = int(EventKind.EPOCH), int(EventKind.WAIT), int(EventKind.PHASE)
_REDRAW_NS = 200_000_000
_log = logging.getLogger("headrace.monitor")
_WINDOW = 200  # batches that "typical" is taken from
_FEWEST = 5
_FACTOR = 3.0
_FEW = 8  # slow batches whose distances are looked at
_NEARLY_ALL = 0.75
_MOST_PHASES = 64  # that are kept
_ended: list[tuple[int, int, str]] = []  # start, end, name: the last ones, for whoever explains a slow step


class Phase(ContextDecorator):
    """Mark what the training loop does besides training, by name.

    Under `headrace run` it is a row of its own in the table of where the time went; a name that speaks of a
    checkpoint, an evaluation or a log counts as that. `headrace.monitor` names it when a step was slow because of
    it. Where neither is there, it costs about a microsecond.

    >>> with phase("checkpoint"):
    ...     pass
    >>> @phase("evaluate")
    ... def evaluate() -> None: ...
    """

    num_ended = 0  # of all of them in this process

    def __init__(self, name: str) -> None:
        self._name = name
        self._starts_ns: list[int] = []

    def __repr__(self) -> str:
        return f"phase({self._name!r})"

    def __enter__(self) -> Self:
        self._starts_ns.append(now())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        start = self._starts_ns.pop()
        end = now()
        tape.write(_PHASE, start, end - start, 0, tape.name(self._name))
        Phase.num_ended += 1
        _ended.append((start, end, self._name))
        del _ended[:-_MOST_PHASES]


phase = Phase  # used as a function is: `with phase("save"):`


def longest_phase(start_ns: int, end_ns: int) -> tuple[str, float] | None:
    """Return the phase that took most of a stretch of time, with its seconds; None where there was none."""
    if not _ended or _ended[-1][1] <= start_ns:  # most steps have none
        return None
    sums: Counter[str] = Counter()
    for start, end, name in _ended:
        sums[name] += max(0, min(end, end_ns) - max(start, start_ns))
    name, inside_ns = sums.most_common(1)[0]
    return (name, inside_ns / 1e9) if inside_ns else None


class SlowBatches:
    """Which batches of one epoch were slow, and what their distances say, as far as the loop alone can know. Pure."""

    def __init__(self, *, num_workers: int = 0, at_least_s: float = 0.05) -> None:
        self._num_workers, self._at_least_s = num_workers, at_least_s
        self._steps: deque[float] = deque(maxlen=_WINDOW)
        self._waits: deque[float] = deque(maxlen=_WINDOW)
        self._slow: deque[int] = deque(maxlen=_FEW)
        self._fast = 0  # batches since the last slow one

    def step_done(self, step_s: float) -> None:
        """Learn how long a step takes, from a batch to the next `next`."""
        self._steps.append(step_s)

    def is_slow(self, seconds: float) -> bool:
        """Whether a wait or a step is far longer than what is typical."""
        if seconds < self._at_least_s:  # most are: medians take longer than all the rest of a batch
            return False
        return seconds > _FACTOR * (self.typical_step_s + (median(self._waits) if self._waits else 0.0))

    @property
    def typical_step_s(self) -> float:
        """The median of the last steps, 0 where there was none."""
        return median(self._steps) if self._steps else 0.0

    def judge(self, number: int, wait_s: float) -> tuple[int, float, str, int] | None:
        """Take in a wait; return its number, length, cause and the fast batches before it if it was slow."""
        is_slow = (number == 0 or len(self._waits) >= _FEWEST) and self.is_slow(wait_s)
        if number:
            self._waits.append(wait_s)
        if not is_slow:
            self._fast += 1
            return None
        fast, self._fast = self._fast, 0
        cause = self._cause(number)
        if number:
            self._slow.append(number)
        return number, wait_s, cause, fast

    def _cause(self, number: int) -> str:
        if number == 0:
            return "epoch_start (the first batch of an epoch)"
        workers = self._num_workers
        distances = [b - a for a, b in pairwise([*self._slow, number])]
        # In lock-step every num_workers-th batch waits, and nearly all of those do.
        if workers > 1 and len(distances) >= 3 and distances.count(workers) >= _NEARLY_ALL * len(distances):
            return f"batch_lockstep (every {workers} batches, which is num_workers)"
        if workers == 0:
            return "straggler_sample (fetched in the training process: num_workers=0)"
        if len(distances) >= 2 and max(distances[-3:]) <= 2:
            return "loader_throughput (batch after batch comes late)"
        return "unknown (a late batch; whether a sample or the pool is slow is seen with `headrace run`)"


@dataclass(frozen=True, kw_only=True)
class MonitorStats:
    """What a monitor has seen so far."""

    batches: int
    slow_batches: int
    wait_median_s: float
    wait_worst_s: float
    wait_share: float  # of the time from the first `next` on
    step_median_s: float  # from a batch to the next `next`


class _Epoch:
    """One pass over the loader: the batches that were not taken in yet, and what judges them."""

    def __init__(self, slow: SlowBatches) -> None:
        self.slow, self.number, self.num_slow = slow, 0, 0  # slow ones since they were last told of
        self.fresh: deque[tuple[int, int, int]] = deque()  # the batch before came, `next` was called, this one came
        self.recent: list[float] = []


class Monitor(Generic[_T]):
    """An iterable that yields the same items as a loader, and logs how long the loop waited for them.

    A batch for which the loop waited more than `slow_s` and more than three typical steps is logged as a warning, with
    its cause as far as it can be seen from here; after every `every` batches their statistics. `bar` is a tqdm bar
    (or the loader itself is one): it shows the last wait, a typical step and the share of waiting.

    `record` writes a run directory, as `headrace run` does: the one that is named, or with True a new one in
    `headrace-runs`. It ends with the program, and `headrace run --report DIR` reads it, also after a crash.

    >>> [item for item in monitor([1, 2, 3])]
    [1, 2, 3]
    """

    def __init__(
        self,
        loader: Iterable[_T],
        *,
        bar: Any = None,
        every: int = 50,
        slow_s: float = 0.05,
        logger: logging.Logger | None = None,
        record: _Record = False,
    ) -> None:
        if every < 2:
            raise ValueError(f"every must be at least 2 batches, got {every}")
        if slow_s <= 0:
            raise ValueError(f"slow_s must be more than 0, got {slow_s}")
        self._loader = loader
        self._bar: Any = bar if bar is not None else loader if hasattr(loader, "set_postfix") else None
        self._every, self._slow_s, self._logger = every, slow_s, logger or _log
        self._waits: deque[float] = deque(maxlen=10_000)
        self._steps: deque[float] = deque(maxlen=10_000)
        self._batches = self._slow = self._epochs = 0
        self._wait_total_s = self._total_s = self._worst_s = 0.0
        self._drawn_ns = 0
        self._running: list[_Epoch] = []
        self._recording = record_here(None if record is True else record) if record else None

    def __repr__(self) -> str:
        return f"Monitor({self._loader!r}, batches={self._batches}, slow={self._slow})"

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # an iterable without a length says so itself

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks for those in the class: the loader's would not work from here
            raise AttributeError(name)
        return getattr(self.__dict__["_loader"], name)

    @property
    def recorded_in(self) -> Path | None:
        """The run directory that `record=` writes; None where nothing is recorded from here."""
        return self._recording.directory if self._recording is not None else None

    def end_recording(self) -> None:
        """Write the recording's end now instead of at the end of the program. Safe to call twice."""
        if self._recording is not None:
            self._recording.end()

    def stats(self) -> MonitorStats:
        """Return the figures so far; medians are of the last 10,000 batches."""
        for epoch in list(self._running):
            self._take_in(epoch)
        return MonitorStats(
            batches=self._batches,
            slow_batches=self._slow,
            wait_median_s=median(self._waits) if self._waits else 0.0,
            wait_worst_s=self._worst_s,
            wait_share=self._wait_share,
            step_median_s=median(self._steps) if self._steps else 0.0,
        )

    @property
    def _wait_share(self) -> float:
        return self._wait_total_s / self._total_s if self._total_s > 0 else 0.0

    def __iter__(self) -> Iterator[_T]:
        name = type(self._loader).__name__
        epochs_before, start = tape.num_epochs, now()
        iterator = iter(self._loader)
        if tape.num_epochs == epochs_before:
            tape.write(_EPOCH, start, now() - start, self._epochs, tape.name(name))
        self._epochs += 1
        workers = getattr(self._loader, "num_workers", None)
        epoch = _Epoch(SlowBatches(num_workers=workers if isinstance(workers, int) else 0, at_least_s=self._slow_s))
        self._running.append(epoch)
        try:
            yield from self._pass(iterator, epoch, name)
        finally:
            self._take_in(epoch)
            self._running.remove(epoch)

    def _pass(self, iterator: Iterator[_T], epoch: _Epoch, name: str) -> Iterator[_T]:
        """Yield batches. For each the times are noted, and no more: they are taken in together, or when one matters."""
        fresh, slow_ns, bar = epoch.fresh, int(self._slow_s * 1e9), self._bar
        room, came_ns, number, phases = self._every, 0, 0, Phase.num_ended
        while True:
            waits_before, start = tape.num_waits, now()
            try:
                batch = next(iterator)
            except StopIteration:
                if came_ns:
                    fresh.append((came_ns, start, 0))
                return
            end = now()
            if tape.num_waits == waits_before and tape.has_lane:  # not a loader that is timed already
                tape.write(_WAIT, start, end - start, number, tape.name(name))
            fresh.append((came_ns, start, end))
            room -= 1
            is_bar_due = bar is not None and end - self._drawn_ns >= _REDRAW_NS
            if not room or end - start >= slow_ns or is_bar_due or Phase.num_ended != phases:
                phases = Phase.num_ended
                self._take_in(epoch)
                room = room or self._every
                if is_bar_due:
                    self._draw((end - start) / 1e9, end, epoch.slow)
            number, came_ns = number + 1, end
            yield batch

    def _take_in(self, epoch: _Epoch) -> None:
        """Take in the times that were noted, in their order, and log what is to be logged."""
        slow = epoch.slow
        while True:
            try:
                came_ns, start, end = epoch.fresh.popleft()
            except IndexError:  # not asked for before: another thread may want the figures, too
                return
            if came_ns:
                self._step_done(epoch.number, came_ns, start, slow)
            if not end:  # the last step of an epoch
                continue
            wait_s = (end - start) / 1e9
            self._batches += 1
            self._waits.append(wait_s)
            self._wait_total_s += wait_s
            self._total_s += wait_s + ((start - came_ns) / 1e9 if came_ns else 0.0)
            self._worst_s = max(self._worst_s, wait_s)
            if (found := slow.judge(epoch.number, wait_s)) is not None:
                self._slow += 1
                epoch.num_slow += 1
                self._logger.warning("[SLOW BATCH #%d] %.2fs - %s (was %d fast batches before)", *found)
            epoch.recent.append(wait_s)
            if len(epoch.recent) == self._every:
                self._tell(epoch.recent, epoch.num_slow)
                epoch.recent, epoch.num_slow = [], 0
            epoch.number += 1

    def _step_done(self, number: int, start_ns: int, end_ns: int, slow: SlowBatches) -> None:
        step_s = (end_ns - start_ns) / 1e9
        found = longest_phase(start_ns, end_ns)
        if found is None:
            self._steps.append(step_s)
            slow.step_done(step_s)
        elif found[1] >= self._slow_s and found[1] >= 0.5 * step_s and slow.is_slow(step_s):
            self._logger.warning("[LONG STEP #%d] %.2fs - phase %s took %.2fs", number - 1, step_s, *found)

    def _tell(self, recent: list[float], num_slow: int) -> None:
        self._logger.info(
            "[DATA LOAD] Recent %d batches: avg=%.1fms, min=%.1fms, max=%.1fms, std=%.1fms",
            len(recent),
            *(1000 * value for value in (fmean(recent), min(recent), max(recent), pstdev(recent))),
        )
        if num_slow:
            said = "[DATA LOAD] Found %d slow batches in recent %d batches (already reported above)"
            self._logger.info(said, num_slow, len(recent))

    def _draw(self, wait_s: float, at_ns: int, slow: SlowBatches) -> None:
        self._drawn_ns = at_ns
        self._bar.set_postfix(
            data=f"{1000 * wait_s:.0f}ms",
            step=f"{1000 * slow.typical_step_s:.0f}ms",  # of the last ones: sorting 10,000 would show in the rate
            wait=format_share(self._wait_share),
            refresh=False,
        )


monitor = Monitor  # used as a function is: `for batch in monitor(loader):`


# ---------------------------------------------------------------------------------------- a recording of this process

# A thread drains, the program's end ends it. What is imported already is timed as under `headrace run`; processes that
# are forked or started later take part. After a kill of the whole process the directory can be read up to the last half
# second.


class SelfRecording:
    """The recording of this process; there is at most one at a time."""

    def __init__(self, directory: Path) -> None:
        from headrace.signals.recording import Recorder, RunFacts

        from .hooks import install_imported

        self.directory = directory
        self._pid = os.getpid()
        facts = replace(RunFacts.here([sys.executable, *sys.argv]), trainer_pid=self._pid)
        self._recorder: Recorder | None = Recorder(directory, facts=facts)
        self._variables = {**self._recorder.environment, "HEADRACE_RUN_DIR": str(directory.resolve())}
        os.environ.update(self._variables, PYTHONPATH=with_site(os.environ.get("PYTHONPATH")))
        atexit.register(self.end)  # before the hooks: what they write at the end is written by then
        tape.start_over()
        install_imported()
        tape.say_role("trainer")
        self._recorder.start()

    def __repr__(self) -> str:
        return f"SelfRecording({str(self.directory)!r}, {self._recorder!r})"

    @property
    def is_on(self) -> bool:
        """Whether it records, in the process that began it."""
        return self._recorder is not None and self._pid == os.getpid()

    def end(self) -> None:
        """Write down the rest and be gone; safe to call twice, and in a fork of the process."""
        if not self.is_on:
            return
        recorder, self._recorder = self._recorder, None
        atexit.unregister(self.end)
        from headrace.signals.recording import close_lane

        for name, value in self._variables.items():
            if os.environ.get(name) == value:
                del os.environ[name]
        leave_python_path()
        tape.write_kept()
        close_lane()
        tape.start_over()
        assert recorder is not None
        ended_by = getattr(sys, "last_type", None) or SystemExit  # what ended the script; at a prompt it ends nothing
        is_error = not hasattr(sys, "ps1") and not issubclass(ended_by, (KeyboardInterrupt, SystemExit))
        try:
            recorder.close(exit_code=1 if is_error else None)
        except OSError as error:  # a full disk: the training's own end is not to fail by it
            _log.warning("the recording in %s has no end: %s", self.directory, error)


_current: SelfRecording | None = None


def record_here(directory: str | os.PathLike[str] | None) -> SelfRecording | None:
    """Record this process from now on; None where somebody else does already, such as `headrace run`."""
    global _current
    if _current is not None and _current.is_on:
        if directory is not None and _of_rank(Path(directory)).resolve() != _current.directory.resolve():
            raise UnusableInput(
                f"this process is recorded in {_current.directory} already",
                asked_for=directory,
                next_step=f"record={str(_current.directory)!r} or record=True here too: loaders share a recording",
            )
        return _current
    if recording_place():
        _log.info("this process is recorded already: record= adds nothing")
        return None
    name = Path(sys.argv[0] if sys.argv else "").stem
    chosen = _of_rank(Path(directory) if directory is not None else new_run_directory(name))
    _current = SelfRecording(chosen)
    _log.info("recording into %s; `headrace run --report %s` reads it", chosen, chosen)
    return _current


def _of_rank(directory: Path) -> Path:
    """Return a directory of this rank's own: the ranks of a training run the same line."""
    rank = find_rank()
    return directory.with_name(f"{directory.name}-rank{rank}") if rank else directory
