"""A log as it streams by: lines in, records of steps, markers and settings out.

A log repeats a few lines a million times. What a line's numbers mean is learned once for each shape (the line with its
numbers blanked out), by reading it again with other numbers in their places and seeing which of them come out where.
Others of that shape are read by the place of each number.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isclose, isnan

import numpy as np

from .bars import Bar, read_bar
from .fields import (
    NAN,
    Measures,
    Recent,
    Stamps,
    read_measures,
    read_position,
    read_rate_s,
    read_recent,
    read_settings,
    read_slow_batch,
)
from .markers import Doing, Marker, read_marker
from .series import StepStore

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SENTINEL = 700_000
_FACTORS = (1.0, 1e-3, 1e-6, 60.0)
_MOST_MARKERS = 50_000
_MOST_STORES = 512  # one a rank and kind of line; more are other numbers that look like steps
# Which process wrote a line: `[rank3]:`, `rank 3 |`, `[default3]:`, `3: ` (srun -l), `(Worker pid=81)`.
_PREFIX = re.compile(
    r"\s*(?:[\[(<]?\s*(?:local[_ ]?)?(?:rank|default|proc(?:ess)?|worker|gpu|node)\s*[_:=#]?\s*(\d{1,5})"
    r"\s*[\])>]?\s*[:|\-]?\s*"
    r"|(\d{1,4}):\s+(?=\D|\d{4}-)|\(\w+ pid=(\d+)[^)]*\)\s*)",
    re.IGNORECASE,
)
_RANK_INSIDE = re.compile(r"\brank\s*[=:]?\s*(\d{1,5})\b", re.IGNORECASE)
_STEP_WORDS = re.compile(r"step|iter|batch|epoch|it |train|步|迭代|批次|\[")
_SLOW_WORDS = re.compile(r"slow|late|stalled|慢|recent|last|最近")
_MARK_WORDS = re.compile(
    r"sav|writ|dump|eval|valid|upload|sync|test|resum|restart|flush|log|保存|写入|存储|验证|评估|评测|上传|同步|记录|恢复"
)
_FORMATS = {"timed": "timed steps", "bare": "timed steps", "stamped": "stamped steps"}
_MOST_SHAPES = 20_000  # of lines that are remembered; later ones are read with care each time
_WITH_CARE = "with care"
_UNSEEN = "unseen"
_Values = tuple[int, int, float, float, float]  # step, steps an epoch (0: not told), epoch, step time and wait


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Where in a line of one shape the numbers of a step stand: which number, and what to multiply it by."""

    step: int
    of: int | None
    epoch: int | None
    took: tuple[int, float] | None  # a negative factor: a rate, so the number goes below the line
    wait: tuple[int, float] | None
    unit_known: bool

    def apply(self, numbers: Sequence[str]) -> _Values:
        """Return what a line's numbers tell."""
        return (
            int(float(numbers[self.step])),
            int(float(numbers[self.of])) if self.of is not None else 0,
            float(numbers[self.epoch]) if self.epoch is not None else NAN,
            _value(numbers, self.took),
            _value(numbers, self.wait),
        )


def _value(numbers: Sequence[str], place: tuple[int, float] | None) -> float:
    if place is None:
        return NAN
    number, factor = float(numbers[place[0]]), place[1]
    if factor > 0:
        return number * factor
    return 1 / number if number > 0 else NAN


def shape_of(line: str) -> str:
    """Return a line with its numbers blanked out.

    >>> shape_of("step 12 time 0.203s"), numbers_of("step 12 time 0.203s")
    ('step 0 time 0s', ['12', '0.203'])
    """
    return _NUMBER.sub("0", line)


def numbers_of(line: str) -> list[str]:
    """Return the numbers of a line, in their order."""
    return _NUMBER.findall(line)


def learn_plan(line: str, expected: _Values, *, unit_known: bool) -> StepPlan | None:
    """Return where the numbers of this line stand that were read from it, or None where that is not clear."""
    numbers = numbers_of(line)
    count = iter(range(len(numbers)))
    probe = _NUMBER.sub(lambda match: f"{_SENTINEL + next(count)}" + (".5" if "." in match[0] else ""), line)
    seen, told = read_position(probe), read_measures(probe) or Measures(NAN, NAN, unit_known=True)
    step = _index(seen.step, len(numbers)) if seen is not None else None
    if seen is None or step is None:
        return None
    plan = StepPlan(
        step=step,
        of=_index(seen.of, len(numbers)),
        epoch=_index(seen.epoch, len(numbers)),
        took=_place(read_rate_s(probe) if isnan(told.took_s) else told.took_s, len(numbers)),
        wait=_place(told.wait_s, len(numbers)),
        unit_known=unit_known,
    )
    got = plan.apply(numbers)
    return plan if np.allclose(expected, got, rtol=1e-9, atol=0.0, equal_nan=True) else None


