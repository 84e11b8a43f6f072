"""From what was sampled in a stretch to what each process did, with its shares since the watch began."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from headrace.signals import Frame, ThreadStack
from headrace.signals.system import ProcessSample, SystemSample, read_open_files, read_threads

from .look import Rates, Standing, TrainerLook, WorkerLook, rates_between
from .processes import ProcessFacts
from .reading import (
    Detail,
    KernelLook,
    StackReading,
    TrainerActivity,
    WorkerActivity,
    is_our_process,
    own_frames,
    read_kernel,
    read_trainer,
    read_trainer_look,
    read_worker,
    refine,
    training_thread,
    worker_threads,
)
from .sampling import KernelSampler, StackWindow, source_line
from .shares import Share, Track

_QUIET = {WorkerActivity.IDLE, WorkerActivity.SENDING, WorkerActivity.STARTING, WorkerActivity.UNKNOWN}
_ALIVE = {TrainerActivity.COMPUTE, TrainerActivity.EVALUATION, TrainerActivity.GC}
_AT_REST = 0.05  # of a core
_T = TypeVar("_T")


class Stillness:
    """Since when neither the place of a process nor the bytes it has moved have changed.

    The bytes matter: of the same heavy call for sample after sample every stack looks alike, but each is sent.
    """

    def __init__(self) -> None:
        self._at: tuple[Hashable, int | None] | None = None
        self._since_s = 0.0

    def note(self, where: Hashable | None, moved_bytes: int | None, at_s: float) -> float:
        """Take in where the process is (None: it moved during the look) and return for how long it has been there."""
        at = None if where is None else (where, moved_bytes)
        if at is None or at != self._at:
            self._at, self._since_s = at, at_s
        return at_s - self._since_s


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Everything that was sampled between two moments."""

    at_s: float
    windows: Mapping[int, StackWindow]  # by trainer
    kernel: KernelSampler
    before: Sequence[SystemSample]
    after: Sequence[SystemSample]
    is_repeated: bool = False  # the windows are those of an earlier stretch

    def window_with(self, pid: int) -> StackWindow | None:
        return next((window for window in self.windows.values() if pid in window.threads), None)

    def rates(self, pid: int) -> Rates:
        seconds = (self.after[0].at_ns - self.before[0].at_ns) / 1e9 if self.before and self.after else 0.0
        return rates_between(_process(self.before, pid), _process(self.after, pid), seconds)

    def moved_bytes(self, pid: int) -> int | None:
        """Bytes read and written so far, through pipes too: every task and every batch makes it grow."""
        sample = _process(self.after, pid)
        if sample is None or sample.read_calls_bytes is None or sample.write_calls_bytes is None:
            return None
        return sample.read_calls_bytes + sample.write_calls_bytes


def _process(samples: Sequence[SystemSample], pid: int) -> ProcessSample | None:
    return next((found for sample in samples if (found := sample.process(pid)) is not None), None)


@dataclass
class _Known:
    """What is kept of one process from stretch to stretch."""

    track: Track = field(default_factory=Track)
    details: Counter[Detail] = field(default_factory=Counter)  # of a trainer
    others: Counter[str] = field(default_factory=Counter)  # of a trainer: where it did something else
    activities: Counter[WorkerActivity] = field(default_factory=Counter)  # of a worker, by its stacks
    kernel: Counter[WorkerActivity] = field(default_factory=Counter)  # of a worker, by the kernel's word
    still: Stillness = field(default_factory=Stillness)


