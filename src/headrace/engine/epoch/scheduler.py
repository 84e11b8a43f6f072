"""Which batch waits for which rows, and which comes out next. Pure: no processes, pipes or clocks.

Batches are issued in the sampler's order and split into chunks. Whatever comes back, in any order, is noted
here; a batch is settled when each of its rows is accounted for and, on the general path, collated. What a lost
worker owed is given out again (`issue_again`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..memory import Answer, Result, Task, Work, join_tries


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
    chunks: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # first row: rows, tries before, shift
    told: int = 0  # a bit for each row that has an answer of its own
    carried: int = 0  # a bit for each row that was done before the batch was issued
    owed: tuple[int, int] | None = None  # (worker, quiet rows) that it has yet to tell of, from before a new try
    is_quiet_told: bool = False  # the rows without an answer of their own are told of

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
        """Blocks that are of no use once it has left."""
        return [block for _, _, block in self.texts + self.samples] + self.shared

    def position_of(self, row: int) -> int:
        """Where in the epoch's order a row's sample stands."""
        shift = self.chunks[max(first for first in self.chunks if first <= row)][2] if not self.is_whole else 0
        return self.first_position + row + shift

    def row_of(self, position: int) -> int | None:
        """The row of the sample at a place of the epoch's order; None where it has none here."""
        return next((row for row in range(self.num_rows) if self.position_of(row) == position), None)

    def is_told(self, row: int) -> bool:
        return bool(self.told >> row & 1)

    def is_carried(self, row: int) -> bool:
        return bool(self.carried >> row & 1)


