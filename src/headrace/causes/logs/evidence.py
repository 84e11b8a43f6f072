"""What a log's own figures stand for: each step, means so far, means of a window, a sample. Decided by evidence.

Whether `Time 1.8 (0.48)` is a step and the mean so far, whether a figure is the last step of a hundred or the mean of
all of them, whether the step time holds the wait or stands beside it: no line says so, but the lines together do.
"""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from headrace.model import Text

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
WINDOW = 10  # steps over which mmengine averages
_LONG_WINDOW = 20  # steps over which torchvision's reference averages


class Known(Enum):
    """How a share of the time is known."""

    EVERY_STEP = Text("every step is in the log", "日志记录了每一步")
    MEANS = Text("known from the means that the log prints", "由日志打印的均值得出")
    WINDOWS = Text("known from means over the steps between two lines", "由两行之间各步的均值得出")
    CLOCK = Text(
        "known from the time stamps, less what steps compute by the log's own figures; those that it prints are "
        "not typical",
        "由时间戳减去日志自报的计算时间得出：它打印的那些步并不典型",
    )
    SAMPLE = Text(
        "known from {lines:single step(s)} of {steps}, so give or take {error}",
        "由 {steps} 步中打印出的 {lines} 个单步推得，误差约 {error}",
    )


@dataclass(frozen=True)
class Spans:
    """How many steps each record covers: `head` of them in its own epoch, the others at the end of the one before."""

    step: Floats
    line: Floats
    span: Floats
    head: Floats
    is_first: Flags  # of an epoch or of a run: what lies before it is no step
    is_hole: Flags  # records before it are missing (rotated, cut off, skipped)
    usual: float
    count: Floats  # steps done since the epoch began
    runs: Floats  # counts the stretches in which the counter goes on
    segment: Floats  # counts the epochs; a bar runs on through its own

    @property
    def inside(self) -> Flags:
        """Which records go on from the one before."""
        return ~self.is_first & ~self.is_hole