@dataclass
class StretchJudge:
    """Reads stretches one after the other."""

    known: dict[tuple[int, int], _Known] = field(default_factory=dict)

    def _of(self, process: ProcessFacts) -> _Known:
        return self.known.setdefault(process.identity, _Known())

    def forget_others(self, those: Iterable[ProcessFacts]) -> None:
        """Drop what is kept of processes that are gone: a run may start new workers every epoch."""
        kept = {process.identity for process in those}
        self.known = {who: known for who, known in self.known.items() if who in kept}

    def trainer(self, process: ProcessFacts, stretch: Stretch) -> TrainerLook:
        known, pid, source = self._of(process), process.pid, partial(source_line, process.pid)
        window = stretch.window_with(pid)
        thread = training_thread(window.last(pid), source) if window else None
        if window is not None and thread is not None:
            readings, place = _read(window, pid, [thread], lambda frames: read_trainer(frames, source))
            problem = ""
        else:
            looks = stretch.kernel.looks.get(pid, [])
            readings, place = [read_trainer_look(look) for look in looks], _one_kernel_place(looks)
            problem = next((one.problem for one in stretch.windows.values() if one.problem), "none were seen")
        for reading in () if stretch.is_repeated and thread is not None else readings:
            known.track.add(reading.activity)
            known.details[reading.detail] += 1
            known.others.update([str(reading.at or "")] if reading.activity is TrainerActivity.OTHER else [])
        last = readings[-1] if readings else StackReading(TrainerActivity.UNKNOWN)
        rates, standing = stretch.rates(pid), _standing(pid)
        # a loop that computes at one line is at work; one that waits there, and takes no processor, may hang
        waits = rates.cpu_share < _AT_REST and (last.activity not in _ALIVE or standing.state in ("T", "t"))
        return TrainerLook(
            pid=pid,
            started=process.started,
            rank=process.rank,
            command=process.command_line,
            activity=last.activity,
            at=last.at,
            stack=own_frames(thread.frames) if thread is not None else (),
            rates=rates,
            standing=standing,
            shares=_tracked(known.track),
            details={detail: count / known.details.total() for detail, count in known.details.items()},
            num_samples=known.details.total(),
            other_at=next((at for at, _ in known.others.most_common(1)), ""),
            problem=problem,
            same_for_s=known.still.note(place if waits else None, stretch.moved_bytes(pid), stretch.at_s),
        )

    def worker(self, process: ProcessFacts, number: int, trainer_pid: int | None, stretch: Stretch) -> WorkerLook:
        """Say what a worker did. Stacks tell idle from busy; whether busy means reading, the kernel tells."""
        known, pid, source = self._of(process), process.pid, partial(source_line, process.pid)
        window, looks = stretch.window_with(pid), stretch.kernel.looks.get(pid, [])
        threads = worker_threads(window.last(pid)) if window else ()
        if window is not None and threads:
            readings, place = _read(window, pid, threads, lambda frames: read_worker(frames, source))
        else:
            readings, place = [StackReading(read_kernel(look)) for look in looks], _one_kernel_place(looks)
        for reading in () if stretch.is_repeated and threads else readings:
            known.track.add(reading.activity is not WorkerActivity.IDLE)
            known.activities[reading.activity] += 1
        known.kernel.update(map(read_kernel, looks))
        last = readings[-1] if readings else StackReading(WorkerActivity.UNKNOWN)
        num_threads = max(1, len(threads), len(stretch.kernel.worker_threads.get(pid, ())))
        if looks and num_threads == 1:
            last = refine(last, looks[-1])
        own_number = next(iter(process.worker_numbers), number)
        where = None if last.activity in _QUIET else place
        return WorkerLook(
            pid=pid,
            started=process.started,
            trainer_pid=trainer_pid,
            name=f"worker {own_number}" if num_threads == 1 else f"workers 0 to {num_threads - 1}",
            num_workers=num_threads,
            is_ours=bool(process.worker_numbers or (window and is_our_process(window.last(pid)))),
            activity=last.activity,
            at=last.at,
            stack=own_frames(threads[0].frames) if threads else (),
            rates=stretch.rates(pid),
            standing=_standing(pid),
            shares=_worker_shares(known.activities, known.kernel),
            busy=known.track.share(True),
            same_for_s=known.still.note(where, stretch.moved_bytes(pid), stretch.at_s),
        )


def _read(
    window: StackWindow, pid: int, threads: Sequence[ThreadStack], read: Callable[[Sequence[Frame]], _T]
) -> tuple[list[_T], Hashable | None]:
    """What the stacks of some threads say, and the place where one stood through a whole stretch, if it did."""
    stacks = [stack for one in threads for stack in window.of_thread(pid, one.tid)]
    distinct = {id(stack): stack for stack in stacks}
    readings = {key: read(stack.frames) for key, stack in distinct.items()}
    places = {own_frames(stack.frames) for stack in distinct.values()}
    place = next(iter(places)) if len(threads) == len(places) == 1 else None
    return [readings[id(stack)] for stack in stacks], place


def _one_kernel_place(looks: Sequence[KernelLook]) -> Hashable | None:
    """The same from states and system calls, which tell less."""
    places = {(look.state, look.call.name if look.call else "", look.file.path if look.file else "") for look in looks}
    return next(iter(places)) if len(places) == 1 and looks[0].state != "R" else None


def _standing(pid: int) -> Standing:
    """Where the first thread is, and on which file."""
    for thread in read_threads(pid, thread_ids=(pid,)):
        fd = thread.call.descriptor if thread.call else None
        paths = (file.path for file in read_open_files(pid) if file.fd == fd) if fd is not None else iter(())
        call = thread.call.name if thread.call else ""
        return Standing(state=thread.state, call=call, wait_channel=thread.wait_channel, file=next(paths, ""))
    return Standing()


def _tracked(track: Track) -> dict[TrainerActivity, Share]:
    """Shares of what was seen, and of waiting for data in any case: that there was none has an interval, too."""
    seen = Counter(look for look in track.looks if isinstance(look, TrainerActivity))
    found = {activity: track.share(activity) for activity, _ in seen.most_common()}
    return {**found, TrainerActivity.DATA_WAIT: track.share(TrainerActivity.DATA_WAIT)} if found else {}


def _worker_shares(activities: Counter[WorkerActivity], kernel: Counter[WorkerActivity]) -> dict[WorkerActivity, float]:
    """Shares of the time. That inside samples is split by what the kernel saw of the busy looks."""
    shares = {activity: count / activities.total() for activity, count in activities.items()}
    reading = shares.pop(WorkerActivity.READING, 0.0)
    inside = shares.pop(WorkerActivity.DECODING, 0.0) + reading
    split = {kind: kernel[kind] for kind in (WorkerActivity.DECODING, WorkerActivity.READING, WorkerActivity.BLOCKED)}
    if inside and not sum(split.values()):
        return {**shares, WorkerActivity.DECODING: inside}
    for kind, count in split.items():
        if inside and count:
            shares[kind] = shares.get(kind, 0.0) + inside * count / sum(split.values())
    # who stands in a lock where the stack says that he reads has another who reads for him
    for_him = min(shares.get(WorkerActivity.BLOCKED, 0.0), reading)
    if for_him:
        shares[WorkerActivity.BLOCKED] -= for_him
        shares[WorkerActivity.READING] = shares.get(WorkerActivity.READING, 0.0) + for_him
    return shares
