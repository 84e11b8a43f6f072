"""Which slow steps stand beside a line that says what the loop was doing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..logs import FILE_STRIDE, Doing, Marker, Series

Flags = NDArray[np.bool_]


def marked_by(series: Series, is_stall: Flags, markers: Sequence[Marker]) -> dict[int, Doing]:
    """Return what the loop was doing at each slow record that a line speaks of.

    A line belongs to the record that it stands before; if that one is not slow, to the one that it stands behind, for
    some loops report a save when it is done. A line in another file belongs to the record whose step or time it names.
    """
    own_files = {int(number) for number in np.unique(series.line // FILE_STRIDE)}
    doing: dict[int, Doing] = {}
    # A checkpoint in the middle of an evaluation is part of it; so the order of the enum does not matter, the first
    # line of a pause names it, except that an evaluation is never named a checkpoint for the save that follows it.
    for marker in markers:
        if marker.doing is Doing.RESTART:
            continue
        index = _record_of(series, is_stall, marker, is_own=_file_of(marker.line) in own_files)
        if index is None:
            continue
        if index not in doing or (marker.doing is Doing.EVALUATION and doing[index] is not Doing.EVALUATION):
            doing[index] = marker.doing
    return doing


def restarts(series: Series, markers: Sequence[Marker]) -> set[int]:
    """Return the records before which the run was started again."""
    lines = series.line
    return {int(np.searchsorted(lines, marker.line)) for marker in markers if marker.doing is Doing.RESTART}


def _record_of(series: Series, is_stall: Flags, marker: Marker, *, is_own: bool) -> int | None:
    if is_own:
        after = int(np.searchsorted(series.line, marker.line))
    elif marker.step == marker.step:
        at = np.flatnonzero(series.step == marker.step)
        at = at if len(at) else np.flatnonzero(series.step > marker.step)[:1]
        if not len(at):
            return None
        after = int(at[0])
        for index in (after, after + 1, after - 1):
            if 0 <= index < len(series) and is_stall[index]:
                return index
        return None
    elif marker.at_s == marker.at_s and not np.isnan(series.at_s).any():
        after = int(np.searchsorted(series.at_s, marker.at_s))
    else:
        return None
    # What is reported when it is done may stand behind its step; an evaluation never does.
    for index in (after,) if marker.doing is Doing.EVALUATION else (after, after - 1):
        if 0 <= index < len(series) and is_stall[index]:
            return index
    return None


def evaluated_between_bars_s(series: Series, markers: Sequence[Marker]) -> list[float]:
    """Return how long each evaluation took that has a bar of its own between two training bars, or behind the last.

    A training bar's clock does not run then, so that time is not in the series.
    """
    if not series.is_new_bar.any():
        return []
    starts = np.flatnonzero(series.is_new_bar)
    lengths: dict[int, list[float]] = {}
    for marker in markers:
        if marker.doing is not Doing.EVALUATION or marker.took_s != marker.took_s or marker.at_s == marker.at_s:
            continue
        after = int(np.searchsorted(series.line, marker.line))
        if after == len(series) or after in starts[1:]:
            known = lengths.setdefault(after, [])
            if known and marker.took_s >= known[-1]:
                known[-1] = marker.took_s  # the same bar, further on
            else:
                known.append(marker.took_s)
    return [sum(parts) for parts in lengths.values()]


def _file_of(line: float) -> int:
    return int(line // FILE_STRIDE)
