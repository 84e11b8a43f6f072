"""Python stacks of a worker from outside: a signal handler that needs no user code, or py-spy where it is installed."""

import contextlib
import ctypes
import faulthandler
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .system import Fd, anonymous_file, catches, read_status

_HEADER = "headrace-stacks signal="
_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+|\?+) in (?P<function>.+)')
_THREAD = re.compile(r"(?P<current>Current thread|Thread|Stack)\b.*\(most recent call first\):")
_PR_SET_PTRACER = 0x59616D61
_QUIET_S = 0.03  # a dump is complete when nothing was added for so long


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One call: of Python, or (`is_native`) of a library."""

    file: str
    line: int
    function: str
    is_native: bool = False

    def __str__(self) -> str:
        if self.is_native:
            return f"{self.function} in {os.path.basename(self.file)}" if self.file else self.function
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}"


@dataclass(frozen=True, kw_only=True)
class ThreadStack:
    """The calls of one thread, innermost first."""

    name: str
    tid: int | None  # of the system; None where the source does not tell
    frames: tuple[Frame, ...]
    is_main: bool
    owns_gil: bool | None = None

    @property
    def python(self) -> tuple[Frame, ...]:
        return tuple(frame for frame in self.frames if not frame.is_native)


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """What was found, from where, and what stood in the way."""

    source: str  # "py-spy --native", "py-spy", "faulthandler" or ""
    threads: tuple[ThreadStack, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        lines = []
        for thread in self.threads:
            name = thread.name or ("main thread" if thread.is_main else "another thread")
            lines.append(f"{name}{' (holds the GIL)' if thread.owns_gil else ''}:")
            lines += [f"  {frame}" for frame in thread.frames] or ["  no Python frame"]
        return "\n".join(lines)


class StackFile(Fd):
    """A small memory file into which a worker's signal handler writes; travels to the worker by any start method."""

    @classmethod
    def create(cls) -> Self:
        """Make one in the training process, for one worker process."""
        fd = anonymous_file("headrace-stacks")
        # every process that has it shares one file position: writes go to the end instead
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
        return cls(fd)

    def read(self, start: int = 0) -> str:
        return os.pread(self.fd, self.size(), start).decode("utf-8", "replace")

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def signal_number(self) -> int | None:
        """Which signal the worker listens to; None before it has said so."""
        found = re.search(f"^{_HEADER}(\\d+)$", self.read(), re.MULTILINE)
        return int(found[1]) if found is not None else None

    def crash(self) -> tuple[Frame, ...]:
        """The Python frames of a crash, innermost first; empty where the worker did not crash (or could not tell)."""
        _, found, text = self.read().rpartition("Fatal Python error:")
        if not found:
            return ()
        threads = parse_dump(text)
        crashed = next((thread for thread in threads if thread.is_main), threads[0] if threads else None)
        return crashed.frames if crashed is not None else ()

    def register(self, *, tracer_pid: int | None = None) -> int | None:
        """In a worker, at its start: let a signal dump all Python stacks into the file, and a crash its own stack.

        The signal is a real-time one that nobody has a handler for; None where there is none, and then nothing is
        changed. A user's own `faulthandler.enable()` stays as it is. `tracer_pid`: lets that process and its children
        (py-spy) look into this one where Yama restricts it.
        """
        status = read_status(Path("/proc/self"))
        taken = int(status.get("SigCgt", "0"), 16) | int(status.get("SigIgn", "0"), 16)
        # from the end: libraries that want a real-time signal take the first ones
        free = (n for n in range(signal.SIGRTMAX - 1, signal.SIGRTMIN + 1, -1) if not taken >> (n - 1) & 1)
        number = next(free, None)
        if number is None:
            return None
        faulthandler.register(number, file=self.fd, all_threads=True, chain=False)
        if not faulthandler.is_enabled():
            faulthandler.enable(file=self.fd, all_threads=True)
        if tracer_pid is not None:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PTRACER, tracer_pid, 0, 0, 0)
        os.write(self.fd, f"{_HEADER}{number}\n".encode())
        return number

    def ask(self, pid: int, *, timeout_s: float = 1.0) -> Stacks:
        """Ask a worker for its stacks. It answers from a signal handler, also while it waits for a lock or computes.

        A worker that has not registered yet is not asked (the signal would end it); one that is stopped, or in
        uninterruptible sleep, does not answer.
        """
        number = self.signal_number()
        if number is None or not catches(pid, number):
            return Stacks(source="", problem="the worker has not come to register its signal handler yet")
        start = self.size()
        try:
            os.kill(pid, number)
        except OSError as error:
            return Stacks(source="", problem=f"it cannot be asked: {error.strerror}")
        deadline = time.monotonic() + timeout_s
        size, changed_at = start, time.monotonic()
        while time.monotonic() < deadline:
            time.sleep(0.002)
            now = self.size()
            if now != size:
                size, changed_at = now, time.monotonic()
            elif size > start and time.monotonic() - changed_at > _QUIET_S:
                break
        text = self.read(start)
        if not text:
            return Stacks(source="", problem=f"it did not answer within {timeout_s:.1f} s")
        return Stacks(source="faulthandler", threads=parse_dump(text))


