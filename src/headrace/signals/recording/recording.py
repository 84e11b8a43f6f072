"""A recorded run, read back: events, processes, samples of the system and facts, whatever died meanwhile."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import UnusableInput
from headrace.model import EventKind

from ..system import SystemSample
from .event_file import EVENTS_FILE, RECORD_DTYPE, VERSION, FrameType, StoredFrame, Torn, read_file_head, read_frames
from .run_facts import RUN_FILE, RUN_SCHEMA, RunFacts
from .system_samples import SYSTEM_FILE, read_samples


@dataclass(kw_only=True)
class RecordedProcess:
    """A process that wrote events. Times are on the clock of the events."""

    pid: int = 0
    parent: int = 0
    start_ns: int = 0  # when it began to record
    end_ns: int | None = None  # when it was found gone; None: it was there to the end
    lost_records: int = 0
    names: list[str] = field(default_factory=list)  # by the numbers of events, from 1 on
    role_name: int = 0

    @property
    def role(self) -> str:
        """Return "trainer", "worker", "reader", …; empty where it did not say."""
        return self.names[self.role_name - 1] if 0 < self.role_name <= len(self.names) else ""

    def handle(self, note: Mapping[str, Any]) -> None:
        """Take in what a note of the file says of it."""
        match note.get("note"):
            case "process":
                self.pid, self.parent, self.start_ns = int(note["pid"]), int(note["parent"]), int(note["start_ns"])
            case "names":
                self.names += map(str, note["names"])
            case "role":
                self.role_name = int(note["name"])
            case "lost":
                self.lost_records += int(note["records"])
            case "gone":
                self.end_ns = int(note["seen_ns"])


@dataclass(frozen=True, kw_only=True)
class Recording:
    """All that a run directory holds. `problems` says in sentences what is missing or damaged."""

    path: Path
    facts: RunFacts
    processes: tuple[RecordedProcess, ...]
    events: npt.NDArray[np.void]  # sorted by start: start_ns, duration_ns, value, pid, arg, thread, kind
    names: Mapping[tuple[int, int], str]  # (pid, arg) -> text
    system: list[SystemSample]
    lost_records: int
    problems: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"Recording({str(self.path)!r}, processes={len(self.processes)}, events={len(self.events)}, "
            f"samples={len(self.system)}, lost={self.lost_records}, problems={len(self.problems)})"
        )

    def events_of(self, kind: EventKind | int, pid: int | None = None) -> npt.NDArray[np.void]:
        """The events of one kind, of one process or of all."""
        wanted = self.events["kind"] == int(kind)
        if pid is not None:
            wanted &= self.events["pid"] == pid
        found: npt.NDArray[np.void] = self.events[wanted]
        return found

    def name_of(self, pid: int, arg: int) -> str:
        """The text of an event's `arg`; empty where it has none."""
        return self.names.get((int(pid), int(arg)), "")

    @property
    def end_ns(self) -> int:
        """The last moment that anything is known of."""
        last_event = int((self.events["start_ns"] + self.events["duration_ns"]).max(initial=0))
        last_sample = self.system[-1].at_ns if self.system else 0
        return max(self.facts.start_monotonic_ns, self.facts.end_monotonic_ns or 0, last_sample, last_event)


def read_run(path: str | os.PathLike[str]) -> Recording:
    """Read a run directory: also one that is still being written, or whose writers were all killed."""
    path = Path(path)
    if not path.is_dir():
        raise UnusableInput(f"there is no run directory {path}", next_step="headrace run -- python train.py")
    problems: list[str] = []
    facts = _read_facts(path / RUN_FILE, problems)
    # the events last: what they tell may be younger than the facts, never older
    system, damages = read_samples(_bytes(path / SYSTEM_FILE, problems))
    problems += damages
    problems += facts.problems
    found = _read_events(path / EVENTS_FILE, problems)
    if not facts.is_finished:
        problems.append("the recorder has not written an end: the run goes on, or the recorder was killed")
    return found.recording(path, facts, system, problems)


@cache
def event_dtype() -> np.dtype[np.void]:
    """A column for each field of an event, and the process that wrote it."""
    names = ["start_ns", "duration_ns", "value", "pid", "arg", "thread", "kind"]
    return np.dtype({"names": names, "formats": ["<i8", "<i8", "<i8", "<i4", "<u4", "<u2", "<u2"]})


