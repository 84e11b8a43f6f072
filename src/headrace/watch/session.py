"""Watching a training: stretch by stretch, what its processes did, until it ends or nobody asks any more."""

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Self

from headrace.errors import UnusableInput
from headrace.forensics import look_at, recognise
from headrace.model import utc_now
from headrace.signals import ThreadStack, dump_with_py_spy, find_py_spy
from headrace.signals.recording import SystemSampler
from headrace.signals.system import SystemSample, read_text

from .alarms import AlarmSettings, AlarmState
from .judging import Stretch, StretchJudge
from .look import Look, machine_look
from .processes import Cast, End, EndWatch, ProcessFacts, Role, TrainingTree, cast_of, explain_refusal, is_running
from .sampling import KernelSampler, StackSampler, StackWindow

_KERNEL_LOOKS_PER_S = 10
_PATIENCE_S = 20.0  # for a py-spy that should have ended
_MOST_FIRST_DUMPS = 64
_ALWAYS_S = 6.0  # stacks at first; `--once` takes five seconds
_STACKS_SHARE = 0.01  # of a core, for stacks afterwards
_SELDOMEST_S = 30.0  # between stacks, whatever they take: one that hangs is to be seen
_TRAINERS_GONE_S = 10.0  # a launcher that restarts its ranks takes a few seconds


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    interval_s: float = 2.0  # a stretch: long enough for a share, short enough for a screen
    rate_per_s: int = 20  # stacks: a wait of 50 ms is seen, and py-spy takes a few percent of one core
    use_stacks: bool = True
    alarms: AlarmSettings = field(default_factory=AlarmSettings)


