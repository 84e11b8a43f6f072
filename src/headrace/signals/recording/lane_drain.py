"""Draining the lanes of an area: who writes, what is new, who is gone."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.model import EventKind

from .area import Area, LaneMemory, Word, read_birth
from .ring_reader import RingReader, read_names

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_log = logging.getLogger(__name__)


@dataclass
class _Writer:
    """A process that holds a lane."""

    process: int  # counts from 1 over the whole recording
    pid: int
    born: int
    lane: LaneMemory
    reader: RingReader
    name_bytes: int = 0
    role: int = 0
    lost: int = 0
    names_refused: int = 0


class LaneDrain:
    """Takes what processes wrote out of an area, and gives lanes of the dead to the living."""

    def __init__(self, area: Area, observer: Callable[[int, npt.NDArray[np.void]], None] | None = None) -> None:
        self._area, self._observer = area, observer
        self._writers: dict[int, _Writer] = {}
        self.num_processes = self.num_records = self.num_lost = 0
        self.fullest = 0.0
        self._names_refused = 0

    @property
    def problems(self) -> list[str]:
        if not self._names_refused:
            return []
        return [f"{self._names_refused} names found no room in their lanes: their events have none"]

    def drain(
        self, *, is_last: bool = False
    ) -> tuple[list[tuple[int, int, npt.NDArray[np.void]]], list[tuple[int, int, dict[str, Any]]]]:
        """What is new: (lane, process, records) and (lane, process, note) of each process that wrote.

        `is_last`: nobody will look again, so what is half written now is lost.
        """
        blocks: list[tuple[int, int, npt.NDArray[np.void]]] = []
        notes: list[tuple[int, int, dict[str, Any]]] = []
        self.fullest = 0.0
        for number in self._area.claimed():
            writer = self._writers.get(number) or self._welcome(self._area.lane(number), notes)
            # asked before the last look at its records, or what it wrote in between would be lost
            is_gone = read_birth(writer.pid) != writer.born
            self.fullest = max(self.fullest, writer.reader.fill)
            block = writer.reader.read(is_last=is_last or is_gone)
            if is_last or is_gone:
                block = _with_open_task(block, writer.lane)
            self._take_notes(writer, notes)
            if len(block):
                blocks.append((number, writer.process, block))
                self.num_records += len(block)
                self._observe(writer.pid, block)
            if is_gone:
                notes.append((number, writer.process, {"note": "gone", "seen_ns": time.monotonic_ns()}))
                del self._writers[number]
                self._area.free(writer.lane)
        return blocks, notes

    def close(self) -> None:
        self._writers.clear()

    def _welcome(self, lane: LaneMemory, notes: list[tuple[int, int, dict[str, Any]]]) -> _Writer:
        words = lane.words
        self.num_processes += 1
        writer = _Writer(self.num_processes, words[Word.PID], words[Word.BORN], lane, RingReader(lane))
        self._writers[lane.number] = writer
        fact = {
            "note": "process",
            "pid": writer.pid,
            "parent": words[Word.PARENT],
            "start_ns": words[Word.CLAIMED_NS],
            "born_ticks": writer.born,
        }
        notes.append((lane.number, writer.process, fact))
        return writer

    def _take_notes(self, writer: _Writer, notes: list[tuple[int, int, dict[str, Any]]]) -> None:
        words, where = writer.lane.words, (writer.lane.number, writer.process)
        if words[Word.NAME_BYTES] > writer.name_bytes:
            names, writer.name_bytes = read_names(writer.lane, writer.name_bytes)
            notes.append((*where, {"note": "names", "names": names}))
        if words[Word.ROLE] != writer.role:
            writer.role = words[Word.ROLE]
            notes.append((*where, {"note": "role", "name": writer.role}))
        if words[Word.NAMES_REFUSED] > writer.names_refused:
            self._names_refused += words[Word.NAMES_REFUSED] - writer.names_refused
            writer.names_refused = words[Word.NAMES_REFUSED]
        if writer.reader.num_lost > writer.lost:
            new = writer.reader.num_lost - writer.lost
            writer.lost = writer.reader.num_lost
            self.num_lost += new
            notes.append((*where, {"note": "lost", "records": new, "seen_ns": time.monotonic_ns()}))

    def _observe(self, pid: int, block: npt.NDArray[np.void]) -> None:
        if self._observer is not None:
            with contextlib.suppress(Exception):
                self._observer(pid, block)


def _with_open_task(block: npt.NDArray[np.void], lane: LaneMemory) -> npt.NDArray[np.void]:
    """Add to a worker's last records that it has a task in hand: its rest before that ended then, and no FETCH follows.

    A worker keeps its short events back for a tenth of a second, so the rest itself may never be written.
    """
    import numpy as np

    since_ns = lane.words[Word.TASK_SINCE_NS]
    if not since_ns:
        return block
    rest = np.zeros(1, block.dtype)
    rest["start_ns"], rest["kind"] = since_ns, EventKind.IDLE
    return np.concatenate([block, rest])
