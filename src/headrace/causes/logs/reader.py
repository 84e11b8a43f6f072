"""A log as it streams by: lines in, records of steps, markers and settings out.

A log repeats a few lines a million times. What a line's numbers mean is worked out once for each shape (the line with
its numbers blanked out); others of that shape are read by the place of each number.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import inf, isnan
from typing import Any

import numpy as np

from headrace.knowledge import MessageFound, MessageScanner

from .endings import LogEnd, read_end
from .fields import (
    NOT_TRAIN,
    STEPS,
    Doing,
    LinePlan,
    Marker,
    StepLine,
    read_marker,
    read_plan,
    read_settings,
    read_watcher,
    split_numbers,
)
from .lines import NAN, LineCutter, Stamps, read_chunks

# Steps are read from all of the first 32 MiB, then from windows of 1 MiB, evenly spread, a 32nd of the rest: a
# pattern shows within a window, and a long log stays quick to read. Messages are looked for in all of it.
_READ_WHOLE_BYTES = 32 << 20
_WINDOW_BYTES = 1 << 20
_OF_THE_REST = 32
_LAST_CHUNKS = 4  # what is looked at for how the run ended: about 1 MiB
_BLOCK = 4096  # consecutive records; patterns are looked for within blocks
MOST_RECORDS = 40 * _BLOCK
COLUMNS = ("line", "block", *StepLine._fields)
TIMES = ("took_s", "wait_s", "took_mean_s", "wait_mean_s", "has_unit")
_MOST_MARKERS = 50_000
_MOST_STORES = 512  # one a rank and kind of line; more are other numbers that look like steps
# Which process wrote a line: `[rank3]:`, `rank 3 |`, `[default3]:`, `3: ` (srun -l), `(Worker pid=81)`.
_PREFIX = re.compile(
    r"\s*(?:[\[(<]?\s*(?:local[_ ]?)?(?:rank|default|proc(?:ess)?|worker|gpu|node)\s*[_:=#]?\s*(\d{1,5})"
    r"\s*[\])>]?\s*[:|\-]?\s*"
    r"|\[\d+,(\d{1,5})\]<std(?:out|err)>:\s*|(\d{1,4}):\s+(?=\D|\d{4}-)|\(\w+ pid=(\d+)[^)]*\)\s*)",
    re.IGNORECASE,
)
_STEP_WORDS = re.compile(r"step|tick|iter|update|batch|epoch|it |train|步|迭代|批次|[\[\]]")
_LIKE_A_STEP = re.compile(
    r"\b(?:step|iter(?:ation)?|batch|epoch)s?\b.*(?:\d\s*m?s\b|time|sec|it/s)|(?:time|sec).*\b(?:step|iter)s?\b",
    re.IGNORECASE,
)
# A line that is only the beginning of the next one: a time stamp and no message.
_BEGINS = re.compile(r"[\s\[(]*\d[-\d/.]{4,}[ T_]+\d\d:\d\d:[\d.,]+[\])\s|:-]*(?:INFO|DEBUG)?[\])\s|:>-]*")
_MOST_HEADER, _FEWEST_HEADER = 300, 6  # lines of a header that are remembered; shorter ones tell nothing
_MOST_SHAPES = 20_000  # of lines that are remembered; later ones are read with care each time
_WITH_CARE = "with care"  # how to read each line of a shape whose words count, not only its numbers
_EPOCH_TOOK = re.compile(
    r"(?:epoch[_ ]?(?:time|took|duration)|\b(?:time|took)\b[a-z ]{0,12}\d? ?epoch)\W{0,3}(\d+(?:\.\d+|(?::\d\d)+)?)",
    re.IGNORECASE,
)
_NO_EPOCH = re.compile(r"^[\W\d]*(?:val|eval|test)|(?:val|eval|test)\w*[ _-](?:time|took)", re.IGNORECASE)
_TESTED = re.compile(r"\b(?:val|valid|test)\w* loss\W{1,3}\d", re.IGNORECASE)
_FOLD_WORDS = re.compile(
    r"(?:step|iter|batch|load|data|read|fetch|wait)\w*[_ ](?:time|cost|wait)|batch-generator|^loaded:"
    r"|\b(?:speed|timer):|elapsed",
    re.IGNORECASE,
)


# Progress bars: tqdm's, Lightning's, transformers', accelerate's, Ultralytics'.
_N = r"(?P<n>\d+(?:\.\d+)?[kMG]?)"
_ELAPSED = r"(?P<elapsed>\d+:\d\d(?::\d\d)?)"
_RATE, _ANY_RATE = r"(?P<rate>[\d.]+(?:it/s|s/it))", r"(?P<rate>[\d.]+\s*\S+?/\S+?|\?[^,\]]*)(?=[,\]]|$)"
_RATE_OF_STEPS = re.compile(rf"(?P<amount>[\d.]+(?-i:[kMG])?)\s*(?:{STEPS}/s|(?P<per>s/){STEPS})", re.IGNORECASE)
_BARS = [
    re.compile(shape)
    for shape in (
        # 65%|██████▍   | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]; 150it [00:09, 15.3it/s]
        rf"(?<![\d.]){_N}(?:/(?P<of>\d+(?:\.\d+)?[kMG]?|\?)\s*|it )\[{_ELAPSED}(?=[<,])(?:<[^,\]]*)?"
        rf"(?:,\s*{_ANY_RATE}|(?=[,\]]|$))",
        # 32: 27% ━━━╸──────── 41/150 13.2it/s 3.1s<8.3s
        rf"%\s*[━─╸╺]+\s*{_N}/(?P<of>\d+)\s+{_RATE}\s+(?P<elapsed>[\d.:]+)s?(?:<\S+)?",
        # Epoch 0/0  ━━━━━━━━ 150/150 0:00:09 • 0:00:00 15.68it/s
        rf"[━╸╺─]\s*{_N}/(?P<of>\d+)\s+{_ELAPSED}\s*•\s*\S+\s+{_RATE}",
    )
]
_SIZES = {"k": 1e3, "M": 1e6, "G": 1e9}
_OTHER_WORK = re.compile(
    r"download|fetching|tokeniz|\bmap\b(?!@)|filter|loading|reading|processing|caching|scanning|resolving|extract"
    r"|generating|unpack|copying|capturing"
    r"|下载|缓存|预处理",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"epoch\s*[:=#]?\s*\[?(\d+)|第\s*(\d+)\s*(?:轮|个?\s*epoch)|^\s*(\d+)/\d+\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bar:
    """One redraw of a bar: what it tells of a step, and what stands around it."""

    told: StepLine
    kind: str  # "train", "evaluate" or "other"
    behind: str  # what stands behind the rate


def read_bar(line: str) -> Bar | None:
    """Return what a redraw of a progress bar says.

    >>> bar = read_bar("Epoch 2:  65%|██▍ | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]")
    >>> bar.told.step, bar.told.of, bar.told.epoch, bar.told.elapsed_s, bar.told.rate_s, bar.kind, bar.behind
    (2949, 4570, 2.0, 2054.0, 0.16, 'train', ', tb(ms)=160]')
    """
    match = next((match for shape in _BARS if (match := shape.search(line))), None)
    if match is None:
        return None
    title, drawn, _ = line[: match.start()].partition("%|")
    title = title.rstrip("0123456789 ") if drawn else title
    rate_text, rate_s = match["rate"] or "", NAN
    if rate := _RATE_OF_STEPS.fullmatch(rate_text):
        rate_s = amount_of(rate["amount"]) if rate["per"] else 1 / (amount_of(rate["amount"]) or NAN)
    kind, epoch = _title(title)
    step, of = (int(amount_of(text)) if text not in (None, "?") else 0 for text in match.group("n", "of"))
    told = StepLine(step, of, epoch, elapsed_s=amount_of(match["elapsed"]), rate_s=rate_s)
    return Bar(told, "other" if "B/s" in rate_text else kind, line[match.end() :])  # a download


@lru_cache(maxsize=4096)
def _title(title: str) -> tuple[str, float]:
    """Return what a title says: the kind of bar, and the epoch."""
    kind = "other" if _OTHER_WORK.search(title) else "evaluate" if NOT_TRAIN.search(title) else "train"
    found = _EPOCH.search(title)
    epoch = float(next(group for group in found.groups() if group)) if found else NAN
    return kind, epoch


def amount_of(text: str) -> float:
    """Return a number or the seconds of a clock: 1.2k, 1:02:03, 02:03, 12.5s."""
    amount = 0.0
    for part in text.rstrip("skMG").split(":"):
        amount = 60 * amount + float(part or 0)
    return amount * _SIZES.get(text[-1:], 1.0)


class StepStore:
    """Records of steps in columns. Past `MOST_RECORDS` every other block is dropped: evenly spread windows stay."""

    def __init__(self, shape: str, rank: str = "-", kind: str = "") -> None:
        self.key = self.shape, self.rank, self.kind = shape, rank, kind
        self.is_bar = shape.startswith("bar/")
        self.is_epochs = kind == "epochs"  # a record is an epoch, not a step
        self.is_averaged = False  # by the logger, over its last steps
        self.resolution_s = inf  # of the time stamps
        self.of = 0  # steps an epoch, if the lines tell
        self.num_seen = 0
        self.last_step = -1
        self.rows = array("d")  # one record behind the other
        self._stride = 1

    def __len__(self) -> int:
        return len(self.rows) // len(COLUMNS)

    def add(self, line: float, told: StepLine) -> None:
        """Append one record."""
        block = self.num_seen // _BLOCK
        self.num_seen += 1
        self.last_step, self.of = told.step, max(self.of, told.of)
        if block % self._stride:
            return
        self.rows.extend((line, block, *told))
        if len(self.rows) >= MOST_RECORDS * len(COLUMNS):
            length = _BLOCK * len(COLUMNS)
            blocks = [self.rows[first : first + length] for first in range(0, len(self.rows), 2 * length)]
            self.rows = array("d", chain.from_iterable(blocks))
            self._stride *= 2

    def fill_last(self, told: StepLine) -> None:
        """Give the last record the times that it has not: step time and wait, their means so far, its stamp."""
        for name in (*TIMES, "at_s") if self.rows else ():
            at = COLUMNS.index(name) - len(COLUMNS)
            if isnan(self.rows[at]):
                self.rows[at] = getattr(told, name)

    def take_over(self, later: StepStore) -> None:
        """Append the records of another part of the same log."""
        self.is_averaged |= later.is_averaged
        self.resolution_s = min(self.resolution_s, later.resolution_s)
        for line, _, *values in zip(*(later.column(name) for name in COLUMNS), strict=True):
            self.add(line, StepLine(*values))

    @property
    def moves(self) -> bool:
        """Whether it tells of steps that have times: a number that stays as it is counts nothing."""
        if self.shape != "stamped" or len(self) <= 2:
            return self.shape != "alone"
        return bool((np.diff(self.column("step")) > 0).mean() > 0.3)

    def column(self, name: str) -> array[float]:
        """Return one column."""
        return self.rows[COLUMNS.index(name) :: len(COLUMNS)]


class LogReader:
    """Reads lines in their order, and holds what they tell before anybody judges it. It holds no file."""

    def __init__(self) -> None:
        self.cutter = LineCutter()  # counts its lines and bytes
        self.messages: tuple[MessageFound, ...] = ()
        self.end = LogEnd(0)
        self.stores: dict[tuple[str, ...], StepStore] = {}  # by shape, rank and kind
        self.markers: list[Marker] = []
        self.settings: dict[str, int] = {}
        self.unread: dict[str, list[Any]] = {}  # lines that look like steps and tell none, by shape: how many, one
        self.last_step_line = 0  # its number, as an editor shows it
        self._stamps = Stamps()
        self._line = 0.0  # where a line stands among all that were read
        self._number = 0
        self._rank = "-"
        self._stamp_s = NAN  # the last time stamp
        self._last_store: StepStore | None = None
        self._last_line = 0.0  # of a step
        self._last_bar: StepStore | None = None  # that moved
        self._num_epochs = 0
        self._begun = ""  # a line that the next one may belong to
        self._plans: dict[str, LinePlan | None] = {}  # by the shape of a line; None: nothing in it
        self._header: set[str] = set()  # shapes of the lines before the first step
        self._header_again: set[str] = set()  # those that came again since the last step

    def feed(self, lines: list[tuple[int, str]]) -> None:
        """Take the next lines of the log, each with its number."""
        for self._number, line in lines:
            self._line += 1
            self._read(line)

    def move_lines(self, offset: float) -> None:
        """Count the lines of this log from another number on."""
        self.markers = [replace(marker, line=marker.line + offset) for marker in self.markers]
        for store in self.stores.values():
            store.rows[:: len(COLUMNS)] = array("d", [line + offset for line in store.column("line")])

    def _read(self, line: str) -> None:
        self._rank = "-"
        prefix = _PREFIX.match(line)
        if prefix is not None:
            self._rank = next(group for group in prefix.groups() if group is not None)
            line = line[prefix.end() :]
        if "/s" in line or "s/" in line or "?it" in line or "[==" in line or "%|" in line:
            bar = read_bar(line)
            if bar is not None:
                self._read_bar(bar)
                behind = bar.behind[bar.behind.find("]") + 1 :]
                if len(behind) > 8:  # a logger does not know of the bar, and writes on in its line
                    self._line += 0.5
                    self._read(behind)
                return
        begun, self._begun = self._begun, line if len(line) < 48 and _BEGINS.fullmatch(line) else ""
        at_s = self._stamps.read(line)
        if begun and isnan(at_s):
            line, at_s = f"{begun} {line}", self._stamp_s
        shape, numbers = split_numbers(line)
        # A run begins anew in the same log where most of what stands before its first step comes again.
        if not self.last_step_line:
            if len(self._header) < _MOST_HEADER:
                self._header.add(shape)
        elif shape in self._header:
            self._header_again.add(shape)
        if shape not in self._plans:
            found = self._read_with_care(line, numbers, at_s)
            if not isinstance(found, str) and len(self._plans) < _MOST_SHAPES:
                self._plans[shape] = found
                if found is None and _LIKE_A_STEP.search(line) and len(numbers) >= 3:
                    self.unread[shape] = [1, line.strip()]
        elif (plan := self._plans[shape]) is None:
            if shape in self.unread:
                self.unread[shape][0] += 1
        elif "step" not in plan.places:
            self._fold(plan.read(numbers), line)
        else:
            self._add(plan.read(numbers, at_s=at_s, batch_size=self._batch_size), line)
        self._stamp_s = self._stamp_s if isnan(at_s) else at_s

    @property
    def _batch_size(self) -> int:
        """The samples of a step, as far as settings tell: on several devices it may be that of each."""
        own = self.settings.get("batch_size", 0) if self.settings.get("devices", 1) == 1 else 0
        return self.settings.get("all_batch", own)

    def _read_with_care(self, line: str, numbers: list[str], at_s: float) -> LinePlan | str | None:
        """Read a line of a shape not seen before; return how to read others like it: None, not at all."""
        if (watched := read_watcher(line)) is not None:
            is_slow = isnan(watched.wait_mean_s)
            self.last_step_line = self._number if is_slow else self.last_step_line
            self._store("slow" if is_slow else "recent", "watched").add(self._line, watched._replace(at_s=at_s))
            return _WITH_CARE
        marker = read_marker(line, line=self._line)
        if marker is not None:
            marker = replace(marker, at_s=at_s, since_s=self._stamp_s)
            self._mark(marker)
        self.settings = read_settings(line) | self.settings
        how: LinePlan | str | None = None
        is_step, is_timer = _STEP_WORDS.search(line.lower()) is not None, _FOLD_WORDS.search(line) is not None
        may_fold = is_timer and marker is None and self._last_store is not None
        if is_step or may_fold:
            plan = read_plan(line)
            told = plan.read(numbers, at_s=at_s)
            if may_fold and plan.places.keys().isdisjoint(("step", "epoch")):
                self._fold(plan.read(numbers), line)
                return plan
            if is_step and "step" not in plan.places:
                how = self._read_epoch(told, line, marker)
            elif is_step and not plan.is_training:
                how = self._read_test(plan, told, line, marker)
            elif _TESTED.search(line) and not plan.has_times and isnan(told.at_s):  # step 250: train loss 3, val loss 4
                self._mark(Marker(Doing.EVALUATION, self._line))
                how = _WITH_CARE
            elif is_step and (marker is None or plan.has_times):  # else "Saving checkpoint at 30 iterations"
                self._add(plan.read(numbers, at_s=at_s, batch_size=self._batch_size), line)
                how = plan
        return how if marker is None and (how is not None or not is_timer) else _WITH_CARE

    def _fold(self, told: StepLine, line: str) -> None:
        """Give a step the times that stand in lines behind its own, where its own tells none."""
        last = self.markers[-1] if self.markers else None
        is_evaluated = last is not None and last.doing is Doing.EVALUATION and last.line > self._last_line
        if last is not None and is_evaluated and "epoch" not in line.lower():
            self.markers[-1] = replace(last, took_s=told.took_s)  # "start eval", and then its own timer
        elif self._last_store is not None:
            self._last_store.fill_last(told)

    def _read_bar(self, bar: Bar) -> None:
        told = bar.told
        if bar.kind == "evaluate":
            self._mark(Marker(Doing.EVALUATION, self._line, took_s=told.elapsed_s))
        if bar.kind != "train":
            return
        store = self._store(f"bar/{told.of}")
        is_drawn_again = store.last_step == told.step  # perhaps by its end
        if not is_drawn_again and told.step:
            self.last_step_line = self._number
        if "=" in bar.behind or ":" in bar.behind:
            shape, numbers = split_numbers(bar.behind)
            plan = self._plans.get(shape) or read_plan(bar.behind)
            if len(self._plans) < _MOST_SHAPES:
                self._plans[shape] = plan
            if plan.has_times:
                beside = plan.read(numbers)
                told = told._replace(**{name: getattr(beside, name) for name in TIMES})
        if self._last_bar in (None, store) or not is_drawn_again:
            self._last_bar = store
            store.add(self._line, told)
        elif not isnan(told.took_s):  # a bar of epochs that shows the times of the steps of another one
            self._last_bar.fill_last(told)

    def _read_test(self, plan: LinePlan, told: StepLine, line: str, marker: Marker | None) -> str | None:
        """Read a step of an evaluation: it marks one, and a log of nothing else has steps, too."""
        took_s = NAN
        if "took_s" in plan.places:
            self._add(told._replace(epoch=NAN), line, kind="test")
            took_s = (told.took_s if isnan(told.took_mean_s) else told.took_mean_s) * (told.step + 1)
        if marker is not None and not isnan(took_s) and self.markers[-1] is marker:
            self.markers[-1] = replace(marker, took_s=took_s)
        elif marker is None and (plan.has_times or told.of or not isnan(told.at_s)):
            self._mark(Marker(Doing.EVALUATION, self._line, told.at_s, took_s=took_s))
            return _WITH_CARE
        return None

    def _read_epoch(self, told: StepLine, line: str, marker: Marker | None) -> str | None:
        """Read a line that tells of a whole epoch: what its steps took, or all of it. For logs without steps."""
        whole = _EPOCH_TOOK.search(line)
        took_s = amount_of(whole[1]) if whole else told.took_s
        if marker is not None or isnan(took_s) or _NO_EPOCH.search(line):
            return None
        if isnan(told.epoch) and "epoch" not in line.lower():
            return None
        self._num_epochs += 1
        number = self._num_epochs if isnan(told.epoch) else int(told.epoch)
        told = told._replace(step=number, of=0, epoch=NAN, took_s=took_s, has_unit=1.0 if whole else told.has_unit)
        self._add(told, line, "epochs")
        return _WITH_CARE

    def _add(self, told: StepLine, line: str, kind: str = "") -> None:
        if len(self._header_again) >= max(_FEWEST_HEADER, 0.5 * len(self._header)):
            self._mark(Marker(Doing.RESTART, self._line - 0.25, told.at_s))
        self._header_again.clear()
        # Numbers without a unit stand apart: in a log that has units, such a line was cut off before its own. So do
        # those with a wait: beside lines that have none they tell of something else, the extraction of features.
        shape = ("timed" if told.has_unit else "bare") + "+" * (not isnan(told.wait_s))
        if isnan(told.took_s) and isnan(told.wait_s):  # alone: its times may stand in lines of their own behind it
            shape = "alone" if isnan(told.at_s) else "stamped"
        store = self._store(shape, kind)
        store.is_averaged |= "(train)" in line  # mmengine's
        self.last_step_line = self._number
        self._last_store, self._last_line = store, self._line
        store.add(self._line, told)

    def _mark(self, marker: Marker) -> None:
        if len(self.markers) < _MOST_MARKERS:
            self.markers.append(marker)

    def _store(self, shape: str, kind: str = "") -> StepStore:
        key = shape, self._rank, kind
        store = self.stores.get(key)
        if store is None:
            store = StepStore(*key)
            if len(self.stores) < _MOST_STORES:
                self.stores[key] = store
        store.resolution_s = min(store.resolution_s, self._stamps.resolution_s)
        return store


def read_log(path: str) -> LogReader:
    """Read a log, `-` for standard input. Raises `UnusableInput` where it cannot be read, or is no text."""
    log, scanner = LogReader(), MessageScanner()
    last: deque[bytes] = deque(maxlen=_LAST_CHUNKS)
    for chunk in read_chunks(path):
        scanner.scan_chunk(chunk)
        last.append(chunk)
        behind = log.cutter.num_bytes - _READ_WHOLE_BYTES
        is_read = behind < 0 or behind // _WINDOW_BYTES % _OF_THE_REST == 0
        log.feed(log.cutter.cut(chunk, is_read=is_read))
    log.feed(log.cutter.rest())
    again, ending = LineCutter(), b"".join(last)
    again.num_lines = log.cutter.num_lines - ending.count(b"\n")
    log.end = read_end([*again.cut(ending), *again.rest()], last_step=log.last_step_line)
    if log.end.signal is not None:
        line, text = log.end.signal
        scanner.add("shell_killed" if text in ("Killed", "已杀死") else "told_to_end", text, line)
    log.messages = scanner.found()
    return log
