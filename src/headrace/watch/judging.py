"""From what was sampled in a stretch to what each process did, with its shares since the watch began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.signals import Frame, ThreadStack
from headrace.signals.system import Call, OpenFile, ProcessSample, SystemSample, read_open_files, read_threads

from .look import Rates, Standing, TrainerLook, WorkerLook, rates_between
from .processes import ProcessFacts
from .reading import (
    Detail,
    KernelLook,
    TrainerActivity,
    TrainerReading,
    WorkerActivity,
    WorkerReading,
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
from .sampling import KernelSampler, SourceLines, StackWindow
from .shares import Share, Track

_QUIET = {WorkerActivity.IDLE, WorkerActivity.SENDING, WorkerActivity.STARTING, WorkerActivity.UNKNOWN}
_ALIVE = {TrainerActivity.COMPUTE, TrainerActivity.EVALUATION, TrainerActivity.GC}
_ON_A_FILE = {
    *("read", "pread64", "readv", "preadv", "write", "recvfrom", "recvmsg", "recvmmsg", "connect"),
    *("fcntl", "flock", "fsync", "fdatasync", "getdents64", "fstat"),
}
# Files that a process has open for reasons of its own.
_NOT_DATA = ("/dev/", "/memfd:", "/proc/", "/sys/", "/tmp/pymp-", "anon_inode:")
_NOT_DATA_ENDS = (".so", ".py", ".pyc", ".log", ".out", ".err", " (deleted)")


class Stillness:
    """Since when neither the place of a process nor the bytes it has moved have changed.

    The bytes matter: of a worker that does the same heavy call for sample after sample, every stack looks alike, but
    each task and each batch goes through a pipe.
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
    problem: str = ""
    is_repeated: bool = False  # the windows are those of an earlier stretch: nothing changes that is worth their price

    def window_with(self, pid: int) -> StackWindow | None:
        """The window in which a process was seen."""
        return next((window for window in self.windows.values() if pid in window.threads), None)

    def rates(self, pid: int) -> Rates:
        first, second = _process(self.before, pid), _process(self.after, pid)
        seconds = (self.after[0].at_ns - self.before[0].at_ns) / 1e9 if self.before and self.after else 0.0
        return rates_between(first, second, seconds)

    def moved_bytes(self, pid: int) -> int | None:
        return _moved_bytes(_process(self.after, pid))

    def moved_nothing(self, pid: int) -> bool:
        """Whether a process has read and written no byte: no batch went through it."""
        before = _moved_bytes(_process(self.before, pid))
        return before is not None and before == self.moved_bytes(pid)


def _process(samples: Sequence[SystemSample], pid: int) -> ProcessSample | None:
    return next((found for sample in samples if (found := sample.process(pid)) is not None), None)


def _moved_bytes(sample: ProcessSample | None) -> int | None:
    """Bytes read and written so far, through pipes too: every task and every batch makes it grow."""
    if sample is None or sample.read_calls_bytes is None or sample.write_calls_bytes is None:
        return None
    return sample.read_calls_bytes + sample.write_calls_bytes


@dataclass
class _Known:
    """What is kept of one process from stretch to stretch."""

    source: SourceLines
    track: Track = field(default_factory=Track)
    details: Counter[Detail] = field(default_factory=Counter)
    still: Stillness = field(default_factory=Stillness)
    files: tuple[OpenFile, ...] = ()


