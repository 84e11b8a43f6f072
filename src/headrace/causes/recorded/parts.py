"""What a sample's time went into: reading, decoding, transforms, the user's stages, standing still, the rest. Pure.

The worker wrote for each sample the own time of each part, and of many samples how long the thread was not on a core.
That is waiting for a free core, or standing still; in which proportion is known of whole tasks. A decoder that stands
still reads its file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import EventKind, PartKind, PartRow, Text, format_bytes, format_seconds, format_share

from .processes import ProcessEvents, ends_of, starts_of

_KINDS = {kind.value: kind for kind in PartKind}
# A stage that the user, or a codec, named after one of these is one of these.
_STAGES = (
    (re.compile(r"\b(read|download)(ing)?\b|读取|下载", re.IGNORECASE), PartKind.READ),
    (re.compile(r"\bdecod|decompress|解码|解压", re.IGNORECASE), PartKind.DECODE),
    (re.compile(r"\btransform|augment|^volume process$|^picture finish$|变换|增强", re.IGNORECASE), PartKind.TRANSFORM),
)
_SHOWN_FROM = 0.01  # of a sample
_TELLING_FROM = 0.05  # of a sample that is known as something: below, there is nothing to tell
_UNTIMED_FROM = 0.5  # of a sample in code that nobody timed
_MOST_NAMES = 2
_HEAVY_FROM = 0.5
_SINGULAR = {PartKind.READ, PartKind.DECODE}


@dataclass(frozen=True, eq=False, kw_only=True)
class SamplePart:
    """One part, over all samples that were timed."""

    kind: PartKind
    name: str
    is_stage: bool  # named in the data set
    own_s: float
    nbytes: int
    still_s: float  # of it, standing still
    by_sample_s: NDArray[np.float64]  # of the samples that had it

    @property
    def worked_s(self) -> float:
        return self.own_s - self.still_s


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleParts:
    """All parts of a loader's samples; with the rest they add up to the samples."""

    num_samples: int
    total_s: float  # of the samples that were timed
    parts: tuple[SamplePart, ...]  # the longest first
    still_s: float  # the rest of the samples, standing still
    other_s: float  # the rest, working
    bytes_per_sample: float  # that went through `read`; 0: none, or not known
    task_share: float  # of the tasks' time that samples take; the rest is collating
    rest_by_sample_s: NDArray[np.float64]  # what is in no part, working or standing still
    heavy: Mapping[PartKind, float]  # of samples of more than five times the median: shares of their time

    @property
    def mean_s(self) -> float:
        return self.total_s / self.num_samples

    def seconds(self, kind: PartKind) -> float:
        """Return the time of a kind of part; reading is also what decoders stand still for."""
        own = sum(part.own_s for part in self.parts if part.kind is kind)
        still = sum(part.still_s for part in self.parts if part.kind is PartKind.DECODE)
        return own + still if kind is PartKind.READ else own - still if kind is PartKind.DECODE else own


