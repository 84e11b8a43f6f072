"""What torchrun says of the rank that failed first, in the exception with which it ends itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model import EventKind

from .processes import ProcessEvents

_ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+) +\(pid: (\d+)\)", re.DOTALL
)
_LAUNCHER = "ChildFailedError"
_HEADING = "Root Cause (first observed failure)"


@dataclass(frozen=True)
class RootCause:
    """The rank that failed first; below 0, the exit code is the signal that ended it."""

    rank: int
    exit_code: int
    pid: int


def root_cause(processes: Sequence[ProcessEvents]) -> RootCause | None:
    """Return what a launcher among the processes says; None where none does."""
    for process in processes:
        for event in process.of(EventKind.EXCEPTION):
            if found := _ROOT_CAUSE.search(process.names.get(int(event["arg"]), "")):
                return RootCause(int(found[1]), int(found[2]), int(found[3]))
    return None


def own_words(text: str) -> str:
    """Return what an exception says itself: of a launcher's, only what it says of the rank that was killed first.

    Its list names every rank, those too that it ended itself; a rank that raised has said why in its own process.
    """
    if _LAUNCHER not in text and _HEADING not in text:
        return text
    found = _ROOT_CAUSE.search(text)
    return text[found.start() :] if found is not None and int(found[2]) < 0 else ""
