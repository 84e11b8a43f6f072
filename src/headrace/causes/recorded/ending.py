"""How a recorded training ended: the exceptions that nobody caught, looked up in the knowledge base. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.knowledge import MessageFound, MessageScanner
from headrace.model import Cause, EventKind, Finding, Text

from ..crashes import findings_of
from .bad_samples import find_bad_sample
from .launchers import own_words
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
        texts += [(int(one["start_ns"]), own_words(process.names.get(int(one["arg"]), ""))) for one in events]
    found: dict[str, MessageFound] = {}
    for _, text in sorted(texts):
        scanner = MessageScanner()
        scanner.scan_chunk(text.encode())
        messages = scanner.found()
        # the exception itself stands in the last line; above it are frames, and what it came from
        last = max((one.last_line for one in messages), default=0)
        for one in messages:
            if one.last_line == last:
                found.setdefault(one.entry.id, _decided(one, around))
    findings = findings_of([*found.values()])  # the first that was raised comes first
    return [_with_sample(one, processes) if one.cause is Cause.CORRUPT_SAMPLE else one for one in findings]


def _with_sample(finding: Finding, processes: Sequence[ProcessEvents]) -> Finding:
    index = find_bad_sample(processes)
    if index is None:
        return finding
    said = Text("it is sample {index} of the data set", "是数据集的第 {index} 号样本（索引）").filled(index=index)
    figures = {**finding.figures, "sample_index": float(index)}
    return replace(finding, evidence=(said, *finding.evidence), figures=figures)


def _decided(found: MessageFound, around: Surroundings | None) -> MessageFound:
    """Let the kernel's count say whether a killed worker was killed for memory."""
    if found.entry.name != _KILLED or found.decided or around is None or around.kills is None:
        return found
    name = "memory_limit" if around.kills > 0 else "someone_killed_it"
    because = f"the kernel's count of kills for memory grew by {around.kills}"
    return replace(found, decided=name, because=because)
