"""Which samples each batch of an epoch is to hold, and how far the epoch has come."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.errors import InternalError
from headrace.model import Count, EpochAccount
from headrace.order import EpochOrder, PlannedBatch

from ..memory import Head
from ..pool import Pool
from .scheduler import Batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeedSettings:
    """What a loader asks of its feed."""

    whole_batches: bool  # never split a batch: no batching, or `__getitems__` that is to see all of it
    in_order: bool
    timeout_s: float
    batches_ahead: int | None  # given by the user; None: follow what is measured
    collate: Callable[[Any], Any]
    rank: int = 0


@dataclass
class Progress:
    """How far we are: the one answer, for the account, the statistics and whoever resumes. `EpochPlan` writes it."""

    epoch: int = -1
    position: int = 0  # in the epoch's order: where the next batch begins that goes out
    given_out: int = 0  # samples that the sampler gave, or that came out of an iterable data set
    delivered: int = 0  # samples that the loop got in this epoch, those that fill its end included
    filled: int = 0  # of them, those that came for a second time
    passed_over: int = 0  # samples of an iterable data set that failed and are left out
    total_batches: int = 0  # that the loop got in all epochs
    total_samples: int = 0


def with_rows(batch: Any) -> Any:
    """What a sampler gave as a batch, with rows to point at: torch only goes through it.

    >>> with_rows([3, 1]), with_rows(iter([2])), with_rows({5: "five"})
    ([3, 1], [2], [5])
    """
    if type(batch) is list:
        return batch
    has_rows = hasattr(batch, "__len__") and hasattr(batch, "__getitem__") and not isinstance(batch, Mapping)
    return batch if has_rows else list(batch)


class TakenBatch(NamedTuple):
    """A batch that is to go out."""

    indices: Any
    num_rows: int
    position: int
    planned: PlannedBatch | None  # where samples may be left out


class EpochPlan:
    """The batches of one epoch after another, until all of its samples are accounted for."""

    def __init__(self, pool: Pool, is_out: Callable[[Any], bool] | None) -> None:
        self._plan, self._words = pool.plan, pool.board.words
        self._is_out = is_out  # None: no sample may be left out, and batches are what the sampler gives
        self._indices: Iterator[Any] = iter(())
        self._order: EpochOrder | None = None
        # Every batch that was taken is in one of these until the loop has it, whatever interrupts us: just taken, in
        # flight, left (delivered, though the loop may not have it yet), and to go out once more.
        self._taken: TakenBatch | None = None
        self._in_flight: dict[int, TakenBatch] = {}
        self._left: deque[TakenBatch] = deque()
        self._again: deque[TakenBatch] = deque()
        self.is_torn = False  # the sampler, or the order of the epoch, was left in the middle of its work
        self.progress = Progress()
        self.is_exhausted = True
        self.replay: list[Any] | None = None  # keeps what the sampler gave, while that may be needed again

    def begin(self, indices: Iterator[Any]) -> None:
        """Begin an epoch; the batches of the one before have been given up."""
        done = self.progress
        self.progress = Progress(done.epoch + 1, total_batches=done.total_batches, total_samples=done.total_samples)
        self._words[Head.RUN] = self.run
        self._indices = indices if self.replay is None else map(self._remember, indices)
        self.is_exhausted = self.is_torn = False
        self._taken, self._in_flight, self._left, self._again = None, {}, deque(), deque()
        if self._is_out is not None and not self._plan.is_iterable:
            batches = self._indices if self._plan.is_batched else ([index] for index in self._indices)
            self._order = EpochOrder(batches, self._is_out)

    def move_to(self, pool: Pool) -> None:
        """Go on through another pool: the one before was left in the middle of its work."""
        self._words = pool.board.words
        self._words[Head.RUN] = self.run

    def go_on(self) -> None:
        """Give out once more all that the loop has not got."""
        taken = [self._taken] if self._taken is not None else []
        in_flight = [self._in_flight[seq] for seq in sorted(self._in_flight)]
        again, left = deque([*self._left, *in_flight, *taken, *self._again]), deque[TakenBatch]()
        # no call between these: an interruption must find a batch in one place
        self._again, self._taken, self._in_flight, self._left, self.is_exhausted = again, None, {}, left, False

    def note_failed(self, seq: int) -> None:
        """The batch that was being delivered brought an error of its own: the loop has had it."""
        if seq in self._in_flight:
            self._left += (self._in_flight[seq],)
            del self._in_flight[seq]
        self._left.rotate(1)  # before those that are on their way to the device
        self.note_received()

    @property
    def run(self) -> int:
        """What the epoch is called on the board, where 0 means none."""
        return self.progress.epoch + 1

    def _remember(self, indices: Any) -> Any:
        """Pass on what the sampler gives, and keep it while it may be needed again."""
        indices = with_rows(indices) if self._plan.is_batched else indices
        if self.replay is not None:
            self.replay.append(indices)
        return indices

    def take(self) -> TakenBatch | None:
        """The next batch; None at the end."""
        if self._again:
            self._taken = self._again[0]
            del self._again[0]
            return self._taken
        self.is_torn = True
        try:
            planned = next(self._order) if self._order is not None else None
            indices = next(self._indices) if planned is None else planned.keys
        except StopIteration:
            self.is_exhausted, self.is_torn = True, False
            return None
        num_rows, progress = 1, self.progress
        if self._plan.is_batched:
            indices = with_rows(indices)
            num_rows = len(indices)
        elif planned is not None:
            (indices,) = indices
        position = planned.first_position if planned is not None else progress.position
        progress.position = position + num_rows
        if not self._plan.is_iterable:  # there it says only how many are asked for
            progress.given_out += num_rows
        self._taken, self.is_torn = TakenBatch(indices, num_rows, position, planned), False
        return self._taken

    def note_issued(self, seq: int) -> None:
        """The batch that was taken is in flight under this number."""
        assert self._taken is not None
        self._in_flight[seq], self._taken = self._taken, None

    def planned(self, seq: int) -> PlannedBatch | None:
        """What lies in the rows of a batch, or will; None where samples are not left out."""
        taken = self._in_flight.get(seq)
        return None if taken is None else taken.planned

    def give_back(self, seqs: list[int]) -> None:
        """Plan batches anew that were given up, the last ones that went out: without what is left out by now."""
        assert self._order is not None
        self.is_torn = True
        taken = [self._in_flight.pop(seq) for seq in seqs if seq in self._in_flight] + [*self._again]
        self._order.give_back([batch.planned for batch in taken if batch.planned is not None])
        self._again.clear()
        self.is_exhausted = self.is_torn = False

    # ------------------------------------------------------------------------------------ the account

    def note_brought(self, num_samples: int) -> None:
        """Count what came out of an iterable data set: samples of a batch, or one that failed."""
        self.progress.given_out += num_samples

    def note_passed_over(self) -> None:
        """Count a sample of an iterable data set that failed and is left out."""
        self.progress.passed_over += 1

    def note_left(self, batch: Batch) -> None:
        """A batch is delivered; an empty one of an iterable data set is not."""
        left, seq = self._in_flight[batch.seq], batch.seq
        num_rows = batch.count_rows if self._plan.is_batched else 1
        if num_rows != left.num_rows:
            left = left._replace(num_rows=num_rows)
        if not batch.is_empty:
            self._left += (left,)  # no call: an interruption must find it in one place
        del self._in_flight[seq]

    def note_received(self) -> None:
        """The loop has the oldest batch that left, or its error. Without a call, which could be interrupted."""
        taken, progress = self._left[0], self.progress
        planned, num_samples = taken.planned, taken.num_rows
        if planned is not None:
            progress.filled += planned.num_filled
        progress.delivered += num_samples
        progress.total_batches += 1
        progress.total_samples += num_samples
        del self._left[0]

    def note_local(self, num_samples: int) -> None:
        """Count a batch that was fetched in the training process."""
        self.progress.total_batches += 1
        self.progress.total_samples += num_samples

    @property
    def account(self) -> EpochAccount:
        order, progress = self._order, self.progress
        return EpochAccount(
            given_out=order.given_out if order is not None else progress.given_out,
            delivered=progress.delivered - progress.filled,
            quarantined=order.left_out if order is not None else progress.passed_over,
            filled=progress.filled,
        )

    def close_account(self) -> None:
        """At the end of an epoch: whatever was given out was delivered, or is named in the quarantine."""
        account = self.account
        if account.in_flight:
            raise InternalError(
                "an epoch ended, and not all of its samples were accounted for",
                given_out=account.given_out,
                delivered=account.delivered,
                quarantined=account.quarantined,
            )
        if account.quarantined:
            given = f"{Count(account.given_out):sample(s)} given out"
            filled = f"{Count(account.filled):place(s) at the end (was|were)} filled"
            _log.warning(
                "epoch %d: %s = %d delivered + %d quarantined; %s with the epoch's first samples",
                *(self.progress.epoch, given, account.delivered, account.quarantined, filled),
            )
