"""What is looked at many times a second: Python stacks by one py-spy, and what the kernel says of threads.

py-spy samples a process tree for a while and never pauses it. The kernel's word is cheap; without stacks it has to do.
"""

import functools
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.model import worker_number
from headrace.signals import Frame, ThreadStack, find_py_spy
from headrace.signals.system import Call, OpenFile, anonymous_file, read_moment, read_open_files

from .processes import thread_names
from .reading import KernelLook

_LABEL = re.compile(r'process \d+:"|thread \(')  # the first frames name the processes and the thread
_PROFILE = re.compile(r'Process (?P<pid>\d+) Thread (?P<tid>\S+)(?: "(?P<name>.*)")?')
_PIN_THREAD = "pt_data_pin"  # torch 2.6 and later name it
_READS = {"read", "pread64", "readv", "preadv", "poll", "ppoll"}


@dataclass(frozen=True, kw_only=True)
class StackWindow:
    """What one stretch of sampling saw, by process: for each thread its stacks in the order of time."""

    threads: Mapping[int, tuple[tuple[ThreadStack, ...], ...]] = field(default_factory=dict)
    problem: str = ""

    def last(self, pid: int) -> tuple[ThreadStack, ...]:
        return tuple(stacks[-1] for stacks in self.threads.get(pid, ()))

    def of_thread(self, pid: int, tid: int | None) -> tuple[ThreadStack, ...]:
        return next((stacks for stacks in self.threads.get(pid, ()) if stacks[0].tid == tid), ())


class StackSampler:
    """A py-spy at work on a process and its Python children, never pausing them; it writes into a memory file."""

    def __init__(self, pid: int, *, seconds: float, rate_per_s: int) -> None:
        command = find_py_spy()
        self._process: subprocess.Popen[bytes] | None = None
        self._fd, self._errors = anonymous_file("headrace-watch"), anonymous_file("headrace-watch-errors")
        self._problem = "py-spy is not installed: `pip install headrace[stacks]`"
        if command is None:
            return
        options = ["--duration", str(max(1, round(seconds))), "--rate", str(rate_per_s)]
        options += ["--idle", "--threads", "--nonblocking", "--subprocesses", "--full-filenames"]
        full = [command, "record", "--pid", str(pid), *options]
        full += ["--format", "speedscope", "--output", f"/proc/self/fd/{self._fd}"]
        try:
            self._process = subprocess.Popen(
                full,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(self._fd,),
                start_new_session=True,  # a ^C is for us: we end it
            )
        except OSError as error:
            self._problem = f"py-spy does not start: {error.strerror}"

    def finish(self, *, timeout_s: float) -> StackWindow:
        """Wait for the end of the stretch and return what was seen."""
        if self._process is None:
            return StackWindow(problem=self._problem)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._kill()
            return StackWindow(problem=f"py-spy did not end within {timeout_s:.0f} s")
        text = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        if not text:
            errors = os.pread(self._errors, 1 << 16, 0).decode("utf-8", "replace").splitlines()
            lines = [line.strip() for line in errors if line.strip() and not line.startswith("py-spy>")]
            lines.append(f"ended with {code} and wrote nothing")
            told = next((line for line in lines if "Error" in line or "ermission" in line), lines[0])
            return StackWindow(problem=f"py-spy: {told}")
        try:
            return StackWindow(threads=parse_speedscope(text))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return StackWindow(problem=f"py-spy's answer is not understood: {error}")

    def close(self) -> None:
        """End it; to be called once."""
        self._kill()
        os.close(self._fd)
        os.close(self._errors)

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def parse_speedscope(text: bytes | str) -> dict[int, tuple[tuple[ThreadStack, ...], ...]]:
    """Read py-spy's speedscope document. Frames come outermost first there; ours innermost first."""
    document = json.loads(text)
    frames = [
        Frame(file=str(entry.get("file") or ""), line=int(entry.get("line") or 0), function=str(entry["name"]))
        for entry in document["shared"]["frames"]
    ]
    by_process: dict[int, list[tuple[ThreadStack, ...]]] = {}
    for profile in document["profiles"]:
        match = _PROFILE.match(profile["name"])
        if match is None or not profile["samples"]:
            continue
        pid, name = int(match["pid"]), match["name"] or ""
        tid = int(match["tid"]) if match["tid"].isdigit() else None
        made: dict[tuple[int, ...], ThreadStack] = {}
        for key in {tuple(sample) for sample in profile["samples"]}:
            own = (frames[i] for i in reversed(key) if frames[i].file or not _LABEL.match(frames[i].function))
            is_main = name == "MainThread" or tid == pid
            made[key] = ThreadStack(name=name, tid=tid, frames=tuple(own), is_main=is_main)
        by_process.setdefault(pid, []).append(tuple(made[tuple(sample)] for sample in profile["samples"]))
    return {pid: tuple(stacks) for pid, stacks in by_process.items()}