class WatchSession:
    """Attached to a training from outside. It reads, and never stops, signals or changes what it watches."""

    def __init__(self, target: str | int, settings: WatchSettings | None = None) -> None:
        self.settings = settings or WatchSettings()
        self.target = str(target)
        self._tree = TrainingTree()
        self._stacks: dict[tuple[int, int], tuple[ThreadStack, ...]] = {}
        self._exit = ExitStack()
        self._ends = self._exit.enter_context(closing(EndWatch()))
        self._alarms = AlarmState(self.settings.alarms)
        self._judge = StretchJudge()
        self._windows: dict[int, StackWindow] = {}  # the last ones, by trainer
        self._stacks_at_s = self._stacks_cpu_s = 0.0
        self._kernel = KernelSampler()
        self._samplers: dict[int, SystemSampler] = {}
        self._samples: dict[int, SystemSample] = {}
        self.ends: list[End] = []
        self._gone_since_s: float | None = None
        try:
            self.roots = self._find(self.target)
            self.cast = self._cast()
        except BaseException:
            self._exit.close()
            raise
        self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of everything; the training goes on as it was."""
        self._exit.close()

    def __repr__(self) -> str:
        return f"WatchSession({self.target}, {len(self.cast.of(Role.TRAINER))} trainers)"

    @property
    def watched_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def has_ended(self) -> bool:
        """Whether the training is over: what was named is gone, or its trainers are and stay so."""
        if not any(is_running(pid) for pid in self.roots):
            return True
        return self._gone_since_s is not None and time.monotonic() - self._gone_since_s > _TRAINERS_GONE_S

    def _find(self, target: str) -> tuple[int, ...]:
        """The processes that a target names: a pid, or a text of command lines."""
        which = "`ps aux | grep python` shows which trainings run here"
        if not target.isdecimal():
            if found := self._tree.matching(target):
                return found
            raise UnusableInput(f"no process has {target!r} in its command line", next_step=which)
        if not is_running(int(target)):
            raise UnusableInput(f"there is no process {target}", next_step=which)
        return (int(target),)

    def _cast(self) -> Cast:
        """Who is who below the target; a worker or helper is taken for the trainer above it."""
        cast = self._look_around(self.roots)
        if not cast.of(Role.TRAINER):
            cast = self._cast_above(cast)
        trainers = cast.of(Role.TRAINER)
        if not any(trainer.is_readable for trainer in trainers):
            raise _refused(trainers[0].pid)
        self._hold(cast)
        return cast

    def _cast_above(self, cast: Cast) -> Cast:
        for parent in self._tree.parents_of(self.roots[0])[:3]:
            above = self._look_around((parent,))
            is_of_a_worker = any(above.roles.get(pid) is Role.WORKER for pid in self.roots)
            if above.roles.get(parent) is Role.TRAINER and is_of_a_worker:
                self.roots = (parent,)
                return above
        if hidden := [process for process in cast.processes if not process.is_readable]:
            raise _refused(hidden[0].pid)
        raise UnusableInput(
            "this is not a Python training: no process of it has torch loaded",
            processes=", ".join(f"{process.pid} {process.name}" for process in cast.processes[:6]),
            next_step="name the pid of the training or of its parent; if it has only just started, try again",
        )

    def _hold(self, cast: Cast) -> None:
        """Hold on to the processes whose ends matter."""
        for process in cast.processes:
            if process.pid in self.roots or cast.roles[process.pid] in (Role.TRAINER, Role.WORKER):
                self._ends.hold(process.pid)

    def _look_around(self, roots: Sequence[int]) -> Cast:
        processes = self._tree.below(roots)
        if self.settings.use_stacks and find_py_spy() is not None:
            self._ask_newcomers(processes)
        stacks = {one.pid: known for one in processes if (known := self._stacks.get(one.identity))}
        return cast_of(processes, stacks)

    def _ask_newcomers(self, processes: Sequence[ProcessFacts]) -> None:
        """One stack of each Python process that was not seen before: it tells a worker from a trainer."""
        newcomers = [one for one in processes if one.is_python and one.identity not in self._stacks]
        for process in newcomers[:_MOST_FIRST_DUMPS]:
            # one that gives no stack is not asked again: the stretches will tell, or nothing will
            found = dump_with_py_spy(process.pid, native=False, pauses=False, timeout_s=5.0)
            self._stacks[process.identity] = found.threads
        self._stacks = {one.identity: self._stacks[one.identity] for one in processes if one.identity in self._stacks}

    def looks(self, *, until: Callable[[], bool] = lambda: False) -> Iterator[Look]:
        """Yield what was seen, a stretch at a time, until the training ends or `until` says so."""
        self._sample_system()
        while True:
            yield self._stretch()
            if self.has_ended or until():
                return
            self.cast = self._look_around(self.roots)
            self._hold(self.cast)

    def _stretch(self) -> Look:
        cast, trainers = self.cast, self.cast.of(Role.TRAINER)
        self._gone_since_s = None if trainers else self._gone_since_s or time.monotonic()
        self._kernel.begin({pid: [worker.pid for worker in crew] for pid, crew in cast.crews.items()})
        before = tuple(self._samples.values())
        is_repeated = not self._stacks_are_due()
        ended = self._wait(trainers) if is_repeated else self._sample_stacks(cast)
        ended += self._ends.wait(0)
        self.ends += ended
        self._sample_system()
        stretch = Stretch(
            at_s=self.watched_s,
            windows=self._windows,
            is_repeated=is_repeated,
            kernel=self._kernel,
            before=before,
            after=tuple(self._samples.values()),
        )
        return self._make_look(cast, stretch, tuple(ended))

    def _stacks_are_due(self) -> bool:
        """Whether to sample stacks in this stretch; else it keeps what the last one with them has shown.

        A py-spy that starts reads the symbols of every process (80 ms of CPU time for three), and each sample of them
        takes 2 ms: stacks in every stretch of two seconds take 8 % of a core. A training does the same for hours, so
        after some seconds they may take 1 %. Where there are none, the kernel's looks are new each time.
        """
        if self.watched_s < _ALWAYS_S or any(window.problem for window in self._windows.values()):
            return True
        return self.watched_s - self._stacks_at_s >= min(self._stacks_cpu_s / _STACKS_SHARE, _SELDOMEST_S)

    def _sample_stacks(self, cast: Cast) -> list[End]:
        """Let the stretch pass with a py-spy for each trainer."""
        trainers, used_s = cast.of(Role.TRAINER), _children_cpu_s()
        if not self.settings.use_stacks:
            self._windows = {one.pid: StackWindow(problem="stacks are switched off") for one in trainers}
            return self._wait(trainers)
        with ExitStack() as samplers:
            seconds, rate = self.settings.interval_s, self.settings.rate_per_s
            running = {
                one.pid: samplers.enter_context(closing(StackSampler(one.pid, seconds=seconds, rate_per_s=rate)))
                for one in trainers
            }
            ended = self._wait(trainers)
            self._windows = {pid: _explained(pid, one.finish(timeout_s=_PATIENCE_S)) for pid, one in running.items()}
        self._stacks_cpu_s, self._stacks_at_s = _children_cpu_s() - used_s, self.watched_s
        for process in cast.processes:
            for window in self._windows.values():
                if last := window.last(process.pid):
                    self._stacks[process.identity] = last
        return ended

    def _wait(self, trainers: Sequence[ProcessFacts]) -> list[End]:
        """Let the stretch pass, with cheap looks at the threads, and end it early when all trainers are gone."""
        deadline = time.monotonic() + self.settings.interval_s
        ended: list[End] = []
        while (left := deadline - time.monotonic()) > 0:
            ended += self._ends.wait(min(left, 1 / _KERNEL_LOOKS_PER_S))
            self._kernel.look()
            if trainers and not any(is_running(trainer.pid) for trainer in trainers):
                break
        return ended

    def _sample_system(self) -> None:
        for pid in self.roots:
            if pid not in self._samplers:
                self._samplers[pid] = SystemSampler(pid, gpus=not self._samplers)
                self._exit.callback(self._samplers[pid].close)
            self._samples[pid] = self._samplers[pid].sample()

    def _make_look(self, cast: Cast, stretch: Stretch, ended: tuple[End, ...]) -> Look:
        all_trainers = cast.of(Role.TRAINER)
        all_workers = [(one, number, pid) for pid, crew in cast.crews.items() for number, one in enumerate(crew)]
        self._judge.forget_others([*all_trainers, *(one for one, _, _ in all_workers)])
        trainers = tuple(self._judge.trainer(one, stretch) for one in all_trainers)
        workers = tuple(self._judge.worker(*one, stretch) for one in all_workers)
        machine = machine_look(next(iter(stretch.before), None), stretch.after[0])
        has_stacks = any(window.threads for window in stretch.windows.values())
        gone = {end.pid for end in ended}
        return Look(
            at=utc_now(),
            watched_s=self.watched_s,
            stacks_age_s=self.watched_s - self._stacks_at_s if has_stacks else None,
            trainers=tuple(one for one in trainers if one.pid not in gone),
            workers=tuple(one for one in workers if one.pid not in gone),
            machine=machine,
            alarms=self._alarms.handle(self.watched_s, trainers, workers, machine, ended),
            ended=ended,
        )

    def dump(self) -> str:
        """Write down of each process what holds it, its threads, files, locks and stacks, which stop it a moment."""
        lines = [f"headrace watch --dump, {utc_now()}"]
        for process in self.cast.processes:
            role, report = self.cast.roles[process.pid], look_at(process.pid, use_py_spy=process.is_python)
            rank = "" if process.rank is None else f", rank {process.rank}"
            lines += ["", f"=== {role.value} {process.pid}{rank}: {process.command_line}"]
            lines += [f"it {recognise(report).said()}", str(report)]
        pids = {str(process.pid) for process in self.cast.processes}
        locks = [line for line in read_text("/proc/locks").splitlines() if pids & set(line.split())]
        lines += ["", "file locks of these processes (/proc/locks):", *locks] if locks else []
        return "\n".join(lines) + "\n"


def _refused(pid: int) -> UnusableInput:
    why, what = explain_refusal(pid)
    return UnusableInput(f"process {pid} may not be looked into", reason=why, next_step=what)


def _children_cpu_s() -> float:
    """CPU time of the children that have ended: of every py-spy so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _explained(pid: int, window: StackWindow) -> StackWindow:
    """A refusal of the system with its reason, and with what would help."""
    if "ermission" not in window.problem:
        return window
    why, what = explain_refusal(pid)
    return StackWindow(problem=f"{why}; try {what}")
