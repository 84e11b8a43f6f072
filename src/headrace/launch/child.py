"""The command that the user named, as a child process that is recorded: its words, its end, what it is doing meanwhile.

Its terminal, signals and exit code are its own: it shares our process group, our terminal and our three standard
streams. A signal from the terminal or from Slurm's step daemon reaches the whole group by itself and is not passed on;
one that was sent to us alone is.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from headrace.errors import UnusableInput
from headrace.model import EventKind, Text, format_seconds, format_share, three_digits
from headrace.signals.system import read_text

_SITE = str(Path(__file__).parent / "site")  # at the head of PYTHONPATH it reaches whatever Python is started
_PASSED_ON = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
)
_UNCATCHABLE = frozenset({signal.SIGKILL, signal.SIGSTOP})
_FROM_KERNEL = 0x80  # SI_KERNEL: a terminal's Ctrl-C, which the child gets as well
_WINDOW_S = 10.0
_QUIET_FROM_S = 3.0  # without an event: then that is what there is to say
_COUNTED = (EventKind.WAIT, EventKind.FETCH, EventKind.IDLE)
_SIGNALS_ALL = "slurmstepd"  # signals every process of a step, so the child gets it as well


def command_of(words: Sequence[str], *, module: Sequence[str] | None = None) -> tuple[list[str], str]:
    """Return the command line for `train.py …`, `-m module …` or any other program, and a name for its directory.

    A file that is no program of its own, or ends in `.py`, is run by this Python.

    >>> argv, name = command_of((), module=("torch.utils.collect_env",))
    >>> argv[1:], name
    (['-m', 'torch.utils.collect_env'], 'collect_env')
    """
    if module:
        return [sys.executable, "-m", *module], module[0].rpartition(".")[2]
    words = list(words[1:] if words and words[0] == "--" else words)
    if not words:
        next_step = "headrace run train.py, or headrace run -- torchrun train.py"
        raise UnusableInput("nothing to run was named", next_step=next_step)
    first = words[0]
    if first.endswith((".py", ".pyc", ".pyz")) or os.path.isfile(os.path.join(first, "__main__.py")):
        if not os.path.exists(first):
            next_step = "the path of the script, as `python` would take it"
            raise UnusableInput(f"there is no script {first!r}", folder=os.getcwd(), next_step=next_step)
        return [sys.executable, *words], Path(first).stem
    if shutil.which(first) is None:
        raise UnusableInput(
            f"{first!r} is neither a script nor a program that can be found",
            folder=os.getcwd(),
            next_step="headrace run train.py, headrace run -m package.train, or headrace run -- torchrun train.py",
        )
    scripts = [word for word in words[1:] if word.endswith(".py")]
    return words, Path(scripts[0] if scripts else first).stem


def new_run_directory(name: str) -> Path:
    """Return where the recording of a run goes if nobody says: `headrace-runs/NAME-TIME`, one that is not there yet."""
    name = re.sub(r"[^\w.-]+", "_", name) or "run"
    stem = Path("headrace-runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (stem.with_name(f"{stem.name}-{number}") for number in count(2))
    return next(directory for directory in chain([stem], others) if not directory.exists())


def with_site(path: str | None) -> str:
    """Return a PYTHONPATH that begins with our folder."""
    # the rest as it is: an empty entry in it means the working directory
    return os.pathsep.join([_SITE, path] if path else [_SITE])


def leave_python_path() -> None:
    """Take our folder out of PYTHONPATH again; what the script did to the rest of it stays."""
    path = os.environ.pop("PYTHONPATH", "")
    if path not in ("", _SITE):
        os.environ["PYTHONPATH"] = path.removeprefix(_SITE + os.pathsep)


@dataclass(frozen=True)
class Ended:
    """How the command ended: with an exit code, or by a signal."""

    returncode: int  # as `subprocess` has it: -15 for SIGTERM
    duration_s: float
    problem: str = ""  # why the recording ended before the command did

    @property
    def exit_code(self) -> int:
        """What a shell shows."""
        return 128 - self.returncode if self.returncode < 0 else self.returncode

    def end_likewise(self) -> int:
        """End this process by the signal that ended the child, else return its exit code."""
        if self.returncode < 0:
            number = -self.returncode
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's core is the one to look at
            sys.stdout.flush()
            sys.stderr.flush()
            try:
                if number not in _UNCATCHABLE:
                    signal.signal(number, signal.SIG_DFL)
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
                os.kill(os.getpid(), number)
            except (OSError, ValueError):  # a number that Python does not know
                pass
        return self.exit_code


def run_recorded(
    command: Sequence[str],
    directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    replay_steps: int = 0,
    observer: Callable[[int, Any], None] | None = None,
    tick: Callable[[], None] | None = None,
) -> Ended:
    """Run a command to its end and record it into a directory.

    `environment` it gets besides our own; `replay_steps` are made on cached batches, which changes the training.
    `observer` gets the pid and the records of each drain, `tick` is called about twice a second.
    """
    from headrace.signals.recording import Recorder, RunFacts

    waited_for = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        facts = replace(RunFacts.here(command), replay_steps=replay_steps)
        with Recorder(directory, facts=facts, observer=observer) as recorder:
            environment = {
                **os.environ,
                **(environment or {}),
                **recorder.environment,
                "HEADRACE_REPLAY": str(replay_steps),
                "HEADRACE_RUN_DIR": str(directory.resolve()),
                "PYTHONPATH": with_site(os.environ.get("PYTHONPATH")),
            }
            started, problem = time.monotonic(), ""
            try:
                child = subprocess.Popen(
                    command,
                    env=environment,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509  # no threads yet
                )
            except OSError as error:
                what, next_step = f"{command[0]!r} could not be started", "the program itself, to see why"
                raise UnusableInput(what, error=error.strerror, next_step=next_step) from error
            recorder.watch(child.pid)
            while child.poll() is None:
                received = signal.sigtimedwait(waited_for, recorder.pause_s)
                if received is not None and received.si_signo in _PASSED_ON and _is_for_us_alone(received):
                    child.send_signal(received.si_signo)
                if problem:
                    continue
                try:
                    recorder.step()
                    if tick is not None:
                        tick()
                except Exception as error:  # a full disk ends the recording, not the training
                    problem = f"{type(error).__name__}: {error}"
            duration_s = time.monotonic() - started
            try:
                recorder.close(exit_code=child.returncode)
            except Exception as error:
                problem = problem or f"{type(error).__name__}: {error}"
        return Ended(child.returncode, duration_s, problem)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_for_us_alone(received: signal.struct_siginfo) -> bool:
    sender = read_text(f"/proc/{received.si_pid}/comm").strip()
    return received.si_code != _FROM_KERNEL and sender != _SIGNALS_ALL


# ---------------------------------------------------------------------------------------- what it is doing now


class LiveTally:
    """Sums of events over the last seconds."""

    def __init__(self) -> None:
        self._steps = 0
        self._trainers: set[int] = set()
        self._has_workers = False
        self._last_s = 0.0
        # when, what; how many, their seconds, the longest
        self._recent: deque[tuple[float, EventKind, int, float, float]] = deque()

    def feed(self, pid: int, records: Any, now_s: float) -> None:
        """Take in the records that a process has written since the last time."""
        for kind in _COUNTED:
            chosen = records[records["kind"] == int(kind)]
            if len(chosen):
                count, durations_s = int((chosen["value"] >= 0).sum()), chosen["duration_ns"] / 1e9
                self._recent.append((now_s, kind, count, float(durations_s.sum()), float(durations_s.max())))
                self._has_workers |= kind is EventKind.IDLE
                if kind is EventKind.WAIT:
                    self._trainers.add(pid)
                    self._steps += count
        if len(records):
            self._last_s = now_s

    def said(self, now_s: float) -> Text:
        """Say what the last seconds were like, over all training processes."""
        if not self._trainers:
            return Text("no batch yet", "还没有取到 batch")
        if (quiet_s := now_s - self._last_s) >= _QUIET_FROM_S:
            return Text(
                "{steps:step(s)}, and nothing that is timed for {quiet}",
                "{steps} 步，已有 {quiet} 没有任何被计时的事发生",
            ).filled(steps=self._steps, quiet=format_seconds(quiet_s))
        while self._recent and self._recent[0][0] < now_s - _WINDOW_S:
            self._recent.popleft()
        first_s = self._recent[0][0] if self._recent else now_s
        span_s = max(0.5, min(_WINDOW_S, now_s - first_s + 0.5))
        waits, fetched, idled = ([row[2:] for row in self._recent if row[1] is kind] for kind in _COUNTED)
        waited_s, fetched_s, idled_s = (sum(seconds for _, seconds, _ in rows) for rows in (waits, fetched, idled))
        busy = Text("", "")
        if self._has_workers and fetched_s + idled_s:
            share = format_share(fetched_s / (fetched_s + idled_s))
            busy = Text(f", workers busy {share}", f"，worker 忙碌 {share}")
        return Text(
            "{steps:step(s)}, {rate}/s, waiting for data {share}, worst wait {worst}{busy}",
            "{steps} 步，{rate} 步/秒，等数据 {share}，最长等待 {worst}{busy}",
        ).filled(
            steps=self._steps,
            rate=three_digits(sum(count for count, _, _ in waits) / span_s),
            share=format_share(min(1.0, waited_s / (span_s * len(self._trainers)))),
            worst=format_seconds(max((longest for _, _, longest in waits), default=0.0)),
            busy=busy,
        )
