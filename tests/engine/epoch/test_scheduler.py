"""The pure scheduler: whatever comes back in whatever order, no row and no block is lost or counted twice."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine.epoch.scheduler import Batch, Scheduler
from headrace.engine.memory.messages import Answer, Result, Task, Work


@dataclass
class Told:
    """What workers and the board know of a batch, beside the scheduler."""

    num_rows: int
    takes_slot: bool  # its rows go to a slot; otherwise down the general path
    run: int
    shared_rows: int = 0
    has_failed: bool = False


class SchedulerMachine(RuleBasedStateMachine):
    """Plays the driver and all workers: `pending` is what workers owe, `live` every block that nobody freed."""

    @initialize(in_order=st.booleans(), keeps_samples=st.booleans())
    def start(self, in_order: bool, keeps_samples: bool) -> None:
        self.scheduler = Scheduler(in_order=in_order, keeps_samples=keeps_samples)
        self.told: dict[int, Told] = {}
        self.pending: list[Work] = []
        self.collating: list[int] = []  # batches whose last rows are shared: the collation is still to come
        self.live: set[int] = set()
        self.next_block = 1
        self.run = 0
        self.position = 0
        self.taken: list[int] = []
        self.settled: set[int] = set()

    # -------------------------------------------------------------------------------- the driver

    @rule(num_rows=st.integers(0, 6), chunk=st.integers(1, 4), takes_slot=st.booleans())
    def issue(self, num_rows: int, chunk: int, takes_slot: bool) -> None:
        self.enter(self.scheduler.issue(num_rows, self.position, chunk), num_rows, takes_slot)

    @rule(num_rows=st.integers(0, 6), takes_slot=st.booleans())
    def issue_whole(self, num_rows: int, takes_slot: bool) -> None:
        self.enter([self.scheduler.issue_whole(num_rows, self.position)], num_rows, takes_slot)

    @rule(num_rows=st.integers(1, 6), worker=st.integers(0, 2), takes_slot=st.booleans())
    def issue_next(self, num_rows: int, worker: int, takes_slot: bool) -> None:
        self.enter([self.scheduler.issue_whole(num_rows, self.position, worker=worker)], num_rows, takes_slot)

    def enter(self, works: list[Work], num_rows: int, takes_slot: bool) -> None:
        assert [work.row for work in works] == sorted({work.row for work in works})
        assert sum(work.rows for work in works) == num_rows
        assert len({work.seq for work in works}) == 1
        self.told[works[0].seq] = Told(num_rows, takes_slot, self.run)
        self.position += num_rows
        self.pending += works

    @rule()
    def cancel_all(self) -> None:
        self.scheduler.cancel_from(0)
        self.run += 1
        assert self.scheduler.in_flight == 0
        assert self.scheduler.ready() is None

    @rule()
    def clear_what_is_free(self) -> None:
        for block in self.scheduler.to_free:
            self.free(block)
        self.scheduler.to_free.clear()
        self.scheduler.dropped.clear()

    @precondition(lambda self: self.scheduler.ready() is not None)
    @rule()
    def take(self) -> None:
        batch = self.scheduler.ready()
        assert batch is not None
        assert not batch.is_cancelled
        assert self.told[batch.seq].run == self.run
        if self.scheduler.in_order:
            assert batch.seq == min(self.scheduler.order)
        self.scheduler.take(batch)
        assert batch.seq not in self.taken
        self.taken.append(batch.seq)
        self.deliver(batch)

    def deliver(self, batch: Batch) -> None:
        """Free what delivery uses up, and check that the rows of the batch are all there."""
        for block in batch.blocks_to_free():
            self.free(block)
        if batch.collated:
            self.free(batch.collated)
        if batch.failure is not None:
            self.free(batch.failure[1])
        elif not batch.is_empty and not batch.collated:
            assert self.told[batch.seq].takes_slot
            aside = [row + i for row, rows, _ in batch.samples for i in range(rows)]
            assert len(aside) == len(set(aside))
            assert set(aside) <= set(range(batch.num_rows))

    # -------------------------------------------------------------------------------- workers

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        work = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1), label="which work"))
        told = self.told[work.seq]
        if told.run != self.run and data.draw(st.booleans(), label="dropped"):
            self.say(work, Answer.DROPPED, work.row, work.rows)
        elif work.task is Task.NEXT:
            self.answer_next(work, told, data)
        elif work.task is Task.WHOLE:
            self.answer_whole(work, told, data)
        elif data.draw(st.integers(0, 9), label="needs whole") == 0:
            self.say(work, Answer.NEEDS_WHOLE, work.row, work.rows)
        else:
            self.answer_chunk(work, told, data)

    def answer_chunk(self, work: Work, told: Told, data: st.DataObject) -> None:
        """Consecutive rows in pieces, each in its place, until the end or the first failing row."""
        row, end = work.row, work.row + work.rows
        while row < end:
            rows = data.draw(st.integers(1, end - row), label="rows of this piece")
            if data.draw(st.integers(0, 5), label="is left out") == 0 and self.leave_out(work.seq, row, data):
                row += 1
                continue
            if data.draw(st.integers(0, 5), label="fails") == 0:
                self.fail(work, row, end - row)
                return
            if not told.takes_slot:
                self.share(work, row, rows)
            elif data.draw(st.booleans(), label="fits the slot"):
                has_texts = data.draw(st.booleans(), label="has texts")
                self.say(work, Answer.ROWS, row, rows, self.block() if has_texts else 0)
            else:
                self.say(work, Answer.SAMPLES, row, rows, self.block())
            row += rows

    def leave_out(self, seq: int, row: int, data: st.DataObject) -> bool:
        """The sample of a row is bad: the driver gives the row to another one, which stands further in the order."""
        batch = self.scheduler.batches[seq]
        if batch.is_cancelled or batch.needs_whole:
            return False
        before = [batch.position_of(other) for other in range(batch.num_rows)]
        shift = data.draw(st.integers(0, 100), label="shift")
        self.pending.append(self.scheduler.issue_again(batch, row, 1, shift=shift))
        before[row] = batch.first_position + row + shift
        assert [batch.position_of(other) for other in range(batch.num_rows)] == before
        assert sum(rows for rows, _, _ in batch.chunks.values()) == batch.num_rows
        return True

    def answer_whole(self, work: Work, told: Told, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["slot", "general", "fails"]), label="whole batch")
        if kind == "fails":
            self.fail(work, 0, work.rows)
        elif kind == "slot" and told.takes_slot and told.num_rows:
            self.say(work, Answer.ROWS, 0, work.rows)
        else:
            self.say(work, Answer.COLLATED, 0, work.rows, self.block())

    def answer_next(self, work: Work, told: Told, data: st.DataObject) -> None:
        rows = data.draw(st.integers(0, work.rows), label="rows that the iterator had")
        if rows == 0:
            self.say(work, Answer.END, work.row, work.rows)
        elif told.takes_slot:
            self.say(work, Answer.ROWS, 0, rows, self.block() if data.draw(st.booleans(), label="has texts") else 0)
        elif data.draw(st.booleans(), label="fails"):
            self.fail(work, 0, work.rows)
        else:
            self.say(work, Answer.SHARED, 0, rows)
            self.collating.append(work.seq)

    @precondition(lambda self: self.collating)
    @rule(data=st.data())
    def collate(self, data: st.DataObject) -> None:
        seq = self.collating.pop(data.draw(st.integers(0, len(self.collating) - 1), label="which collation"))
        told = self.told[seq]
        work = Work(seq, 0, told.num_rows, Task.CHUNK)
        if data.draw(st.booleans(), label="collation works"):
            self.say(work, Answer.COLLATED, 0, 0, self.block())
        else:
            self.say(work, Answer.FAILED, 0, 0, self.block())

    def share(self, work: Work, row: int, rows: int) -> None:
        told = self.told[work.seq]
        if rows == told.num_rows:
            self.say(work, Answer.COLLATED, row, rows, self.block())
            return
        block = self.block()
        told.shared_rows += rows
        if told.shared_rows == told.num_rows and not told.has_failed:
            self.collating.append(work.seq)
        self.say(work, Answer.SHARED, row, rows, block)

    def fail(self, work: Work, row: int, rows: int) -> None:
        self.told[work.seq].has_failed = True
        self.say(work, Answer.FAILED, row, rows, self.block())

    def say(self, work: Work, answer: Answer, row: int, rows: int, block: int = 0) -> None:
        assert work.seq not in self.settled, "a settled batch had work with a worker"
        again = self.scheduler.note(Result(work.seq, block, row, rows, 0, answer))
        for more in again:
            assert more.seq == work.seq
            assert more.task is Task.WHOLE
            assert more.rows == self.told[work.seq].num_rows
        self.pending += again

    def block(self) -> int:
        self.live.add(self.next_block)
        self.next_block += 1
        return self.next_block - 1

    def free(self, block: int) -> None:
        assert block in self.live, f"block {block} was freed twice"
        self.live.remove(block)

    # -------------------------------------------------------------------------------- promises

    @invariant()
    def every_row_is_in_one_place(self) -> None:
        owed: dict[int, int] = {}
        for work in self.pending:
            owed[work.seq] = owed.get(work.seq, 0) + work.rows
        for seq, batch in self.scheduler.batches.items():
            assert batch.rows_left == owed.get(seq, 0)

    @invariant()
    def settled_batches_are_left_alone(self) -> None:
        self.settled |= {seq for seq, batch in self.scheduler.batches.items() if batch.is_settled}
        self.settled |= {seq for seq in self.told if seq not in self.scheduler.batches}
        for seq in [*(work.seq for work in self.pending), *self.collating]:
            assert seq not in self.settled
            assert seq in self.scheduler.batches

    @invariant()
    def every_block_has_one_owner(self) -> None:
        owned = list(self.scheduler.to_free)
        for batch in self.scheduler.batches.values():
            owned += [*(b for _, _, b in batch.texts + batch.samples), *batch.shared]
            owned += [batch.collated] if batch.collated else []
            owned += [batch.failure[1]] if batch.failure else []
        assert len(owned) == len(set(owned))
        assert set(owned) == self.live

    @invariant()
    def the_order_is_that_of_issue(self) -> None:
        order = list(self.scheduler.order)
        assert order == sorted(order)
        assert set(order) == {seq for seq, b in self.scheduler.batches.items() if not b.is_cancelled}
        if self.scheduler.in_order:
            assert self.taken == sorted(self.taken)

    def teardown(self) -> None:
        """When workers have answered all they owe, nothing is left: no batch, no block."""
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.cancel_from(0)
        while self.pending or self.collating:
            for work in [self.pending.pop() for _ in range(len(self.pending))]:
                self.say(work, Answer.DROPPED, work.row, work.rows)
            for seq in [self.collating.pop() for _ in range(len(self.collating))]:
                told = self.told[seq]
                self.say(Work(seq, 0, told.num_rows, Task.CHUNK), Answer.COLLATED, 0, 0, self.block())
        self.clear_what_is_free()
        assert self.scheduler.batches == {}
        assert self.live == set()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=150, stateful_step_count=40)


def test_the_lowest_failing_row_is_the_one_told() -> None:
    scheduler = Scheduler()
    works = scheduler.issue(6, 0, 2)
    for work, block in zip(reversed(works), (30, 20, 10), strict=True):
        scheduler.note(Result(work.seq, block, work.row, work.rows, 0, Answer.FAILED))
    batch = scheduler.ready()
    assert batch is not None
    assert batch.failure == (0, 10)
    assert sorted(scheduler.to_free) == [20, 30]


def test_a_finished_batch_passes_only_where_order_does_not_matter() -> None:
    for in_order, expected in ((True, None), (False, 1)):
        scheduler = Scheduler(in_order=in_order)
        scheduler.issue(2, 0, 2)
        (second,) = scheduler.issue(2, 2, 2)
        scheduler.note(Result(second.seq, 0, 0, 2, 0, Answer.ROWS))
        ready = scheduler.ready()
        assert (ready.seq if ready else None) == expected