def _read_facts(path: Path, problems: list[str]) -> RunFacts:
    data = _bytes(path, problems)
    if not data:
        return RunFacts()
    try:
        document = json.loads(data)
        if document.get("schema") != RUN_SCHEMA:
            problems.append(f"run.json is of another kind or version: {document.get('schema')!r}")
        return RunFacts.from_json(document)
    except (ValueError, TypeError, AttributeError) as error:
        problems.append(f"run.json cannot be read: {error}")
        return RunFacts()


def _bytes(path: Path, problems: list[str]) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}")
        return b""


class _Frames:
    """The frames of a file, gathered by what they hold."""

    def __init__(self) -> None:
        self.processes: dict[int, RecordedProcess] = {}
        self.blocks: list[tuple[int, npt.NDArray[np.void]]] = []
        self.thinned_ns: int | None = None  # since when events were left out

    def take(self, frame: StoredFrame) -> None:
        process = self.processes.setdefault(frame.process, RecordedProcess())
        if frame.type == FrameType.RECORDS:
            self.blocks.append((frame.process, np.frombuffer(frame.body, RECORD_DTYPE)))
        elif frame.type == FrameType.NOTE:
            note = dict(json.loads(bytes(frame.body)))
            process.handle(note)
            if note.get("note") == "thinned":
                self.thinned_ns = int(note["seen_ns"])

    def recording(self, path: Path, facts: RunFacts, system: list[SystemSample], problems: list[str]) -> Recording:
        names, shifts = self._names()
        events, at = np.empty(sum(len(block) for _, block in self.blocks), event_dtype()), 0
        for number, block in self.blocks:
            part = events[at : at + len(block)]
            at += len(block)
            for column in set(event_dtype().names or ()) - {"pid"}:
                part[column] = block[column]
            part["pid"] = self.processes[number].pid
            part["arg"][part["arg"] > 0] += shifts[number]
        events = events[np.argsort(events["start_ns"], kind="stable")]
        lost = sum(process.lost_records for process in self.processes.values())
        if lost:
            problems.append(f"{lost} events were overwritten before they could be read")
        if self.thinned_ns is not None:
            since_s = (self.thinned_ns - facts.start_monotonic_ns) / 1e9
            problems.append(
                f"events were left out from {since_s:.0f} s on to keep events.bin under its limit: of each kind and "
                "process the longest are kept, and others at even distances"
            )
        unknown = sum(1 for process in self.processes.values() if not process.pid)
        if unknown:
            problems.append(f"{unknown} processes are not known by number: the frame that said it is missing")
        return Recording(
            path=path,
            facts=facts,
            processes=tuple(process for _, process in sorted(self.processes.items())),
            events=events,
            names=names,
            system=system,
            lost_records=lost,
            problems=tuple(dict.fromkeys(problems)),
        )

    def _names(self) -> tuple[dict[tuple[int, int], str], dict[int, int]]:
        """Names by (pid, arg). A pid that came back, for another process, counts its names on from the first's."""
        names: dict[tuple[int, int], str] = {}
        shifts: dict[int, int] = {}
        taken: Counter[int] = Counter()
        for number, process in sorted(self.processes.items()):
            shifts[number] = taken[process.pid]
            names |= {(process.pid, place): text for place, text in enumerate(process.names, 1 + taken[process.pid])}
            taken[process.pid] += len(process.names)
        return names, shifts


def _read_events(path: Path, problems: list[str]) -> _Frames:
    events = _Frames()
    data = memoryview(_bytes(path, problems))
    if not data:
        return events
    version = read_file_head(data)
    if version != VERSION:
        newer = f"events.bin is of version {version}, this Headrace reads version {VERSION}"
        problems.append("events.bin does not begin as a file of events" if version is None else newer)
        return events
    for found in read_frames(data):
        if isinstance(found, Torn):
            where = "its last frame is cut off" if found.is_at_end else "a frame is damaged"
            problems.append(f"events.bin: {where}, {found.size} bytes from byte {found.at} on")
            continue
        try:
            events.take(found)
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"events.bin: a frame says what this version does not understand: {error}")
    return events