def source_line(pid: int, frame: Frame) -> str:
    """The source line of a frame of another process, also where that process lives in a container."""
    lines = _source_lines(f"/proc/{pid}/root{frame.file}") if frame.file.startswith("/") else []
    return lines[frame.line - 1].strip() if 0 < frame.line <= len(lines) else ""


@functools.lru_cache(256)
def _source_lines(path: str) -> list[str]:
    try:
        # of a device there is no end
        return Path(path).read_text(errors="replace").splitlines() if Path(path).is_file() else []
    except OSError:
        return []


@dataclass
class KernelSampler:
    """Looks at the first thread of processes, or at our workers' threads. Open files are read once a stretch."""

    files: dict[int, tuple[OpenFile, ...]] = field(default_factory=dict)
    looks: dict[int, list[KernelLook]] = field(default_factory=dict)
    worker_pipes: Mapping[int, frozenset[str]] = field(default_factory=dict)  # by trainer
    worker_threads: Mapping[int, Sequence[int]] = field(default_factory=dict)  # by process of ours with several
    pin_threads: Mapping[int, int] = field(default_factory=dict)  # by trainer: the thread between it and its workers

    def begin(self, workers_of: Mapping[int, Sequence[int]]) -> None:
        workers = [pid for some in workers_of.values() for pid in some]
        pids = [*workers_of, *workers]
        self.files = {pid: read_open_files(pid) for pid in pids}
        self.looks = {pid: [] for pid in pids}
        self.worker_pipes = {
            trainer: frozenset(file.path for pid in workers for file in self.files.get(pid, ()) if file.kind == "pipe")
            for trainer, workers in workers_of.items()
        }
        # the first thread of each name: those that it starts bear its name, too
        firsts = {pid: {name: tid for tid, name in reversed(thread_names(pid).items())} for pid in pids}
        self.pin_threads = {pid: firsts[pid][_PIN_THREAD] for pid in workers_of if _PIN_THREAD in firsts[pid]}
        serving = {
            pid: sorted(tid for name, tid in firsts[pid].items() if worker_number(name) is not None) for pid in workers
        }
        self.worker_threads = {pid: tids for pid, tids in serving.items() if tids and tids != [pid]}

    def look(self) -> None:
        for pid, looks in self.looks.items():
            if pid in self.worker_threads:
                looks += self._look_at_threads(pid, self.worker_threads[pid])
            elif (moment := read_moment(pid)) is not None:
                looks.append(self._judge(pid, *moment))

    def _look_at_threads(self, pid: int, tids: Sequence[int]) -> list[KernelLook]:
        looks = [self._reads(pid, *moment) for tid in tids if (moment := read_moment(pid, tid)) is not None]
        if not any(look.state == "R" for look in looks):
            return looks
        # while one of them runs, another that waits in a lock waits for its turn at the interpreter: it is at work
        at_work = KernelLook(state="R", call=None)
        return [at_work if look.call is not None and look.call.name == "futex" else look for look in looks]

    def _judge(self, pid: int, state: str, call: Call | None) -> KernelLook:
        if call is not None and call.name == "futex" and pid in self.pin_threads:
            # with pinned memory the loop waits for a queue, and the thread that fills it for the workers' pipe
            pinning = read_moment(pid, self.pin_threads[pid])
            return KernelLook(state=state, call=call, is_fed=pinning is not None and self._reads(pid, *pinning).is_fed)
        return self._reads(pid, state, call)

    def _reads(self, pid: int, state: str, call: Call | None) -> KernelLook:
        if call is None or state not in "SD" or call.name not in _READS:
            return KernelLook(state=state, call=call)
        fds = call.polled(pid) or (call.args[0],)
        files = [file for file in self.files.get(pid, ()) if file.fd in fds]
        pipes = self.worker_pipes.get(pid, frozenset())
        return KernelLook(
            state=state,
            call=call,
            file=files[0] if files else None,
            is_fed=any(file.kind == "pipe" and file.path in pipes for file in files),
        )
