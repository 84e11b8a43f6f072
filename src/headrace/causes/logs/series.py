"""Steps in their order with the wall time and the wait of each, whatever kind of line told them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from .bars import bar_times

_BLOCK = 4096  # consecutive records; patterns are looked for within blocks
MOST_RECORDS = 64 * _BLOCK
COLUMNS = ("line", "step", "epoch", "at_s", "took_s", "wait_s", "elapsed_s", "rate_s")
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
_FEWEST = 6  # records; fewer have no pattern
_WINDOW = 10


class StepStore:
    """Records of steps in columns. Past `MOST_RECORDS` every other block is dropped: evenly spread windows stay."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_bar = False
        self.is_slow_only = False
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

    def move_lines(self, offset: float) -> None:
        """Count lines from another number on."""
        for index in range(0, len(self._rows), len(COLUMNS)):
            self._rows[index] += offset

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
        return float(np.median(inside)) if len(inside) else 1.0

    def some_steps(self, indices: NDArray[np.int64]) -> tuple[int, ...]:
        """Return the steps of the first few of some records."""
        return tuple(int(step) for step in self.step[indices[:12]])


def build_series(store: StepStore, *, per_epoch: int = 0) -> Series | None:
    """Return the steps of one store in their order, or None where it holds too few.

    `per_epoch` is for a counter that runs through all epochs: an epoch begins behind each such number of steps.
    """
    if len(store) < _FEWEST or store.is_slow_only:
        return None
    columns = {name: np.asarray(store.column(name)) for name in COLUMNS}
    columns["block"] = np.zeros(len(store))
    for number, (first, end) in enumerate(store.blocks()):
        columns["block"][first:end] = number
    columns = _joined(columns, is_bar=store.is_bar)
    step, epoch = columns["step"], columns["epoch"]
    if len(step) < _FEWEST:
        return None
    went_back = np.diff(step, prepend=step[0]) < 0
    changed = np.diff(np.nan_to_num(epoch, nan=-1.0), prepend=np.nan_to_num(epoch[:1], nan=-1.0)) != 0
    cut = np.diff(columns["block"], prepend=0) != 0
    is_first = went_back | changed
    is_first[0] = True
    segment = np.cumsum(is_first).astype(float)
    span = np.diff(step, prepend=step[0])
    usual = float(np.median(span[~is_first])) if (~is_first).any() else 1.0
    # A counter may run on through the epochs; or it starts anew, and then a high first number means missing lines.
    goes_on = (span > 0) & (span <= 4 * usual + 1)
    anew = is_first & ~goes_on
    span[anew] = np.where(step[anew] <= 4 * usual, np.maximum(step[anew], 1.0), 1.0)
    runs = segment  # a bar runs on through its epochs
    if per_epoch:
        epoch_of = (step - 1) // per_epoch
        is_first = is_first | (np.diff(epoch_of, prepend=epoch_of[0]) > 0)
        segment = np.cumsum(is_first).astype(float)
    is_hole = cut | (span > 4 * usual + 1) | (anew & (step > 4 * usual + 1))
    resolution_s = store.resolution_s
    at_s = columns["at_s"]
    if store.is_bar:
        at_s, resolution_s = _bar_clock(columns, runs, at_s, resolution_s)
    took_s = _in_seconds(columns["took_s"], at_s, span, is_first | is_hole, unit_known=store.unit_known)
    wait_s = columns["wait_s"] * _factor(columns["took_s"], took_s)
    if store.is_averaged and usual == 1 and not np.isnan(took_s).any():
        took_s, wait_s = undo_smoothing(took_s, wait_s, is_hole)
    wall_s, has_time = _wall(took_s, wait_s, at_s, span, is_first, is_hole, resolution_s)
    if wall_s is None:
        return None
    return Series(
        step=step,
        span=span,
        wall_s=wall_s,
        wait_s=wait_s * span,
        line=columns["line"],
        at_s=at_s,
        is_first=is_first,
        is_hole=is_hole,
        is_new_bar=(np.diff(runs, prepend=0) != 0) if store.is_bar else np.zeros(len(step), dtype=bool),
        segment=segment,
        per_epoch=per_epoch or store.of,
        has_time=has_time,
    )