def find_spans(columns: dict[str, Floats], *, is_bar: bool, per_epoch: int) -> Spans:
    """Return what each record covers, where epochs and runs begin, and where lines are missing."""
    step, epoch = columns["step"], np.nan_to_num(columns["epoch"], nan=-1.0)
    went_back = np.diff(step, prepend=-1.0) <= 0
    new_epoch = np.diff(epoch, prepend=epoch[0])
    is_first = went_back | (new_epoch != 0)
    is_first[0] = True
    span = np.diff(step, prepend=step[0])
    usual = float(np.median(span[~is_first])) if (~is_first).any() else max(1.0, float(np.median(step)))
    # A counter may run on through the epochs; or it starts anew, and then a high first number means missing lines.
    goes_on = (span > 0) & (span <= 4 * usual + 1)
    anew = is_first & ~goes_on
    begins_at = 1.0 if (step[anew] == 0).any() else 0.0
    count = step + begins_at
    head = span.copy()
    head[anew] = np.where(count[anew] <= 4 * usual + 1, np.maximum(count[anew], 1.0), 1.0)
    span = head.copy()
    last = np.roll(step, 1) + begins_at
    # Steps behind the last line of an epoch are in no line, but in the time until the next one.
    is_same_run = anew & (np.arange(len(step)) > 0) & (not is_bar) & ((new_epoch > 0) | (went_back & (epoch < 0)))
    of = np.roll(columns["of"], 1)
    span += np.where(is_same_run, np.where(of > 0, np.clip(of - last, 0, None), usual // 2), 0.0)
    is_back = went_back & (new_epoch == 0) & (epoch >= 0) | (new_epoch < 0)  # a run that begins again in the same log
    is_back |= went_back & (epoch < 0) & (last < 0.5 * of)
    cut = np.diff(columns["block"], prepend=0) > 1
    is_hole = cut | (~is_first & (span > 4 * usual + 1)) | (anew & (step > 4 * usual + 1)) | (is_back & (not is_bar))
    is_hole[0] = False  # a log may begin in the middle
    runs = np.cumsum(is_first).astype(float)
    if is_first.mean() > 0.7:  # a line an epoch: each is like the others
        is_first = np.arange(len(step)) == 0
    segment = runs if (np.diff(runs) == 0).any() else np.cumsum(is_first).astype(float)
    if per_epoch:
        is_first = is_first | (np.diff((step - 1) // per_epoch, prepend=-1.0) > 0)
        segment = np.cumsum(is_first).astype(float)
    return Spans(step, columns["line"], span, head, is_first, is_hole, usual, count, runs, segment)


@dataclass(frozen=True)
class Told:
    """What a step of each record took and waited; by a sample the share of waiting is so give or take `error`."""

    took_s: Floats
    wait_s: Floats
    span: Floats
    known: Known
    error: float = 0.0


def weigh(times: dict[str, Floats], spans: Spans, dt: Floats, resolution_s: float, *, is_averaged: bool) -> Told:
    """Return what the figures of a log stand for; `dt` is the time since the record before, NaN without time stamps."""
    inside = spans.inside
    took_s, wait_s, took_mean_s = times["took"], times["wait"], times["took_mean"]
    if (np.abs(wait_s - took_s) < 1e-6).mean() > 0.8:  # timers that are read behind the step: they tell nothing
        took_s = wait_s = np.full(len(wait_s), np.nan)
    timed = inside & (np.nan_to_num(dt) > 8 * resolution_s)
    # A wait longer than its step stands beside it; so does one where the clock agrees with both together much better.
    is_longer = (wait_s > 1.05 * took_s + 0.005).sum() > 0.002 * len(wait_s)
    both_s = took_s + np.nan_to_num(wait_s)
    off, off_both = (abs(_against_clock(one * spans.span, dt, timed)[1] - 1) for one in (took_s, both_s))
    if is_longer or 3 * off_both < min(off, 0.15):
        took_s, took_mean_s = both_s, took_mean_s + np.nan_to_num(times["wait_mean"])
    if not is_averaged and (early := _since_begin(took_s, spans, inside)) is not None:
        took_s, wait_s = (
            np.where(early & ~np.isnan(values), _stretches(values, spans), values) for values in (took_s, wait_s)
        )
        wait_s = np.clip(wait_s, 0.0, took_s)
    if spans.usual <= 1:
        if is_averaged and not np.isnan(took_s).any():
            took_s, wait_s = undo_smoothing(took_s, wait_s, spans.is_hole)
        return Told(took_s, wait_s, spans.span, Known.EVERY_STEP)
    sample = Told(took_s, wait_s, spans.span, Known.SAMPLE)
    if is_averaged and spans.usual <= WINDOW:
        return replace(sample, known=Known.WINDOWS)
    means = _from_means(took_mean_s, spans, took_s)
    wait_means = wait_s if np.isnan(wait_s).all() else _from_means(times["wait_mean"], spans, wait_s)
    if means is not None and wait_means is not None:
        return Told(means, wait_means, spans.span, Known.MEANS)
    if float(np.isnan(took_s).mean()) >= 0.2 or not inside.any():
        return sample
    return _beside_clock(sample, dt, resolution_s, inside)


def _beside_clock(told: Told, dt: Floats, resolution_s: float, inside: Flags) -> Told:
    """Judge figures of several steps each by the time that the stamps show."""
    took_s, wait_s, span = told.took_s, told.wait_s, told.span
    agreement, ratio = _against_clock(took_s * span, dt, inside & (np.nan_to_num(dt) > 4 * resolution_s))
    if ratio > 1.9 and agreement < (0.3 if inside.sum() >= 5 else 0.05):  # the counter counts samples, not steps
        span = np.maximum(1.0, np.round(span / ratio))
    elif agreement < 0.1 and 0.9 < ratio < 1.1:
        return replace(told, known=Known.WINDOWS)
    work_s = (took_s - wait_s)[inside]
    low, middle, high = np.quantile(work_s, (0.1, 0.5, 0.9))
    if ratio < 0.8 and middle >= 0 and high - low < 0.5 * middle:
        # single steps that happen to be quick: what the clock shows beyond computing was no computing
        is_timed = ~np.isnan(dt)
        wait_s = np.where(is_timed, np.maximum(dt / span - middle, 0.0), wait_s)
        return Told(np.where(is_timed, dt / span, took_s), wait_s, span, Known.CLOCK)
    # One step stands for a stretch: the mean over all of them is told, not that of each.
    own = _own_steps(took_s, inside)
    inside = inside & ~own
    took, wait = float(np.nanmean(took_s[inside])), np.nan
    if not np.isnan(wait_s[inside]).all():
        wait = float(np.nanmean(wait_s[inside]))
    error = _error(took_s[inside], wait_s[inside])
    took_s = np.where(own, (took_s + took * (span - 1)) / span, np.where(inside, took, took_s))
    wait_s = np.where(own, (wait_s + wait * (span - 1)) / span, np.where(inside, wait, wait_s))
    return Told(took_s, wait_s, span, Known.SAMPLE, error)


def _own_steps(took_s: Floats, inside: Flags) -> Flags:
    """Return the printed steps that stand for themselves: all long, one every so many lines, as an evaluation does."""
    own = inside & (took_s > 5 * np.nanmedian(took_s[inside]))
    gaps = np.diff(np.flatnonzero(own))
    return own if len(gaps) > 1 and gaps.min() > 1 and np.ptp(gaps) == 0 else np.zeros_like(own)


def _from_means(means: Floats, spans: Spans, single: Floats) -> Floats | None:
    """Return what a step took in each stretch, from the means so far that the log prints; None where they are none."""
    if np.isnan(means).mean() > 0.05:
        return None
    per_step = _stretches(means, spans)
    digit = float(np.diff(np.unique(means)).min(initial=0.01))  # what the last printed one is worth
    off = digit * spans.count / np.maximum(spans.head, 1.0)
    is_mean = float((per_step >= -0.2 * np.median(per_step) - off).mean()) >= 0.95
    return _stretches(means, spans, digit, single) if is_mean else None


def _since_begin(took_s: Floats, spans: Spans, inside: Flags) -> Flags | None:
    """Return which figures are means since the epoch began, where the first lines of epochs show it; None: none are.

    They are, if these lines are much more like the others without what the first step of an epoch brings in.
    """
    early = inside & (spans.count <= _LONG_WINDOW)
    if not early.any() or np.isnan(took_s).any():
        return None
    own, later = _stretches(took_s, spans), inside & ~early
    typical = float(np.median(took_s[later] if later.any() else own[early]))
    off, off_before = (float(np.median(np.abs(values[early] - typical))) for values in (own, took_s))
    return early if off < 0.5 * off_before - 1e-4 and float(own[early].min()) >= -0.2 * typical else None


def _stretches(means: Floats, spans: Spans, digit: float = 0.0, single: Floats | None = None) -> Floats:
    """Return what a step took in each stretch, from means since the epoch began, with `single` steps as a guess."""
    done = np.nan_to_num(means) * spans.count
    begins = ~spans.inside
    if single is not None:  # a mean is known to half a digit: within that, steps take what the printed one took
        now, guess = 0.0, (np.nan_to_num(single) * spans.head).tolist()
        for index, (at, off) in enumerate(zip(done.tolist(), (0.5 * digit * spans.count).tolist(), strict=True)):
            now = at if begins[index] else max(now, min(max(now + guess[index], at - off), at + off))
            done[index] = now
    return _undone(done, begins) / np.maximum(np.where(begins, spans.count, spans.head), 1.0)


def _against_clock(own: Floats, dt: Floats, usable: Flags) -> tuple[float, float]:
    """Return how far the log's figures are off the clock's, typically, and how many times as long they are."""
    own, dt = own[usable & ~np.isnan(own)], dt[usable & ~np.isnan(own)]
    if len(own) < 3:
        return np.inf, 1.0
    ratio = float(np.median(own / dt))
    return float(np.median(np.abs(own / ratio / dt - 1))), ratio if ratio > 1.5 else float(own.sum() / dt.sum())


def _error(took_s: Floats, wait_s: Floats) -> float:
    """Return the standard error of the share of waiting that a sample of steps tells."""
    usable = ~np.isnan(took_s) & ~np.isnan(wait_s)
    took_s, wait_s = took_s[usable], wait_s[usable]
    if len(took_s) < 2 or took_s.sum() <= 0:
        return 0.0
    off = wait_s - wait_s.sum() / took_s.sum() * took_s
    return float(np.sqrt((off**2).sum() * len(off) / (len(off) - 1)) / took_s.sum())


def undo_smoothing(took_s: Floats, wait_s: Floats, is_hole: Flags) -> tuple[Floats, Floats]:
    """Return step times and waits with the smoothing undone, or as they are where there was none.

    >>> plain = np.array([0.1] * 20 + [2.1] + [0.1] * 19)
    >>> smoothed = np.array([plain[max(0, k - 9) : k + 1].mean() for k in range(40)])
    >>> undone, _ = undo_smoothing(smoothed, smoothed * np.nan, np.zeros(40, bool))
    >>> bool(np.allclose(undone, plain)), undo_smoothing(plain, plain, np.zeros(40, bool))[0] is plain
    (True, True)
    """
    if len(took_s) < 2 * WINDOW or is_hole.any():
        return took_s, wait_s
    count, is_begin = np.minimum(np.arange(1.0, len(took_s) + 1), WINDOW), np.arange(len(took_s)) == 0
    own = _undone(took_s * count, is_begin, window=WINDOW)
    # Undone where there was no smoothing, it gives negative steps: ten times the difference of two neighbours.
    if float(own.min()) < -0.25 * float(np.median(took_s)):
        return took_s, wait_s
    own = np.maximum(own, 0.0)
    if not np.isnan(wait_s).any():
        wait_s = np.clip(_undone(wait_s * count, is_begin, window=WINDOW), 0.0, own)
    return own, wait_s


def _undone(sums: Floats, begins: Flags, *, window: int = 0) -> Floats:
    """Return what each record adds to sums that start anew at some of them, or that run over a window of records."""
    own = np.where(begins, sums, np.diff(sums, prepend=0.0))
    for index in range(window or len(own), len(own)):  # a step enters the window, and one leaves it
        own[index] += own[index - window]
    return own
