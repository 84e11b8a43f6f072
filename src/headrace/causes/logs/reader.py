"""A log as it streams by: lines in, records of steps, markers and settings out."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from math import isnan

from .bars import Bar, read_bar
from .fields import NAN, Measures, read_measures, read_position, read_rate_s
from .markers import Doing, Marker, read_marker
from .settings import MARKS, read_settings
from .slow_batches import Recent, read_recent, read_slow_batch
from .store import StepStore
from .times import Stamps

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
_STEP_WORDS = ("step", "iter", "batch", "epoch", "it ", "train", "步", "迭代", "批次", "[")
_SLOW_WORDS = ("slow", "late", "stalled", "慢", "recent", "last", "最近")
_MARK_WORDS = ("sav", "writ", "dump", "eval", "valid", "upload", "sync", "test", "resum", "restart", "flush", "log",
               "保存", "写入", "存储", "验证", "评估", "评测", "上传", "同步", "记录", "恢复")  # fmt: skip


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
        elif "rank" in line[:120] and (inside := _RANK_INSIDE.search(line[:120])):
            self._rank = inside[1]
        if "/s" in line or "s/" in line or "?it" in line:
            bar = read_bar(line)
            if bar is not None:
                self._read_bar(line, bar)
                behind = bar.behind[bar.behind.find("]") + 1 :]
                if len(behind) > 8:  # a logger does not know of the bar, and writes on in its line
                    self._line += 0.5
                    self._read(behind)
                return
        low = line.lower()
        at_s = self._stamps.read(line)
        at = NAN if at_s is None else at_s
        if any(word in low for word in _SLOW_WORDS) and self._read_watcher(line, at):
            return
        marker = None
        if any(word in low for word in _MARK_WORDS):
            marker = read_marker(line, line=self._line, at_s=at)
            if marker is not None:
                self._mark(marker)
        if any(mark in low for mark in MARKS):
            for name, value in read_settings(line).items():
                self.content.settings.setdefault(name, value)
        if any(word in low for word in _STEP_WORDS):
            self._read_step(line, at, marker)

    def _read_bar(self, line: str, bar: Bar) -> None:
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
        if bar.of:
            store.of = max(store.of, bar.of)
        measures = read_measures(bar.behind) if "=" in bar.behind or ":" in bar.behind else None
        took, wait = (measures.took_s, measures.wait_s) if measures else (NAN, NAN)
        if measures and not measures.unit_known:
            store.unit_known = False
        epoch = NAN if bar.epoch is None else float(bar.epoch)
        at_s = self._stamps.read(line) if line[:1] in "[0123456789IWE" else None
        store.add(self._line, bar.step, epoch, NAN if at_s is None else at_s, took, wait, bar.elapsed_s, bar.rate_s)

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

    def _read_step(self, line: str, at_s: float, marker: Marker | None) -> None:
        position = read_position(line)
        if position is None:
            return
        measures = read_measures(line)
        if not position.is_training:
            if marker is None and (measures is not None or position.of is not None):
                self._mark(Marker(Doing.EVALUATION, self._line, at_s, NAN, NAN))
            return
        if marker is not None and measures is None:
            return  # "Saving checkpoint at 30 iterations": a marker, not a step
        rate_s = read_rate_s(line) if measures is None or isnan(measures.took_s) else NAN
        if measures is None and isnan(rate_s) and isnan(at_s):
            return  # a number of a step, and nothing that tells time
        shape = "timed" if measures is not None or not isnan(rate_s) else "stamped"
        store = self._store(f"{shape} {self._rank}", resolution_s=self._stamps.resolution_s)
        if store is None:
            return
        measures = measures or Measures(rate_s, NAN, unit_known=True)
        took_s = rate_s if isnan(measures.took_s) else measures.took_s
        if not measures.unit_known:
            store.unit_known = False
        if "(train)" in line:  # mmengine's
            store.is_averaged = True
        if position.of:
            store.of = max(store.of, position.of)
        self.content.formats[f"{shape} steps"] += 1
        self.content.last_step_line = self._number
        epoch = NAN if position.epoch is None else float(position.epoch)
        store.add(self._line, position.step, epoch, at_s, took_s, measures.wait_s, NAN, NAN)

    def _mark(self, marker: Marker) -> None:
        if len(self.content.markers) < _MOST_MARKERS:
            self.content.markers.append(marker)

    def _store(self, name: str, *, is_bar: bool = False, resolution_s: float) -> StepStore | None:
        store = self.content.stores.get(name)
        if store is None:
            if len(self.content.stores) >= _MOST_STORES:
                return None
            store = self.content.stores[name] = StepStore(name)
            store.is_bar = is_bar
            store.resolution_s = resolution_s
        store.resolution_s = min(store.resolution_s, resolution_s)
        return store
