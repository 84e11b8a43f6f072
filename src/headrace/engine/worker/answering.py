"""What a worker says of its rows: counted on the board, told in an answer."""

from __future__ import annotations

import os
from array import array

from ..memory import (
    QUIET,
    TOLD,
    Answer,
    Arena,
    Board,
    BoardLock,
    CaughtError,
    Entry,
    Head,
    Region,
    Result,
    Task,
    Work,
    dump,
    free_block,
    split_tries,
)
from .fetch import Fetcher
from .plan import WorkerPlan

_MOST_MARKS = 4096


class Teller:
    """Counts what was done, and answers for it. One per worker."""

    def __init__(self, plan: WorkerPlan, arena: Arena, lock: BoardLock, region: Region, fetcher: Fetcher) -> None:
        self._worker, self._results = plan.worker, plan.results
        self._arena, self._lock, self._region, self._fetcher = arena, lock, region, fetcher
        self._words = Board(arena.bytes).words
        self._all_words = arena.bytes.cast("q")
        self._marks = {mark: memoryview(array("q", [mark]) * _MOST_MARKS) for mark in (QUIET, TOLD)}

    def answer(self, work: Work, answer: Answer, *, block: int = 0, row: int = -1, rows: int = -1) -> None:
        row, rows = (work.row if row < 0 else row), (work.rows if rows < 0 else rows)
        os.write(self._results.fileno(), Result(work.seq, block, row, rows, self._worker, answer).pack())

    def propose(self, seq: int, num_rows: int, block: int) -> None:
        self.answer(Work(seq, 0, num_rows, Task.CHUNK), Answer.LAYOUT, block=block)

    def fail(
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
        caught = CaughtError.from_exception(error, self._worker, is_sample=is_sample, tries=tries)
        block, _ = dump(caught, self._region, self._arena)
        rows = work.row + work.rows - row if rows is None else rows
        self.tell(work, entry, Answer.FAILED, row, rows, block=block, is_void=True)

    def tell(
        self, work: Work, entry: int, answer: Answer, row: int, rows: int, *, block: int = 0, is_void: bool = False
    ) -> None:
        """Count rows as done and answer for them. `is_void`: there is no sample, so nobody may collate the batch."""
        if self.account(work, entry, row, rows, is_void=is_void):
            self.answer(work, answer, block=block, row=row, rows=rows)
        elif block:
            free_block(self._all_words, block)

    def account(
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
                    self.mark(at, rows, QUIET if quietly else TOLD)
                done = words[entry + Entry.ROWS_DONE] + rows
                words[entry + Entry.ROWS_DONE] = done
                if quietly:
                    words[entry + Entry.QUIET_ROWS] += rows
                if done == words[entry + Entry.NUM_ROWS]:
                    words[entry + Entry.LAST] = self._worker + 1
                    quiet = words[entry + Entry.QUIET_ROWS]
        if quiet:
            self.answer(work, Answer.ROWS, row=0, rows=quiet)
        return True

    def mark(self, at: int, rows: int, mark: int) -> None:
        for first in range(at, at + rows, _MOST_MARKS):
            count = min(_MOST_MARKS, at + rows - first)
            self._all_words[first : first + count] = self._marks[mark][:count]
