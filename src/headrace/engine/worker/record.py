"""What a worker writes about itself: the sample in hand, times, bytes, page faults."""

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.forensics import WorkerMemory, read_worker_memory
from headrace.signals.system import minor_faults

from ..memory import BUSY, COLLATING, HISTOGRAM_BUCKETS, NO_SAMPLE, STARTING, Board, Head, Record, Work
from .events import WorkerEvents

# processor time and page faults are system calls: the first chunks, and then now and then, tell enough
_FIRST_CHUNKS = 32
_FAULTS_EVERY_NS = 200_000_000


class Stopped(BaseException):
    """The loader ends while a worker waits for room: what it has in hand is of no use any more."""


class WorkerRecord:
    """A worker's own words on the board. Only that worker writes them; anybody reads."""

    def __init__(self, words: memoryview, worker: int, events: WorkerEvents | None = None) -> None:
        self._words, self._events = words, events
        self._at = Board.record_at(worker)
        self._histogram_at = Board.histogram_at(worker)
        self._cost_ns = 0.0
        self.fetch_ns = 0.0  # the part of a sample's cost that is the data set's own
        self._first_faults = -1
        self._faults_due_ns = 0
        self._cpu_ns = 0

    def open(self) -> None:
        self._words[self._at + Record.PID] = os.getpid()
        self._words[self._at + Record.THREAD] = threading.get_native_id()

    @property
    def is_asked_to_go(self) -> bool:
        return bool(self._words[self._at + Record.GO])

    def weigh_if_asked(self) -> None:
        """Look what memory this process holds: milliseconds that the training process must not spend."""
        words, at = self._words, self._at
        if not words[at + Record.WEIGH]:
            return
        words[at + Record.WEIGH] = 0
        held = read_worker_memory(os.getpid(), time.monotonic())
        if held is not None:
            words[at + Record.HOLDINGS + 1] = held.heap_bytes
            words[at + Record.HOLDINGS + 2] = held.shared_bytes
            words[at + Record.HOLDINGS] = int(held.at_s * 1e9)

    def set_state(self, state: int) -> None:
        self._words[self._at + Record.STATE] = state

    def begin_task(self, work: Work) -> int:
        """Note what the worker has in hand; returns when it began."""
        words, at = self._words, self._at
        words[at + Record.SEQ], words[at + Record.ROW], words[at + Record.ROWS] = work.seq, work.row, work.rows
        words[at + Record.STATE] = BUSY
        if words[at + Record.CHUNKS_DONE] < _FIRST_CHUNKS:
            self._cpu_ns = time.thread_time_ns()
        return time.perf_counter_ns()

    def end_task(self, started_ns: int) -> None:
        words, at = self._words, self._at
        elapsed = time.perf_counter_ns() - started_ns
        chunks = words[at + Record.CHUNKS_DONE]
        words[at + Record.POSITION] = NO_SAMPLE
        words[at + Record.CHUNKS_DONE] = chunks + 1
        words[at + Record.BUSY_NS] += elapsed
        if chunks < _FIRST_CHUNKS:
            words[at + Record.CPU_NS] += time.thread_time_ns() - self._cpu_ns
            words[at + Record.CPU_OF_NS] += elapsed
        if words[Head.RECORD] and (chunks < _FIRST_CHUNKS or started_ns > self._faults_due_ns):
            self._faults_due_ns = started_ns + _FAULTS_EVERY_NS
            # counted from the first chunk on: what starting the process took is not the samples' price
            self._first_faults = minor_faults() if self._first_faults < 0 else self._first_faults
            words[at + Record.FAULTS] = minor_faults() - self._first_faults

    def begin_sample(self, position: int, span: int = 1) -> int:
        """Show which sample is in hand (or which several are, fetched as one), and since when."""
        words, at = self._words, self._at
        words[at + Record.POSITION] = position
        words[at + Record.SPAN] = span
        words[at + Record.SAMPLE_START_NS] = now = time.perf_counter_ns()
        return now

    def begin_again(self) -> None:
        """The sample in hand failed, and another one takes its place."""
        self._words[self._at + Record.SAMPLE_START_NS] = time.perf_counter_ns()

    def begin_collation(self) -> None:
        """Show that a batch is being collated, and since when: no one sample is to blame for what happens now."""
        words, at = self._words, self._at
        words[at + Record.SAMPLE_START_NS] = time.perf_counter_ns()
        words[at + Record.POSITION] = COLLATING

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What is in hand is done, and waits for room: nobody may take us for stuck in it, or for busy."""
        words, at = self._words, self._at
        started = time.perf_counter_ns()
        words[at + Record.POSITION] = NO_SAMPLE
        words[at + Record.WAITS] = 1
        try:
            yield
        finally:
            words[at + Record.WAITS] = 0
            words[at + Record.BUSY_NS] -= time.perf_counter_ns() - started
            if self._events is not None:
                self._events.waited(started)
            if words[Head.STOP]:
                raise Stopped

    def note(self, fetch_ns: int, elapsed_ns: int, count: int) -> None:
        """Record what samples cost: to fetch, and in all."""
        words, at = self._words, self._at
        each, fetch_each = max(1, elapsed_ns // count), max(1, fetch_ns // count)
        is_first = not self._cost_ns
        self._cost_ns = each if is_first else 0.9 * self._cost_ns + 0.1 * each
        self.fetch_ns = fetch_each if is_first else 0.9 * self.fetch_ns + 0.1 * fetch_each
        words[at + Record.SAMPLES_DONE] += count
        words[at + Record.COST_NS] = int(self._cost_ns)
        if is_first or fetch_each < words[at + Record.LEAST_FETCH_NS]:
            words[at + Record.LEAST_FETCH_NS] = fetch_each
        # a worker's first sample pays for imports and opened files: it says nothing of the spread
        if words[Head.RECORD] and not is_first:
            words[self._histogram_at + min(HISTOGRAM_BUCKETS - 1, int(4 * math.log2(each)))] += count

    def note_least(self, fetch_ns: int) -> None:
        """What a sample takes at best: while it is tried which generators it uses, that takes longer than it does."""
        self._words[self._at + Record.LEAST_FETCH_NS] = fetch_ns

    def add_bytes(self, size: int) -> None:
        self._words[self._at + Record.BYTES] += size


def reset_record(words: memoryview, worker: int) -> None:
    """A worker is about to be started: nothing is known of it yet."""
    at = Board.record_at(worker)
    for word in range(Record.WORDS):
        words[at + word] = 0
    for word in range(HISTOGRAM_BUCKETS):
        words[Board.histogram_at(worker) + word] = 0
    words[Board.stages_at(worker)] = 0
    reopen_record(words, worker)


def reopen_record(words: memoryview, worker: int, *, state: int = STARTING) -> None:
    """A worker takes the place of one that is gone, or could not be started (ENDED): what was counted stays."""
    at = Board.record_at(worker)
    words[at + Record.STATE] = state
    words[at + Record.PID] = words[at + Record.GO] = words[at + Record.WEIGH] = words[at + Record.HOLDINGS] = 0
    words[at + Record.PROMISED] = words[at + Record.WAITS] = 0
    words[at + Record.POSITION] = NO_SAMPLE
    words[at + Record.SEQ] = -1
    words[at + Record.START_NS] = time.perf_counter_ns()


def ask_to_go(words: memoryview, worker: int) -> None:
    """Let a worker end before its next chunk."""
    words[Board.record_at(worker) + Record.GO] = 1


def ask_to_weigh(words: memoryview, worker: int) -> None:
    """Let a worker look what memory it holds."""
    words[Board.record_at(worker) + Record.WEIGH] = 1


def read_weight(words: memoryview, worker: int) -> WorkerMemory | None:
    """What a worker held when it last looked; None where it has not."""
    at = Board.record_at(worker) + Record.HOLDINGS
    at_ns, heap, shared = words[at : at + 3].tolist()
    return WorkerMemory(at_s=at_ns / 1e9, heap_bytes=heap, shared_bytes=shared) if at_ns else None