def read_parts(
    processes: Sequence[ProcessEvents], *, blocked: float, no_core: float, bytes_per_sample: float
) -> SampleParts | None:
    """Return what samples went into; None where that was not recorded."""
    # `blocked` and `no_core` are shares of the tasks' time: which part of being off the cores is standing still.
    by_process = [one.of(EventKind.SAMPLE) for one in processes]
    samples: NDArray[Any] = np.concatenate(by_process) if by_process else np.empty(0)
    if not len(samples) or not any(len(one.of(EventKind.OFF_CORE)) for one in processes):
        return None
    sample_ns, sizes = samples["duration_ns"].astype(np.int64), samples["value"].astype(np.int64)
    parts = _of_samples(processes, by_process, EventKind.PART)
    off_core = _of_samples(processes, by_process, EventKind.OFF_CORE)
    still = blocked / (blocked + no_core) if blocked + no_core > 0 else 0.0
    total_ns = float(sample_ns.sum())
    whole = off_core.named("")
    looked = np.zeros(len(samples), bool)
    looked[off_core.sample[whole]] = True
    in_looked = looked[parts.sample]
    found = []
    for name in parts.names[1:]:
        chosen = parts.named(name)
        if not chosen.any():
            continue
        own_ns = parts.duration_ns[chosen].astype(float)
        looked_ns = float(parts.duration_ns[chosen & in_looked].sum())
        off_ns = float(off_core.duration_ns[off_core.named(name)].sum())
        off = min(1.0, off_ns / looked_ns) if looked_ns > 0 else 0.0
        kind, own_name, is_stage = kind_of(name)
        found.append(
            SamplePart(
                kind=kind,
                name=own_name,
                is_stage=is_stage,
                own_s=float(own_ns.sum()) / 1e9,
                nbytes=int(parts.value[chosen].sum()),
                still_s=float(own_ns.sum()) / 1e9 * off * still,
                by_sample_s=own_ns / 1e9,
            )
        )
    known_ns = float(parts.duration_ns.sum())
    looked_rest = float(sample_ns[looked].sum()) - float(parts.duration_ns[in_looked].sum())
    off_rest = float(off_core.duration_ns[whole].sum()) - float(off_core.duration_ns[~whole].sum())
    rest_ns = max(0.0, total_ns - known_ns)
    rest_off = min(1.0, max(0.0, off_rest / looked_rest)) if looked_rest > 0 else 0.0
    fetch_ns, collate_ns = (
        sum(float(one.of(kind)["duration_ns"].sum()) for one in processes)
        for kind in (EventKind.FETCH, EventKind.COLLATE)
    )
    return SampleParts(
        num_samples=int(np.where(sizes < -1, -sizes, 1).sum()),
        total_s=total_ns / 1e9,
        parts=tuple(sorted(found, key=lambda one: -one.own_s)),
        still_s=rest_ns * rest_off * still / 1e9,
        other_s=rest_ns * (1 - rest_off * still) / 1e9,
        bytes_per_sample=bytes_per_sample,
        task_share=max(0.0, 1 - collate_ns / fetch_ns) if fetch_ns > 0 else 1.0,
        rest_by_sample_s=(sample_ns - np.bincount(parts.sample, parts.duration_ns, len(samples))) / 1e9,
        heavy=_heavy(sample_ns, parts),
    )


def kind_of(name: str) -> tuple[PartKind, str, bool]:
    """Return what a part is by its name in a recording, its own name, and whether a data set named it.

    >>> kind_of("decode Pillow"), kind_of("stage volume process")[0].value, kind_of("stage mine")[0].value
    ((<PartKind.DECODE: 'decode'>, 'Pillow', False), 'transform', 'stage')
    """
    word, _, rest = name.partition(" ")
    kind = _KINDS.get(word, PartKind.STAGE)
    if kind is not PartKind.STAGE:
        return kind, rest, False
    return next((known for pattern, known in _STAGES if pattern.search(rest)), kind), rest, True


