"""Steps in their order with the wall time and the wait of each, whatever kind of line, rank or log told them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .evidence import Flags, Floats, Known, Spans, find_spans, weigh
from .fields import Doing, Marker
from .reader import COLUMNS, LogReader, StepStore

FILE_STRIDE = 10**10  # line numbers of the second log start here: one axis for all
FEWEST = 6  # records; fewer have no pattern
_LATER_S = 60.0
_SMOOTHING = 0.3  # tqdm's default
_TOLERATED_MISFIT = 0.1  # of the elapsed time
_WORKED_OUT_S = 0.05  # how finely two decimals of a rate tell the time of a redraw, about


@dataclass(frozen=True, kw_only=True)
class Series(Spans):
    """Steps of one stream. A record covers `span` steps and took `wall_s`, of which `wait_s` was waiting for data."""

    wall_s: Floats
    wait_s: Floats  # NaN where the log tells no wait
    at_s: Floats  # NaN without time stamps
    is_new_bar: Flags  # the first redraw of a bar, whose clock starts with it
    per_epoch: int  # steps, 0: not told
    has_time: bool  # step times come from time stamps or from a clock, not only from what the loop measured itself
    known: Known = Known.EVERY_STEP  # how the share of waiting is known
    error: float = 0.0  # of that share, where it is known from a sample
    is_epochs: bool = False  # a record is an epoch, not a step

    def __len__(self) -> int:
        return len(self.step)

    @property
    def has_wait(self) -> bool:
        """Whether the log tells how long each step waited for data."""
        return bool(len(self)) and float(np.isnan(self.wait_s).mean()) < 0.2

    @property
    def median_span(self) -> float:
        """How many steps a record covers, typically."""
        return float(np.median(self.span[self.inside] if self.inside.any() else self.span))

    def some_steps(self, indices: NDArray[np.int64]) -> tuple[int, ...]:
        """Return the steps of the first few of some records."""
        return tuple(int(step) for step in self.step[indices[:12]])


def build_series(store: StepStore, *, per_epoch: int = 0) -> Series | None:
    """Return the steps of one store in their order, or None where it holds too few to tell a time.

    `per_epoch` is for a counter that runs through all epochs: an epoch begins behind each such number of steps.
    """
    columns = {name: np.asarray(store.column(name)) for name in COLUMNS}
    columns = _joined(columns, is_bar=store.is_bar, of=store.of)
    step, at_s, resolution_s = columns["step"], columns["at_s"], store.resolution_s
    if not len(step):
        return None
    spans = find_spans(columns, is_bar=store.is_bar, per_epoch=per_epoch)
    runs, inside = spans.runs, spans.inside
    if store.is_bar:
        at_s, resolution_s = _bar_clock(columns, runs)
    if store.is_bar and (np.diff(runs) > 0).all():  # of each bar only the end
        columns["took_s"] = columns["elapsed_s"] / np.maximum(step, 1)
    if _is_cumulative(columns["took_s"], at_s, ~inside):  # the time since the start: a clock
        at_s = at_s if not np.isnan(at_s).any() else columns["took_s"]
        resolution_s, columns["took_s"] = min(resolution_s, 0.01), np.full(len(step), np.nan)
    dt = np.diff(at_s, prepend=np.nan)
    is_open = (columns["has_unit"] == 0).any() and not (store.is_epochs or np.isnan(columns["took_s"]).all())
    unit_s = 1e-3 if is_open and np.nanmedian(columns["took_s"]) >= 100 else 1.0  # bare numbers that are huge
    times = {name: columns[f"{name}_s"] * unit_s for name in ("took", "wait", "took_mean", "wait_mean")}
    told = weigh(times, spans, dt, resolution_s, is_averaged=store.is_averaged)
    own, wait_s = _over(told.took_s, told.span, spans.head, inside), told.wait_s
    has_time = len(dt) > 1 and float(np.isnan(dt[1:]).mean()) < 0.1
    wall_s = _wall(own, dt, told.span, spans, resolution_s, has_time=has_time)
    if wall_s is None:
        return None
    if told.known is Known.SAMPLE:
        share = wait_s / np.maximum(told.took_s, 1e-9)
        wait_s = np.where(inside, np.minimum(wall_s, 1.5 * own) * share / told.span, wait_s)
    return Series(
        **vars(replace(spans, span=told.span)),
        wall_s=wall_s,
        wait_s=np.minimum(_over(wait_s, told.span, spans.head, inside), wall_s),
        at_s=at_s,
        is_new_bar=(np.diff(runs, prepend=0) != 0) if store.is_bar else np.zeros(len(step), dtype=bool),
        per_epoch=per_epoch or store.of,
        has_time=has_time,
        known=told.known,
        error=told.error,
        is_epochs=store.is_epochs,
    )


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
    if not same.any():
        return columns
    if not is_bar:  # several ranks may write into one log, each a little earlier or later
        part = np.cumsum(np.diff(step, prepend=step[0]) < -8 if same.mean() > 0.2 else ~same)
        return _slowest(columns, part, ("took_s", "wait_s"))
    ends = np.flatnonzero(~np.roll(same, -1))
    # The first redraw of a step may still show the rate of before; the last one shows its own.
    joined = {name: column[~same] for name, column in columns.items()}
    for name in ("rate_s", "took_s", "wait_s", "at_s", "has_unit"):
        joined[name] = np.where(np.isnan(columns[name][ends]), joined[name], columns[name][ends])
    return joined


def _slowest(columns: dict[str, Floats], part: NDArray[Any], names: Sequence[str]) -> dict[str, Floats]:
    """Join the records of one step within a part: in the named columns it is as slow as its slowest rank."""
    order = np.lexsort((columns["line"], columns["step"], part))
    columns = {name: column[order] for name, column in columns.items()}
    is_new = (np.diff(columns["step"], prepend=np.nan) != 0) | (np.diff(part[order], prepend=-1) != 0)
    starts = np.flatnonzero(is_new)
    return {
        name: np.fmax.reduceat(column, starts) if name in names and len(starts) else column[starts]
        for name, column in columns.items()
    }


def _bar_clock(columns: dict[str, Floats], segment: Floats) -> tuple[Floats, float]:
    times = np.empty(len(segment))
    finest = offset = 0.0
    for number in np.unique(segment):
        chosen = np.flatnonzero(segment == number)
        shown_s, known_to_s = bar_times(*(columns[name][chosen] for name in ("step", "elapsed_s", "rate_s")))
        times[chosen] = shown_s + offset  # bars one after the other, as if nothing lay between them
        offset, finest = float(times[chosen[-1]]), max(finest, known_to_s)
    return times, finest


def bar_times(n: Floats, shown: Floats, rates: Floats) -> tuple[Floats, float]:
    """Return the times of the redraws of one bar from its start, and how finely they are known.

    They come from its steps, the elapsed seconds that it shows, and its seconds a step. tqdm shows whole seconds, but
    its rate tells more. Where a loop calls `update()`, that is a moving average whose rule is known (0.3 of the newest,
    0.7 of before, of steps and of seconds alike), so each redraw's own seconds can be worked out from two rates. Where
    a framework sets `n` itself (Lightning), it is the mean since the start, and steps times rate is the elapsed time.
    Which one holds is tested against the whole seconds; if neither does, they are all that is used.

    >>> steps = np.array([10.0, 20, 30, 40])
    >>> bar_times(steps, steps // 10, np.full(4, 0.1))[0].round(3).tolist()
    [1.5, 2.5, 3.5, 4.5]
    """
    if (shown % 1).any():
        return shown, 0.1
    if len(n) < 4 or np.isnan(rates[1:]).mean() > 0.1:
        return shown, 1.0
    moving, since_start = _undo_moving(n, rates), np.diff(np.nan_to_num(n * rates), prepend=0.0)
    held = (_held_to(shown, seconds) for seconds in (moving, since_start))
    at_s, misfit_s = min(held, key=lambda one: one[1])
    is_fit = misfit_s < _TOLERATED_MISFIT * max(float(shown[-1] - shown[0]), 1.0)
    return (at_s, _WORKED_OUT_S) if is_fit else (shown, 1.0)


def _undo_moving(n: Floats, rates: Floats) -> Floats:
    new, begun = np.diff(n, prepend=0.0), 0.0
    if n[0] > 16 and not np.isnan(rates[0]):  # seen from the middle on: as if it had been steady so far
        new[0] = begun = float(n[1] - n[0])
    told = np.flatnonzero((new > 0) & ~np.isnan(rates))
    steps_avg = [begun]
    for now in new[told].tolist():
        steps_avg.append(_SMOOTHING * now + (1 - _SMOOTHING) * steps_avg[-1])
    time_avg = np.array(steps_avg) * np.append(np.nan_to_num(rates[0]), rates[told])
    seconds = np.zeros(len(n))
    seconds[told] = np.maximum(0.0, (time_avg[1:] - (1 - _SMOOTHING) * time_avg[:-1]) / _SMOOTHING)
    return seconds


def _held_to(shown: Floats, seconds: Floats) -> tuple[Floats, float]:
    """Add up seconds, bending each time into the second that the bar showed; return the times and how much was bent."""
    at_s = np.empty(len(shown))
    bent_s = 0.0
    now = float(shown[0]) + 0.5
    for index, low in enumerate(shown.tolist()):
        due = now + float(seconds[index]) if index else now
        now = low if due < low - 0.02 else low + 1.0 if due > low + 1.02 else due
        bent_s += abs(now - due) if index else 0.0
        at_s[index] = now
    return at_s, bent_s


def _is_cumulative(took: Floats, at_s: Floats, begins: Flags) -> bool:
    """Whether figures are the time since the start: they grow from line to line, as the clock does if there is one."""
    grows, dt = np.diff(took, prepend=np.nan)[~begins], np.diff(at_s, prepend=np.nan)[~begins]
    if len(grows) < 2 or float((grows > 0).mean()) <= 0.95:
        return False
    if not np.isnan(dt).any():
        return bool(0.8 < np.median(grows / np.maximum(dt, 1e-3)) < 1.25)
    if len(grows) >= 8:
        return bool(np.nanmedian(took) > 3 * np.nanmedian(grows))
    return bool(np.ptp(grows) < 0.5 * grows.min()) and took[-1] > 2 * grows.max()  # a few lines, each as much later


def _wall(own: Floats, dt: Floats, span: Floats, spans: Spans, resolution_s: float, *, has_time: bool) -> Floats | None:
    """Return the wall time of each record: from the clock where it is fine enough, else from the loop's own figures."""
    told, inside = float(np.isnan(own).mean()) < 0.2, spans.inside
    if told:
        own = np.where(np.isnan(own), np.nanmedian(own / span) * span, own)
    if not has_time:
        return own if told else None
    dt = np.maximum(np.where(np.isnan(dt), np.nan_to_num(own) if told else 0.0, dt), 0.0)
    if told:
        # Of single steps the loop's own figure is the finer one; the clock knows what happened between two of them.
        by_clock = (dt - own > np.maximum(1.5 * resolution_s, 0.25 * own)) | ((span > 1) & (dt > 8 * resolution_s))
        return np.where(by_clock & ~spans.is_hole, dt, own)
    if not inside.any() or dt[inside].sum() <= 0:
        return None
    is_coarse = resolution_s > 0.2 * float(np.median(dt[inside]))
    return _even(dt, span, inside, resolution_s) if is_coarse else dt


def _even(dt: Floats, span: Floats, inside: Flags, resolution_s: float) -> Floats:
    """Even out what a coarse clock makes uneven, and keep what is longer than it could make."""
    out = dt.copy()
    for first in range(0, len(dt), 64):
        part = slice(first, first + 64)
        chosen, even = inside[part].copy(), np.full(len(dt[part]), np.inf)
        for _ in range(4):
            chosen &= dt[part] <= even + 1.5 * resolution_s
            even = span[part] * float(dt[part][chosen].sum() / max(1.0, span[part][chosen].sum()))
        out[part] = np.where(chosen, even, dt[part])
    return out


@dataclass
class LogStreams:
    """What all logs tell together."""

    series: list[Series] = field(default_factory=list)  # the most telling first
    watched: dict[str, StepStore] = field(default_factory=dict)  # slow batches alone, figures of recent ones
    markers: list[Marker] = field(default_factory=list)
    settings: dict[str, int] = field(default_factory=dict)
    fast_step_s: float | None = None  # the shortest step that a few lines tell of, where they are too few for a series
    per_epoch: int = 0
    num_ranks: int = 1


def join_logs(logs: Sequence[LogReader]) -> LogStreams:
    """Return the streams of steps in some logs of one run."""
    streams = LogStreams()
    logs = sorted(logs, key=lambda one: min(map(_place, filter(len, one.stores.values())), default=[0.0] * 3))
    stores = [store for log in logs for store in log.stores.values()]
    kinds = {"" if one.shape == "slow" else one.kind for one in stores if one.moves} or {one.kind for one in stores}
    kind = min(kinds, default="")  # steps; where there are none, lines of whole epochs, else those of an evaluation
    shapes: dict[str, dict[str, list[StepStore]]] = {}
    for index, log in enumerate(logs):
        log.move_lines(index * FILE_STRIDE)
        streams.settings = log.settings | streams.settings
        streams.markers += [one for one in log.markers if kind != "test" or one.doing is not Doing.EVALUATION]
        streams.markers += _bars_between(log.stores)
        for store in log.stores.values():
            if len(store) and store.kind in (kind, "watched") and (store.moves or store.shape == "alone"):
                shapes.setdefault(store.shape, {}).setdefault(store.rank, []).append(store)
    streams.markers.sort(key=lambda marker: marker.line)
    fast: list[float] = []
    for shape, ranks in shapes.items():
        parts = [chain for stores in ranks.values() for chain in _chained(stores)]
        if parts[0].kind == "watched":
            streams.watched[shape] = max(parts, key=len)
            continue
        streams.per_epoch = max(streams.per_epoch, *(store.of for store in parts))
        # a counter runs through all epochs where the log tells how many steps and epochs there are
        epochs, steps = (streams.settings.get(name, 1) for name in ("num_epochs", "num_steps"))
        is_through = epochs > 1 and steps % epochs == 0 and all(store.of == steps > epochs for store in parts)
        per_epoch = steps // epochs if is_through else 0
        built = [series for store in parts if (series := build_series(store, per_epoch=per_epoch)) is not None]
        if built:
            streams.num_ranks = max(streams.num_ranks, len(built))
            streams.series.append(_side_by_side(built))
        fast += [one for store in parts for name in ("took_s", "rate_s") for one in store.column(name) if one > 0]
    streams.series.sort(key=_worth, reverse=True)
    streams.fast_step_s = min(fast, default=None)
    return streams


def _bars_between(stores: dict[tuple[str, ...], StepStore]) -> list[Marker]:
    """Take out bars that are no training, though no name says so: they run in the pauses of the one that began first.

    Returns them as evaluations, one each time.
    """
    bars = sorted(
        (store for store in stores.values() if store.is_bar and len(store)), key=lambda one: one.column("line")[0]
    )
    found: dict[int, Marker] = {}
    runs = [_bar_runs(store) for store in bars]
    for store, others in zip(bars[1:], runs[1:], strict=True):
        # In which pause of the first one does each lie? Within a run of it there is none.
        after = np.searchsorted([first for first, _, _ in runs[0]], [begin for begin, _, _ in others]).tolist()
        is_between = [runs[0][index - 1][1] < begin for index, (begin, _, _) in zip(after, others, strict=True)]
        is_named = np.isnan(store.column("epoch")).mean() < 0.5  # by its epoch: it may be another run's training
        if is_named or np.mean(is_between) < 0.9 or len(set(after)) < max(2, 0.5 * (len(runs[0]) - 1)):
            continue
        for index, (_, end, took_s) in zip(after, others, strict=True):
            took_s += found[index].took_s if index in found else 0.0
            found[index] = Marker(Doing.EVALUATION, end, took_s=took_s)
        del stores[store.key]
    return list(found.values())


def _bar_runs(store: StepStore) -> list[tuple[float, float, float]]:
    """Return the runs of a bar: the lines where each begins and ends, and how long it took."""
    line, elapsed_s = (np.asarray(store.column(name)) for name in ("line", "elapsed_s"))
    starts = np.flatnonzero(np.diff(elapsed_s, prepend=np.inf) < 0)
    ends = np.append(starts[1:], len(line)) - 1
    return list(zip(line[starts].tolist(), line[ends].tolist(), elapsed_s[ends].tolist(), strict=True))


def _place(store: StepStore, index: int = 0) -> list[float]:
    """Return where a log begins, or ends: its time, epoch and step; 0 where it tells none."""
    return [float(np.nan_to_num(store.column(name)[index])) for name in ("at_s", "epoch", "step")]


def _worth(series: Series) -> float:
    return 2 * series.has_wait + (series.median_span <= 1) + 0.5 * series.has_time + float(np.log10(len(series)))


def _chained(stores: list[StepStore]) -> list[StepStore]:
    """Join what follows each other: parts of a log that was rotated. Others stay apart: they are ranks."""
    chains: list[StepStore] = []
    for store in sorted(stores, key=_place):
        end, begin = _place(chains[-1], -1) if chains else [np.inf] * 3, _place(store)
        if (end[0] <= begin[0] + 1.0) if end[0] and begin[0] else end[1:] <= begin[1:]:
            chains[-1].take_over(store)
        else:
            chains.append(store)
    return chains


def _side_by_side(ranks: list[Series]) -> Series:
    """Take each step as its slowest rank had it: the others wait for that one."""
    if len(ranks) == 1:
        return ranks[0]
    names = [name for name, value in vars(ranks[0]).items() if isinstance(value, np.ndarray)]
    columns = {name: np.concatenate([getattr(series, name) for series in ranks]) for name in names}
    joined: dict[str, Any] = _slowest(columns, columns["segment"], ("wall_s", "wait_s"))
    has_time = any(series.has_time for series in ranks)
    return replace(ranks[0], **joined, per_epoch=max(series.per_epoch for series in ranks), has_time=has_time)
