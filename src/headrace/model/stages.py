"""Named stages: how long the parts of a sample take, measured where they happen."""

import os
import sys
import threading
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Protocol, Self

from .environment import prints_timing
from .error_text import error_name
from .stage_times import StageTable


class StageWatcher(Protocol):
    """Whoever records a program from outside, and is told of each stage as it happens."""

    def enter(self) -> Any:
        """Take note that a stage begins in this thread; what is returned comes back when it ends."""

    def leave(self, entered: Any, name: str, start_ns: int, elapsed_ns: int, nbytes: int, *, is_recorded: bool) -> None:
        """Take note that it has ended; `is_recorded`: it is an event of a recording already."""


class _Thread:
    """What a thread has in hand: where it records, its innermost open stage and its sample."""

    __slots__ = ("inner", "sample", "table")

    def __init__(self) -> None:
        self.table: StageTable | None = None
        self.inner: _Recorded | None = None
        self.sample: sample | None = None


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = _Thread()


_local = _Local()
# Threads that a data set starts by itself record here: in a worker process, that worker's table.
_process_table: StageTable | None = None
_num_tables, _counting = 0, threading.Lock()
_watcher: StageWatcher | None = None
_prints = prints_timing()
_is_on = _prints  # False: nobody looks, and a stage costs next to nothing


class Stage:
    """A named part of a sample's work, from `stage(...)`; use it in a `with` statement.

    `nbytes` (what the stage put out, for its MB/s) and `note` (shown in brackets in the timing lines) may be set
    inside the block.
    """

    __slots__ = ("nbytes", "note")

    def __init__(self) -> None:
        self.nbytes, self.note = 0, ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None


class _Recorded(Stage):
    __slots__ = ("_entered", "_name", "_outer", "_start_ns", "_thread", "_watcher", "inner_ns")

    def __init__(self, name: str, nbytes: int) -> None:
        self.nbytes, self.note = nbytes, ""
        self._name, self._watcher = name, _watcher
        self.inner_ns = 0  # of it, what stages inside this one took

    def __enter__(self) -> Self:
        self._thread = thread = _local.thread
        self._outer = thread.inner
        thread.inner = self
        if self._watcher is not None:
            self._entered = self._watcher.enter()
        self._start_ns = perf_counter_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        elapsed_ns = perf_counter_ns() - self._start_ns
        thread, outer = self._thread, self._outer
        thread.inner = outer
        if outer is not None:
            outer.inner_ns += elapsed_ns
        table = thread.table or _process_table
        if table is not None:
            table.add(self._name, elapsed_ns, elapsed_ns - self.inner_ns, self.nbytes)
        if self._watcher is not None:
            known = table is not None and table.is_recorded
            self._watcher.leave(self._entered, self._name, self._start_ns, elapsed_ns, self.nbytes, is_recorded=known)
        if _prints:
            self._tell(elapsed_ns, kind)

    def _tell(self, elapsed_ns: int, kind: type[BaseException] | None) -> None:
        depth, outer = 0, self._outer
        while outer is not None:
            depth, outer = depth + 1, outer._outer
        notes = ", ".join(filter(None, [self.note, f"raised {error_name(kind)}" if kind is not None else ""]))
        name = self._name[:1].upper() + self._name[1:]
        text = f"{'  ' * depth}{name}: {elapsed_ns / 1e9:.4f}s{f' ({notes})' if notes else ''}"
        if self._thread.sample is not None:
            self._thread.sample.lines.append(text)
        else:
            _write(text)


_OFF = Stage()


def stage(name: str, *, nbytes: int = 0) -> Stage:
    """Time a part of a sample's work by name, in any data set.

    A loader's `stats().stages` says for each name how often it ran, how long it took and what share of the
    workers' time that is; `HEADRACE_TIMING=1` (or `DEBUG_TIMING=true`) prints a line for each. Stages may lie
    inside each other, and one that is left by an exception still counts. Where nobody looks, it costs under 1 µs.

    >>> with stage("volume process") as done:
    ...     done.nbytes = 4 * 240 * 240 * 120
    """
    return _Recorded(name, nbytes) if _is_on else _OFF


class sample:
    """Name the sample in hand, for the timing lines and their total: `with headrace.sample("study_001"): …`.

    Loaders name samples by their index; a data set that knows a better key says it with this.
    """

    __slots__ = ("_is_told", "_outer", "_start_ns", "key", "lines")

    def __init__(self, key: object) -> None:
        self.key = key
        self.lines: list[str] = []
        self._is_told = False

    def __enter__(self) -> Self:
        thread = _local.thread
        self._outer, thread.sample = thread.sample, self
        self._start_ns = perf_counter_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        elapsed_ns = perf_counter_ns() - self._start_ns
        _local.thread.sample = self._outer
        if self._outer is not None:
            self._outer._is_told = True
        # a sample that was named inside, by the data set itself, has told all there is
        if _prints and (self.lines or not self._is_told):
            raised = f" (raised {error_name(kind)})" if kind is not None and not issubclass(kind, StopIteration) else ""
            lines = [*self.lines, f"TOTAL decode time: {elapsed_ns / 1e9:.4f}s{raised}"]
            _write("\n".join(f"[{self.key}] {line}" for line in lines))


class record_stages:
    """Let this thread's stages go into a table; with `for_process`, those of threads that have none as well.

    A class, for a generator as context manager writes to the exception that passes through, which may be foreign code.
    """

    def __init__(self, table: StageTable | None, *, for_process: bool = False) -> None:
        self._table, self._is_for_process = table, for_process

    def __enter__(self) -> None:
        self._thread = _local.thread
        self._before = self._thread.table, _process_table
        self._put(self._table, self._table, +1)

    def __exit__(self, *_: object) -> None:
        self._put(*self._before, -1)

    def _put(self, table: StageTable | None, process_table: StageTable | None, change: int) -> None:
        global _process_table, _num_tables
        self._thread.table = table
        if self._is_for_process:
            _process_table = process_table
        if self._table is not None:
            with _counting:
                _num_tables += change
                _switch()


def watches_samples() -> bool:
    """Whether samples should be named, because their timing lines are printed."""
    return _prints


def print_timing(is_on: bool | None) -> None:
    """Print timing lines from here on, or not; `None` asks the environment again."""
    global _prints
    _prints = prints_timing() if is_on is None else is_on
    _switch()


def watch_stages(watcher: StageWatcher | None) -> None:
    """Tell somebody of every stage of this process from here on, and of those that are forked from it; None: nobody."""
    global _watcher
    _watcher = watcher
    _switch()


def _switch() -> None:
    global _is_on
    _is_on = _prints or _num_tables > 0 or _watcher is not None


def _forget_parent() -> None:
    """In a forked child: what the parent recorded, and where, is not ours."""
    global _local, _process_table, _num_tables, _counting
    _local, _process_table, _num_tables, _counting = _Local(), None, 0, threading.Lock()
    _switch()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


def _write(text: str) -> None:
    # one write, so that the lines of one sample stay together whatever other workers print
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
