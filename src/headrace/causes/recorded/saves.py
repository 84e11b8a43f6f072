"""How long a save holds the loop up in all: the call that saves, what is done with its file, what lies around. Pure.

A script that saves gathers the state and opens a file before, and syncs, renames or copies it afterwards. Some of these
calls are timed; others cannot be (`open`, `write` and `close` of a file, another program): what the loop stands still
right before and after its saves, and hardly anywhere else, is theirs, too.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import EventKind

from .processes import ProcessEvents, Times, ends_of, starts_of

_FOLLOWING = ("os.", "shutil.")  # how calls are named that a save is followed by
_INSIDE = {EventKind.GC}  # may come at any moment, and is nobody's doing
_FEWEST = 3  # saves: what lies beside one or two of them may be anything
_LEAST_NS = 2_000_000
_AS_OFTEN = 0.25  # of the saves: as many pauses of that kind elsewhere, and saves do not explain them
_MOST_TIMES = 3.0  # the usual pause: a longer one has something else in it


@dataclass(frozen=True, kw_only=True)
class Saves:
    """From where to where saves reach, by where their event begins, and which events are parts of the one before."""

    reach: dict[int, tuple[int, int]] = field(default_factory=dict)
    parts: Collection[int] = frozenset()
    untimed_s: float = 0.0  # what lies around the calls, of which nobody says what it was


def read_saves(process: ProcessEvents, kinds: Collection[EventKind], thread: int) -> Saves:
    """Return how far the saves of a thread reach; `kinds` is everything that the thread is timed in."""
    events = process.of(*(set(kinds) - _INSIDE), thread=thread)
    is_save = events["kind"] == int(EventKind.CHECKPOINT)
    if not is_save.any():
        return Saves()
    starts, ends = starts_of(events), ends_of(events)
    wholes, parts = _wholes(process, events, starts, ends, is_save)
    firsts, lasts = starts[list(wholes)], ends[list(wholes.values())]
    reach = np.maximum.accumulate(ends)
    is_evaluation = events["kind"] == int(EventKind.EVALUATION)
    others = _other_gaps(events, starts, reach, np.where(is_save, ends, 0))
    # How long nothing timed happened before and after each: 0 where it lies in something that goes on, or behind
    # an evaluation, which may end with something of its own; -1 where it was the first thing of all, or the last.
    at, behind = np.searchsorted(starts, firsts), np.searchsorted(starts, lasts)
    is_joined = (reach[at - 1] > firsts) | is_evaluation[at - 1]
    before = np.where(at == 0, -1, np.where(is_joined, 0, firsts - reach[at - 1]))
    gaps = np.where(reach[behind - 1] <= lasts, starts[behind.clip(max=len(starts) - 1)] - lasts, 0)
    after = np.where(behind == len(starts), -1, gaps)
    theirs = _theirs(np.where((before >= 0) & (after >= 0), before + after, -1), others)
    tails = np.minimum(after, theirs).clip(0)  # on which side the loop's own part lies is not known
    leads = theirs - tails
    whole = zip(firsts.tolist(), (firsts - leads).tolist(), (lasts + tails).tolist(), strict=True)
    return Saves(
        reach={first: (start, end) for first, start, end in whole},
        parts=frozenset(starts[parts].tolist()),
        untimed_s=float(theirs.sum()) / 1e9,
    )


def _wholes(
    process: ProcessEvents, events: NDArray[Any], starts: Times, ends: Times, is_save: NDArray[np.bool_]
) -> tuple[dict[int, int], list[int]]:
    """Return the saves, from the place of their first event to that of their last, and which are later parts of one."""
    others = np.concatenate(([0], np.cumsum(~is_save)))
    wholes: dict[int, int] = {}
    parts: list[int] = []
    current = -1
    for place in np.flatnonzero(is_save).tolist():
        if current >= 0 and process.names.get(int(events["arg"][place]), "").startswith(_FOLLOWING):
            over = int(np.searchsorted(starts, ends[wholes[current]]))
            if over <= place and others[place] == others[over]:  # the loop did not go on meanwhile
                wholes[current] = place
                parts.append(place)
                continue
        current = place
        wholes[place] = place
    return wholes, parts


def _other_gaps(events: NDArray[Any], starts: Times, reach: Times, saved: Times) -> Times:
    """Return how long nothing happened before the loop asked for a batch, where it had not saved just before."""
    asked = np.flatnonzero((events["kind"] == int(EventKind.WAIT)) & (events["value"] > 0))
    asked = asked[asked > 0]
    has_saved = reach[asked - 1] == np.maximum.accumulate(saved)[asked - 1]
    return np.asarray(np.maximum(0, starts[asked] - reach[asked - 1])[~has_saved], np.int64)


def _theirs(gaps: Times, others: Times) -> Times:
    """Return what of the gaps beside saves is theirs: what most of them have beyond the usual, and hardly any other."""
    none = np.zeros(len(gaps), np.int64)
    known = gaps >= 0
    if known.sum() < _FEWEST or len(others) < _FEWEST:
        return none
    usual = int(np.median(others))
    longer = np.where(known, np.maximum(0, gaps - usual), 0)
    typical = int(np.median(longer[known]))
    alike = int((others >= usual + typical // 2).sum())
    if typical < _LEAST_NS or alike >= max(1.0, _AS_OFTEN * known.sum()):
        return none
    return np.minimum(longer, int(_MOST_TIMES * typical)).astype(np.int64)