def parse_dump(text: str) -> tuple[ThreadStack, ...]:
    """The threads of a faulthandler dump. The one that caught the signal is Python's main thread, if it could."""
    threads: list[tuple[bool, list[Frame]]] = []
    for line in text.splitlines():
        if (head := _THREAD.match(line)) is not None:
            threads.append((head["current"] != "Thread", []))
        elif threads and (call := _FRAME.match(line)) is not None:
            number = int(call["line"]) if call["line"].isdigit() else 0
            threads[-1][1].append(Frame(file=call["file"], line=number, function=call["function"]))
    return tuple(ThreadStack(name="", tid=None, frames=tuple(found), is_main=is_main) for is_main, found in threads)


# ---------------------------------------------------------------------------------------- py-spy


def find_py_spy() -> str | None:
    """The py-spy command, of this environment or of the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


def dump_with_py_spy(pid: int, *, native: bool = True, pauses: bool = True, timeout_s: float = 10.0) -> Stacks:
    """Stacks as py-spy sees them, native frames too where it can. `pauses=False`: never stops the process."""
    command = find_py_spy()
    if command is None:
        return Stacks(source="", problem="py-spy is not installed: `pip install headrace[stacks]`")
    options = ["--native"] if native and pauses else []
    options += [] if pauses else ["--nonblocking"]
    full = [command, "dump", "--json", "--pid", str(pid), *options]
    try:
        done = subprocess.run(full, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Stacks(source="", problem=f"py-spy did not answer within {timeout_s:.0f} s")
    except OSError as error:
        return Stacks(source="", problem=f"py-spy does not start: {error.strerror}")
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return Stacks(source="", problem=f"py-spy: {lines[0].strip() if lines else done.returncode}")
    source = "py-spy --native" if "--native" in options else "py-spy"
    try:
        threads = tuple(_thread_of(entry, pid) for entry in json.loads(done.stdout))
    except (ValueError, AttributeError, TypeError) as error:
        return Stacks(source="", problem=f"py-spy's answer is not understood: {error}")
    return Stacks(source=source, threads=threads)


def _thread_of(entry: dict[str, Any], pid: int) -> ThreadStack:
    tid, name, frames = entry.get("os_thread_id"), entry.get("thread_name") or "", []
    for frame in entry.get("frames") or ():
        file, line, function = frame.get("filename") or "", frame.get("line") or 0, frame.get("name") or "?"
        # a frame of a library has the library as its module, one of Python none
        is_native = frame.get("module") is not None or not file
        frames.append(Frame(file=file, line=line, function=function, is_native=is_native))
    return ThreadStack(
        name=name,
        tid=tid,
        frames=tuple(frames),
        is_main=tid == pid or name == "MainThread",
        owns_gil=bool(entry.get("owns_gil")),
    )
