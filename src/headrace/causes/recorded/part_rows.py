"""Where the workers' time went, as rows: parts, the user's stages, the rest of the samples, collating. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import EventKind, PartKind, PartRow

from .processes import ProcessEvents, ends_of, starts_of
from .sample_parts import Part, SampleParts


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
        rows.append(_part_row(part, calls, part.own_s * scale))
    for name, calls in stages.items():  # of a loader whose samples carry no clock: with what is inside them
        rows.append(_stage_row(name, calls, tasks_s))
    if parts is not None and (parts.parts or rows):
        rest_s = parts.other_s + parts.still_s
        row = _row(PartKind.OTHER, "", parts.rest_by_sample_s, rest_s * scale)
        rows.append(
            replace(
                row,
                total_s=rest_s,
                own_s=rest_s,
                median_s=max(0.0, row.median_s),
                p95_s=max(0.0, row.p95_s),
                still_share=parts.still_s / rest_s if rest_s > 0 else None,
            )
        )
    if rows:
        rows += _collating(processes, tasks_s)
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


def _part_row(part: Part, calls: NDArray[Any] | None, share: float) -> PartRow:
    seconds = part.by_sample_s if calls is None else calls["duration_ns"] / 1e9
    nbytes = part.nbytes if calls is None else int(calls["value"].sum())
    row = _row(PartKind.STAGE if part.is_stage else part.kind, part.name, seconds, share, nbytes=nbytes)
    return replace(row, own_s=part.own_s, still_share=part.still_s / part.own_s if part.own_s > 0 else None)


def _stage_row(name: str, calls: NDArray[Any], tasks_s: float) -> PartRow:
    seconds = calls["duration_ns"] / 1e9
    return _row(PartKind.STAGE, name, seconds, float(seconds.sum()) / tasks_s, nbytes=int(calls["value"].sum()))


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


def _collating(processes: Sequence[ProcessEvents], tasks_s: float) -> list[PartRow]:
    seconds = np.concatenate([one.of(EventKind.COLLATE)["duration_ns"] / 1e9 for one in processes])
    if not len(seconds):
        return []
    return [_row(PartKind.COLLATE, "", seconds, float(seconds.sum()) / tasks_s)]
