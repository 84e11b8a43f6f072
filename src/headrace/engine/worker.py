"""One worker: takes chunks, fetches their samples, and puts each where the training process will find it."""

from __future__ import annotations

import os
import pickle
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..errors import BatchTooLarge
from .arena import Arena, Fd
from .blocks import NoRoom, Region, free_block
from .board import ENDED, GENERAL, IDLE, QUIET, TOLD, Board, BoardLock, Entry, Head
from .fetch import CannotSplit, Fetcher
from .measuring import second_thread_gain
from .messages import WORK_BYTES, Answer, CaughtError, Result, Task, Work, split_tries, unpack_work
from .parcels import dump, load, peek
from .payload import PayloadReader
from .placing import Placed, Placer, append_placed
from .recording import WorkerRecord
from .rows import SMALL_ROW_BYTES
from .seeding import SampleSeeds

_MOST_MARKS = 4096

# below this, looking at the clock for each sample would show in the rate
_TINY_SAMPLE_NS = 20_000


# tasks that belong to a batch, and so to an epoch
_OF_A_BATCH = (Task.CHUNK, Task.WHOLE, Task.NEXT, Task.COLLATE)

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
    urgent: Fd | None
    results: Fd
    region_start: int
    region_bytes: int
    largest_block: int
    is_iterable: bool
    is_batched: bool  # False: batch_size=None
    drop_last: bool
    uses_slots: bool  # the default collation
    has_getitems: bool
    goes_on: bool  # a failing sample is reported alone, and the others of its chunk go on


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
            dataset,
            has_getitems=plan.has_getitems,
            seeds=SampleSeeds() if seeded and not plan.is_iterable else None,
            is_patient=plan.goes_on,
        )
        # threads share the generators, so samples cannot be seeded one by one: only notice that somebody draws
        self._watch = SampleSeeds(trial_samples=0, is_shared=True) if not seeded and not plan.is_iterable else None
        self._iterator: Any = None
        self._is_ended = False
        self._placer = Placer(arena, lock, self._region, self._record, self._propose)
        self._init_error: BaseException | None = None
        self._held = b""  # a message for later
        self._marks = {mark: memoryview(array("q", [mark]) * _MOST_MARKS) for mark in (QUIET, TOLD)}

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
        while not words[Head.STOP]:
            record.set_state(IDLE)
            message = self._next_message()
            if len(message) < WORK_BYTES or words[Head.STOP]:
                break
            work = unpack_work(message)
            if work.task == Task.RETIRE:
                break
            if work.task != Task.LOOK:
                self._serve(work)
            if record.is_asked_to_go:
                break
        record.set_state(ENDED)  # not where a sample leaves the process: what it had in hand must stay readable

    def _next_message(self) -> bytes:
        words = self._words
        while True:
            if words[Head.URGENT] and self._plan.urgent is not None:
                try:
                    if message := os.read(self._plan.urgent.fileno(), WORK_BYTES):
                        return message
                except BlockingIOError:
                    pass
            if words[Head.HOLD] and not words[Head.STOP]:
                time.sleep(0.002)  # a sample under suspicion is tried alone: rare, and over soon
            elif self._held:
                message, self._held = self._held, b""
                return message
            else:
                message = os.read(self._plan.work.fileno(), WORK_BYTES)
                if not words[Head.HOLD] or unpack_work(message).task != Task.CHUNK:
                    return message
                self._held = message

    def _serve(self, work: Work) -> None:
        words = self._words
        entry = Board.entry_at(work.seq)
        started = self._record.begin_task(work)
        if work.task in _OF_A_BATCH:
            if words[entry + Entry.RUN] != words[Head.RUN]:
                self._tell(work, entry, Answer.DROPPED, work.row, work.rows, is_void=True)
                return
            if words[Head.LOSSES] and self._is_stale(work, entry):
                return
        try:
            if self._init_error is not None:
                raise self._init_error
            if work.task == Task.CHUNK:
                self._serve_chunk(work, entry)
            elif work.task == Task.WHOLE:
                self._serve_whole(work, entry)
            elif work.task == Task.NEXT:
                self._serve_next(work, entry)
            elif work.task == Task.COLLATE:
                self._collate_shared(work, entry)
            elif work.task == Task.SKIP:
                self._pass_over(work.rows)
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

    def _is_stale(self, work: Work, entry: int) -> bool:
        """Whether a chunk was given up for lost while it was on its way to us: another worker has it now, or had."""
        if work.task not in (Task.CHUNK, Task.WHOLE) or not work.rows:
            return False
        if self._words[entry + Entry.SEQ] != work.seq:
            return True
        return bool(self._all_words[self._words[entry + Entry.ROW_WORDS] + work.row] != -split_tries(work.argument)[0])

    def _answer(self, work: Work, answer: Answer, *, block: int = 0, row: int = -1, rows: int = -1) -> None:
        row, rows = (work.row if row < 0 else row), (work.rows if rows < 0 else rows)
        os.write(self._plan.results.fileno(), Result(work.seq, block, row, rows, self._plan.worker, answer).pack())

    def _propose(self, seq: int, num_rows: int, block: int) -> None:
        self._answer(Work(seq, 0, num_rows, Task.CHUNK), Answer.LAYOUT, block=block)

    def _fail(
        self,
        work: Work,
        entry: int,
        row: int,
        error: BaseException,
        *,
        rows: int | None = None,
        is_sample: bool = True,
    ) -> None:
        """Report an exception of user code; the rest of its chunk is void."""
        tries = self._fetcher.last_tries
        is_sample = is_sample and error is not self._init_error
        caught = CaughtError.from_exception(error, self._plan.worker, is_sample=is_sample, tries=tries)
        try:
            if isinstance(error, StopIteration):  # raised again in the loop, it would end the epoch in silence
                raise TypeError
            pickle.loads(pickle.dumps(caught.kind))
        except Exception:
            caught = replace(caught, kind=RuntimeError)
        block, _ = dump(caught, self._region, self._arena)
        rows = work.row + work.rows - row if rows is None else rows
        self._tell(work, entry, Answer.FAILED, row, rows, block=block, is_void=True)

    def _tell(
        self, work: Work, entry: int, answer: Answer, row: int, rows: int, *, block: int = 0, is_void: bool = False
    ) -> None:
        """Count rows as done and answer for them. `is_void`: there is no sample, so nobody may collate the batch."""
        if self._account(work, entry, row, rows, is_void=is_void):
            self._answer(work, answer, block=block, row=row, rows=rows)
        elif block:
            free_block(self._all_words, block)

    def _account(
        self, work: Work, entry: int, row: int, rows: int, *, quietly: bool = False, is_void: bool = False
    ) -> bool:
        """Count rows of a batch as done; whoever counts the last one tells of all that were done quietly.

        Waking the training process costs a worker more than a small sample (20 to 50 µs on a virtual machine): one
        answer a batch is enough where there is nothing else to say. False: the rows were given to another worker
        meanwhile, and what this one did counts for nothing.
        """
        words = self._words
        if work.task != Task.CHUNK:
            return True
        at = words[entry + Entry.ROW_WORDS] + row
        quiet = 0
        with self._lock:
            if is_void:
                words[entry + Entry.FAILED] = 1
            if rows:
                if words[Head.LOSSES] and self._all_words[at] != -split_tries(work.argument)[0]:
                    return False
                if rows == 1:
                    self._all_words[at] = QUIET if quietly else TOLD
                else:
                    self._mark(at, rows, QUIET if quietly else TOLD)
                done = words[entry + Entry.ROWS_DONE] + rows
                words[entry + Entry.ROWS_DONE] = done
                if quietly:
                    words[entry + Entry.QUIET_ROWS] += rows
                if done == words[entry + Entry.NUM_ROWS]:
                    words[entry + Entry.LAST] = self._plan.worker + 1
                    quiet = words[entry + Entry.QUIET_ROWS]
        if quiet:
            self._answer(work, Answer.ROWS, row=0, rows=quiet)
        return True

    def _mark(self, at: int, rows: int, mark: int) -> None:
        for first in range(at, at + rows, _MOST_MARKS):
            count = min(_MOST_MARKS, at + rows - first)
            self._all_words[first : first + count] = self._marks[mark][:count]

    # ------------------------------------------------------------------------------------ chunks

    def _serve_one(self, work: Work, entry: int) -> bool:
        """The short way for a single sample of a batch that has its slot. False: it takes the long way.

        A worker that waits between samples finds its caches cold, so the length of this way is what a slow disk with
        small samples sees of us.
        """
        words, seeds = self._words, self._fetcher.seeds
        place = words[entry + Entry.PLACE]
        if place < 0 or seeds is None or seeds.per_sample or not self._fetcher.is_splittable or self._plan.goes_on:
            return False
        index = self._payloads.one_index(work.row, entry)
        if index is None:
            return False
        started = self._record.begin_sample(self._position(work, entry))
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
            self._account(work, entry, work.row, 1, quietly=True)
        else:
            done: list[Placed] = []
            self._placer.place(entry, [sample], work.row, done)
            self._hand_over(work, entry, done)
        return True

    def _position(self, work: Work, entry: int) -> int:
        """Where in the epoch's order a chunk's first sample stands; samples that were left out lie in between."""
        return self._words[entry + Entry.FIRST_POSITION] + work.row + split_tries(work.argument)[1]

    def _serve_chunk(self, work: Work, entry: int) -> None:
        if work.rows == 1 and self._serve_one(work, entry):
            return
        indices = self._payloads.indices(work, entry)
        base_seed = self._words[entry + Entry.BASE_SEED]
        position = self._position(work, entry)
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
        done: list[Placed] = []
        takes_slot = self._plan.uses_slots and self._words[entry + Entry.PLACE] != GENERAL
        is_tiny = len(indices) > 1 and 0 < self._record.fetch_ns < _TINY_SAMPLE_NS
        if self._plan.has_getitems or is_tiny or not (takes_slot or self._plan.goes_on):
            started = self._record.begin_sample(position, len(indices))
            try:
                samples = self._fetcher.many(indices, base_seed, position)
            except CannotSplit:
                return [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
            except Exception:
                if not self._plan.goes_on:
                    raise
            else:
                fetched = time.perf_counter_ns()
                if takes_slot:
                    self._placer.place(entry, samples, work.row, done)
                else:
                    done.append((Answer.SHARED, work.row, work.rows, samples))
                self._record.note(fetched - started, time.perf_counter_ns() - started, len(indices))
                return done
        if not takes_slot or (work.rows > 1 and self._placer.row_bytes(entry) < SMALL_ROW_BYTES):
            self._fetch_together(work, entry, indices, base_seed, position, done, takes_slot=takes_slot)
        else:
            self._fetch_each(work, entry, indices, base_seed, position, done)
        return done

    def _fetch_each(
        self, work: Work, entry: int, indices: Sequence[Any], base_seed: int, position: int, done: list[Placed]
    ) -> None:
        """Run samples one by one and place each at once."""
        for offset, index in enumerate(indices):
            row = work.row + offset
            started = self._record.begin_sample(position + offset)
            try:
                sample = self._fetcher.one(index, base_seed, position + offset)
            except CannotSplit:
                done[:] = [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
                return
            except Exception as error:
                done.append((Answer.FAILED, row, 1 if self._plan.goes_on else work.rows - offset, error))
                if self._plan.goes_on:
                    continue
                return
            fetched = time.perf_counter_ns()
            self._placer.place(entry, [sample], row, done)
            del sample
            self._record.note(fetched - started, time.perf_counter_ns() - started, 1)
            if self._words[Head.STOP]:
                return

    def _fetch_together(
        self,
        work: Work,
        entry: int,
        indices: Sequence[Any],
        base_seed: int,
        position: int,
        done: list[Placed],
        *,
        takes_slot: bool,
    ) -> None:
        """Run samples one by one, and place them at the end: between two lies next to nothing.

        A worker whose samples wait for a disk finds its caches cold after each, and a line of code costs several times
        its usual price.
        """
        begin_sample, one = self._record.begin_sample, self._fetcher.one
        gathered: list[Any] = []
        failed: list[Placed] = []
        starts: list[int] = []

        def place() -> None:
            if gathered and takes_slot:
                self._placer.place(entry, gathered, work.row + offset - len(gathered), done)
            elif gathered:
                append_placed(done, Answer.SHARED, work.row + offset - len(gathered), list(gathered))

        offset = 0
        for offset, index in enumerate(indices):
            starts.append(begin_sample(position + offset))
            try:
                gathered.append(one(index, base_seed, position + offset))
            except Exception as error:
                place()
                gathered.clear()
                failed.append(
                    (Answer.FAILED, work.row + offset, 1 if self._plan.goes_on else work.rows - offset, error)
                )
                if not self._plan.goes_on:
                    break
            if self._words[Head.STOP]:
                return
        else:
            offset = len(indices)
        starts.append(time.perf_counter_ns())
        place()
        placing_ns = (time.perf_counter_ns() - starts[-1]) // work.rows
        for begun, ended in pairwise(starts):
            self._record.note(ended - begun, ended - begun + placing_ns, 1)
        done += failed

    def _hand_over(self, work: Work, entry: int, done: list[Placed]) -> None:
        for answer, row, rows, content in done:
            try:
                if answer is Answer.FAILED:
                    self._fail(work, entry, row, content, rows=rows)
                elif answer is Answer.SHARED:
                    self._share(work, entry, row, rows, content)
                elif answer is Answer.NEEDS_WHOLE:
                    self._ask_for_whole(work, entry, row, rows)
                elif answer is Answer.ROWS and not content and work.task == Task.CHUNK:
                    self._account(work, entry, row, rows, quietly=True)
                else:
                    block = dump(content, self._region, self._arena)[0] if content else 0
                    self._tell(work, entry, answer, row, rows, block=block)
            except Exception as error:
                if isinstance(error, (NoRoom, BatchTooLarge)) or work.task != Task.CHUNK:
                    self._fail(work, entry, row, error)
                    return
                # a sample that cannot be pickled: the collation may make something of it that can
                self._ask_for_whole(work, entry, row, rows)

    def _ask_for_whole(self, work: Work, entry: int, row: int, rows: int) -> None:
        self._tell(work, entry, Answer.NEEDS_WHOLE, row, rows, is_void=True)

    # ------------------------------------------------------------------------------------ the general path

    def _share(self, work: Work, entry: int, row: int, rows: int, samples: list[Any]) -> None:
        """Put samples into shared memory; whoever brings the last ones collates the batch."""
        words, num_rows = self._words, self._words[entry + Entry.NUM_ROWS]
        if rows == num_rows:
            self._collate_and_send(work, entry, samples, rows=rows)
            return
        block, size = dump(samples, self._region, self._arena)
        self._record.add_bytes(size)
        at = words[entry + Entry.ROW_WORDS] + row
        with self._lock:
            if words[Head.LOSSES] and self._all_words[at] != -split_tries(work.argument)[0]:
                free_block(self._all_words, block)  # another worker has them meanwhile
                return
            if rows > 1:
                self._mark(at, rows, TOLD)
            self._all_words[at] = block
            words[entry + Entry.ROWS_DONE] += rows
            is_last = words[entry + Entry.ROWS_DONE] == num_rows and not words[entry + Entry.FAILED]
            if is_last:
                words[entry + Entry.LAST] = self._plan.worker + 1
        self._answer(work, Answer.SHARED, block=block, row=row, rows=rows)
        if is_last:
            self._collate_shared(work, entry)

    def _collate_shared(self, work: Work, entry: int) -> None:
        """Gather a batch whose rows are all in shared memory, and collate it. The blocks are the main process's."""
        table, num_rows = self._words[entry + Entry.ROW_WORDS], self._words[entry + Entry.NUM_ROWS]
        gathered: list[Any] = []
        try:
            while len(gathered) < num_rows:
                block = self._all_words[table + len(gathered)]
                if block <= TOLD:
                    return  # a sample that failed: what becomes of it is not decided yet
                gathered += peek(self._arena, block)
        except Exception as error:  # a sample that was pickled and does not come back
            self._fail(work, entry, 0, error, rows=0, is_sample=False)
            return
        self._collate_and_send(work, entry, gathered)

    def _collate_and_send(self, work: Work, entry: int, samples: Any, *, rows: int = 0) -> None:
        """Collate a batch and tell of it; `rows` are those that nobody has told of yet."""
        seeds = None if self._plan.uses_slots else self._fetcher.seeds
        try:
            if seeds is not None:
                words = self._words
                seeds.begin_collation(words[entry + Entry.BASE_SEED], words[entry + Entry.FIRST_POSITION])
            block, size = dump(self._collate(samples), self._region, self._arena)
            if seeds is not None:
                seeds.end_collation()
        except Exception as error:
            self._fail(work, entry, 0, error, rows=rows, is_sample=False)
            return
        self._record.add_bytes(size)
        self._answer(work, Answer.COLLATED, block=block, row=0, rows=rows)

    def _serve_whole(self, work: Work, entry: int) -> None:
        indices = self._payloads.indices(work, entry)
        base_seed, position = self._words[entry + Entry.BASE_SEED], self._words[entry + Entry.FIRST_POSITION]
        seeds = self._fetcher.seeds
        started = self._record.begin_sample(position, max(1, work.rows))
        if seeds is not None:
            seeds.begin_chunk()
        try:
            if split_tries(work.argument)[0] and self._plan.is_batched:
                self._fetch_alone(indices, base_seed, position)
                started = self._record.begin_sample(position, max(1, work.rows))
            samples = self._fetcher.whole_patiently(indices, base_seed, position, is_batch=self._plan.is_batched)
        except Exception as error:
            self._fail_whole(work, entry, indices, error)
            return
        if seeds is not None and seeds.end_chunk():
            samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._plan.is_batched)
        elapsed = time.perf_counter_ns() - started
        self._record.note(elapsed, elapsed, max(1, work.rows))
        self._send_whole(work, entry, samples)

    def _fetch_alone(self, indices: Any, base_seed: int, position: int) -> None:
        """Fetch each sample of a batch on its own, for one of them took a worker with it: the record tells which."""
        for row, index in enumerate(indices):
            self._record.begin_sample(position + row)
            self._fetcher.whole([index], base_seed, position + row, is_batch=True)

    def _fail_whole(self, work: Work, entry: int, indices: Any, error: Exception) -> None:
        """A batch in one piece failed: find the sample that does, where it matters which one that is."""
        row = 0
        if self._plan.goes_on and self._plan.is_batched:
            base_seed, position = self._words[entry + Entry.BASE_SEED], self._words[entry + Entry.FIRST_POSITION]
            for row, index in enumerate(indices):
                self._record.begin_sample(position + row)
                try:
                    self._fetcher.whole([index], base_seed, position + row, is_batch=True)
                except Exception as alone:
                    error = alone
                    break
            else:
                self._fail(work, entry, 0, error, rows=work.rows, is_sample=False)  # only together do they fail
                return
        self._fail(work, entry, row, error, rows=work.rows)

    def _send_whole(self, work: Work, entry: int, samples: Any) -> None:
        num_rows = self._words[entry + Entry.NUM_ROWS]
        if self._plan.uses_slots and isinstance(samples, (list, tuple)) and len(samples) == num_rows:
            done: list[Placed] = []
            self._placer.place(entry, samples, 0, done)
            if [d[0] for d in done] == [Answer.ROWS]:
                self._hand_over(work, entry, done)
                return
        self._collate_and_send(work, entry, samples, rows=work.rows)

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
            except Exception as error:
                if not self._plan.goes_on:
                    raise
                self._tell_aside(work, error)
                continue
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

    def _pass_over(self, count: int) -> None:
        """Bring the iterator to where that of a dead worker stood; what fails here had failed there too."""
        for _ in range(count):
            try:
                next(self._iterator)
            except StopIteration:
                return
            except Exception as error:
                if not self._plan.goes_on:
                    # going on from here would repeat samples: the batch that is asked for next fails with this
                    self._iterator = map(_throw, [error])
                    return

    def _tell_aside(self, work: Work, error: Exception) -> None:
        """Tell of a sample of an iterable data set that failed; the iterator is asked for the next one."""
        caught = CaughtError.from_exception(error, self._plan.worker)
        block, _ = dump(caught.as_plain(), self._region, self._arena)
        self._answer(work, Answer.PASSED_OVER, block=block, row=0, rows=0)

    def _serve_measure(self, work: Work) -> None:
        gain = second_thread_gain(self._dataset, load(self._arena, work.argument * _PAYLOAD_UNIT))
        block = dump(gain, self._region, self._arena)[0] if gain is not None else 0
        self._answer(work, Answer.MEASURED, block=block)


def _throw(error: Exception) -> None:
    raise error
