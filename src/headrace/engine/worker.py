"""One worker: takes chunks, fetches their samples, and puts each where the training process will find it."""

from __future__ import annotations

import math
import os
import pickle
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BatchTooLarge
from .arena import Arena, Fd
from .blocks import NoRoom, Region, free_block
from .board import (
    BUSY,
    ENDED,
    GENERAL,
    HISTOGRAM_BUCKETS,
    IDLE,
    UNBOUND,
    Board,
    BoardLock,
    Entry,
    Head,
    Record,
    Slot,
    join_place,
    split_place,
)
from .fetch import CannotSplit, Fetcher
from .heap import minor_faults
from .layout import Layout, Misfit, RowWriter, learn_layout, read_samples
from .messages import WORK_BYTES, Answer, CaughtError, Result, Task, Work, unpack_work
from .parcels import dump, load, peek
from .seeding import SampleSeeds

_PAYLOAD = struct.Struct("<qq")  # 1 for a pickled list of indices, its bytes; else 0 and 8 bytes an index
# the training process answers at once while it waits for a batch; if it is elsewhere, the batch takes the general path
_LAYOUT_PATIENCE_S = 0.05
# below this, looking at the clock for each sample would show in the rate
_TINY_SAMPLE_NS = 20_000
_FIRST_CHUNKS = 32
_FAULTS_EVERY_NS = 200_000_000


# a block's offset in a 32-bit field of a message, in units of its alignment
_PAYLOAD_UNIT = 64