@dataclass
class StretchJudge:
    """Reads stretches one after the other; remembers tracks, stillness and files by process."""

    known: dict[tuple[int, int], _Known] = field(default_factory=dict)

    def _of(self, process: ProcessFacts) -> _Known:
        return self.known.setdefault(process.identity, _Known(SourceLines(process.pid)))

    def forget_others(self, those: Iterable[ProcessFacts]) -> None:
        """Drop what is kept of processes that are gone: a run may start new workers every epoch."""
        kept = {process.identity for process in those}
        self.known = {who: known for who, known in self.known.items() if who in kept}

    # ------------------------------------------------------------------------------------ trainers

    def trainer(self, process: ProcessFacts, stretch: Stretch) -> TrainerLook:
        """Say what a trainer did."""
        known = self._of(process)
        window = stretch.window_with(process.pid)
        thread = training_thread(window.last(process.pid), known.source) if window else None
        looks = stretch.kernel.looks.get(process.pid, [])
        if window is not None and thread is not None:
            stacks = window.of_thread(process.pid, thread.tid)
            read = {id(stack): read_trainer(stack.frames, known.source) for stack in stacks}
            readings = [read[id(stack)] for stack in stacks]
            stack, source, problem = own_frames(thread.frames), "py-spy", ""
            place = _one_place(stacks)
        else:
            readings = [read_trainer_look(look) for look in looks]
            stack, source, place = (), "kernel", _one_kernel_place(looks)
            problem = stretch.problem or next((w.problem for w in stretch.windows.values() if w.problem), "")
        for reading in () if stretch.is_repeated and source == "py-spy" else readings:
            known.track.add(reading.activity)
            known.details[reading.detail] += 1
        last = readings[-1] if readings else TrainerReading(TrainerActivity.UNKNOWN)
        if looks and looks[-1].state in "Tt":
            last = TrainerReading(TrainerActivity.OTHER, last.at, Detail.STOPPED)
        rates = stretch.rates(process.pid)
        # a loop that computes at one line is at work; one that waits there, and takes no processor, may hang
        waits = last.activity not in _ALIVE and rates.cpu_share < 0.05
        return TrainerLook(
            pid=process.pid,
            started=process.started,
            rank=process.rank,
            command=process.command_line,
            reading=last,
            stack=stack,
            rates=rates,
            standing=_standing(process, known),
            window=_shares([reading.activity for reading in readings]),
            shares=_tracked(known.track),
            details={detail: count / known.details.total() for detail, count in known.details.items()},
            num_samples=known.details.total(),
            source=source,
            problem=problem,
            same_for_s=known.still.note(place if waits else None, stretch.moved_bytes(process.pid), stretch.at_s),
        )

    # ------------------------------------------------------------------------------------ workers

    def worker(self, process: ProcessFacts, number: int, trainer_pid: int | None, stretch: Stretch) -> WorkerLook:
        """Say what a worker did. Stacks tell idle from busy; whether busy means reading, the kernel tells."""
        known = self._of(process)
        window = stretch.window_with(process.pid)
        looks = stretch.kernel.looks.get(process.pid, [])
        threads = worker_threads(window.last(process.pid)) if window else ()
        stacks: tuple[ThreadStack, ...] = ()
        if window is not None and threads:
            stacks = tuple(stack for one in threads for stack in window.of_thread(process.pid, one.tid))
            read = {id(stack): read_worker(stack.frames, known.source) for stack in stacks}
            readings = [read[id(stack)] for stack in stacks]
            place = _one_place(stacks) if len(threads) == 1 else None
        else:
            readings = [WorkerReading(read_kernel(look)) for look in looks]
            place = _one_kernel_place(looks)
        for reading in () if stretch.is_repeated and stacks else readings:
            known.track.add(reading.activity is WorkerActivity.IDLE)
        last = readings[-1] if readings else WorkerReading(WorkerActivity.UNKNOWN)
        num_threads = max(1, len(threads), len(stretch.kernel.worker_threads.get(process.pid, ())))
        if looks and num_threads == 1:
            last = refine(last, looks[-1])
        idle = known.track.share(True)
        busy = Share(value=1 - idle.value, low=1 - idle.high, high=1 - idle.low, num_samples=idle.num_samples)
        return WorkerLook(
            pid=process.pid,
            started=process.started,
            trainer_pid=trainer_pid,
            name=_worker_name(process, number, num_threads),
            num_workers=num_threads,
            is_ours=bool(process.worker_numbers or (window and is_our_process(window.last(process.pid)))),
            activity=last.activity,
            at=last.at,
            stack=own_frames(threads[0].frames) if threads else (),
            rates=stretch.rates(process.pid),
            standing=_standing(process, known, stretch.kernel.files.get(trainer_pid or 0, ())),
            shares=_worker_shares([reading.activity for reading in readings], looks),
            busy=busy if idle.num_samples else idle,
            same_for_s=known.still.note(
                None if last.activity in _QUIET else place, stretch.moved_bytes(process.pid), stretch.at_s
            ),
        )


