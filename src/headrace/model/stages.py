"""Named stages: how long the parts of a sample take, measured where they happen, in a table that processes share."""

import math
import os
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import add
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Protocol, Self

from .environment import language, prints_timing
from .error_text import error_name
from .words import Text, format_seconds

MAX_STAGES = 32
_OTHERS = "(other stages)"
_BUCKETS = 160  # quarter octaves of a nanosecond, up to 18 minutes
_NAME_WORDS = 8
_NAME_BYTES = (_NAME_WORDS - 1) * 8
_COUNT, _TOTAL_NS, _OWN_NS, _WORST_NS, _BYTES = range(_NAME_WORDS, _NAME_WORDS + 5)
_HISTOGRAM = 16
_ROW_WORDS = _HISTOGRAM + _BUCKETS
_HEAD_WORDS = 8
STAGE_TABLE_WORDS = _HEAD_WORDS + MAX_STAGES * _ROW_WORDS


class StageTable:
    """Writes one table: of a worker, or of a loader in the training process.

    Any thread of the process may write; others read the words with `read_stages` whenever they like, since a row
    is published after its name. Beyond 31 names, the rest goes into one row.
    """

    is_recorded = False  # whether what is added becomes an event of a recording, too

    def __init__(self, words: memoryview | None = None, *, switch: memoryview | None = None) -> None:
        self.words = memoryview(bytearray(STAGE_TABLE_WORDS * 8)).cast("q") if words is None else words
        self._switch = switch  # a word that is 0 while nothing is to be recorded
        self._rows: dict[str, int] = {}
        self._lock = threading.Lock()
        self.words[0] = 0

    def add(self, name: str, elapsed_ns: int, own_ns: int, nbytes: int) -> None:
        words, switch = self.words, self._switch
        if switch is not None and not switch[0]:
            return
        with self._lock:
            at = self._rows.get(name) or self._new_row(name)
            words[at + _COUNT] += 1
            words[at + _TOTAL_NS] += elapsed_ns
            words[at + _OWN_NS] += own_ns
            words[at + _WORST_NS] = max(elapsed_ns, words[at + _WORST_NS])
            if nbytes:
                words[at + _BYTES] += nbytes
            words[at + _HISTOGRAM + min(_BUCKETS - 1, int(4 * math.log2(elapsed_ns or 1)))] += 1

    def _new_row(self, name: str) -> int:
        number = min(self.words[0], MAX_STAGES - 1)
        at = self._rows[name] = _HEAD_WORDS + number * _ROW_WORDS
        if self.words[0] == MAX_STAGES:
            return at
        shown = _OTHERS if number == MAX_STAGES - 1 else name
        encoded = shown.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore").encode()
        row = encoded.ljust(8 * (_ROW_WORDS - 1), b"\0")
        self.words[at] = len(encoded)
        self.words[at + 1 : at + _ROW_WORDS] = memoryview(row).cast("q")
        self.words[0] = number + 1
        return at


@dataclass(frozen=True)
class StageRow:
    """What one table says of one stage."""

    name: str
    histogram: tuple[int, ...]
    count: int
    total_ns: int
    own_ns: int
    worst_ns: int
    nbytes: int

    def plus(self, other: "StageRow") -> "StageRow":
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("count", "total_ns", "own_ns", "nbytes")}
        histogram = tuple(map(add, self.histogram, other.histogram))
        return replace(self, histogram=histogram, worst_ns=max(self.worst_ns, other.worst_ns), **sums)

    def quantile_ns(self, q: float) -> float:
        """From the histogram, so within 10 %; never above the worst that was seen."""
        rest = q * sum(self.histogram)
        for bucket, num in enumerate(self.histogram):
            rest -= num
            if rest <= 0 and num:
                return float(min(self.worst_ns, 2.0 ** ((bucket + 0.5) / 4)))
        return float(self.worst_ns)


