"""Whoever owns a recording: drains the lanes and samples the system into a run directory, and outlives the training."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import UnusableInput
from headrace.model import Count, EventKind, write_step

from .area import MOST_LAPS, Area, LaneMemory, Word, read_birth
from .event_file import EVENTS_FILE, RECORD_DTYPE, EventFile
from .run_facts import RUN_FILE, RunFacts, write_facts
from .system_samples import SYSTEM_FILE, SystemFile, SystemSampler

Records: TypeAlias = npt.NDArray[np.void]
Blocks: TypeAlias = list[tuple[int, int, Records]]  # lane, process, records
Notes: TypeAlias = list[tuple[int, int, dict[str, Any]]]

_log = logging.getLogger(__name__)

# A run of an hour with eight workers writes some 400 MB of events; one of a month stays under this.
_EVENTS_LIMIT_BYTES = 2 << 30
_SYSTEM_LIMIT_BYTES = 256 << 20
_LEAST_INTERVAL_S = 0.05
# Numbers that threads may have taken without having filled their records yet: a block of kept events, and single ones.
_MOST_IN_FLIGHT = 128
_FULL = 0.25  # a ring that is fuller than this at a drain is drained sooner the next time


class Recorder:
    """Records into a directory until it is closed.

    A child process takes part that has `environment` in its own. Whoever records calls `step` every `pause_s` seconds,
    or lets a thread do it (`start`), and `close` with the child's exit code.

    What is sampled is the watched process and all below it; until `watch` is called that is this process.
    `observer` is called with (pid, records) for what each drain brought, before anything is thinned.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        interval_s: float = 0.5,
        sample_interval_s: float = 1.0,
        facts: RunFacts | None = None,
        area: Area | None = None,
        observer: Callable[[int, Records], None] | None = None,
    ) -> None:
        if interval_s <= 0 or sample_interval_s <= 0:
            raise ValueError("interval_s and sample_interval_s must be more than 0")
        self.directory = Path(directory)
        self._interval_s = interval_s
        self.facts = RunFacts.here() if facts is None else facts
        if not self.facts.start_monotonic_ns:
            self.facts = replace(self.facts, start_monotonic_ns=time.monotonic_ns(), start_wall_s=time.time())
        if (self.directory / RUN_FILE).exists() or (self.directory / EVENTS_FILE).exists():
            next_step = "give another directory, or remove that one"
            raise UnusableInput(f"{self.directory} holds a recording already", next_step=next_step)
        start_s = self.facts.start_monotonic_ns / 1e9
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._events = EventFile(self.directory / EVENTS_FILE, limit_bytes=_EVENTS_LIMIT_BYTES, start_s=start_s)
        except OSError as error:
            steps = (write_step(error, self.directory), "another directory: headrace run --out DIR, or record=DIR")
            what, next_step = f"cannot write {self.directory}", "; or ".join(filter(None, steps))
            raise UnusableInput(what, reason=error.strerror, next_step=next_step) from None
        self.area = Area.create() if area is None else area
        self._sampler = SystemSampler(os.getpid())
        self.facts = self._sampler.complete(self.facts)
        system, limit = self.directory / SYSTEM_FILE, _SYSTEM_LIMIT_BYTES
        self._system = SystemFile(system, limit_bytes=limit, start_s=start_s, interval_s=sample_interval_s)
        self._drain = LaneDrain(self.area, observer)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.pause_s = interval_s  # until the next `step`; shorter while rings fill fast
        self._write_facts()

    def __repr__(self) -> str:
        drain = self._drain
        return (
            f"Recorder({str(self.directory)!r}, processes={drain.num_processes}, "
            f"records={drain.num_records}, lost={drain.num_lost}, bytes={self._events.num_bytes})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs in its environment to take part."""
        return {"HEADRACE_RECORDING": self.area.place}

    def watch(self, pid: int) -> None:
        """Say which process is the training: it and all below it are sampled."""
        self._sampler.watch(pid)
        self.facts = replace(self.facts, trainer_pid=pid)
        self._write_facts()

    def start(self) -> None:
        """Record in a thread of its own until `close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headrace-recorder", daemon=True)
            self._thread.start()

    def step(self) -> int:
        """Drain all lanes, and sample the system if that is due; returns how many records came."""
        with self._lock:
            return 0 if self._is_closed else self._step(is_last=False)

    def close(self, *, exit_code: int | None = None) -> None:
        """Drain the rest and write down how it ended. Safe to call twice.

        `exit_code` is as `subprocess` gives it: negative for a signal. None where there is nothing to tell.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self._is_closed:
                return
            self._step(is_last=True)
            self._is_closed = True
            signal = -exit_code if exit_code is not None and exit_code < 0 else None
            self.facts = replace(
                self.facts,
                end_monotonic_ns=time.monotonic_ns(),
                exit_code=exit_code if signal is None else None,
                exit_signal=signal,
                problems=tuple(self._problems()),
            )
            self._write_facts()
            self._events.close()
            self._system.close()
            self._sampler.close()
            self.area.close()

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except Exception:  # a recording that fails must not end the training that it watches
                _log.exception("the recording of %s failed", self.directory)
                return
            if self._stop.wait(self.pause_s):
                return

    def _step(self, *, is_last: bool) -> int:
        now_s = time.monotonic()
        blocks, notes = self._drain.drain(is_last=is_last)
        self._events.write(blocks, notes, now_s=now_s)
        if is_last or self._system.is_due(now_s):
            self._system.write(self._sampler.sample(), now_s=now_s)
        if self._drain.fullest > _FULL:
            self.pause_s = max(_LEAST_INTERVAL_S, self.pause_s / 2)
        else:
            self.pause_s = min(self._interval_s, self.pause_s * 1.5)
        return sum(len(block) for _, _, block in blocks)

    def _problems(self) -> list[str]:
        found = [*self._events.problems, *self._system.problems]
        if refused := self._drain.num_names_refused:
            found.append(f"{refused} names found no room in their lanes: their events have none")
        if self.area.num_refused:
            found.append(
                f"{Count(self.area.num_refused):time(s)} a process found no free lane among {self.area.num_lanes} "
                "and was not recorded"
            )
        return found

    def _write_facts(self) -> None:
        try:
            write_facts(self.directory / RUN_FILE, self.facts)
        except OSError as error:
            _log.warning("cannot write %s: %s", self.directory / RUN_FILE, error)


@dataclass
class _Writer:
    process: int  # counts from 1 over the whole recording
    pid: int
    born: int
    lane: LaneMemory
    reader: "RingReader"
    name_bytes: int = 0
    role: int = 0
    lost: int = 0


class LaneDrain:
    """Takes what processes wrote out of an area, and gives lanes of the dead to the living."""

    def __init__(self, area: Area, observer: Callable[[int, Records], None] | None = None) -> None:
        self._area, self._observer = area, observer
        self._writers: dict[int, _Writer] = {}
        self.num_processes = self.num_records = self.num_lost = self.num_names_refused = 0
        self.fullest = 0.0

    def drain(self, *, is_last: bool = False) -> tuple[Blocks, Notes]:
        """What is new of each process that wrote. `is_last`: what is half written now is lost."""
        blocks: Blocks = []
        notes: Notes = []
        self.fullest = 0.0
        for number in self._area.claimed():
            writer = self._writers.get(number) or self._welcome(self._area.lane(number), notes)
            # asked before the last look at its records, or what it wrote in between would be lost
            is_gone = read_birth(writer.pid) != writer.born
            self.fullest = max(self.fullest, writer.reader.fill)
            block = writer.reader.read(is_last=is_last or is_gone)
            if is_last or is_gone:
                block = _with_open_task(block, writer.lane)
                self.num_names_refused += writer.lane.words[Word.NAMES_REFUSED]
            self._take_notes(writer, notes)
            if len(block):
                blocks.append((number, writer.process, block))
                self.num_records += len(block)
                if self._observer is not None:
                    with contextlib.suppress(Exception):
                        self._observer(writer.pid, block)
            if is_gone:
                notes.append((number, writer.process, {"note": "gone", "seen_ns": time.monotonic_ns()}))
                del self._writers[number]
                self._area.free(writer.lane)
        return blocks, notes

    def _welcome(self, lane: LaneMemory, notes: Notes) -> _Writer:
        words = lane.words
        self.num_processes += 1
        writer = _Writer(self.num_processes, words[Word.PID], words[Word.BORN], lane, RingReader(lane))
        self._writers[lane.number] = writer
        fact = {"pid": writer.pid, "parent": words[Word.PARENT], "start_ns": words[Word.CLAIMED_NS]}
        notes.append((lane.number, writer.process, {"note": "process", **fact, "born_ticks": writer.born}))
        return writer

    def _take_notes(self, writer: _Writer, notes: Notes) -> None:
        words, where = writer.lane.words, (writer.lane.number, writer.process)
        if words[Word.NAME_BYTES] > writer.name_bytes:
            names, writer.name_bytes = read_names(writer.lane, writer.name_bytes)
            notes.append((*where, {"note": "names", "names": names}))
        if words[Word.ROLE] != writer.role:
            writer.role = words[Word.ROLE]
            notes.append((*where, {"note": "role", "name": writer.role}))
        if new := writer.reader.num_lost - writer.lost:
            writer.lost += new
            self.num_lost += new
            notes.append((*where, {"note": "lost", "records": new, "seen_ns": time.monotonic_ns()}))


def _with_open_task(block: Records, lane: LaneMemory) -> Records:
    """Add to a worker's last records that it has a task in hand: its rest before that ended then, no FETCH follows."""
    # A worker keeps its short events back for a tenth of a second, so the rest itself may never be written.
    since_ns = lane.words[Word.TASK_SINCE_NS]
    if not since_ns:
        return block
    rest = np.zeros(1, block.dtype)
    rest["start_ns"], rest["kind"] = since_ns, EventKind.IDLE
    return np.concatenate([block, rest])


class RingReader:
    """Takes new records out of a lane. Every record is delivered once or counted as lost, never both."""

    def __init__(self, lane: LaneMemory) -> None:
        self._words, self._size = lane.words, lane.num_records
        self._bits = lane.num_records.bit_length() - 1
        self._in_flight = min(_MOST_IN_FLIGHT, self._size // 2)
        self._ring = np.frombuffer(lane.ring, RECORD_DTYPE)
        self._tail = 0
        self._nothing = np.empty(0, RECORD_DTYPE)
        self._missing: list[int] = []  # begun, but not whole at the last look
        self.num_lost = 0

    @property
    def fill(self) -> float:
        """How full the ring is of records that were not read yet, from 0 to 1."""
        return min(1.0, max(0, self._words[Word.CURSOR] - self._tail) / self._size)

    def read(self, *, is_last: bool = False) -> Records:
        """The records that came since the last call. `is_last`: nobody writes any more, and nobody will look again."""
        if self._words[Word.CURSOR] == self._tail and not self._missing and not is_last:
            return self._nothing
        # two threads may set the cursor in the wrong order, so it may lag behind by those in flight
        end = max(self._tail, self._words[Word.CURSOR])
        if is_last:
            in_flight = range(end, end + self._in_flight)
            laps = self._ring["lap"][np.array(in_flight) & (self._size - 1)].tolist()
            whole = [
                at + 1 for at, lap in zip(in_flight, laps, strict=True) if lap == (at >> self._bits) % MOST_LAPS + 1
            ]
            end = max([end, *whole])
        first = max(self._tail, end - self._size)
        self.num_lost += first - self._tail  # the ring came round
        numbers = np.concatenate([np.array(self._missing, np.int64), np.arange(first, end)])
        block: Records = self._ring[numbers & (self._size - 1)]
        now = self._words[Word.CURSOR]
        # while somebody writes, what lies where he is about to write may be half old and half new
        is_safe = numbers >= now - self._size + (self._in_flight if now > end else 0)
        is_whole = is_safe & (block["lap"] == (numbers >> self._bits) % MOST_LAPS + 1)
        if is_whole.all():
            self._missing = []
        else:
            was_missing = np.arange(len(numbers)) < len(self._missing)
            is_late = ~is_whole & is_safe & ~was_missing
            self._missing = [] if is_last else numbers[is_late].tolist()
            # what is missing for the second time will never come: its thread was interrupted in the middle
            self.num_lost += int((~is_whole).sum()) - len(self._missing)
            block = block[is_whole]
        self._tail = end
        block["lap"] = 0
        return block


def read_names(lane: LaneMemory, known_bytes: int) -> tuple[list[str], int]:
    """The names that a lane got since it had `known_bytes` of them, and how many bytes they are now."""
    end = lane.words[Word.NAME_BYTES]
    data = bytes(lane.names[known_bytes:end])
    names, at = [], 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "little")
        names.append(data[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    return names, max(known_bytes, end)