def _index(value: int | None, count: int) -> int | None:
    index = -1 if value is None else value - _SENTINEL
    return index if 0 <= index < count else None


def _place(seconds: float, count: int) -> tuple[int, float] | None:
    if isnan(seconds) or seconds <= 0:
        return None
    for factor in _FACTORS:
        index = int(seconds / factor + 0.25) - _SENTINEL
        if 0 <= index < count and isclose((seconds / factor) % 0.5, 0, abs_tol=0.01):
            return index, factor
    index = int(1 / seconds + 0.25) - _SENTINEL
    return (index, -1.0) if 0 <= index < count else None


@dataclass
class LogContent:
    """Everything that one log tells, before anybody judges it."""

    name: str
    stores: dict[str, StepStore] = field(default_factory=dict)
    markers: list[Marker] = field(default_factory=list)
    settings: dict[str, int] = field(default_factory=dict)
    recent: list[Recent] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    num_lines: int = 0
    num_bytes: int = 0
    num_bytes_read: int = 0  # of which steps were read; the rest was only looked through for messages
    last_step_line: int = 0

    def move_lines(self, offset: float) -> None:
        """Count the lines of this log from another number on."""
        self.markers = [replace(marker, line=marker.line + offset) for marker in self.markers]
        for store in self.stores.values():
            store.move_lines(offset)


