"""One worker: takes chunks, fetches their samples, and puts each where the training process will find it."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..errors import BatchTooLarge
from .arena import Arena, Fd
from .blocks import NoRoom, Region, free_block
from .board import ENDED, GENERAL, IDLE, Board, BoardLock, Entry, Head
from .fetch import CannotSplit, Fetcher
from .measuring import second_thread_gain
from .messages import WORK_BYTES, Answer, CaughtError, Result, Task, Work, unpack_work
from .parcels import dump, load, peek
from .payload import PayloadReader
from .placing import Placed, Placer
from .recording import WorkerRecord
from .rows import SMALL_ROW_BYTES
from .seeding import SampleSeeds

# below this, looking at the clock for each sample would show in the rate
_TINY_SAMPLE_NS = 20_000


# a block's offset in a 32-bit field of a message, in units of its alignment
_PAYLOAD_UNIT = 64


def measure_task(block: int) -> Work:
    """The task that measures threads on the indices in a block."""
    return Work(-1, 0, 0, Task.MEASURE, block // _PAYLOAD_UNIT)


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
        self._record = WorkerRecord(self._words, plan.worker)
        self._payloads = PayloadReader(arena, self._words, is_batched=plan.is_batched)
        self._fetcher = Fetcher(
            dataset, has_getitems=plan.has_getitems, seeds=SampleSeeds() if seeded and not plan.is_iterable else None
        )
        # threads share the generators, so samples cannot be seeded one by one: only notice that somebody draws
        self._watch = SampleSeeds(trial_samples=0, is_shared=True) if not seeded and not plan.is_iterable else None
        self._iterator: Any = None
        self._is_ended = False
        self._placer = Placer(arena, lock, self._region, self._record, self._propose)
        self._init_error: BaseException | None = None

    # ------------------------------------------------------------------------------------ the loop

    def run(self, prepare: Callable[[], None]) -> None:
        """Work until told to stop or until the training process is gone."""
        words, record = self._words, self._record
        record.open()
        try:
            prepare()
            if self._plan.is_iterable:
                self._iterator = iter(self._dataset)
        except Exception as error:
            self._init_error = error
        try:
            while not words[Head.STOP]:
                record.set_state(IDLE)
                message = os.read(self._plan.work.fileno(), WORK_BYTES)
                if len(message) < WORK_BYTES or words[Head.STOP]:
                    break
                work = unpack_work(message)
                if work.task == Task.RETIRE:
                    break
                self._serve(work)
        finally:
            record.set_state(ENDED)

    def _serve(self, work: Work) -> None:
        words = self._words
        entry = Board.entry_at(work.seq)
        if work.task <= Task.NEXT and words[entry + Entry.RUN] != words[Head.RUN]:
            with self._lock:
                words[entry + Entry.FAILED] = 1  # whoever brings the last rows must not collate it
            self._answer(work, Answer.DROPPED)
            self._account(work, entry, work.rows)
            return
        started = self._record.begin_task(work)
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
        self._record.end_task(started, top_bytes=self._region.top_bytes)

    def _answer(self, work: Work, answer: Answer, *, block: int = 0, row: int = -1, rows: int = -1) -> None:
        row, rows = (work.row if row < 0 else row), (work.rows if rows < 0 else rows)
        os.write(self._plan.results.fileno(), Result(work.seq, block, row, rows, self._plan.worker, answer).pack())

    def _propose(self, seq: int, num_rows: int, block: int) -> None:
        self._answer(Work(seq, 0, num_rows, Task.CHUNK), Answer.LAYOUT, block=block)

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

    # ------------------------------------------------------------------------------------ chunks

    def _serve_one(self, work: Work, entry: int) -> bool:
        """The short way for a single sample of a batch that has its slot. False: it takes the long way.

        A worker that waits between samples finds its caches cold, so the length of this way is what a slow disk with
        small samples sees of us.
        """
        words, seeds = self._words, self._fetcher.seeds
        place = words[entry + Entry.PLACE]
        if place < 0 or seeds is None or seeds.per_sample or not self._fetcher.is_splittable:
            return False
        index = self._payloads.one_index(work.row, entry)
        if index is None:
            return False
        started = self._record.begin_sample(words[entry + Entry.FIRST_POSITION] + work.row)
        try:
            sample = self._dataset[index]
        except Exception as error:
            self._fail(work, entry, work.row, error)
            return True
        fetched = time.perf_counter_ns()
        if seeds.end_chunk():  # it drew after all: once more, seeded
            return False
        if self._placer.put(place, words[entry + Entry.NUM_ROWS], sample, work.row):
            self._record.note(fetched - started, time.perf_counter_ns() - started, 1)
            self._account(work, entry, 1, quietly=True)
        else:
            done: list[Placed] = []
            self._placer.place(entry, [sample], work.row, done)
            self._hand_over(work, entry, done)
        return True

    def _serve_chunk(self, work: Work, entry: int) -> None:
        if work.rows == 1 and self._serve_one(work, entry):
            return
        indices = self._payloads.indices(work, entry)
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
    ) -> list[Placed]:
        """Run a chunk's samples. Returns what was done with them: (answer, row, rows, texts or samples)."""
        if not self._plan.uses_slots or self._words[entry + Entry.PLACE] == GENERAL:
            try:
                samples = self._timed_many(indices, base_seed, position)
            except CannotSplit:
                return [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
            return [(Answer.SHARED, work.row, work.rows, samples)]
        done: list[Placed] = []
        if self._plan.has_getitems or (len(indices) > 1 and 0 < self._record.fetch_ns < _TINY_SAMPLE_NS):
            try:
                self._record.begin_sample(position)
                started = time.perf_counter_ns()
                samples = self._fetcher.many(indices, base_seed, position)
            except CannotSplit:
                return [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
            fetched = time.perf_counter_ns()
            self._placer.place(entry, samples, work.row, done)
            self._record.note(fetched - started, time.perf_counter_ns() - started, len(indices))
            return done
        self._fetch_each(work, entry, self._fetcher.each(indices, base_seed, position), position, done)
        return done

    def _fetch_each(self, work: Work, entry: int, samples: Iterator[Any], position: int, done: list[Placed]) -> None:
        """Run samples one by one: large ones are placed at once, small ones together at the end."""
        if work.rows > 1 and self._placer.row_bytes(entry) < SMALL_ROW_BYTES:
            self._fetch_small(work, entry, samples, position, done)
            return
        for row in range(work.row, work.row + work.rows):
            started = self._record.begin_sample(position + row - work.row)
            try:
                sample = next(samples)
            except Exception as error:
                done.append((Answer.FAILED, row, work.row + work.rows - row, error))
                return
            fetched = time.perf_counter_ns()
            self._placer.place(entry, [sample], row, done)
            del sample
            self._record.note(fetched - started, time.perf_counter_ns() - started, 1)
            if self._words[Head.STOP]:
                return

    def _fetch_small(self, work: Work, entry: int, samples: Iterator[Any], position: int, done: list[Placed]) -> None:
        """Run samples that are small: between two of them lies next to nothing, all else waits for the last.

        A worker whose samples wait for a disk finds its caches cold after each, and a line of code costs several times
        its usual price.
        """
        begin_sample = self._record.begin_sample
        gathered: list[Any] = []
        starts: list[int] = []
        failed: Placed | None = None
        try:
            for place in range(position, position + work.rows):
                starts.append(begin_sample(place))
                gathered.append(next(samples))
        except Exception as error:
            row = work.row + len(gathered)
            failed = (Answer.FAILED, row, work.row + work.rows - row, error)
        starts.append(time.perf_counter_ns())
        if gathered:
            self._placer.place(entry, gathered, work.row, done)
        placing_ns = (time.perf_counter_ns() - starts[-1]) // work.rows
        for begun, ended in pairwise(starts[: len(gathered) + 1]):
            self._record.note(ended - begun, ended - begun + placing_ns, 1)
        if failed is not None:
            done.append(failed)

    def _timed_many(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        started = self._record.begin_sample(position)
        samples = self._fetcher.many(indices, base_seed, position)
        elapsed = time.perf_counter_ns() - started
        self._record.note(elapsed, elapsed, len(indices))
        return samples

    def _hand_over(self, work: Work, entry: int, done: list[Placed]) -> None:
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

    # ------------------------------------------------------------------------------------ the general path

    def _share(self, work: Work, entry: int, row: int, rows: int, samples: list[Any]) -> None:
        """Put samples into shared memory; whoever brings the last ones collates the batch."""
        words, num_rows = self._words, self._words[entry + Entry.NUM_ROWS]
        if rows == num_rows:
            self._answer(work, Answer.SHARED, row=row, rows=rows)
            self._collate_and_send(work, entry, samples)
            return
        block, size = dump(samples, self._region, self._arena)
        self._record.add_bytes(size)
        table = self._payloads.row_table(entry)
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
        self._record.add_bytes(size)
        self._answer(work, Answer.COLLATED, block=block, row=0, rows=0)

    def _serve_whole(self, work: Work, entry: int) -> None:
        indices = self._payloads.indices(work, entry)
        base_seed, position = self._words[entry + Entry.BASE_SEED], self._words[entry + Entry.FIRST_POSITION]
        seeds = self._fetcher.seeds
        started = self._record.begin_sample(position)
        if seeds is not None:
            seeds.begin_chunk()
        samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._plan.is_batched)
        if seeds is not None and seeds.end_chunk():
            samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._plan.is_batched)
        elapsed = time.perf_counter_ns() - started
        self._record.note(elapsed, elapsed, max(1, work.rows))
        self._send_whole(work, entry, samples)

    def _send_whole(self, work: Work, entry: int, samples: Any) -> None:
        num_rows = self._words[entry + Entry.NUM_ROWS]
        if self._plan.uses_slots and isinstance(samples, (list, tuple)) and len(samples) == num_rows:
            done: list[Placed] = []
            self._placer.place(entry, samples, 0, done)
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
            started = self._record.begin_sample(self._words[entry + Entry.FIRST_POSITION] + row)
            try:
                sample = next(self._iterator)
            except StopIteration:
                self._is_ended = True
                break
            fetched = time.perf_counter_ns()
            if aside is None:
                done: list[Placed] = []
                self._placer.place(entry, [sample], row, done)
                if done[0][0] is Answer.ROWS:
                    texts.append(done[0][3])
                else:
                    aside = self._placer.rows_back(entry, row, texts)
            if aside is not None:
                aside.append(sample)
            del sample
            row += 1
            self._record.note(fetched - started, time.perf_counter_ns() - started, 1)
        if row == 0 or (self._plan.drop_last and row < work.rows):
            self._answer(work, Answer.END)
        elif aside is None:
            joined = [[t for column in leaf for t in column] for leaf in zip(*texts, strict=True)]
            block = dump(joined, self._region, self._arena)[0] if joined else 0
            self._answer(work, Answer.ROWS, block=block, row=0, rows=row)
        else:
            self._answer(work, Answer.SHARED, row=0, rows=row)
            self._collate_and_send(work, entry, aside)

    def _serve_measure(self, work: Work) -> None:
        gain = second_thread_gain(self._dataset, load(self._arena, work.argument * _PAYLOAD_UNIT))
        self._answer(work, Answer.MEASURED, block=dump(gain, self._region, self._arena)[0])


def _throw(error: Exception) -> None:
    raise error