def read_stages(words: memoryview) -> list[StageRow]:
    """Return the rows of a table, which its owner may be writing at this moment."""
    rows = []
    for number in range(min(MAX_STAGES, max(0, words[0]))):
        at = _HEAD_WORDS + number * _ROW_WORDS
        length = min(_NAME_BYTES, max(0, words[at]))
        name = words[at + 1 : at + _NAME_WORDS].tobytes()[:length].decode("utf-8", "replace")
        histogram = tuple(words[at + _HISTOGRAM : at + _ROW_WORDS])
        rows.append(StageRow(name, histogram, *words[at + _COUNT : at + _BYTES + 1]))
    return rows


def merge_stages(tables: Iterable[Iterable[StageRow]]) -> list[StageRow]:
    """Add up tables, stage by stage, in the order in which names first appear."""
    merged: dict[str, StageRow] = {}
    for row in (row for rows in tables for row in rows):
        sofar = merged.get(row.name)
        merged[row.name] = row if sofar is None else sofar.plus(row)
    return list(merged.values())


# ------------------------------------------------------------------ the clock that a data set carries


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


# ------------------------------------------------------------------ figures to read

_HEADINGS = Text(
    "stage,count,total,own,median,p95,worst,of worker time,MB/s",
    "阶段,次数,总计,自身,中位数,p95,最长,占工作时间,MB/s",
)
_NO_STAGE = Text(
    "no stage was timed; name one with `with headrace.stage(...)`",
    "没有计时的阶段；用 `with headrace.stage(...)` 给一段代码命名即可",
)


@dataclass(frozen=True, kw_only=True)
class StageStats:
    """One stage, over all workers. `own_s` leaves out the stages inside it; median and p95 are within 10 %."""

    name: str
    count: int
    total_s: float
    own_s: float
    median_s: float
    p95_s: float
    worst_s: float
    share: float  # of the time that workers were busy; stages inside each other count in both
    mb_per_s: float | None  # None: the stage did not say how many bytes it puts out


@dataclass(frozen=True)
class Stages:
    """All stages of a loader, longest first. `str()` is a table; `stages["npz decode"]` is one of them."""

    rows: tuple[StageStats, ...] = ()

    def __iter__(self) -> Iterator[StageStats]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> StageStats:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no stage {name!r}; there are: {', '.join(row.name for row in self.rows) or 'none'}")

    def __str__(self) -> str:
        return self.table(language())

    def table(self, lang: str = "en") -> str:
        """Return the stages as a table of text, in English or Chinese ("zh")."""
        if not self.rows:
            return _NO_STAGE.of(lang)
        lines = [_HEADINGS.of(lang).split(","), *map(_cells, self.rows)]
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        told = []
        for line in lines:
            gaps = [" " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]
            told.append("  ".join([line[0] + gaps[0], *map(add, gaps[1:], line[1:])]).rstrip())
        return "\n".join(told)


def stages_of(rows: Iterable[StageRow], *, worker_s: float) -> Stages:
    """Turn what was recorded into figures; `worker_s` is how long workers were busy in all."""
    found = [
        StageStats(
            name=row.name,
            count=row.count,
            total_s=row.total_ns / 1e9,
            own_s=row.own_ns / 1e9,
            median_s=row.quantile_ns(0.5) / 1e9,
            p95_s=row.quantile_ns(0.95) / 1e9,
            worst_s=row.worst_ns / 1e9,
            share=row.total_ns / 1e9 / worker_s if worker_s > 0 else 0.0,
            mb_per_s=row.nbytes / 1e6 / (row.total_ns / 1e9) if row.nbytes and row.total_ns else None,
        )
        for row in rows
        if row.count
    ]
    return Stages(tuple(sorted(found, key=lambda stage: -stage.total_s)))


def _cells(row: StageStats) -> list[str]:
    times = map(format_seconds, (row.total_s, row.own_s, row.median_s, row.p95_s, row.worst_s))
    rate = "-" if row.mb_per_s is None else f"{row.mb_per_s:,.0f}"
    return [row.name, f"{row.count:,}", *times, f"{row.share:.1%}", rate]


def _width(text: str) -> int:
    """Columns that a text takes on a terminal: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
