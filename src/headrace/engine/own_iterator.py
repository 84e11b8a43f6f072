"""A worker's own iterator over an iterable data set: the next samples, and where it stands."""

from __future__ import annotations

import time
from typing import Any

from .board import Entry
from .messages import Answer, CaughtError, Work
from .parcels import dump
from .placing import Placed
from .sharing import Sharing
from .workbench import Workbench


class OwnIterator:
    """Serves batches of an iterable data set, as torch's fetcher does."""

    def __init__(self, bench: Workbench, sharing: Sharing) -> None:
        self._plan, self._words, self._dataset = bench.plan, bench.words, bench.dataset
        self._arena, self._region, self._record = bench.arena, bench.region, bench.record
        self._placer, self._teller, self._sharing = bench.placer, bench.teller, sharing
        self._iterator: Any = None
        self._is_ended = False

    def begin(self) -> None:
        """Ask the data set for its iterator."""
        self._iterator = iter(self._dataset)

    def restart(self, work: Work) -> None:
        """Begin the next epoch."""
        self._is_ended = False
        try:
            self._iterator = iter(self._dataset)
        except Exception as error:  # there is no batch to fail yet: the first one that is asked for does
            self._iterator = map(_throw, [error])
        self._teller.answer(work, Answer.RESTARTED)

    def serve(self, work: Work, entry: int) -> None:
        """The next samples of this worker's own iterator, as torch's fetcher takes them."""
        if self._is_ended:
            self._teller.answer(work, Answer.END)
            return
        if not self._plan.is_batched:
            try:
                sample = next(self._iterator)
            except StopIteration:
                self._is_ended = True
                self._teller.answer(work, Answer.END)
                return
            self._teller.answer(work, Answer.SHARED)
            self._sharing.collate_and_send(work, entry, sample)
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
            self._teller.answer(work, Answer.END)
        elif aside is None:
            joined = [[t for column in leaf for t in column] for leaf in zip(*texts, strict=True)]
            block = dump(joined, self._region, self._arena)[0] if joined else 0
            self._teller.answer(work, Answer.ROWS, block=block, row=0, rows=row)
        else:
            self._teller.answer(work, Answer.SHARED, row=0, rows=row)
            self._sharing.collate_and_send(work, entry, aside)

    def pass_over(self, count: int) -> None:
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
        block, _ = dump(caught, self._region, self._arena)
        self._teller.answer(work, Answer.PASSED_OVER, block=block, row=0, rows=0)


def _throw(error: Exception) -> None:
    raise error
