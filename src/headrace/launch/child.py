"""The command as a child process: its terminal, signals and exit code are its own, and we record it meanwhile.

The child shares our process group, our terminal and our three standard streams. A signal from the terminal or from
Slurm's step daemon reaches the whole group by itself and is not passed on; one that was sent to us alone is.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.errors import UnusableInput
from headrace.signals.recording import Recorder, RunFacts
from headrace.signals.system import read_text

from .command import with_site

_PASSED_ON = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
)
_UNCATCHABLE = frozenset({signal.SIGKILL, signal.SIGSTOP})
_FROM_KERNEL = 0x80  # SI_KERNEL: a terminal's Ctrl-C, which the child gets as well
_SIGNALS_ALL = "slurmstepd"  # signals every process of a step, so the child gets it as well


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
