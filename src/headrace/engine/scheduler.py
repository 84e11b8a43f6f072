"""Which batch waits for which rows, and which comes out next. Pure: no processes, pipes or clocks.

Batches are issued in the sampler's order and split into chunks. Whatever comes back, in any order, is noted
here; a batch is settled when each of its rows is accounted for and, on the general path, collated.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .messages import Answer, Result, Task, Work


@dataclass
class Batch:
    """A batch between its issue and its delivery."""

    seq: int
    num_rows: int
    first_position: int
    rows_left: int
    worker: int = -1  # the one that owes it, for iterable data sets
    is_whole: bool = False  # one worker fetches it in one piece
    needs_whole: bool = False  # it was split, and must not be
    is_empty: bool = False  # an iterable data set had nothing more for it
    is_cancelled: bool = False
    shared_rows: int = 0  # rows that came down the general path
    count_rows: int = 0  # rows that came; fewer than asked for at the end of an iterable data set
    collated: int = 0  # block of the collated batch
    failure: tuple[int, int] | None = None  # (row, block) of the first failing row
    texts: list[tuple[int, int, int]] = field(default_factory=list)  # (row, rows, block) beside the slot
    samples: list[tuple[int, int, int]] = field(default_factory=list)  # likewise: samples that did not fit it
    shared: list[int] = field(default_factory=list)  # blocks of rows on the general path

    @property
    def is_general(self) -> bool:
        """Whether a worker collates it."""
        return self.num_rows == 0 or 0 < self.count_rows <= self.shared_rows

    @property
    def is_settled(self) -> bool:
        """Whether no worker will touch it again."""
        if self.rows_left:
            return False
        return not self.is_general or self.collated != 0 or self.failure is not None or self.is_empty

    def blocks_to_free(self) -> list[int]:
        """Blocks that only the training process can free; the collator frees the shared ones it gathered."""
        blocks = [block for _, _, block in self.texts + self.samples]
        if not self.is_general:
            blocks += self.shared
        return blocks


@dataclass
class Scheduler:
    """The batches in flight."""

    in_order: bool = True
    next_seq: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    order: deque[int] = field(default_factory=deque)  # sequence numbers not yet delivered, oldest first
    dropped: list[Batch] = field(default_factory=list)  # settled batches that nobody will take; the driver clears it
    to_free: list[int] = field(default_factory=list)  # blocks without a use any more; the driver clears it

    @property
    def in_flight(self) -> int:
        return len(self.order)

    @property
    def num_ready(self) -> int:
        return sum(self.batches[seq].is_settled for seq in self.order)

    def issue(self, num_rows: int, first_position: int, chunk: int) -> list[Work]:
        """Enter a batch; returns the chunks to send."""
        if num_rows == 0:  # a sampler may give an empty batch; collation decides what that means
            return [self.issue_whole(0, first_position)]
        batch = self._enter(num_rows, first_position)
        return [Work(batch.seq, row, min(chunk, num_rows - row), Task.CHUNK) for row in range(0, num_rows, chunk)]

    def issue_whole(self, num_rows: int, first_position: int, *, worker: int = -1) -> Work:
        """Enter a batch that one worker fetches in one piece; `worker` names it for iterable data sets."""
        batch = self._enter(num_rows, first_position)
        batch.worker, batch.is_whole = worker, True
        return Work(batch.seq, 0, num_rows, Task.WHOLE if worker < 0 else Task.NEXT)

    def _enter(self, num_rows: int, first_position: int) -> Batch:
        batch = Batch(self.next_seq, num_rows, first_position, num_rows, count_rows=num_rows)
        self.batches[batch.seq] = batch
        self.order.append(batch.seq)
        self.next_seq += 1
        return batch

    def note(self, result: Result) -> list[Work]:
        """Take a worker's answer into account; returns work to send because of it."""
        batch = self.batches.get(result.seq)
        if batch is None:
            return []
        answer = result.answer
        if answer == Answer.COLLATED:
            batch.collated = result.block
        elif answer == Answer.END:
            batch.is_empty, batch.rows_left, batch.count_rows = True, 0, 0
        elif batch.worker >= 0 and answer in (Answer.ROWS, Answer.SHARED):
            batch.rows_left, batch.count_rows = 0, result.rows
            self._note_rows(batch, result)
        else:
            batch.rows_left -= result.rows
            self._note_rows(batch, result)
        if batch.needs_whole and not batch.rows_left:
            return [] if batch.is_cancelled and self._drop(batch) else [self._whole_again(batch)]
        if batch.is_cancelled and batch.is_settled:
            self._drop(batch)
        return []

    def _note_rows(self, batch: Batch, result: Result) -> None:
        match result.answer:
            case Answer.FAILED:
                if batch.failure is None or result.row < batch.failure[0]:
                    self.to_free += [batch.failure[1]] if batch.failure else []
                    batch.failure = (result.row, result.block)
                else:
                    self.to_free.append(result.block)
            case Answer.SHARED:
                batch.shared_rows += result.rows
                batch.shared += [result.block] if result.block else []
            case Answer.SAMPLES:
                batch.samples.append((result.row, result.rows, result.block))
            case Answer.ROWS:
                if result.block:
                    batch.texts.append((result.row, result.rows, result.block))
            case Answer.NEEDS_WHOLE:
                batch.needs_whole = True
            case Answer.DROPPED:
                batch.is_cancelled = True
                batch.is_empty = batch.num_rows == 0  # nothing is left that could settle an empty batch

    def _whole_again(self, batch: Batch) -> Work:
        """All chunks of a batch that must not be split are back: fetch it in one piece."""
        self.to_free += batch.blocks_to_free()
        if batch.failure:
            self.to_free.append(batch.failure[1])
        batch.texts, batch.samples, batch.shared, batch.shared_rows, batch.failure = [], [], [], 0, None
        batch.needs_whole, batch.is_whole, batch.rows_left = False, True, batch.num_rows
        return Work(batch.seq, 0, batch.num_rows, Task.WHOLE)

    def ready(self) -> Batch | None:
        """The batch that may be delivered now."""
        for seq in self.order:
            batch = self.batches[seq]
            if batch.is_settled:
                return batch
            if self.in_order:
                return None
        return None

    def take(self, batch: Batch) -> None:
        """Remove a batch because it is being delivered (or, empty, skipped)."""
        self.order.remove(batch.seq)
        del self.batches[batch.seq]

    def cancel_all(self) -> None:
        """Give up every batch in flight; those that workers still hold go to `dropped` once they are settled."""
        for seq in self.order:
            batch = self.batches[seq]
            batch.is_cancelled = True
            if batch.is_settled:
                self._drop(batch)
        self.order.clear()

    def _drop(self, batch: Batch) -> bool:
        del self.batches[batch.seq]
        self.to_free += batch.blocks_to_free()
        self.to_free += [batch.failure[1]] if batch.failure else []
        self.to_free += [batch.collated] if batch.collated else []
        self.dropped.append(batch)
        return True
