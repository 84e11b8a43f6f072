"""How a recorded training ended: the exceptions that nobody caught, looked up in the knowledge base. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.knowledge import MessageFound, MessageScanner
from headrace.model import EventKind, Finding

from ..crashes import findings_of
from .processes import ProcessEvents
from .surroundings import Surroundings

_KILLED = "worker_killed"


def find_ending(
    processes: Sequence[ProcessEvents], around: Surroundings | None, exit_code: int | None
) -> list[Finding]:
    """Return what ended a training, where its messages are known; nothing for one that ended well."""
    if not exit_code:
        return []
    texts = []
    for process in processes:
        events = process.of(EventKind.EXCEPTION)
        texts += [(int(one["start_ns"]), process.names.get(int(one["arg"]), "")) for one in events]
    for _, text in sorted(texts):
        scanner = MessageScanner()
        scanner.scan_chunk(text.encode())
        # what came later, in this process or another, is what that one led to
        if found := findings_of([_decided(one, around) for one in scanner.found()]):
            return found
    return []


def _decided(found: MessageFound, around: Surroundings | None) -> MessageFound:
    """Let the kernel's count say whether a killed worker was killed for memory."""
    if found.entry.name != _KILLED or found.decided or around is None or around.kills is None:
        return found
    name = "memory_limit" if around.kills > 0 else "someone_killed_it"
    because = f"the kernel's count of kills for memory grew by {around.kills}"
    return replace(found, decided=name, because=because)
