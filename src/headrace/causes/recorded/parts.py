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

from .processes import ProcessEvents, ends_of, starts_of, total_s

_NO_EVENTS = np.zeros((3, 0), np.int64)
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
    parts, off_core = (_of_samples(processes, by_process, kind) for kind in (EventKind.PART, EventKind.OFF_CORE))
    still = blocked / (blocked + no_core) if blocked + no_core > 0 else 0.0
    whole = off_core.pop("", _NO_EVENTS)
    looked = np.zeros(len(samples), bool)
    looked[whole[0]] = True

    def off_share(off_ns: int, of_ns: int) -> float:
        return float(min(1.0, max(0.0, off_ns / of_ns))) if of_ns > 0 else 0.0

    found = []
    for name, (place, own_ns, nbytes) in parts.items():
        if not name:  # a recording that lost its names
            continue
        kind, own_name, is_stage = kind_of(name)
        own_s = float(own_ns.sum()) / 1e9
        off = off_share(off_core.get(name, _NO_EVENTS)[1].sum(), own_ns[looked[place]].sum())
        found.append(
            SamplePart(
                kind=kind,
                name=own_name,
                is_stage=is_stage,
                own_s=own_s,
                nbytes=int(nbytes.sum()),
                still_s=own_s * off * still,
                by_sample_s=own_ns / 1e9,
            )
        )
    places, known_ns, _ = np.concatenate([_NO_EVENTS, *parts.values()], axis=1)
    rest_s = max(0.0, float(sample_ns.sum() - known_ns.sum())) / 1e9
    off_rest_ns = whole[1].sum() - sum(events[1].sum() for events in off_core.values())
    rest_still_s = rest_s * still * off_share(off_rest_ns, sample_ns[looked].sum() - known_ns[looked[places]].sum())
    fetch_s, collate_s = (total_s(processes, kind) for kind in (EventKind.FETCH, EventKind.COLLATE))
    return SampleParts(
        num_samples=int(np.where(sizes < -1, -sizes, 1).sum()),
        total_s=float(sample_ns.sum()) / 1e9,
        parts=tuple(sorted(found, key=lambda one: -one.own_s)),
        still_s=rest_still_s,
        other_s=rest_s - rest_still_s,
        bytes_per_sample=bytes_per_sample,
        task_share=max(0.0, 1 - collate_s / fetch_s) if fetch_s > 0 else 1.0,
        rest_by_sample_s=(sample_ns - np.bincount(places, known_ns, len(samples))) / 1e9,
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


def _of_samples(
    processes: Sequence[ProcessEvents], samples: Sequence[NDArray[Any]], kind: EventKind
) -> dict[str, NDArray[np.int64]]:
    """Return the events of a kind that begin with a sample of their process, by name: which sample, how long, value."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    first = 0
    for process, own in zip(processes, samples, strict=True):
        events = process.of(kind)
        events = events[np.isin(events["start_ns"], own["start_ns"])]
        place = first + np.searchsorted(own["start_ns"], events["start_ns"])
        columns = np.stack((place, events["duration_ns"].astype(np.int64), events["value"].astype(np.int64)))
        for arg in np.unique(events["arg"]).tolist():
            found.setdefault(process.names.get(arg, ""), []).append(columns[:, events["arg"] == arg])
        first += len(own)
    return {name: np.concatenate(columns, axis=1) for name, columns in found.items()}


def _heavy(sample_ns: NDArray[np.int64], parts: Mapping[str, NDArray[np.int64]]) -> dict[PartKind, float]:
    is_heavy = sample_ns > 5 * np.median(sample_ns)
    total = float(sample_ns[is_heavy].sum())
    if len(sample_ns) < 20 or total <= 0:
        return {}
    sums: dict[PartKind, float] = {}
    for name, (place, own_ns, _) in parts.items():
        kind = kind_of(name)[0]
        sums[kind] = sums.get(kind, 0.0) + float(own_ns[is_heavy[place]].sum()) / total
    return sums


def part_rows(parts: SampleParts | None, processes: Sequence[ProcessEvents]) -> tuple[PartRow, ...]:
    """Return the rows, the largest share first; shares add up to 1 where samples were timed."""
    tasks_s = total_s(processes, EventKind.FETCH)
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
            'to learn which part it is: `with headrace.stage("…"):` in the data set ({share} of a sample is not known)',
            '想知道是哪一部分：在数据集里用 `with headrace.stage("…"):` 命名（样本的 {share} 未知）',
        ).filled(share=format_share(parts.other_s / parts.total_s))
