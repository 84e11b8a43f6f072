"""Garbage collections, timed by Python's own callbacks."""

from __future__ import annotations

import gc
from types import ModuleType

from headrace.model import EventKind

from ..tape import now, tape

_GC = int(EventKind.GC)
_WORTH_NS = 50_000  # the youngest generation takes a few microseconds, some hundred times a second
_started_ns = 0


def time_collections(_torch: ModuleType) -> None:
    """Time every collection from now on."""
    if _note_collection not in gc.callbacks:
        gc.callbacks.append(_note_collection)


def _note_collection(phase: str, info: dict[str, int]) -> None:
    global _started_ns
    if phase == "start":
        _started_ns = now()
    elif _started_ns:
        duration = now() - _started_ns
        # A collection may come in the middle of an import, where another import breaks the interpreter's locks
        # (Python 3.11: KeyError in `_blocking_on`), so nothing is opened here. Before the first event there is no loop.
        if duration >= _WORTH_NS and tape.has_lane:
            tape.write(_GC, _started_ns, duration, info["collected"], info["generation"] + 1)
        _started_ns = 0
