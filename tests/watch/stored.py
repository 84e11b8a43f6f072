"""The stacks that were recorded of real trainings, as values."""

from __future__ import annotations

import functools
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.model import rank_in
from headrace.signals import Frame, ThreadStack
from headrace.watch.processes import ProcessFacts

_STORED = Path(__file__).parents[1] / "data" / "watch" / "stacks.json.gz"


@dataclass(frozen=True)
class RecordedProcess:
    facts: ProcessFacts
    looks: tuple[tuple[ThreadStack, ...], ...]


@dataclass(frozen=True)
class RecordedRun:
    processes: tuple[RecordedProcess, ...]
    lines: dict[tuple[str, int], str]

    def source_line(self, frame: Frame) -> str:
        return self.lines.get((frame.file, frame.line), "")

    @property
    def last_stacks(self) -> dict[int, tuple[ThreadStack, ...]]:
        return {process.facts.pid: process.looks[-1] for process in self.processes if process.looks[-1]}

    @property
    def facts(self) -> tuple[ProcessFacts, ...]:
        return tuple(process.facts for process in self.processes)

    def process(self, pid: int) -> RecordedProcess:
        return next(process for process in self.processes if process.facts.pid == pid)


@functools.cache
def _document() -> dict[str, Any]:
    return json.loads(gzip.decompress(_STORED.read_bytes()))


def scenarios() -> list[str]:
    return sorted(_document())


@functools.cache
def recorded(scenario: str) -> RecordedRun:
    """The processes of one recorded training."""
    lines: dict[tuple[str, int], str] = {}

    def frame(entry: list[Any]) -> Frame:
        file, line, function, text = entry
        lines[file, line] = text
        return Frame(file=file, line=line, function=function)

    def thread(entry: dict[str, Any]) -> ThreadStack:
        frames = tuple(frame(one) for one in entry["frames"])
        return ThreadStack(name=entry["name"], tid=entry["tid"], frames=frames, is_main=entry["is_main"])

    processes = []
    for entry in _document()[scenario]:
        looks = tuple(tuple(thread(one) for one in look) for look in entry.pop("looks"))
        known = {name: value for name, value in entry.items() if name not in ("looks", "variables")}
        for name in ("command", "thread_names"):
            known[name] = tuple(known[name])
        entry["looks"] = []
        processes.append(RecordedProcess(ProcessFacts(**known, rank=rank_in(entry["variables"])), looks))
    return RecordedRun(tuple(processes), lines)