@dataclass(frozen=True, eq=False)
class _SampleEvents:
    """Events of one kind that belong to samples, of several processes one after the other."""

    sample: NDArray[np.int64]  # which one of all
    duration_ns: NDArray[np.int64]
    value: NDArray[np.int64]
    names: tuple[str, ...]  # the empty one first
    name: NDArray[np.int64]  # which of the names

    def named(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(self.name == (self.names.index(name) if name in self.names else -1))


def _of_samples(processes: Sequence[ProcessEvents], samples: Sequence[NDArray[Any]], kind: EventKind) -> _SampleEvents:
    """Return the events of a kind that have the start of one of their process's samples."""
    names: dict[str, int] = {"": 0}
    columns: list[tuple[NDArray[Any], ...]] = []
    first = 0
    for process, own in zip(processes, samples, strict=True):
        events = process.of(kind)
        args, which = np.unique(events["arg"], return_inverse=True)
        known = [names.setdefault(process.names.get(arg, ""), len(names)) for arg in args.tolist()]
        hit = np.isin(events["start_ns"], own["start_ns"])
        place = first + np.searchsorted(own["start_ns"], events["start_ns"])
        columns.append((place[hit], events["duration_ns"][hit], events["value"][hit], np.array(known, int)[which][hit]))
        first += len(own)
    place, duration, value, name = (np.concatenate(one).astype(np.int64) for one in zip(*columns, strict=True))
    return _SampleEvents(place, duration, value, tuple(names), name)


def _heavy(sample_ns: NDArray[np.int64], parts: _SampleEvents) -> dict[PartKind, float]:
    is_heavy = sample_ns > 5 * np.median(sample_ns)
    total = float(sample_ns[is_heavy].sum())
    if len(sample_ns) < 20 or total <= 0:
        return {}
    sums: dict[PartKind, float] = {}
    for name in parts.names[1:]:
        chosen, kind = parts.named(name) & is_heavy[parts.sample], kind_of(name)[0]
        sums[kind] = sums.get(kind, 0.0) + float(parts.duration_ns[chosen].sum()) / total
    return sums


def part_rows(parts: SampleParts | None, processes: Sequence[ProcessEvents]) -> tuple[PartRow, ...]:
    """Return the rows, the largest share first; shares add up to 1 where samples were timed."""
    tasks_s = sum(float(one.of(EventKind.FETCH)["duration_ns"].sum()) for one in processes) / 1e9
    if tasks_s <= 0:
        return ()
    stages = _stages(processes)
    rows = []
    scale = parts.task_share / parts.total_s if parts is not None and parts.total_s > 0 else 0.0
    for part in parts.parts if parts is not None else ():
        calls = stages.pop(part.name, None) if part.is_stage else None
        seconds = part.by_sample_s if calls is None else calls["duration_ns"] / 1e9
        nbytes = part.nbytes if calls is None else int(calls["value"].sum())
        kind = PartKind.STAGE if part.is_stage else part.kind
        row = _row(kind, part.name, seconds, part.own_s * scale, nbytes=nbytes)
        rows.append(replace(row, own_s=part.own_s, still_share=part.still_s / part.own_s if part.own_s > 0 else None))
    for name, calls in stages.items():  # of a loader whose samples carry no clock: with what is inside them
        seconds = calls["duration_ns"] / 1e9
        rows.append(
            _row(PartKind.STAGE, name, seconds, float(seconds.sum()) / tasks_s, nbytes=int(calls["value"].sum()))
        )
    if parts is not None and (parts.parts or rows):
        rest_s = parts.other_s + parts.still_s
        row = _row(PartKind.OTHER, "", np.maximum(parts.rest_by_sample_s, 0.0), rest_s * scale)
        still = parts.still_s / rest_s if rest_s > 0 else None
        rows.append(replace(row, total_s=rest_s, own_s=rest_s, still_share=still))
    collating = np.concatenate([one.of(EventKind.COLLATE)["duration_ns"] / 1e9 for one in processes])
    if rows and len(collating):
        rows.append(_row(PartKind.COLLATE, "", collating, float(collating.sum()) / tasks_s))
    return tuple(sorted(rows, key=lambda row: -row.share))


def _row(kind: PartKind, name: str, seconds: NDArray[np.float64], share: float, *, nbytes: int = 0) -> PartRow:
    """Return the row of something that took so many seconds, time and again, and handled so many bytes."""
    total_s = float(seconds.sum())
    return PartRow(
        kind=kind,
        name=name,
        count=len(seconds),
        total_s=total_s,
        own_s=total_s,
        median_s=float(np.median(seconds)),
        p95_s=float(np.quantile(seconds, 0.95)),
        share=share,
        mb_per_s=nbytes / 1e6 / total_s if nbytes > 0 and total_s > 0 else None,
    )


def _stages(processes: Sequence[ProcessEvents]) -> dict[str, NDArray[Any]]:
    """Return the calls of each stage that lie in a task; what a training loop names outside of one is not theirs."""
    found: dict[str, list[NDArray[Any]]] = {}
    for process in processes:
        tasks, stages = process.of(EventKind.FETCH), process.of(EventKind.STAGE, EventKind.DECODE)
        if process.role != "worker":
            place = np.searchsorted(starts_of(tasks), starts_of(stages), side="right") - 1
            stages = stages[(place >= 0) & (starts_of(stages) < ends_of(tasks)[place.clip(0)])] if len(tasks) else []
        for arg in np.unique(stages["arg"]).tolist() if len(stages) else ():
            if arg in process.names:
                found.setdefault(process.names[arg], []).append(stages[stages["arg"] == arg])
    return {name: np.concatenate(calls) for name, calls in found.items()}


_PART = Text("{what} {time}{names}", "{what} {time}{names}")
_KIND_WORDS = {
    PartKind.READ: Text("reading", "读取"),
    PartKind.DECODE: Text("decoding", "解码"),
    PartKind.TRANSFORM: Text("transforms", "变换"),
    PartKind.STAGE: Text("the stages that the data set names", "数据集自己命名的阶段"),
}


def parts_evidence(parts: SampleParts) -> Iterator[Text]:
    """Yield what a sample takes its time for; nothing where too little of it is known."""
    if parts.total_s <= 0 or 1 - parts.other_s / parts.total_s < _TELLING_FROM:
        return
    said: list[tuple[float, Text]] = []
    for kind in (PartKind.READ, PartKind.DECODE, PartKind.TRANSFORM):
        names = list(dict.fromkeys(part.name for part in parts.parts if part.kind is kind))[:_MOST_NAMES]
        shown = Text(f" ({', '.join(names)})", f"（{'、'.join(names)}）") if names else ""
        time = format_seconds(parts.seconds(kind) / parts.num_samples)
        said.append((parts.seconds(kind), _PART.filled(what=_KIND_WORDS[kind], time=time, names=shown)))
    for part in parts.parts:
        if part.kind is PartKind.STAGE:
            what, time = Text(f'"{part.name}"', f"“{part.name}”"), format_seconds(part.worked_s / parts.num_samples)
            said.append((part.worked_s, _PART.filled(what=what, time=time, names="")))
    still_s = parts.still_s + sum(part.still_s for part in parts.parts if part.kind is PartKind.STAGE)
    size = format_bytes(int(parts.bytes_per_sample))
    read = Text(f" ({size} read meanwhile)", f"（其间读取 {size}）") if parts.bytes_per_sample > 0 else ""
    still = _PART.filled(
        what=Text("standing still", "停住"), time=format_seconds(still_s / parts.num_samples), names=read
    )
    said.append((still_s, still))
    shown_parts = [
        text for seconds, text in sorted(said, key=lambda one: -one[0]) if seconds >= _SHOWN_FROM * parts.total_s
    ]
    if parts.other_s >= _SHOWN_FROM * parts.total_s:
        time = format_seconds(parts.other_s / parts.num_samples)
        shown_parts.append(_PART.filled(what=Text("other", "其他"), time=time, names=""))
    yield Text(
        f"on average a sample takes {format_seconds(parts.mean_s)}: {', '.join(one.en for one in shown_parts)}",
        f"单个样本平均 {format_seconds(parts.mean_s)}：{'、'.join(one.zh for one in shown_parts)}",
    )


def heavy_evidence(parts: SampleParts) -> Iterator[Text]:
    """Yield what the samples that take long take long for, where that is one thing."""
    kind = max(parts.heavy, key=lambda one: parts.heavy[one], default=PartKind.OTHER)
    if kind not in _KIND_WORDS or parts.heavy[kind] < _HEAVY_FROM:
        return
    share, verb = format_share(min(1.0, parts.heavy[kind])), "takes" if kind in _SINGULAR else "take"
    what = _KIND_WORDS[kind]
    yield Text(f"in those, {what.en} {verb} {share} of the time", f"这些样本有 {share} 的时间用于{what.zh}")


def untimed_advice(parts: SampleParts) -> Iterator[Text]:
    """Yield how to learn more where most of a sample is code that nobody timed."""
    if parts.total_s > 0 and parts.other_s >= _UNTIMED_FROM * parts.total_s:
        yield Text(
            'to learn which part of a sample it is: name the parts with `with headrace.stage("…"):` in the data set '
            "({share} of a sample is in code that is not known)",
            '想知道是样本的哪一部分：在数据集里用 `with headrace.stage("…"):` 给各部分命名（样本有 {share} 的时间在未知'
            "代码里）",
        ).filled(share=format_share(parts.other_s / parts.total_s))
