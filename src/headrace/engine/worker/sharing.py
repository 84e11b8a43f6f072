"""Samples that do not lie in their rows leave a worker: as blocks, which whoever brings the last one collates."""

import functools
import mmap
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.signals.system import trim_heap

from ..memory import TOLD, Answer, Arena, Entry, Head, Work, block_bytes, free_block, peek, read_block
from .workbench import Workbench, kept_heap_bytes


class Sharing:
    """Shares samples of the general path, and collates them."""

    def __init__(self, bench: Workbench) -> None:
        self._plan, self._arena, self._worker, self._ledger = bench.pool, bench.arena, bench.plan.worker, bench.ledger
        self._words, self._all_words = bench.words, bench.all_words
        self._record, self._teller, self._fetcher = bench.record, bench.teller, bench.fetcher
        self._collate, self._entering, self._events = bench.collate, bench.entering, bench.events

    def share(self, work: Work, entry: int, row: int, rows: int, samples: list[Any]) -> None:
        """Put samples into shared memory; whoever brings the last ones collates the batch."""
        if rows == self._words[entry + Entry.NUM_ROWS]:
            self.collate_and_send(work, entry, samples, rows=rows)
            return
        started = time.perf_counter_ns()
        block, size = self._entering.dump(samples, entry, rows=rows)
        if self._events is not None:
            self._events.handed_over(started)
        self._record.add_bytes(size)
        is_last = self._ledger.count_shared(entry, row, rows, block, tries=work.tries, worker=self._worker)
        if is_last is None:
            free_block(self._all_words, block)
            return
        self._teller.answer(work, Answer.SHARED, block=block, row=row, rows=rows)
        if is_last:
            self.collate_shared(work, entry)

    def collate_shared(self, work: Work, entry: int) -> None:
        """Gather a batch whose rows are all in shared memory, and collate it. The blocks are the main process's."""
        borrowed = Borrowed(self._arena)
        # torch's own collation writes into no sample and keeps none
        read = functools.partial(peek, self._arena) if self._plan.uses_slots else borrowed.read
        try:
            held = [self._gather(entry, read)]
        except Exception as error:  # a sample that was pickled and does not come back
            self._teller.fail(work, entry, 0, error, rows=0, is_sample=False)
            return
        if held[0]:
            block = self._collate_to_block(work, entry, held, rows=0)
            borrowed.settle()
            if block:
                self._teller.answer(work, Answer.COLLATED, block=block, row=0, rows=0)

    def _gather(self, entry: int, read: Callable[[int], Any]) -> list[Any]:
        """All samples of a batch; none where one failed, and what becomes of it is not decided yet."""
        table, num_rows = self._words[entry + Entry.ROW_WORDS], self._words[entry + Entry.NUM_ROWS]
        gathered: list[Any] = []
        while len(gathered) < num_rows:
            block = self._all_words[table + len(gathered)]
            if block <= TOLD:
                return []
            gathered += read(block)
        return gathered

    def collate_and_send(self, work: Work, entry: int, samples: Any, *, rows: int = 0) -> None:
        """Collate a batch and tell of it; `rows` are those that nobody has told of yet."""
        if block := self._collate_to_block(work, entry, [samples], rows=rows):
            self._teller.answer(work, Answer.COLLATED, block=block, row=0, rows=rows)

    def _collate_to_block(self, work: Work, entry: int, held: list[Any], *, rows: int) -> int:
        """Collate what is held, and let go of it; returns the batch's block, 0 where it failed, which is told."""
        seeds, words = None if self._plan.uses_slots else self._fetcher.seeds, self._words
        num_rows = words[entry + Entry.NUM_ROWS]
        if num_rows > 1 and not self._plan.is_iterable:
            self._record.begin_collation()
        try:
            if seeds is not None:
                seeds.begin_collation(words[entry + Entry.BASE_SEED], words[entry + Entry.FIRST_POSITION])
            started = time.perf_counter_ns()
            batch = self._collate(held.pop())
            collated = time.perf_counter_ns()
            if self._events is not None:
                self._events.collated(started)
            block, size = self._entering.dump(batch, entry, rows=num_rows)
            if self._events is not None:
                self._events.handed_over(collated)
            self._ledger.close(entry)
            if seeds is not None:
                seeds.end_collation()
        except Exception as error:
            self._teller.fail(work, entry, 0, error, rows=rows, is_sample=False)
            return 0
        self._record.add_bytes(size)
        if size >= kept_heap_bytes(self._plan.budget_bytes, self._words[Head.NUM_RECORDS]):
            trim_heap()  # or each worker that has ever collated a batch would keep the memory of one
        return block


# from here on a second mapping costs no more time than a copy (measured: 0.4 ms beside 0.3 ms for 4 MiB)
_MAPPED_BYTES = 4 << 20


class Borrowed:
    """Blocks lent to one collation; `settle` when it is over, before their memory is used again."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._mappings: list[mmap.mmap] = []

    def read(self, block: int) -> Any:
        """The object of a block, over memory that nobody else sees changed."""
        size = block_bytes(self._arena, block)
        if size >= _MAPPED_BYTES:
            try:
                mapping, start = self._arena.map_apart(block, size)
            except OSError:
                pass
            else:
                self._mappings.append(mapping)
                return read_block(memoryview(mapping)[start : start + size])
        return read_block(memoryview(bytearray(self._arena.view(block, size))))

    def settle(self) -> None:
        """End the mappings. Where the collation kept something, its pages become copies: the block is about to go."""
        for mapping in self._mappings:
            try:
                mapping.close()
            except BufferError:
                first_bytes = np.frombuffer(mapping, np.uint8)[:: mmap.PAGESIZE]
                first_bytes |= 0  # a write, and so a page of its own
        self._mappings.clear()