def measure_task(block: int) -> Work:
    """The task that measures threads on the indices in a block."""
    return Work(-1, 0, 0, Task.MEASURE, block // _PAYLOAD_UNIT)


def payload_bytes(num_rows: int, pickled: bytes | None) -> int:
    """Size of a batch's payload block: indices, then a word per row for the general path."""
    body = -(-len(pickled) // 8) * 8 if pickled is not None else 8 * num_rows
    return _PAYLOAD.size + body + 8 * num_rows


def write_payload(memory: memoryview, num_rows: int, indices: Any, pickled: bytes | None) -> None:
    """Write the indices of a batch; `indices` is an int64 array unless `pickled` holds them."""
    body = 8 * num_rows if pickled is None else len(pickled)
    _PAYLOAD.pack_into(memory, 0, 0 if pickled is None else 1, body)
    if pickled is None:
        np.frombuffer(memory, np.int64, num_rows, _PAYLOAD.size)[:] = indices
    else:
        memory[_PAYLOAD.size : _PAYLOAD.size + body] = pickled


@dataclass(frozen=True)
class WorkerPlan:
    """What a worker needs to know; travels to its process."""

    worker: int
    work: Fd
    results: Fd
    region_start: int
    region_bytes: int
    largest_block: int
    is_iterable: bool
    is_batched: bool  # False: batch_size=None
    drop_last: bool
    uses_slots: bool  # the default collation
    has_getitems: bool


class Worker:
    """The life of one worker, in its own process or its own thread of the loader's process."""

    def __init__(
        self,
        plan: WorkerPlan,
        arena: Arena,
        lock: BoardLock,
        dataset: Any,
        collate: Callable[[Any], Any],
        *,
        seeded: bool,
    ) -> None:
        self._plan = plan
        self._arena = arena
        self._board = Board(arena.bytes)
        self._words = self._board.words
        self._all_words = arena.bytes.cast("q")
        self._lock = lock
        self._region = Region(arena, plan.region_start, plan.region_bytes, largest=plan.largest_block)
        self._dataset = dataset
        self._collate = collate
        self._record_at = Board.record_at(plan.worker)
        self._histogram_at = Board.histogram_at(plan.worker)
        self._fetcher = Fetcher(
            dataset, has_getitems=plan.has_getitems, seeds=SampleSeeds() if seeded and not plan.is_iterable else None
        )
        # threads share the generators, so samples cannot be seeded one by one: only notice that somebody draws
        self._watch = SampleSeeds(trial_samples=0, is_shared=True) if not seeded and not plan.is_iterable else None
        self._iterator: Any = None
        self._is_ended = False
        self._writers: list[RowWriter] = []
        self._refused: list[Layout] = []
        self._payload: tuple[int, int, Any] = (-1, -1, None)
        self._cost_ns = 0.0
        self._fetch_ns = 0.0  # the part of it that is the data set's own
        self._init_error: BaseException | None = None
        self._first_faults = -1
        self._faults_due_ns = 0

    # ------------------------------------------------------------------------------------ the loop

    def run(self, prepare: Callable[[], None]) -> None:
        """Work until told to stop or until the training process is gone."""
        words, at = self._words, self._record_at
        words[at + Record.PID] = os.getpid()
        try:
            prepare()
            if self._plan.is_iterable:
                self._iterator = iter(self._dataset)
        except Exception as error:
            self._init_error = error
        try:
            while not words[Head.STOP]:
                words[at + Record.STATE] = IDLE
                message = os.read(self._plan.work.fileno(), WORK_BYTES)
                if len(message) < WORK_BYTES or words[Head.STOP]:
                    break
                work = unpack_work(message)
                if work.task == Task.RETIRE:
                    break
                self._serve(work)
        finally:
            words[at + Record.STATE] = ENDED

    def _serve(self, work: Work) -> None:
        words, at = self._words, self._record_at
        entry = Board.entry_at(work.seq)
        if work.task <= Task.NEXT and words[entry + Entry.RUN] != words[Head.RUN]:
            with self._lock:
                words[entry + Entry.FAILED] = 1  # whoever brings the last rows must not collate it
            self._answer(work, Answer.DROPPED)
            self._account(work, entry, work.rows)
            return
        words[at + Record.SEQ], words[at + Record.ROW], words[at + Record.ROWS] = work.seq, work.row, work.rows
        words[at + Record.STATE] = BUSY
        started = time.perf_counter_ns()
        # these two are system calls: the first chunks, and then now and then, tell enough
        chunks = words[at + Record.CHUNKS_DONE]
        cpu = time.thread_time_ns() if chunks < _FIRST_CHUNKS else 0
        try:
            if self._init_error is not None:
                raise self._init_error
            if work.task == Task.CHUNK:
                self._serve_chunk(work, entry)
            elif work.task == Task.WHOLE:
                self._serve_whole(work, entry)
            elif work.task == Task.NEXT:
                self._serve_next(work, entry)
            elif work.task == Task.RESTART:
                self._is_ended = False
                try:
                    self._iterator = iter(self._dataset)
                except Exception as error:  # there is no batch to fail yet: the first one that is asked for does
                    self._iterator = map(_throw, [error])
                self._answer(work, Answer.RESTARTED)
            else:
                self._serve_measure(work)
        except Exception as error:
            if work.task == Task.MEASURE:
                self._answer(work, Answer.MEASURED)
            else:
                self._fail(work, entry, work.row, error)
        words[at + Record.POSITION] = -1
        words[at + Record.CHUNKS_DONE] += 1
        elapsed = time.perf_counter_ns() - started
        words[at + Record.BUSY_NS] += elapsed
        if chunks < _FIRST_CHUNKS:
            words[at + Record.CPU_NS] += time.thread_time_ns() - cpu
            words[at + Record.CPU_OF_NS] += elapsed
        if words[Head.RECORD] and (chunks < _FIRST_CHUNKS or started > self._faults_due_ns):
            self._faults_due_ns = started + _FAULTS_EVERY_NS
            # counted from the first chunk on: what starting the process took is not the samples' price
            self._first_faults = minor_faults() if self._first_faults < 0 else self._first_faults
            words[at + Record.FAULTS] = minor_faults() - self._first_faults
            words[at + Record.TOP_BYTES] = self._region.top_bytes

    def _answer(self, work: Work, answer: Answer, *, block: int = 0, row: int = -1, rows: int = -1) -> None:
        row, rows = (work.row if row < 0 else row), (work.rows if rows < 0 else rows)
        os.write(self._plan.results.fileno(), Result(work.seq, block, row, rows, self._plan.worker, answer).pack())

    def _fail(self, work: Work, entry: int, row: int, error: BaseException, *, rows: int | None = None) -> None:
        """Report an exception of user code; the rest of its chunk is void."""
        caught = CaughtError.from_exception(error, self._plan.worker)
        try:
            if isinstance(error, StopIteration):  # raised again in the loop, it would end the epoch in silence
                raise TypeError
            pickle.loads(pickle.dumps(caught.kind))
        except Exception:
            caught = CaughtError(RuntimeError, caught.text, caught.worker)
        block, _ = dump(caught, self._region, self._arena)
        if work.task == Task.CHUNK:
            with self._lock:
                self._words[entry + Entry.FAILED] = 1
        rows = work.row + work.rows - row if rows is None else rows
        self._answer(work, Answer.FAILED, block=block, row=row, rows=rows)
        self._account(work, entry, rows)

    def _account(self, work: Work, entry: int, rows: int, *, quietly: bool = False) -> None:
        """Count rows of a batch as done; whoever counts the last one tells of all that were done quietly.

        Waking the training process costs a worker more than a small sample (20 to 50 µs on a virtual machine): one
        answer a batch is enough where there is nothing else to say.
        """
        words = self._words
        if work.task != Task.CHUNK:
            return
        with self._lock:
            words[entry + Entry.ROWS_DONE] += rows
            if quietly:
                words[entry + Entry.QUIET_ROWS] += rows
            is_last = words[entry + Entry.ROWS_DONE] == words[entry + Entry.NUM_ROWS]
            quiet = words[entry + Entry.QUIET_ROWS] if is_last and rows else 0
        if quiet:
            self._answer(work, Answer.ROWS, row=0, rows=quiet)

    # ------------------------------------------------------------------------------------ indices

    def _indices(self, work: Work, entry: int) -> Any:
        """The indices of a chunk's rows (or, without batching, the one index)."""
        payload, num_rows = self._words[entry + Entry.PAYLOAD], self._words[entry + Entry.NUM_ROWS]
        is_pickled, size = _PAYLOAD.unpack_from(self._arena.bytes, payload)
        at = payload + _PAYLOAD.size
        if not is_pickled:
            rows = np.frombuffer(self._arena.bytes, np.int64, num_rows, at)[work.row : work.row + work.rows]
            return rows.tolist()
        if self._payload[:2] != (work.seq, payload):
            self._payload = (work.seq, payload, pickle.loads(self._arena.view(at, size)))
        indices = self._payload[2]
        return indices[work.row : work.row + work.rows] if self._plan.is_batched else indices

    def _row_table(self, entry: int) -> int:
        """Where the words of a batch's rows begin, as an index into the arena's words."""
        payload = self._words[entry + Entry.PAYLOAD]
        size: int = _PAYLOAD.unpack_from(self._arena.bytes, payload)[1]
        return (payload + _PAYLOAD.size + -(-size // 8) * 8) >> 3

    # ------------------------------------------------------------------------------------ chunks

    def _serve_chunk(self, work: Work, entry: int) -> None:
        indices = self._indices(work, entry)
        base_seed = self._words[entry + Entry.BASE_SEED]
        position = self._words[entry + Entry.FIRST_POSITION] + work.row
        seeds = self._fetcher.seeds or self._watch
        if seeds is not None:
            seeds.begin_chunk()
        held = self._fetch_and_place(work, entry, indices, base_seed, position)
        has_drawn = seeds is not None and seeds.end_chunk()
        if has_drawn and seeds is self._fetcher.seeds:
            # it drew from a generator that had looked unused: once more, seeded
            held = self._fetch_and_place(work, entry, indices, base_seed, position)
        if has_drawn or (seeds is not None and seeds.is_drawing):
            self._words[Head.DRAWS] = 1
            self._watch = None
        self._hand_over(work, entry, held)

    def _fetch_and_place(
        self, work: Work, entry: int, indices: Sequence[Any], base_seed: int, position: int
    ) -> list[tuple[Answer, int, int, Any]]:
        """Run a chunk's samples. Returns what was done with them: (answer, row, rows, texts or samples)."""
        if not self._plan.uses_slots or self._words[entry + Entry.PLACE] == GENERAL:
            try:
                samples = self._timed_many(indices, base_seed, position)
            except CannotSplit:
                return [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
            return [(Answer.SHARED, work.row, work.rows, samples)]
        done: list[tuple[Answer, int, int, Any]] = []
        if self._plan.has_getitems or (len(indices) > 1 and 0 < self._fetch_ns < _TINY_SAMPLE_NS):
            try:
                self._begin_sample(position)
                started = time.perf_counter_ns()
                samples = self._fetcher.many(indices, base_seed, position)
            except CannotSplit:
                return [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
            fetched = time.perf_counter_ns()
            self._place(entry, samples, work.row, done)
            self._note(fetched - started, time.perf_counter_ns() - started, len(indices))
            return done
        row = work.row
        samples_left = self._fetcher.each(indices, base_seed, position)
        while row < work.row + work.rows:
            started = self._begin_sample(position + row - work.row)
            try:
                sample = next(samples_left)
            except Exception as error:
                done.append((Answer.FAILED, row, work.row + work.rows - row, error))
                return done
            fetched = time.perf_counter_ns()
            self._place(entry, [sample], row, done)
            del sample
            row += 1
            self._note(fetched - started, time.perf_counter_ns() - started, 1)
            if self._words[Head.STOP]:
                break
        return done

    def _begin_sample(self, position: int) -> int:
        """Show which sample is in hand, and since when."""
        words, at = self._words, self._record_at
        words[at + Record.POSITION] = position
        words[at + Record.SAMPLE_START_NS] = now = time.perf_counter_ns()
        return now

    def _timed_many(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        started = self._begin_sample(position)
        samples = self._fetcher.many(indices, base_seed, position)
        elapsed = time.perf_counter_ns() - started
        self._note(elapsed, elapsed, len(indices))
        return samples

    def _note(self, fetch_ns: int, elapsed_ns: int, count: int) -> None:
        """Record what samples cost: to fetch, and in all."""
        words, at = self._words, self._record_at
        each = max(1, elapsed_ns // count)
        is_first = not self._cost_ns
        self._cost_ns = each if is_first else 0.9 * self._cost_ns + 0.1 * each
        self._fetch_ns = fetch_ns / count if is_first else 0.9 * self._fetch_ns + 0.1 * fetch_ns / count
        words[at + Record.SAMPLES_DONE] += count
        words[at + Record.COST_NS] = int(self._cost_ns)
        fetch_each = max(1, fetch_ns // count)
        if fetch_each < words[at + Record.LEAST_FETCH_NS] or is_first:
            words[at + Record.LEAST_FETCH_NS] = fetch_each
        # a worker's first sample pays for imports and opened files: it says nothing of the spread
        if words[Head.RECORD] and not is_first:
            words[at + Record.WORST_NS] = max(words[at + Record.WORST_NS], each)
            words[self._histogram_at + min(HISTOGRAM_BUCKETS - 1, int(4 * math.log2(each)))] += count

    def _place(self, entry: int, samples: Sequence[Any], row: int, done: list[tuple[Answer, int, int, Any]]) -> None:
        """Write samples into their rows; those that do not fit are kept aside, each on its own."""
        place = self._words[entry + Entry.PLACE]
        if place == UNBOUND:
            place = self._bind(entry, samples[0])
        if place == GENERAL:
            _append(done, Answer.SHARED, row, list(samples))
            return
        layout, slot = split_place(place)
        writer = self._writer(layout)
        try:
            texts = writer.write(samples, (slot, self._words[entry + Entry.NUM_ROWS]), row)
            self._words[self._record_at + Record.BYTES] += writer.layout.row_bytes * len(samples)
            _append(done, Answer.ROWS, row, texts, count=len(samples))
        except Misfit:
            if len(samples) == 1:
                _append(done, Answer.SAMPLES, row, [samples[0]])
            else:
                for offset, sample in enumerate(samples):
                    self._place(entry, [sample], row + offset, done)

    def _hand_over(self, work: Work, entry: int, done: list[tuple[Answer, int, int, Any]]) -> None:
        for answer, row, rows, content in done:
            try:
                if answer is Answer.FAILED:
                    self._fail(work, entry, row, content)
                elif answer is Answer.SHARED:
                    self._share(work, entry, row, rows, content)
                elif answer is Answer.NEEDS_WHOLE:
                    self._ask_for_whole(work, entry, row, rows)
                elif answer is Answer.ROWS and not content and work.task == Task.CHUNK:
                    self._account(work, entry, rows, quietly=True)
                else:
                    block = dump(content, self._region, self._arena)[0] if content else 0
                    self._answer(work, answer, block=block, row=row, rows=rows)
                    self._account(work, entry, rows)
            except Exception as error:
                if isinstance(error, (NoRoom, BatchTooLarge)) or work.task != Task.CHUNK:
                    self._fail(work, entry, row, error)
                    return
                # a sample that cannot be pickled: the collation may make something of it that can
                self._ask_for_whole(work, entry, row, rows)

    def _ask_for_whole(self, work: Work, entry: int, row: int, rows: int) -> None:
        with self._lock:
            self._words[entry + Entry.FAILED] = 1  # whoever brings the last rows must not collate it
        self._answer(work, Answer.NEEDS_WHOLE, row=row, rows=rows)
        self._account(work, entry, rows)

    # ------------------------------------------------------------------------------------ layouts and slots

    def _writer(self, number: int) -> RowWriter:
        while len(self._writers) <= number:
            offset, _ = self._board.layout_block(len(self._writers))
            self._writers.append(RowWriter(peek(self._arena, offset), self._slot_memory))
        return self._writers[number]

    def _slot_memory(self, slot: int) -> memoryview:
        at = Board.slot_at(slot)
        return self._arena.view(self._words[at + Slot.OFFSET], self._words[at + Slot.SIZE])

    def _bind(self, entry: int, sample: Any) -> int:
        """Give a batch its slot, or decide that it takes the general path."""
        number = self._layout_number(entry, sample)
        need = self._writer(number).layout.places(self._words[entry + Entry.NUM_ROWS])[1] if number >= 0 else 0
        with self._lock:
            place = self._words[entry + Entry.PLACE]
            if place == UNBOUND:
                slot = self._board.bind_slot(need) if number >= 0 else GENERAL
                place = join_place(number, slot) if slot >= 0 else GENERAL
                self._words[entry + Entry.PLACE] = place
        return place

    def _layout_number(self, entry: int, sample: Any) -> int:
        """The number of the sample's layout; a new one is proposed to the training process. -1: none."""
        known = self._words[Head.NUM_LAYOUTS]
        for number in range(known - 1, -1, -1):
            if self._writer(number).fits(sample):
                return number
        layout = learn_layout(sample)
        if layout is None or layout in self._refused:
            return -1
        block, _ = dump(layout, self._region, self._arena)
        work = Work(self._words[entry + Entry.SEQ], 0, self._words[entry + Entry.NUM_ROWS], Task.CHUNK)
        self._answer(work, Answer.LAYOUT, block=block)
        deadline = time.perf_counter() + _LAYOUT_PATIENCE_S
        while time.perf_counter() < deadline and not self._words[Head.STOP]:
            for number in range(known, self._words[Head.NUM_LAYOUTS]):
                if self._writer(number).layout == layout:
                    return number
            if self._words[entry + Entry.PLACE] != UNBOUND:
                return -1
            time.sleep(0.0002)
        self._refused = [*self._refused[-7:], layout]
        return -1

    # ------------------------------------------------------------------------------------ the general path

    def _share(self, work: Work, entry: int, row: int, rows: int, samples: list[Any]) -> None:
        """Put samples into shared memory; whoever brings the last ones collates the batch."""
        words, num_rows = self._words, self._words[entry + Entry.NUM_ROWS]
        if rows == num_rows:
            self._answer(work, Answer.SHARED, row=row, rows=rows)
            self._collate_and_send(work, entry, samples)
            return
        block, size = dump(samples, self._region, self._arena)
        words[self._record_at + Record.BYTES] += size
        table = self._row_table(entry)
        with self._lock:
            self._all_words[table + row] = block
            words[entry + Entry.ROWS_DONE] += rows
            is_last = words[entry + Entry.ROWS_DONE] == num_rows and not words[entry + Entry.FAILED]
            if is_last:
                words[entry + Entry.COLLATOR] = self._plan.worker + 1
        self._answer(work, Answer.SHARED, block=block, row=row, rows=rows)
        if not is_last:
            return
        gathered: list[Any] = []
        blocks = []
        try:
            while len(gathered) < num_rows:
                at = self._all_words[table + len(gathered)]
                blocks.append(at)
                gathered += samples if at == block else peek(self._arena, at)
            self._collate_and_send(work, entry, gathered)
        except Exception as error:  # a sample that was pickled and does not come back
            self._fail(work, entry, 0, error, rows=0)
        finally:
            del gathered
            for at in blocks:
                free_block(self._all_words, at)

    def _collate_and_send(self, work: Work, entry: int, samples: Any) -> None:
        """Collate a batch whose rows are all accounted for already."""
        seeds = None if self._plan.uses_slots else self._fetcher.seeds
        try:
            if seeds is not None:
                words = self._words
                seeds.begin_collation(words[entry + Entry.BASE_SEED], words[entry + Entry.FIRST_POSITION])
            block, size = dump(self._collate(samples), self._region, self._arena)
            if seeds is not None:
                seeds.end_collation()
        except Exception as error:
            self._fail(work, entry, 0, error, rows=0)
            return
        self._words[self._record_at + Record.BYTES] += size
        self._answer(work, Answer.COLLATED, block=block, row=0, rows=0)

    def _serve_whole(self, work: Work, entry: int) -> None:
        indices = self._indices(work, entry)
        base_seed, position = self._words[entry + Entry.BASE_SEED], self._words[entry + Entry.FIRST_POSITION]
        seeds = self._fetcher.seeds
        started = self._begin_sample(position)
        if seeds is not None:
            seeds.begin_chunk()
        samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._plan.is_batched)
        if seeds is not None and seeds.end_chunk():
            samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._plan.is_batched)
        elapsed = time.perf_counter_ns() - started
        self._note(elapsed, elapsed, max(1, work.rows))
        self._send_whole(work, entry, samples)

    def _send_whole(self, work: Work, entry: int, samples: Any) -> None:
        num_rows = self._words[entry + Entry.NUM_ROWS]
        if self._plan.uses_slots and isinstance(samples, (list, tuple)) and len(samples) == num_rows:
            done: list[tuple[Answer, int, int, Any]] = []
            self._place(entry, samples, 0, done)
            if [d[0] for d in done] == [Answer.ROWS]:
                self._hand_over(work, entry, done)
                return
        self._answer(work, Answer.SHARED)
        self._collate_and_send(work, entry, samples)

    # ------------------------------------------------------------------------------------ iterable data sets

    def _serve_next(self, work: Work, entry: int) -> None:
        """The next samples of this worker's own iterator, as torch's fetcher takes them."""
        if self._is_ended:
            self._answer(work, Answer.END)
            return
        if not self._plan.is_batched:
            try:
                sample = next(self._iterator)
            except StopIteration:
                self._is_ended = True
                self._answer(work, Answer.END)
                return
            self._answer(work, Answer.SHARED)
            self._collate_and_send(work, entry, sample)
            return
        texts: list[Any] = []
        aside: list[Any] | None = None if self._plan.uses_slots else []
        row = 0
        while row < work.rows:
            started = self._begin_sample(self._words[entry + Entry.FIRST_POSITION] + row)
            try:
                sample = next(self._iterator)
            except StopIteration:
                self._is_ended = True
                break
            fetched = time.perf_counter_ns()
            if aside is None:
                done: list[tuple[Answer, int, int, Any]] = []
                self._place(entry, [sample], row, done)
                if done[0][0] is Answer.ROWS:
                    texts.append(done[0][3])
                else:
                    aside = self._rows_back(entry, row, texts)
            if aside is not None:
                aside.append(sample)
            del sample
            row += 1
            self._note(fetched - started, time.perf_counter_ns() - started, 1)
        if row == 0 or (self._plan.drop_last and row < work.rows):
            self._answer(work, Answer.END)
        elif aside is None:
            joined = [[t for column in leaf for t in column] for leaf in zip(*texts, strict=True)]
            block = dump(joined, self._region, self._arena)[0] if joined else 0
            self._answer(work, Answer.ROWS, block=block, row=0, rows=row)
        else:
            self._answer(work, Answer.SHARED, row=0, rows=row)
            self._collate_and_send(work, entry, aside)

    def _rows_back(self, entry: int, row: int, texts: list[Any]) -> list[Any]:
        """Take samples out of their rows again: a later one did not fit, so the batch takes the general path."""
        place = self._words[entry + Entry.PLACE]
        if row == 0 or place < 0:
            return []
        layout, slot = split_place(place)
        memory = self._slot_memory(slot)
        joined = [[t for column in leaf for t in column] for leaf in zip(*texts, strict=True)]
        num_rows = self._words[entry + Entry.NUM_ROWS]
        return read_samples(self._writer(layout).layout, memory, num_rows, range(row), joined)

    # ------------------------------------------------------------------------------------ measuring threads

    def _serve_measure(self, work: Work) -> None:
        """Time samples alone, then in two threads at once; the results are thrown away."""
        indices: list[Any] = load(self._arena, work.argument * _PAYLOAD_UNIT)
        half = max(1, len(indices) // 3)
        dataset = self._dataset

        def fetch(some: list[Any]) -> None:
            for index in some:
                dataset[index]

        fetch(indices[:1])
        started = time.perf_counter()
        fetch(indices[:half])
        alone = time.perf_counter() - started
        other = threading.Thread(target=fetch, args=(indices[half : 2 * half],), name="headrace-measure")
        started = time.perf_counter()
        other.start()
        fetch(indices[2 * half : 3 * half])
        other.join()
        together = time.perf_counter() - started
        block, _ = dump(2 * alone / max(together, 1e-9), self._region, self._arena)
        self._answer(work, Answer.MEASURED, block=block)


def _throw(error: Exception) -> None:
    raise error


def _append(
    done: list[tuple[Answer, int, int, Any]], answer: Answer, row: int, content: list[Any], *, count: int | None = None
) -> None:
    """Add rows to what was done, joined with the rows before where they are of the same kind."""
    rows = len(content) if count is None else count
    if done and done[-1][0] is answer and done[-1][1] + done[-1][2] == row:
        _, first, before, held = done[-1]
        if answer is Answer.ROWS:
            held = [a + b for a, b in zip(held, content, strict=True)]
        else:
            held = held + content
        done[-1] = (answer, first, before + rows, held)
    else:
        done.append((answer, row, rows, content))
