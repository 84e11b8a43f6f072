"""A recorded run, read back: events, processes, samples of the system and facts, whatever died meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import UnusableInput
from headrace.model import EventKind

from ..system import SystemSample
from .area import record_dtype
from .event_file import EVENTS_FILE, VERSION, FrameType, StoredFrame, Torn, read_file_head, read_frames
from .run_facts import RUN_FILE, RUN_SCHEMA, RunFacts
from .system_samples import SYSTEM_FILE, read_samples
from .thinning import totals_dtype

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class RecordedProcess:
    """A process that wrote events. Times are on the clock of the events."""

    pid: int
    parent: int
    role: str  # "trainer", "worker", "reader", …; empty where it did not say
    start_ns: int  # when it began to record
    end_ns: int | None  # when it was found gone; None: it was there to the end
    lost_records: int
    threads: Mapping[int, str] = field(default_factory=dict)  # names of threads other than the main one


@dataclass(frozen=True, kw_only=True)
class Recording:
    """All that a run directory holds. `problems` says in sentences what is missing or damaged."""

    path: Path
    facts: RunFacts
    processes: tuple[RecordedProcess, ...]
    events: npt.NDArray[np.void]  # sorted by start: start_ns, duration_ns, value, pid, arg, thread, kind
    left_out: npt.NDArray[np.void]  # sums of events that were thinned out: start_ns, span_ns, pid, kind, count, …
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

    def total_of(self, kind: EventKind | int, pid: int | None = None) -> tuple[int, int, int]:
        """(events, their nanoseconds, their values) of a kind: exact, also where events were thinned out."""
        import numpy as np

        kept = self.events_of(kind, pid)
        rest = self.left_out[self.left_out["kind"] == int(kind)]
        if pid is not None:
            rest = rest[rest["pid"] == pid]
        return (
            len(kept) + int(rest["count"].sum(dtype=np.int64)),
            int(kept["duration_ns"].sum(dtype=np.int64)) + int(rest["duration_ns"].sum(dtype=np.int64)),
            int(kept["value"].sum(dtype=np.int64)) + int(rest["value"].sum(dtype=np.int64)),
        )

    @property
    def end_ns(self) -> int:
        """The last moment that anything is known of."""
        last = [self.facts.start_monotonic_ns]
        if self.facts.end_monotonic_ns is not None:
            last.append(self.facts.end_monotonic_ns)
        if self.system:
            last.append(self.system[-1].at_ns)
        if len(self.events):
            last.append(int((self.events["start_ns"] + self.events["duration_ns"]).max()))
        return max(last)


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
    import numpy as np

    return np.dtype(
        [
            ("start_ns", "<i8"),
            ("duration_ns", "<i8"),
            ("value", "<i8"),
            ("pid", "<i4"),
            ("arg", "<u4"),
            ("thread", "<u2"),
            ("kind", "<u2"),
        ]
    )


@cache
def left_out_dtype() -> np.dtype[np.void]:
    import numpy as np

    return np.dtype([*((name, "<i8") for name in totals_dtype().names or ()), ("pid", "<i4")])


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


class _ProcessNotes:
    """What frames say of one process."""

    def __init__(self) -> None:
        self.pid = self.parent = self.start_ns = 0
        self.end_ns: int | None = None
        self.names: list[str] = []
        self.role = 0
        self.lost = 0

    def handle(self, note: Mapping[str, Any]) -> None:
        match note.get("note"):
            case "process":
                self.pid, self.parent, self.start_ns = int(note["pid"]), int(note["parent"]), int(note["start_ns"])
            case "names":
                self.names += map(str, note["names"])
            case "role":
                self.role = int(note["name"])
            case "lost":
                self.lost += int(note["records"])
            case "gone":
                self.end_ns = int(note["seen_ns"])

    def name(self, number: int) -> str:
        return self.names[number - 1] if 0 < number <= len(self.names) else ""


class _Frames:
    """The frames of a file, gathered by what they hold."""

    def __init__(self) -> None:
        self.processes: dict[int, _ProcessNotes] = {}
        self.blocks: list[tuple[int, npt.NDArray[np.void]]] = []
        self.totals: list[tuple[int, npt.NDArray[np.void]]] = []

    def take(self, frame: StoredFrame) -> None:
        import numpy as np

        process = self.processes.setdefault(frame.process, _ProcessNotes())
        if frame.type == FrameType.RECORDS:
            self.blocks.append((frame.process, np.frombuffer(frame.body, record_dtype())))
        elif frame.type == FrameType.TOTALS:
            self.totals.append((frame.process, np.frombuffer(frame.body, totals_dtype())))
        elif frame.type == FrameType.NOTE:
            process.handle(frame.note())

    def recording(self, path: Path, facts: RunFacts, system: list[SystemSample], problems: list[str]) -> Recording:
        import numpy as np

        names, shifts = self._names()
        events = self._gather(self.blocks, event_dtype())
        left_out = self._gather(self.totals, left_out_dtype())
        at = 0
        for number, block in self.blocks:
            args = events["arg"][at : at + len(block)]
            args[args > 0] += shifts[number]
            at += len(block)
        events, left_out = (rows[np.argsort(rows["start_ns"], kind="stable")] for rows in (events, left_out))
        lost = sum(process.lost for process in self.processes.values())
        if lost:
            problems.append(f"{lost} events were overwritten before they could be read")
        if len(left_out):
            problems.append(_thinned(left_out, len(events), facts))
        unknown = sum(1 for process in self.processes.values() if not process.pid)
        if unknown:
            problems.append(f"{unknown} processes are not known by number: the frame that said it is missing")
        return Recording(
            path=path,
            facts=facts,
            processes=tuple(self._process(number, process) for number, process in sorted(self.processes.items())),
            events=events,
            left_out=left_out,
            names=names,
            system=system,
            lost_records=lost,
            problems=tuple(dict.fromkeys(problems)),
        )

    def _gather(self, blocks: list[tuple[int, npt.NDArray[np.void]]], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """The rows of all processes in one array, with the pid of each."""
        import numpy as np

        rows, at = np.empty(sum(len(block) for _, block in blocks), dtype), 0
        for number, block in blocks:
            part = rows[at : at + len(block)]
            at += len(block)
            for column in set(dtype.names or ()) - {"pid"}:
                part[column] = block[column]
            part["pid"] = self.processes[number].pid
        return rows

    def _names(self) -> tuple[dict[tuple[int, int], str], dict[int, int]]:
        """Names by (pid, arg). A pid that came back, for another process, counts its names on from the first's."""
        names: dict[tuple[int, int], str] = {}
        shifts: dict[int, int] = {}
        taken: dict[int, int] = {}
        for number, process in sorted(self.processes.items()):
            shifts[number] = shift = taken.get(process.pid, 0)
            for place, text in enumerate(process.names, 1):
                names[process.pid, place + shift] = text
            taken[process.pid] = shift + len(process.names)
        return names, shifts

    def _process(self, number: int, process: _ProcessNotes) -> RecordedProcess:
        threads = {}
        for _, block in (one for one in self.blocks if one[0] == number):
            for record in block[block["kind"] == EventKind.THREAD]:
                threads[int(record["thread"])] = process.name(int(record["arg"]))
        return RecordedProcess(
            pid=process.pid,
            parent=process.parent,
            role=process.name(process.role),
            start_ns=process.start_ns,
            end_ns=process.end_ns,
            lost_records=process.lost,
            threads=threads,
        )


def _read_events(path: Path, problems: list[str]) -> _Frames:
    events = _Frames()
    data = memoryview(_bytes(path, problems))
    if not data:
        return events
    version = read_file_head(data)
    if version != VERSION:
        problems.append("events.bin does not begin as a file of events" if version is None else _newer(version))
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


def _newer(version: int) -> str:
    return f"events.bin is of version {version}, this Headrace reads version {VERSION}"


def _thinned(left_out: npt.NDArray[np.void], num_kept: int, facts: RunFacts) -> str:
    import numpy as np

    count = int(left_out["count"].sum(dtype=np.int64))
    since_s = (int(left_out["start_ns"][0]) - facts.start_monotonic_ns) / 1e9
    kinds = ", ".join(_kind_name(kind) for kind in np.unique(left_out["kind"]).tolist())
    return (
        f"{count} of {count + num_kept} events ({kinds}) were left out from {since_s:.0f} s on to keep events.bin "
        "under its limit; their sums per process, kind and span are exact"
    )


def _kind_name(kind: int) -> str:
    try:
        return EventKind(kind).name
    except ValueError:
        return f"kind {kind}"