class LogReader:
    """Reads lines in their order. It holds no file: whoever has lines feeds them."""

    def __init__(self, name: str) -> None:
        self.content = LogContent(name)
        self._stamps = Stamps()
        self._line = 0.0  # where a line stands among all that were read
        self._number = 0  # its number, as an editor shows it
        self._rank = "-"
        self._plans: dict[str, StepPlan | str | None] = {}  # by the shape of a line

    def feed(self, lines: list[tuple[int, str]]) -> None:
        """Take the next lines of the log, each with its number."""
        for self._number, line in lines:
            self._line += 1
            self._read(line)
        self.content.num_lines = max(self.content.num_lines, self._number)

    def _read(self, line: str) -> None:
        self._rank = "-"
        prefix = _PREFIX.match(line)
        if prefix is not None:
            self._rank = next(group for group in prefix.groups() if group is not None)
            line = line[prefix.end() :]
        elif "rank" in line and (inside := _RANK_INSIDE.search(line[:120])):
            self._rank = inside[1]
        if "/s" in line or "s/" in line or "?it" in line:
            bar = read_bar(line)
            if bar is not None:
                self._read_bar(bar)
                behind = bar.behind[bar.behind.find("]") + 1 :]
                if len(behind) > 8:  # a logger does not know of the bar, and writes on in its line
                    self._line += 0.5
                    self._read(behind)
                return
        shape = shape_of(line)
        plan = self._plans.get(shape, _UNSEEN)
        if plan is None:
            return
        if isinstance(plan, StepPlan):
            self._add(plan.apply(numbers_of(line)), self._time_of(line), plan.unit_known, line)
            return
        plan = self._read_with_care(line)
        if len(self._plans) < _MOST_SHAPES:
            self._plans[shape] = plan

    def _read_with_care(self, line: str) -> StepPlan | str | None:
        """Read a line of a shape not seen before; return how to read others like it: None, not at all."""
        low = line.lower()
        at_s = self._time_of(line)
        if _SLOW_WORDS.search(low) and self._read_watcher(line, at_s):
            return _WITH_CARE
        marker = read_marker(line, line=self._line, at_s=at_s) if _MARK_WORDS.search(low) else None
        if marker is not None:
            self._mark(marker)
        for name, value in read_settings(line).items():
            self.content.settings.setdefault(name, value)
        plan = self._read_step(line, at_s, marker) if _STEP_WORDS.search(low) else None
        return plan if marker is None else _WITH_CARE

    def _time_of(self, text: str) -> float:
        at_s = self._stamps.read(text)
        return NAN if at_s is None else at_s

    def _read_bar(self, bar: Bar) -> None:
        if bar.kind == "other":
            return
        if bar.kind == "evaluate":
            self._mark(Marker(Doing.EVALUATION, self._line, NAN, NAN, bar.elapsed_s))
            return
        store = self._store(f"bar/{bar.of or 0} {self._rank}", is_bar=True, resolution_s=bar.resolution_s)
        if store is None:
            return
        self.content.formats["progress bar"] += 1
        self.content.last_step_line = self._number
        store.of = max(store.of, bar.of or 0)
        took = wait = NAN
        if "=" in bar.behind or ":" in bar.behind:
            took, wait = self._measures_behind(bar.behind, store)
        store.add(
            self._line,
            bar.step,
            NAN if bar.epoch is None else float(bar.epoch),
            self._time_of(bar.title) if bar.is_stamped else NAN,
            took,
            wait,
            bar.elapsed_s,
            bar.rate_s,
        )

    def _measures_behind(self, behind: str, store: StepStore) -> tuple[float, float]:
        """Return the step time and the wait that stand behind a bar; shapes without any are remembered."""
        shape = shape_of(behind)
        measures = read_measures(behind) if self._plans.get(shape, _UNSEEN) is not None else None
        if measures is None:
            if len(self._plans) < _MOST_SHAPES:
                self._plans[shape] = None
            return NAN, NAN
        store.unit_known &= measures.unit_known
        return measures.took_s, measures.wait_s

    def _read_watcher(self, line: str, at_s: float) -> bool:
        slow = read_slow_batch(line)
        if slow is not None:
            store = self._store(f"slow {self._rank}", resolution_s=self._stamps.resolution_s)
            if store is not None:
                store.is_slow_only = True
                self.content.formats["slow batches"] += 1
                self.content.last_step_line = self._number
                store.add(self._line, slow[0], NAN, at_s, NAN, slow[1], NAN, NAN)
            return True
        recent = read_recent(line)
        if recent is not None:
            self.content.formats["last batches"] += 1
            if len(self.content.recent) < _MOST_MARKERS:
                self.content.recent.append(recent)
        return recent is not None

    def _read_step(self, line: str, at_s: float, marker: Marker | None) -> StepPlan | str | None:
        position = read_position(line)
        if position is None:
            return None
        measures = read_measures(line)
        if not position.is_training:
            if marker is None and (measures is not None or position.of is not None):
                self._mark(Marker(Doing.EVALUATION, self._line, at_s, NAN, NAN))
                return _WITH_CARE
            return None
        if marker is not None and measures is None:
            return _WITH_CARE  # "Saving checkpoint at 30 iterations": a marker, not a step
        rate_s = read_rate_s(line) if measures is None or isnan(measures.took_s) else NAN
        if measures is None and isnan(rate_s) and isnan(at_s):
            return None  # a number of a step, and nothing that tells time
        measures = measures or Measures(rate_s, NAN, unit_known=True)
        took_s = rate_s if isnan(measures.took_s) else measures.took_s
        epoch = NAN if position.epoch is None else float(position.epoch)
        values = position.step, position.of or 0, epoch, took_s, measures.wait_s
        self._add(values, at_s, measures.unit_known, line)
        return learn_plan(line, values, unit_known=measures.unit_known) or _WITH_CARE

    def _add(self, values: _Values, at_s: float, unit_known: bool, line: str) -> None:
        step, of, epoch, took_s, wait_s = values
        # Numbers without a unit stand apart: in a log that has units, such a line was cut off before its own.
        shape = "stamped" if isnan(took_s) and isnan(wait_s) else "timed" if unit_known else "bare"
        store = self._store(f"{shape} {self._rank}", resolution_s=self._stamps.resolution_s)
        if store is None:
            return
        store.unit_known = unit_known
        store.is_averaged |= "(train)" in line  # mmengine's
        store.of = max(store.of, of)
        self.content.formats[_FORMATS[shape]] += 1
        self.content.last_step_line = self._number
        store.add(self._line, step, epoch, at_s, took_s, wait_s, NAN, NAN)

    def _mark(self, marker: Marker) -> None:
        if len(self.content.markers) < _MOST_MARKERS:
            self.content.markers.append(marker)

    def _store(self, name: str, *, is_bar: bool = False, resolution_s: float) -> StepStore | None:
        store = self.content.stores.get(name)
        if store is None:
            if len(self.content.stores) >= _MOST_STORES:
                return None
            store = self.content.stores[name] = StepStore(name)
            store.is_bar, store.resolution_s = is_bar, resolution_s
        store.resolution_s = min(store.resolution_s, resolution_s)
        return store