def _joined(columns: dict[str, Floats], *, is_bar: bool) -> dict[str, Floats]:
    """Join records of one step: ranks that do not name themselves, or a bar that is redrawn."""
    if is_bar:  # a bar is drawn once before its first step
        begun = columns["step"] > 0
        columns = {name: column[begun] for name, column in columns.items()}
    step = columns["step"]
    same = np.diff(step, prepend=np.nan) == 0
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
        steps, elapsed_s, rates_s = (columns[name][chosen].tolist() for name in ("step", "elapsed_s", "rate_s"))
        bar = bar_times(steps, elapsed_s, rates_s, resolution_s)
        times[chosen] = bar.at_s + offset  # bars one after the other, as if nothing lay between them
        offset = float(times[chosen[-1]])
        finest = max(finest, bar.resolution_s)
    return times, finest


def _in_seconds(took: Floats, at_s: Floats, span: Floats, no_step: Flags, *, unit_known: bool) -> Floats:
    """Return step times in seconds: bare numbers are milliseconds where the time stamps say so or they are huge."""
    if unit_known or np.isnan(took).all():
        return took
    dt = np.diff(at_s, prepend=np.nan)
    usable = ~no_step & ~np.isnan(dt)
    is_ms = float(np.nanmedian(took)) >= 100
    if usable.sum() >= _FEWEST and dt[usable].sum() > 2:
        is_ms = float(np.nanmean(took)) > 100 * float(dt[usable].sum() / span[usable].sum())
    return took / 1000 if is_ms else took


def _factor(before: Floats, after: Floats) -> float:
    with np.errstate(all="ignore"):
        ratio = np.nanmedian(after / before) if not np.isnan(before).all() else np.nan
    return float(ratio) if ratio > 0 else 1.0


def _wall(
    took_s: Floats, wait_s: Floats, at_s: Floats, span: Floats, is_first: Flags, is_hole: Flags, resolution_s: float
) -> tuple[Floats | None, bool]:
    """Return the wall time of each record: from the clock where it is fine enough, else from the loop's own figures."""
    no_step = is_first | is_hole
    stamped = float(np.isnan(at_s).mean()) < 0.1
    own = took_s * span
    told = float(np.isnan(took_s).mean()) < 0.2
    if told:
        own = np.where(np.isnan(own), np.nanmedian(took_s) * span, own)
        waits = np.nan_to_num(wait_s) * span
        if np.nansum(waits[~no_step]) > np.nansum(own[~no_step]):
            own = own + waits  # the loop's step time leaves the wait out
    if not stamped:
        return (own, False) if told else (None, False)
    dt = np.diff(at_s, prepend=np.nan)
    dt = np.where(np.isnan(dt), np.nan_to_num(own) if told else 0.0, dt)
    dt = np.maximum(dt, 0.0)
    if told:
        # What the loop timed itself is the finer figure; the clock knows what happened between two steps.
        more = dt - own > np.maximum(1.5 * resolution_s, 0.25 * own)
        return np.where(more & ~is_hole, dt, own), True
    inside = ~no_step
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


def undo_smoothing(
    took_s: Floats, wait_s: Floats, is_hole: NDArray[np.bool_], *, window: int = _WINDOW
) -> tuple[Floats, Floats]:
    """Return step times and waits with the smoothing undone, or as they are where there was none.

    >>> plain = np.array([0.1] * 20 + [2.1] + [0.1] * 19)
    >>> smoothed = np.array([plain[max(0, k - 9) : k + 1].mean() for k in range(40)])
    >>> undone, _ = undo_smoothing(smoothed, smoothed * np.nan, np.zeros(40, bool))
    >>> bool(np.allclose(undone, plain)), undo_smoothing(plain, plain, np.zeros(40, bool))[0] is plain
    (True, True)
    """
    if len(took_s) < 2 * window or is_hole.any():
        return took_s, wait_s
    own = _undone(took_s, window)
    # Undone where there was no smoothing, it gives negative steps: ten times the difference of two neighbours.
    if float(own.min()) < -0.25 * float(np.median(took_s)):
        return took_s, wait_s
    own = np.maximum(own, 0.0)
    return own, np.clip(_undone(wait_s, window), 0.0, own) if not np.isnan(wait_s).any() else wait_s


def _undone(means: Floats, window: int) -> Floats:
    own = np.empty(len(means))
    own[0] = means[0]
    for index in range(1, len(means)):
        if index < window:
            own[index] = (index + 1) * means[index] - index * means[index - 1]
        else:
            own[index] = window * (means[index] - means[index - 1]) + own[index - window]
    return own
