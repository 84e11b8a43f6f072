"""Which samples each batch of an epoch is to hold, and how far the epoch has come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.errors import InternalError
from headrace.model import EpochAccount
from headrace.order import EpochOrder, PlannedBatch

from ..memory import Head
from ..pool import Pool
from .scheduler import Batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeedSettings:
    """What a loader asks of its feed."""

    is_iterable: bool
    is_batched: bool
    uses_slots: bool
    whole_batches: bool  # never split a batch: no batching, or a custom collation over `__getitems__`
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


class TakenBatch(NamedTuple):
    """A batch that is to go out."""

    indices: Any
    num_rows: int
    position: int
    planned: PlannedBatch | None  # where samples may be left out


class EpochPlan:
    """The batches of one epoch after another, until all of its samples are accounted for."""

    def __init__(self, pool: Pool, settings: FeedSettings, is_out: Callable[[Any], bool] | None) -> None:
        self._settings, self._words = settings, pool.board.words
        self._is_out = is_out  # None: no sample may be left out, and batches are what the sampler gives
        self._indices: Iterator[Any] = iter(())
        self._order: EpochOrder | None = None
        self._planned: dict[int, PlannedBatch] = {}  # what each batch in flight holds
        self.progress = Progress()
        self.is_exhausted = True
        self.replay: list[Any] | None = None  # keeps what the sampler gave, while that may be needed again

    def begin(self, indices: Iterator[Any]) -> None:
        """Begin an epoch; the batches of the one before have been given up."""
        done = self.progress
        self.progress = Progress(done.epoch + 1, total_batches=done.total_batches, total_samples=done.total_samples)
        self._words[Head.RUN] = self.run
        self._indices, self.is_exhausted = self._remembered(indices), False
        self._planned.clear()
        if self._is_out is not None and not self._settings.is_iterable:
            batches = self._indices if self._settings.is_batched else ([index] for index in self._indices)
            self._order = EpochOrder(batches, self._is_out)

    @property
    def run(self) -> int:
        """What the epoch is called on the board, where 0 means none."""
        return self.progress.epoch + 1

    def _remembered(self, indices: Iterator[Any]) -> Iterator[Any]:
        """Pass on what the sampler gives, and keep it while it may be needed again."""
        for some in indices:
            if self.replay is not None:
                self.replay.append(some)
            yield some

    def take(self) -> TakenBatch | None:
        """The next batch; None at the end."""
        try:
            planned = next(self._order) if self._order is not None else None
            indices = next(self._indices) if planned is None else planned.keys
        except StopIteration:
            self.is_exhausted = True
            return None
        num_rows, progress = 1, self.progress
        if self._settings.is_batched:
            num_rows = len(indices)
            if isinstance(indices, (Set, Mapping)):
                indices = list(indices)  # it has an order, but no rows to point at
        elif planned is not None:
            (indices,) = indices
        position = planned.first_position if planned is not None else progress.position
        progress.position = position + num_rows
        if not self._settings.is_iterable:  # there it says only how many are asked for
            progress.given_out += num_rows
        return TakenBatch(indices, num_rows, position, planned)

    def note_issued(self, seq: int, planned: PlannedBatch) -> None:
        """A batch is in flight under this number."""
        self._planned[seq] = planned

    def planned(self, seq: int) -> PlannedBatch | None:
        """What lies in the rows of a batch, or will; None where samples are not left out."""
        return self._planned.get(seq)

    def give_back(self, seqs: list[int]) -> None:
        """Plan batches anew that were given up, the last ones that went out: without what is left out by now."""
        assert self._order is not None
        self._order.give_back([self._planned.pop(seq) for seq in seqs if seq in self._planned])
        self.is_exhausted = False

    # ------------------------------------------------------------------------------------ the account

    def note_brought(self, num_samples: int) -> None:
        """Count what came out of an iterable data set: samples of a batch, or one that failed."""
        self.progress.given_out += num_samples

    def note_passed_over(self) -> None:
        """Count a sample of an iterable data set that failed and is left out."""
        self.progress.passed_over += 1

    def note_delivered(self, batch: Batch) -> None:
        """Count a batch that leaves."""
        planned = self._planned.pop(batch.seq, None)
        self.progress.delivered += batch.count_rows if self._settings.is_batched else 1
        self.progress.filled += planned.num_filled if planned is not None else 0

    def note_received(self, num_samples: int) -> None:
        """The loop has its batch."""
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
            _log.warning(
                "epoch %d: %d samples given out = %d delivered + %d quarantined; %d places at the end were filled "
                "with the epoch's first samples",
                *(self.progress.epoch, account.given_out, account.delivered, account.quarantined, account.filled),
            )
