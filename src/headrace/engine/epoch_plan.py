"""Which samples each batch of an epoch is to hold, until all of them are accounted for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from headrace.errors import InternalError
from headrace.model import EpochAccount
from headrace.order import EpochOrder, PlannedBatch

from .epoch import Batch, FeedSettings, Scheduler
from .losses import Carrying, Condemned, Homecoming, MovingUp
from .memory import Board, Entry, Head
from .pool import Pool

_log = logging.getLogger(__name__)


class EpochPlan:
    """The batches of one epoch after another: taken from the sampler, planned anew where a sample is left out."""

    def __init__(
        self,
        pool: Pool,
        settings: FeedSettings,
        scheduler: Scheduler,
        condemned: Condemned,
        *,
        moving_up: MovingUp,
        carrying: Carrying,
    ) -> None:
        self._settings, self._scheduler, self._condemned = settings, scheduler, condemned
        self._moving_up, self._carrying = moving_up, carrying
        self._words = pool.board.words
        self._indices: Iterator[Any] = iter(())
        self._order: EpochOrder | None = None  # where samples may be left out
        self._given_out = self._delivered = self._filled = self._passed_over = 0
        self.epoch = -1
        self.is_exhausted = True
        self.replay: list[Any] | None = None  # keeps what the sampler gave, while that may be needed again

    def begin(self, indices: Iterator[Any]) -> None:
        """Begin an epoch; the batches of the one before have been given up."""
        self.epoch += 1
        self._words[Head.RUN] = self.run
        self._indices, self.is_exhausted = self._remembered(indices), False
        self._given_out = self._delivered = self._filled = self._passed_over = 0
        self._moving_up.clear()
        self._carrying.clear()
        if self._condemned.is_active and not self._settings.is_iterable:
            batches = self._indices if self._settings.is_batched else ([index] for index in self._indices)
            self._order = EpochOrder(batches, self._condemned.is_out)

    @property
    def run(self) -> int:
        """What the epoch is called on the board, where 0 means none."""
        return self.epoch + 1

    def _remembered(self, indices: Iterator[Any]) -> Iterator[Any]:
        """Pass on what the sampler gives, and keep it while it may be needed again."""
        for some in indices:
            if self.replay is not None:
                self.replay.append(some)
            yield some

    def take(self) -> tuple[Any, PlannedBatch | None] | None:
        """The indices of the next batch, and its plan where samples may be left out; None at the end."""
        try:
            planned = next(self._order) if self._order is not None else None
            indices = next(self._indices) if planned is None else planned.keys
        except StopIteration:
            self.is_exhausted = True
            return None
        if not self._settings.is_iterable:  # there it says only how many are asked for
            self._given_out += len(indices) if self._settings.is_batched else 1
        return indices, planned

    def note_issued(self, seq: int, planned: PlannedBatch | None) -> None:
        """A batch that was taken is in flight under this number."""
        if planned is not None:
            self._moving_up.plans[seq] = planned

    def held(self, seq: int) -> PlannedBatch | None:
        """What lies in the rows of a batch, or will."""
        return self._moving_up.held(seq)

    # ------------------------------------------------------------------------------------ a sample is left out

    def leave_out(self, batch: Batch, row: int) -> bool:
        """Go on without the sample of a row that failed. False: its batch is given up."""
        assert self._order is not None
        if self._moving_up.leave_out(batch, row, self._order):
            return True
        self._plan_anew(batch.seq)
        return False

    def bring_home(self, batch: Batch) -> Homecoming:
        """Give a finished batch the rows it is to be delivered with; one that cannot have them is given up."""
        state = self._moving_up.bring_home(batch)
        if state is Homecoming.CANNOT:
            self._plan_anew(batch.seq)
        return state

    def _plan_anew(self, first: int) -> None:
        """Give up all batches from one on: their samples are given out again without those that are left out.

        Rows that are done are carried over; what workers have in hand of them they finish, and it is lost.
        """
        assert self._order is not None
        first = self._moving_up.first_with(first)
        for seq in self._scheduler.order:
            held = self._moving_up.held(seq)
            if seq >= first and held is not None:
                self._carrying.keep(self._scheduler.batches[seq], held)
        cancelled = self._scheduler.cancel_from(first)
        for seq in cancelled:
            self._words[Board.entry_at(seq) + Entry.RUN] = -1
        self._order.give_back(self._moving_up.give_up(cancelled))
        self.is_exhausted = False

    # ------------------------------------------------------------------------------------ the account

    def note_brought(self, num_samples: int) -> None:
        """Count what came out of an iterable data set: samples of a batch, or one that failed."""
        self._given_out += num_samples

    def note_passed_over(self) -> None:
        """Count a sample of an iterable data set that failed and is left out."""
        self._passed_over += 1

    def note_delivered(self, batch: Batch) -> None:
        """Count a batch that leaves."""
        planned = self._moving_up.take(batch.seq)
        self._delivered += batch.count_rows if self._settings.is_batched else 1
        self._filled += planned.num_filled if planned is not None else 0

    @property
    def account(self) -> EpochAccount:
        order = self._order
        return EpochAccount(
            given_out=order.given_out if order is not None else self._given_out,
            delivered=self._delivered - self._filled,
            quarantined=order.left_out if order is not None else self._passed_over,
            filled=self._filled,
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
                *(self.epoch, account.given_out, account.delivered, account.quarantined, account.filled),
            )
