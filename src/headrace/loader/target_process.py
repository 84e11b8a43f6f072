"""A process of its own for what the user named: whatever hangs or dies there is a result, and nothing of it stays.

A command tells it what to do, and it tells what happens, in lines of JSON; what the user's code prints is kept for
errors. Its session is its own, so that all that it starts is found and ended with it.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from glob import glob
from typing import IO, Any, Self

from headrace.errors import CannotLoadTarget, HeadraceError
from headrace.signals.system import ProcessStat, read_all_stats, read_text

_CLEAN_UP_S = 6.0  # for multiprocessing's own tracker of what is to be removed
_START_S = 180.0  # to import torch and the user's module, on a slow network disk
_PR_SET_PDEATHSIG = 1


class TargetProcess:
    """The command's side: a module that is run with `start`, which says what its target is, or why it has none."""

    def __init__(self, module: str, start: Mapping[str, Any]) -> None:
        self._buffer, self.has_ended, self._is_closed, self._pids = b"", False, False, set[int]()
        self._began_at = time.time()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in close()
        self._read, write = os.pipe()
        path = os.pathsep.join(part or os.getcwd() for part in sys.path)
        self.child = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=[write],
            start_new_session=True,  # Ctrl-C is for the command, which ends the session
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
        )
        os.close(write)
        try:
            self.tell({**start, "fd": write})
            first = self.event(_START_S)
            if first is None:
                raise CannotLoadTarget(
                    f"the process that imports it ended, or took more than {_START_S:.0f} s", it_said=self.said()
                )
        except BaseException:
            self.close()
            raise
        self.told: dict[str, Any] = first  # of the target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it and all that it started, and remove what those of torch's workers that were seen could not."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + _CLEAN_UP_S
        try:
            while (left := self.processes()) and time.monotonic() < deadline:
                # the tracker of multiprocessing removes named semaphores once all others are gone; without a command
                # line yet, one that is just being started may be it
                commands = {pid: read_text(f"/proc/{pid}/cmdline") for pid in left}
                self.end([pid for pid, said in commands.items() if said and "resource_tracker" not in said])
                time.sleep(0.01)
        finally:
            self.end(self.processes())
            self.finish()
            self.child.wait()
            os.close(self._read)
            self._errors.close()
            # others may have some of these numbers by now
            others = {one.pid for one in read_all_stats().values() if one.session != self.child.pid}
            for path in (one for pid in self._pids - others for one in glob(f"/dev/shm/torch_{pid}_*")):
                with contextlib.suppress(OSError):  # nor of another container's, where /dev/shm is shared
                    if os.stat(path).st_uid == os.getuid() and os.stat(path).st_mtime >= self._began_at:
                        os.unlink(path)

    def tell(self, order: Any) -> None:
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write(json.dumps(order).encode() + b"\n")
            self.child.stdin.flush()

    def finish(self) -> None:
        """Let it end: there are no more orders."""
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()

    def event(self, patience_s: float) -> dict[str, Any] | None:
        """Return what it says next; None where nothing came in time, or it `has_ended`. Raise what it refuses."""
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self._read, 1 << 16)
            if not data:
                self.has_ended = True
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        if found["event"] == "refused":
            evidence = found["evidence"] | ({"it_said": said} if (said := self.said(most=500)) else {})
            raise CannotLoadTarget(found["what"], next_step=found["next_step"], **evidence)
        return found

    def said(self, *, since: int = 0, most: int = 2000) -> str:
        """Return the end of what was printed."""
        self._errors.seek(max(since, self.num_said - most))
        return self._errors.read().decode(errors="replace").strip()

    @property
    def num_said(self) -> int:
        """Bytes printed so far."""
        return self._errors.seek(0, os.SEEK_END)

    def stats(self) -> list[ProcessStat]:
        """Of it and of all that it started."""
        found = [one for one in read_all_stats().values() if one.session == self.child.pid]
        self._pids.update(one.pid for one in found)
        return found

    def processes(self) -> list[int]:
        """It and all that it started, but for those that have ended."""
        return [one.pid for one in self.stats() if not one.has_ended]

    def end(self, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Orders:
    """The process's own side: how to begin, then one order after the other."""

    def __init__(self) -> None:
        end_with_parent()
        self._stdin = open(0, "rb", buffering=0, closefd=False)  # unbuffered: a fork takes no order along  # noqa: SIM115
        self.start: dict[str, Any] = json.loads(self._stdin.readline())

    def __iter__(self) -> Iterator[Any]:
        yield from map(json.loads, iter(self._stdin.readline, b""))

    def say(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, **facts}).encode() + b"\n"
        while line:
            line = line[os.write(self.start["fd"], line) :]

    def refuse(self, error: HeadraceError) -> None:
        """Say why the target cannot be had."""
        evidence = {name: str(value) for name, value in error.evidence.items()}
        self.say("refused", what=error.what, next_step=error.next_step, evidence=evidence)


def end_with_parent() -> None:
    """End this process when the one that started it is gone, however it went."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
