"""Steps in their order with the wall time and the wait of each, whatever kind of line told them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from .bars import bar_times
from .evidence import Flags, Floats, Known, find_spans, weigh

_BLOCK = 4096  # consecutive records; patterns are looked for within blocks
MOST_RECORDS = 40 * _BLOCK
COLUMNS = tuple("line step epoch at_s took_s wait_s elapsed_s rate_s took_mean_s wait_mean_s of".split())  # noqa: SIM905
FEWEST = 6  # records; fewer have no pattern
_LATER_S = 60.0
_MOST_STREAMS = 16  # that write into one log by turns


class StepStore:
    """Records of steps in columns. Past `MOST_RECORDS` every other block is dropped: evenly spread windows stay."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_bar = False
        self.is_slow_only = False
        self.is_epochs = False  # a record is an epoch, not a step
        self.unit_known = True
        self.is_averaged = False  # by the logger, over its last steps
        self.resolution_s = 1.0  # of the time stamps, or of a bar's clock
        self.of = 0  # steps an epoch, if the lines tell
        self.num_seen = 0
        self._rows = array("d")  # one record behind the other
        self._stride = 1

    def __len__(self) -> int:
        return len(self._rows) // len(COLUMNS)

    def add(self, *values: float) -> None:
        """Append one record, its values in the order of `COLUMNS`."""
        block = self.num_seen // _BLOCK
        self.num_seen += 1
        if block % self._stride:
            return
        self._rows.extend(values)
        if len(self._rows) >= MOST_RECORDS * len(COLUMNS):
            length = _BLOCK * len(COLUMNS)
            blocks = [self._rows[first : first + length] for first in range(0, len(self._rows), 2 * length)]
            self._rows = array("d", chain.from_iterable(blocks))
            self._stride *= 2

    def fill_last(self, values: Sequence[float]) -> None:
        """Give the last record the times that it has not: step time and wait, and their means so far."""
        last = len(self._rows) - len(COLUMNS)
        for name, value in zip(("took_s", "wait_s", "took_mean_s", "wait_mean_s"), values, strict=True):
            if last >= 0 and self._rows[last + COLUMNS.index(name)] != self._rows[last + COLUMNS.index(name)]:
                self._rows[last + COLUMNS.index(name)] = value

    def move_lines(self, offset: float) -> None:
        """Count lines from another number on."""
        for index in range(0, len(self._rows), len(COLUMNS)):
            self._rows[index] += offset

    def take_over(self, later: StepStore) -> None:
        """Append the records of another part of the same log."""
        self.is_averaged |= later.is_averaged
        self.unit_known &= later.unit_known
        self.resolution_s, self.of = min(self.resolution_s, later.resolution_s), max(self.of, later.of)
        for values in zip(*(later.column(name) for name in COLUMNS), strict=True):
            self.add(*values)

    def column(self, name: str) -> array[float]:
        """Return one column."""
        return self._rows[COLUMNS.index(name) :: len(COLUMNS)]

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of each stretch of records that follow each other in the log."""
        length = _BLOCK if self._stride > 1 else max(1, len(self))
        for first in range(0, len(self), length):
            yield first, min(first + length, len(self))


@dataclass(frozen=True, kw_only=True)
class Series:
    """Steps of one stream. A record covers `span` steps and took `wall_s`, of which `wait_s` was waiting for data."""

    step: Floats
    span: Floats
    wall_s: Floats
    wait_s: Floats  # NaN where the log tells no wait
    line: Floats
    at_s: Floats  # NaN without time stamps
    is_first: Flags  # of an epoch or of a run: what lies before it is no step
    is_hole: Flags  # records before it are missing (rotated, cut off, skipped)
    is_new_bar: Flags  # the first redraw of a bar, whose clock starts with it
    segment: Floats  # counts the stretches between first ones
    per_epoch: int  # steps, 0: not told
    has_time: bool  # step times come from time stamps or from a clock, not only from what the loop measured itself
    known: Known = Known.EVERY_STEP  # how the share of waiting is known
    error: float = 0.0  # of that share, where it is known from a sample
    is_epochs: bool = False  # a record is an epoch, not a step
    num_streams: int = 1  # that wrote by turns; this is the longest

    def __len__(self) -> int:
        return len(self.step)

    @property
    def has_wait(self) -> bool:
        """Whether the log tells how long each step waited for data."""
        return bool(len(self)) and float(np.isnan(self.wait_s).mean()) < 0.2

    @property
    def median_span(self) -> float:
        """How many steps a record covers, typically."""
        inside = self.span[~self.is_first & ~self.is_hole]
        return float(np.median(inside if len(inside) else self.span))

    def some_steps(self, indices: NDArray[np.int64]) -> tuple[int, ...]:
        """Return the steps of the first few of some records."""
        return tuple(int(step) for step in self.step[indices[:12]])


def build_series(store: StepStore, *, per_epoch: int = 0) -> Series | None:
    """Return the steps of one store in their order, or None where it holds too few to tell a time.

    `per_epoch` is for a counter that runs through all epochs: an epoch begins behind each such number of steps.
    """
    if not len(store) or store.is_slow_only:
        return None
    columns = {name: np.asarray(store.column(name)) for name in COLUMNS}
    columns["block"] = np.zeros(len(store))
    for number, (first, end) in enumerate(store.blocks()):
        columns["block"][first:end] = number
    columns, num_streams = _longest_stream(columns, is_bar=store.is_bar)
    columns = _joined(columns, is_bar=store.is_bar, of=store.of)
    if not len(columns["step"]):
        return None
    if len(columns["step"]) > 2 and np.ptp(columns["step"]) == 0 and "stamped" in store.name:
        return None  # nothing moves: no step
    spans = find_spans(columns, is_bar=store.is_bar)
    step, is_first, is_hole, span = columns["step"], spans.is_first, spans.is_hole, spans.span
    runs = spans.runs  # a bar runs on through its epochs
    segment = runs if (np.diff(runs) == 0).any() else np.cumsum(is_first).astype(float)
    if per_epoch:
        epoch_of = (step - 1) // per_epoch
        is_first = is_first | (np.diff(epoch_of, prepend=epoch_of[0]) > 0)
        segment = np.cumsum(is_first).astype(float)
    resolution_s = store.resolution_s
    at_s = columns["at_s"]
    if store.is_bar:
        at_s, resolution_s = _bar_clock(columns, runs, at_s, resolution_s)
        if (np.diff(runs) > 0).all():  # of each bar only the end
            columns["took_s"] = columns["elapsed_s"] / np.maximum(step, 1)
    if _is_cumulative(columns["took_s"], at_s, is_first | is_hole):  # the time since the start: a clock
        at_s = at_s if not np.isnan(at_s).any() else columns["took_s"]
        resolution_s, columns["took_s"] = min(resolution_s, 0.01), np.full(len(step), np.nan)
    took_s = columns["took_s"]
    if not (store.unit_known or store.is_epochs):
        took_s = _in_seconds(took_s, at_s, span, is_first | is_hole)
    factor = _factor(columns["took_s"], took_s)
    times = {"took": took_s} | {name: columns[f"{name}_s"] * factor for name in ("wait", "took_mean", "wait_mean")}
    inside, dt = ~is_first & ~is_hole, np.diff(at_s, prepend=np.nan)
    told = weigh(times, replace(spans, is_first=is_first), dt, resolution_s, is_averaged=store.is_averaged)
    took_s, wait_s, span = told.took_s, told.wait_s, told.span
    own, waits_s = _over(took_s, span, spans.head, inside), _over(wait_s, span, spans.head, inside)
    wall_s, has_time = _wall(own, dt, span, is_first, is_hole, resolution_s)
    if wall_s is None:
        return None
    if told.known is Known.SAMPLE:
        waits_s = np.where(inside, np.minimum(wall_s, 1.5 * own) * told.share, waits_s)
    return Series(
        step=step,
        span=span,
        wall_s=wall_s,
        wait_s=np.minimum(waits_s, wall_s),
        line=columns["line"],
        at_s=at_s,
        is_first=is_first,
        is_hole=is_hole,
        is_new_bar=(np.diff(runs, prepend=0) != 0) if store.is_bar else np.zeros(len(step), dtype=bool),
        segment=segment,
        per_epoch=per_epoch or store.of,
        has_time=has_time,
        known=told.known,
        error=told.error,
        is_epochs=store.is_epochs,
        num_streams=num_streams,
    )


def _longest_stream(columns: dict[str, Floats], *, is_bar: bool) -> tuple[dict[str, Floats], int]:
    """Keep the longest of several streams that write by turns, and tell how many there are.

    Two jobs, or ranks without a name, leave a counter that jumps back and forth between two rows of numbers. A row
    that is taken up again, time after time, behind one that begins lower is another stream; a new run goes on alone.
    """
    epoch = np.nan_to_num(columns["epoch"])
    step = columns["step"] + epoch * (columns["step"].max() + 1)
    far = 0.0 if is_bar else 8.0  # ranks that keep step are joined, not told apart
    ahead = _returns(step, far)
    if len(ahead) < max(3.0, 0.01 * len(step)):
        return columns, 1
    # A line every 25 steps of epochs of 36 jumps like that, too: 24, 13, 2, 27, but always by 25 if one counts on.
    of = float(np.median(columns["of"])) or float(np.ptp(np.diff(step)))
    on = np.round(np.diff(step) % max(of, 1.0))
    if float((on == np.median(on)).mean()) > 0.8:
        return columns, 1
    usual = float(np.median(ahead))
    rows: list[list[float]] = []  # last step, first record, last record, how many
    owner = np.empty(len(step), dtype=int)
    recent: list[int] = []  # the one that moved last is the first
    for index, now in enumerate(step.tolist()):
        gaps = [(now - rows[row][0], row) for row in recent]
        fits = [row for gap, row in gaps if 0 <= gap <= usual] or [row for gap, row in gaps if 0 < gap <= 4 * usual]
        row = fits[0] if fits else len(rows)
        if not fits:
            rows.append([now, index, index, 0])
        rows[row] = [now, rows[row][1], index, rows[row][3] + 1]
        recent = [row, *(one for one in recent if one != row)][:_MOST_STREAMS]
        owner[index] = row
    streams: list[list[int]] = []
    for row, (_, first, _, _) in enumerate(rows):  # one behind the other: epochs, or starts, of one stream
        free = next((one for one in streams if rows[one[-1]][2] < first), None)
        streams.append([row]) if free is None else free.append(row)
    longest = max(streams, key=lambda one: sum(rows[row][3] for row in one))
    chosen = np.isin(owner, longest)
    return {name: column[chosen] for name, column in columns.items()}, len(streams)


def _returns(step: Floats, far: float) -> list[float]:
    """Return how far ahead a counter is each time that it returns, at once, to where it had jumped back from."""
    ahead: list[float] = []
    level = low = last = float(step[0])
    for now in step.tolist():
        if now < last - far:
            level, low = last, now
        elif now > level:
            if level > low and now - last > 0.5 * (level - low):
                ahead.append(now - level)
            level = low = now
        last = now
    return ahead


def _over(per_step: Floats, span: Floats, head: Floats, inside: Flags) -> Floats:
    """Return what the steps of each record took; those at the end of an epoch, which no line tells of, as usual."""
    head = np.minimum(head, span)
    told = per_step[inside & ~np.isnan(per_step)]
    return per_step * head + (float(np.median(told)) if len(told) else 0.0) * (span - head)


def _joined(columns: dict[str, Floats], *, is_bar: bool, of: int) -> dict[str, Floats]:
    """Join records of one step: ranks that do not name themselves, or a bar that is redrawn."""
    if is_bar:  # a bar is drawn once before its first step
        begun = columns["step"] > 0
        columns = {name: column[begun] for name, column in columns.items()}
    step, epoch = columns["step"], np.nan_to_num(columns["epoch"], nan=-1.0)
    same = (np.diff(step, prepend=np.nan) == 0) & (np.diff(epoch, prepend=np.nan) == 0)
    if is_bar:  # two that are done are two bars, of which the log has only the end
        same &= (of == 0) | (step < of) | (np.abs(np.diff(columns["elapsed_s"], prepend=np.nan)) <= 2)
    else:  # and one that stands there again much later is of another run
        same &= ~(np.abs(np.diff(columns["at_s"], prepend=np.nan)) > _LATER_S)
    if not is_bar and same.mean() > 0.2:  # several ranks write into one log, each a little earlier or later
        big_drop = np.diff(step, prepend=step[0]) < -8
        part = np.cumsum(big_drop)
        order = np.lexsort((columns["line"], step, part))
        columns = {name: column[order] for name, column in columns.items()}
        step = columns["step"]
        same = (np.diff(step, prepend=np.nan) == 0) & (np.diff(part[order], prepend=-1) == 0)
    if not same.any():
        return columns
    starts = np.flatnonzero(~same)
    joined = {name: column[starts] for name, column in columns.items()}
    if is_bar:
        ends = np.append(starts[1:], len(step)) - 1
        # The first redraw of a step may still show the rate of before; the last one shows its own.
        rates = columns["rate_s"][ends]
        joined["rate_s"] = np.where(np.isnan(rates), joined["rate_s"], rates)
        for name in ("took_s", "wait_s", "at_s"):
            joined[name] = columns[name][ends]
    else:
        with np.errstate(all="ignore"):
            for name in ("took_s", "wait_s"):  # a step is as slow as its slowest rank
                joined[name] = np.fmax.reduceat(columns[name], starts)
    return joined


def _bar_clock(columns: dict[str, Floats], segment: Floats, at_s: Floats, resolution_s: float) -> tuple[Floats, float]:
    if not np.isnan(at_s).any():
        return at_s, resolution_s
    times = np.empty(len(segment))
    finest = offset = 0.0
    for number in np.unique(segment):
        chosen = np.flatnonzero(segment == number)
        steps, elapsed_s, rates_s = (columns[name][chosen] for name in ("step", "elapsed_s", "rate_s"))
        bar = bar_times(steps, elapsed_s, rates_s, resolution_s)
        times[chosen] = bar.at_s + offset  # bars one after the other, as if nothing lay between them
        offset = float(times[chosen[-1]])
        finest = max(finest, bar.resolution_s)
    return times, finest


def _is_cumulative(took: Floats, at_s: Floats, begins: Flags) -> bool:
    """Whether figures are the time since the start: they grow from line to line, as the clock does if there is one."""
    grows, dt = np.diff(took, prepend=np.nan)[~begins], np.diff(at_s, prepend=np.nan)[~begins]
    if len(grows) < 3 or float((grows > 0).mean()) <= 0.95:
        return False
    if not np.isnan(dt).any():
        return bool(0.8 < np.median(grows / np.maximum(dt, 1e-3)) < 1.25)
    return len(grows) >= 8 and bool(np.nanmedian(took) > 3 * np.nanmedian(grows))


def _in_seconds(took: Floats, at_s: Floats, span: Floats, no_step: Flags) -> Floats:
    """Return step times in seconds: bare numbers are milliseconds where the time stamps say so or they are huge."""
    if np.isnan(took).all():
        return took
    dt = np.diff(at_s, prepend=np.nan)
    usable = (~no_step if (~no_step).sum() >= FEWEST else np.ones(len(took), dtype=bool)) & ~np.isnan(dt)
    is_ms = float(np.nanmedian(took)) >= 100 and float(np.nanmin(took)) >= 10
    if usable.sum() >= FEWEST and dt[usable].sum() > 2:
        ratio = float(np.nansum((took * span)[usable]) / dt[usable].sum()) / 1000
        is_ms = 0.2 < ratio < 5 or (is_ms and ratio < 5)
    return took / 1000 if is_ms else took


def _factor(before: Floats, after: Floats) -> float:
    with np.errstate(all="ignore"):
        ratio = np.nanmedian(after / before) if not np.isnan(after / before).all() else np.nan
    return float(ratio) if ratio > 0 else 1.0


def _wall(
    own: Floats, dt: Floats, span: Floats, is_first: Flags, is_hole: Flags, resolution_s: float
) -> tuple[Floats | None, bool]:
    """Return the wall time of each record: from the clock where it is fine enough, else from the loop's own figures."""
    inside = ~is_first & ~is_hole
    stamped = len(dt) > 1 and float(np.isnan(dt[1:]).mean()) < 0.1
    told = float(np.isnan(own).mean()) < 0.2
    if told:
        own = np.where(np.isnan(own), np.nanmedian(own / span) * span, own)
    if not stamped:
        return (own, False) if told else (None, False)
    dt = np.where(np.isnan(dt), np.nan_to_num(own) if told else 0.0, dt)
    dt = np.maximum(dt, 0.0)
    if told:
        # Of single steps the loop's own figure is the finer one; the clock knows what happened between two of them.
        by_clock = (dt - own > np.maximum(1.5 * resolution_s, 0.25 * own)) | ((span > 1) & (dt > 8 * resolution_s))
        return np.where(by_clock & ~is_hole, dt, own), True
    if not inside.any() or dt[inside].sum() <= 0:
        return None, True
    if resolution_s > 0.2 * float(np.median(dt[inside])):
        dt = _even(dt, span, inside, resolution_s)
    return dt, True


def _even(dt: Floats, span: Floats, inside: Flags, resolution_s: float) -> Floats:
    """Even out what a coarse clock makes uneven, and keep what is longer than it could make."""
    out = dt.copy()
    window = 64
    for first in range(0, len(dt), window):
        part = slice(first, first + window)
        chosen = inside[part].copy()
        for _ in range(3):
            if not chosen.any():
                break
            base = float(dt[part][chosen].sum() / span[part][chosen].sum())
            chosen &= dt[part] <= base * span[part] + 1.5 * resolution_s
        if chosen.any():
            base = float(dt[part][chosen].sum() / span[part][chosen].sum())
            out[part] = np.where(chosen, base * span[part], dt[part])
    return out
