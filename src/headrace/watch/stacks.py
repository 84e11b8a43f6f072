"""Stacks of a process tree many times a second: one py-spy that samples for a while, and what it saw in order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.signals import Frame, ThreadStack, find_py_spy

_PROFILE = re.compile(r'Process (?P<pid>\d+) Thread (?P<tid>\S+)(?: "(?P<name>.*)")?')


@dataclass(frozen=True, kw_only=True)
class StackWindow:
    """What one stretch of sampling saw, by process: for each thread its stacks in the order of time."""

    threads: Mapping[int, tuple[tuple[ThreadStack, ...], ...]] = field(default_factory=dict)
    problem: str = ""

    def last(self, pid: int) -> tuple[ThreadStack, ...]:
        """The stacks of a process at the end of the stretch."""
        return tuple(stacks[-1] for stacks in self.threads.get(pid, ()))

    def of_thread(self, pid: int, tid: int | None) -> tuple[ThreadStack, ...]:
        """All stacks of one thread."""
        return next((stacks for stacks in self.threads.get(pid, ()) if stacks[0].tid == tid), ())


class StackSampler:
    """A py-spy at work on one process and its Python children. It never pauses them.

    It writes into a memory file, so that nothing is left behind whatever ends us; `finish` waits for it and reads.
    """

    def __init__(self, pid: int, *, seconds: float, rate_per_s: int) -> None:
        command = find_py_spy()
        self._process: subprocess.Popen[bytes] | None = None
        self._pid, self._fd, self._errors = pid, -1, -1
        if command is None:
            self.problem = "py-spy is not installed: `pip install headrace[stacks]`"
            return
        self.problem = ""
        self._fd = os.memfd_create("headrace-watch")
        self._errors = os.memfd_create("headrace-watch-errors")
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
            self.problem = f"py-spy does not start: {error.strerror}"

    def __enter__(self) -> StackSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def finish(self, *, timeout_s: float) -> StackWindow:
        """Wait for the end of the stretch and return what was seen."""
        if self._process is None:
            return StackWindow(problem=self.problem)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._kill()
            return StackWindow(problem=f"py-spy did not end within {timeout_s:.0f} s")
        text = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        if not text:
            return StackWindow(problem=_problem_of(_content(self._errors), code))
        try:
            return StackWindow(threads=parse_speedscope(text))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return StackWindow(problem=f"py-spy's answer is not understood: {error}")

    def close(self) -> None:
        self._kill()
        for fd in (self._fd, self._errors):
            if fd >= 0:
                os.close(fd)
        self._fd = self._errors = -1

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
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
            # the first frames name the processes and the thread
            own = (frames[i] for i in reversed(key) if frames[i].file or not _is_label(frames[i].function))
            is_main = name == "MainThread" or tid == pid
            made[key] = ThreadStack(name=name, tid=tid, frames=tuple(own), is_main=is_main)
        by_process.setdefault(pid, []).append(tuple(made[tuple(sample)] for sample in profile["samples"]))
    return {pid: tuple(stacks) for pid, stacks in by_process.items()}


def _is_label(name: str) -> bool:
    return re.match(r'(process \d+:"|thread \()', name) is not None


def _problem_of(errors: str, code: int) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("py-spy>")]
    told = next((line for line in lines if "Error" in line or "ermission" in line), lines[0] if lines else "")
    return f"py-spy: {told or f'ended with {code} and wrote nothing'}"


def _content(fd: int) -> str:
    return os.pread(fd, 1 << 16, 0).decode("utf-8", "replace")
