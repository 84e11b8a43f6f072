"""Several logs of one run as one: rotated parts in a row, ranks side by side, stdout and stderr together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

import numpy as np

from .fields import NAN, Recent
from .markers import Doing, Marker
from .reader import LogContent
from .series import Series, StepStore, build_series

FILE_STRIDE = 10**10  # line numbers of the second log start here: one axis for all


@dataclass
class LogStreams:
    """What all logs tell together."""

    series: list[Series] = field(default_factory=list)  # the most telling first
    slow_only: StepStore | None = None
    markers: list[Marker] = field(default_factory=list)
    settings: dict[str, int] = field(default_factory=dict)
    recent: list[Recent] = field(default_factory=list)
    fast_step_s: float | None = None  # the shortest step that a few lines tell of, where they are too few for a series
    per_epoch: int = 0
    num_ranks: int = 1


def join_logs(contents: Sequence[LogContent]) -> LogStreams:
    """Return the streams of steps in some logs of one run."""
    streams = LogStreams()
    contents = sorted(contents, key=lambda one: min(map(_begin, filter(len, one.stores.values())), default=[0.0] * 3))
    for index, content in enumerate(contents):
        content.move_lines(index * FILE_STRIDE)
        streams.markers += content.markers
        streams.recent += content.recent
        for name, value in content.settings.items():
            streams.settings.setdefault(name, value)
    shapes: dict[str, dict[tuple[str, str], list[StepStore]]] = {}
    stores = [store for content in contents for store in content.stores.values()]
    kinds = {one.kind for one in stores if one.moves} or {one.kind for one in stores}
    # Steps without a number, lines of whole epochs, those of an evaluation: they count where there are no better ones.
    order = ["test", "epochs", "steps"]
    beside = set(order if kinds - set(order) else order[: max(map(order.index, kinds), default=0)])
    if kinds == {"test"}:
        streams.markers = [marker for marker in streams.markers if marker.doing is not Doing.EVALUATION]
    for content in contents:
        streams.markers += _bars_between(content.stores)
        for store in content.stores.values():
            if store.kind not in beside and (store.moves or store.shape == "alone"):
                shapes.setdefault(store.shape, {}).setdefault((store.rank, store.kind), []).append(store)
                streams.per_epoch = max(streams.per_epoch, store.of)
    streams.markers.sort(key=lambda marker: marker.line)
    fast: list[float] = []
    for shape, ranks in shapes.items():
        parts = [chain for stores in ranks.values() for chain in _chained(stores)]
        if shape == "slow":
            streams.slow_only = max(parts, key=len)
            continue
        per_epoch = _steps_an_epoch(streams.settings, parts)
        built = [series for store in parts if (series := build_series(store, per_epoch=per_epoch)) is not None]
        if built:
            streams.num_ranks = max(streams.num_ranks, len(built))
            streams.series.append(_side_by_side(built))
        for values in (np.asarray(store.column(name)) for store in parts for name in ("took_s", "rate_s")):
            fast += [float(values[values > 0].min())] if (values > 0).any() else []
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
            found[index] = Marker(Doing.EVALUATION, end, NAN, NAN, took_s)
        del stores[store.key]
    return list(found.values())


def _bar_runs(store: StepStore) -> list[tuple[float, float, float]]:
    """Return the runs of a bar: the lines where each begins and ends, and how long it took."""
    line, elapsed_s = (np.asarray(store.column(name)) for name in ("line", "elapsed_s"))
    starts = np.flatnonzero(np.diff(elapsed_s, prepend=np.inf) < 0)
    ends = np.append(starts[1:], len(line)) - 1
    return list(zip(line[starts].tolist(), line[ends].tolist(), elapsed_s[ends].tolist(), strict=True))


def _begin(store: StepStore) -> list[float]:
    """Return what tells which of several logs comes first: their time, else their epoch and step."""
    return [float(np.nan_to_num(store.column(name)[0])) for name in ("at_s", "epoch", "step")]


def _steps_an_epoch(settings: dict[str, int], stores: list[StepStore]) -> int:
    """Return the steps of an epoch where a counter runs through all of them and the log tells how many there are."""
    epochs, steps = settings.get("num_epochs", 1), settings.get("num_steps", 0)
    if epochs > 1 and steps > epochs and steps % epochs == 0 and all(store.of == steps for store in stores):
        return steps // epochs
    return 0


def _worth(series: Series) -> float:
    is_single = series.median_span <= 1
    return 2.0 * series.has_wait + 1.0 * is_single + 0.5 * series.has_time + float(np.log10(len(series)))


def _chained(stores: list[StepStore]) -> list[StepStore]:
    """Join what follows each other: parts of a log that was rotated. Others stay apart: they are ranks."""
    chains: list[StepStore] = []
    for store in sorted(filter(len, stores), key=_begin):
        if chains and _follows(chains[-1], store):
            chains[-1].take_over(store)
        else:
            chains.append(store)
    return chains


def _follows(earlier: StepStore, later: StepStore) -> bool:
    end, begin = earlier.column("at_s")[-1], later.column("at_s")[0]
    if not isnan(end) and not isnan(begin):
        return end <= begin + 1.0
    last = np.nan_to_num([earlier.column(name)[-1] for name in ("epoch", "step")]).tolist()
    return bool(last <= _begin(later)[1:])


def _side_by_side(ranks: list[Series]) -> Series:
    """Take each step as its slowest rank had it: the others wait for that one."""
    if len(ranks) == 1:
        return ranks[0]
    names = [name for name, value in vars(ranks[0]).items() if isinstance(value, np.ndarray)]
    columns = {name: np.concatenate([getattr(series, name) for series in ranks]) for name in names}
    order = np.lexsort((columns["step"], columns["segment"]))
    columns = {name: column[order] for name, column in columns.items()}
    is_new = [np.diff(columns[name], prepend=np.nan) != 0 for name in ("step", "segment")]
    starts = np.flatnonzero(is_new[0] | is_new[1])
    joined: dict[str, Any] = {
        name: np.fmax.reduceat(column, starts) if name in ("wall_s", "wait_s") else column[starts]
        for name, column in columns.items()
    }
    has_time = any(series.has_time for series in ranks)
    return replace(ranks[0], **joined, per_epoch=max(series.per_epoch for series in ranks), has_time=has_time)
