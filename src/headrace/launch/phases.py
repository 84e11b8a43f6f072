"""The user's own marks: `with headrace.phase("checkpoint"):` around whatever is not training."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType

from headrace.model import EventKind

from .tape import now, tape

_PHASE = int(EventKind.PHASE)
_MOST_KEPT = 64
_ended: list[tuple[int, int, str]] = []  # start, end, name: the last ones, for whoever explains a slow step


class Phase(ContextDecorator):
    """A stretch of time with a name, from `phase(...)`: a `with` statement, or a decorator."""

    num_ended = 0  # of all of them in this process

    def __init__(self, name: str) -> None:
        self._name = name
        self._starts_ns: list[int] = []

    def __repr__(self) -> str:
        return f"phase({self._name!r})"

    def __enter__(self) -> Phase:
        self._starts_ns.append(now())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        start = self._starts_ns.pop()
        end = now()
        tape.write(_PHASE, start, end - start, 0, tape.name(self._name))
        Phase.num_ended += 1
        _ended.append((start, end, self._name))
        del _ended[:-_MOST_KEPT]


def phase(name: str) -> Phase:
    """Mark what the training loop does besides training, by name.

    Under `headrace run` it is a row of its own in the table of where the time went; a name that speaks of a
    checkpoint, an evaluation or a log counts as that. `headrace.monitor` names it when a step was slow because of
    it. Where neither is there, it costs about a microsecond.

    >>> with phase("checkpoint"):
    ...     pass
    >>> @phase("evaluate")
    ... def evaluate() -> None: ...
    """
    return Phase(name)


def longest_phase(start_ns: int, end_ns: int) -> tuple[str, float] | None:
    """Return the phase that took most of a stretch of time, with its seconds; None where there was none."""
    if not _ended or _ended[-1][1] <= start_ns:  # most steps have none
        return None
    sums: dict[str, int] = {}
    for start, end, name in _ended:
        inside = min(end, end_ns) - max(start, start_ns)
        if inside > 0:
            sums[name] = sums.get(name, 0) + inside
    if not sums:
        return None
    name = max(sums, key=lambda one: sums[one])
    return name, sums[name] / 1e9