@dataclass
class Scheduler:
    """The batches in flight."""

    in_order: bool = True
    next_seq: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    order: deque[int] = field(default_factory=deque)  # sequence numbers not yet delivered, oldest first
    dropped: list[Batch] = field(default_factory=list)  # settled batches that nobody will take; the driver clears it
    to_free: list[int] = field(default_factory=list)  # blocks without a use any more; the driver clears it
    keeps_samples: bool = False  # of collated batches, until they leave: a second worker may still collate them

    @property
    def in_flight(self) -> int:
        return len(self.order)

    @property
    def num_ready(self) -> int:
        in_flight = [self.batches.get(seq) for seq in [*self.order]]  # another thread may ask for the figures
        return sum(batch is not None and batch.is_settled for batch in in_flight)

    def issue(
        self, num_rows: int, position: int, chunk: int, gaps: Sequence[tuple[int, int]] = (), done: Sequence[int] = ()
    ) -> list[Work]:
        """Enter a batch; returns the chunks to send: none of the rows that are `done`.

        `gaps` are (row, shift): from that row on, samples stand `shift` places further in the epoch's order than their
        rows say, because some before them were left out. No chunk crosses one.
        """
        if num_rows == 0:  # a sampler may give an empty batch; collation decides what that means
            return [self.issue_whole(0, position)]
        batch = self._enter(num_rows, position)
        if not gaps and not done:
            batch.chunks = {row: (min(chunk, num_rows - row), 0, 0) for row in range(0, num_rows, chunk)}
            return [Work(batch.seq, row, rows, Task.CHUNK) for row, (rows, _, _) in batch.chunks.items()]
        for row in done:
            batch.carried |= 1 << row
        batch.told, batch.rows_left = batch.carried, num_rows - len(done)
        borders = (
            {row for row in range(1, num_rows) if batch.is_carried(row) != batch.is_carried(row - 1)} if done else ()
        )
        for (begin, shift), (end, _) in pairwise([(0, 0), *gaps, (num_rows, 0)]):
            inside = sorted(row for row in borders if begin < row < end)
            for first, last in pairwise([begin, *inside, end]):
                for row in range(first, last, chunk):
                    batch.chunks[row] = (min(chunk, last - row), 0, shift)
        return [self._work(batch, row) for row in batch.chunks if not batch.is_carried(row)]

    def _work(self, batch: Batch, row: int) -> Work:
        rows, tries, shift = batch.chunks[row]
        return Work(batch.seq, row, rows, Task.WHOLE if batch.is_whole else Task.CHUNK, join_tries(tries, shift))

    def issue_again(self, batch: Batch, row: int, rows: int, *, shift: int | None = None) -> Work:
        """Give rows of a chunk out once more: they were lost with their worker, or are for other samples (`shift`)."""
        chunk = max(first for first in batch.chunks if first <= row)
        held, tries, before = batch.chunks[chunk]
        if chunk < row:  # what lies before is done, or goes out on its own
            batch.chunks[chunk] = (row - chunk, tries, before)
        if row + rows < chunk + held:
            batch.chunks[row + rows] = (chunk + held - row - rows, tries, before)
        batch.chunks[row] = (rows, tries + 1, before if shift is None else shift)
        return self._work(batch, row)

    def owe_quiet_rows(self, batch: Batch, owed: tuple[int, int] | None) -> None:
        """A batch is open once more. Its quiet rows count as told of; `owed`: those that a worker will tell of."""
        batch.owed, batch.is_quiet_told = owed or batch.owed, False

    def put(self, batch: Batch, row: int, block: int, *, is_general: bool) -> None:
        """A row that failed has a sample after all, in a block."""
        batch.rows_left -= 1
        batch.told |= 1 << row
        if is_general:
            batch.shared.append(block)
            batch.shared_rows += 1
        else:
            batch.samples.append((row, 1, block))

    def begin_again(self, batch: Batch) -> Work:
        """A batch of an iterable data set whose worker is gone: another one fills it from its first sample on."""
        self.to_free += batch.blocks_to_free()
        batch.rows_left, batch.count_rows, batch.shared_rows = batch.num_rows, batch.num_rows, 0
        batch.texts, batch.samples, batch.shared, batch.told = [], [], [], 0
        return Work(batch.seq, 0, batch.num_rows, Task.NEXT)

    def collate_again(self, batch: Batch) -> Work:
        return Work(batch.seq, 0, 0, Task.COLLATE)

    def issue_whole(self, num_rows: int, first_position: int, *, worker: int = -1) -> Work:
        """Enter a batch that one worker fetches in one piece; `worker` names it for iterable data sets."""
        batch = self._enter(num_rows, first_position)
        batch.worker, batch.is_whole = worker, True
        batch.chunks[0] = (num_rows, 0, 0)
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
            if batch.collated:  # a second worker collated what the first had been given up for
                self.to_free.append(result.block)
                return []
            batch.collated = result.block
            if not self.keeps_samples:  # or they would lie in the budget beside what they were collated to
                self.to_free += batch.shared
                batch.shared = []
            batch.rows_left -= result.rows
            batch.shared_rows += result.rows
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
        if result.block or result.answer != Answer.ROWS:
            batch.told |= ((1 << result.rows) - 1) << result.row
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
                elif batch.owed is not None:
                    batch.owed = None
                else:
                    batch.is_quiet_told = True
            case Answer.NEEDS_WHOLE:
                batch.needs_whole = True
            case Answer.DROPPED:
                batch.is_cancelled = True
                # nothing is left that could settle an empty batch, or one that was only to be collated
                batch.is_empty = batch.num_rows == 0 or not result.rows

    def _whole_again(self, batch: Batch) -> Work:
        """All chunks of a batch that must not be split are back: fetch it in one piece."""
        self.to_free += batch.blocks_to_free() + ([batch.failure[1]] if batch.failure else [])
        batch.texts, batch.samples, batch.shared, batch.shared_rows, batch.failure = [], [], [], 0, None
        batch.needs_whole, batch.is_whole, batch.rows_left = False, True, batch.num_rows
        batch.told, batch.carried, batch.is_quiet_told, batch.chunks = 0, 0, False, {0: (batch.num_rows, 0, 0)}
        return self._work(batch, 0)

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

    def cancel_from(self, first: int) -> list[int]:
        """Give up the batches from one on; returns which. Those that workers still hold are `dropped` once settled."""
        cancelled = [seq for seq in self.order if seq >= first]
        for seq in cancelled:
            batch = self.batches[seq]
            batch.is_cancelled = True
            if batch.is_settled:
                self._drop(batch)
        self.order = deque(seq for seq in self.order if seq < first)
        return cancelled

    def _drop(self, batch: Batch) -> bool:
        del self.batches[batch.seq]
        self.to_free += batch.blocks_to_free() + ([batch.failure[1]] if batch.failure else [])
        self.to_free += [batch.collated] if batch.collated else []
        self.dropped.append(batch)
        return True