def _standing(process: ProcessFacts, known: _Known, parents_files: Sequence[OpenFile] = ()) -> Standing:
    """Where the first thread is, from the last cheap look and one thorough one."""
    threads = read_threads(process.pid, thread_ids=(process.pid,))
    if not threads:
        return Standing()
    thread = threads[0]
    before, known.files = known.files, read_open_files(process.pid)
    inherited = {file.path for file in parents_files}
    file = _file_of(thread.call, known.files) or data_file(known.files, before, inherited=inherited)
    return Standing(
        state=thread.state,
        call=thread.call.name if thread.call else "",
        wait_channel=thread.wait_channel,
        file=file.path if file else "",
        position=file.position if file else None,
        size_bytes=file.size if file else None,
    )


def _file_of(call: Call | None, files: Sequence[OpenFile]) -> OpenFile | None:
    """The file that a system call works on, where its first argument is a descriptor."""
    if call is None or call.name not in _ON_A_FILE:
        return None
    return next((file for file in files if file.fd == call.args[0]), None)


def data_file(
    files: Sequence[OpenFile], earlier: Sequence[OpenFile] = (), *, inherited: Collection[str] = ()
) -> OpenFile | None:
    """The open file that looks like data: the one whose position moved, else the last one opened.

    `inherited`: paths that the parent has open too; a worker got them with the fork and reads none of them.
    """
    data = [
        file
        for file in files
        if file.kind == "file"
        and file.fd > 2
        and file.path not in inherited
        and not file.path.startswith(_NOT_DATA)
        and not file.path.endswith(_NOT_DATA_ENDS)
    ]
    before = {(file.fd, file.path): file.position for file in earlier}
    moved = [file for file in data if before.get((file.fd, file.path), file.position) != file.position]
    known = moved or data
    return known[-1] if known else None


def _worker_name(process: ProcessFacts, number: int, num_threads: int) -> str:
    if num_threads > 1:
        return f"workers 0 to {num_threads - 1}"
    return f"worker {next(iter(process.worker_numbers), number)}"


def _shares(activities: Sequence[TrainerActivity]) -> dict[TrainerActivity, float]:
    counts = Counter(activities)
    return {activity: count / len(activities) for activity, count in counts.most_common()}


def _tracked(track: Track) -> dict[TrainerActivity, Share]:
    """Shares of what was seen, and of waiting for data in any case: that there was none has an interval, too."""
    seen = Counter(look for look in track.looks if isinstance(look, TrainerActivity))
    found = {activity: track.share(activity) for activity, _ in seen.most_common()}
    return {**found, TrainerActivity.DATA_WAIT: track.share(TrainerActivity.DATA_WAIT)} if found else {}


def _worker_shares(activities: Sequence[WorkerActivity], looks: Sequence[KernelLook]) -> dict[WorkerActivity, float]:
    """Shares of a stretch. The time inside samples is split by what the kernel saw of the busy looks."""
    if not activities:
        return {}
    counts = Counter(activities)
    shares = {activity: count / len(activities) for activity, count in counts.items()}
    reading = shares.pop(WorkerActivity.READING, 0.0)
    inside = shares.pop(WorkerActivity.DECODING, 0.0) + reading
    seen = Counter(map(read_kernel, looks))
    split = {kind: seen[kind] for kind in (WorkerActivity.DECODING, WorkerActivity.READING, WorkerActivity.BLOCKED)}
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


def _one_place(stacks: Sequence[ThreadStack]) -> Hashable | None:
    """The place where a thread stood through a whole stretch; None where it moved."""
    places: set[tuple[Frame, ...]] = {own_frames(stack.frames) for stack in {id(s): s for s in stacks}.values()}
    return next(iter(places)) if len(places) == 1 else None


def _one_kernel_place(looks: Sequence[KernelLook]) -> Hashable | None:
    """The same from states and system calls, which tell less."""
    places = {(look.state, look.call.name if look.call else "", look.file.path if look.file else "") for look in looks}
    return next(iter(places)) if len(places) == 1 and looks[0].state != "R" else None
