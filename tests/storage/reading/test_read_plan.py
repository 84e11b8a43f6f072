"""What is planned is read once, in the order of need, within its memory, and given up when nobody needs it."""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.storage.reading.extents import Extent
from headrace.storage.reading.read_plan import (
    GRANULE,
    PAGE,
    Block,
    BlockState,
    FilePlan,
    Read,
    ReadDepth,
    ReadPlan,
    Space,
    page_up,
)

MIB = 1 << 20


def plan_of(*, depth: int = 4, block_bytes: int = MIB, space_bytes: int = 16 * MIB, gap_bytes: int = 65536) -> ReadPlan:
    return ReadPlan(depth=depth, block_bytes=block_bytes, space_bytes=space_bytes, gap_bytes=gap_bytes)


def retiring(plan: ReadPlan) -> list[Block]:
    return [block for block in plan.blocks.values() if block.state is BlockState.RETIRING]


def marks_for(plan: ReadPlan, number: int, *extents: Extent) -> bytes:
    """What workers leave behind when they have used some extents of a block."""
    block = plan.blocks[number]
    marks = bytearray(block.size // GRANULE)
    for extent in extents:
        marks[(extent.offset - block.start) // GRANULE] += 1
    return bytes(marks)


def test_neighbours_in_the_file_are_one_read() -> None:
    plan = plan_of(depth=1)
    plan.add(0, [Extent("a", 512 + 4096 * i, 3000) for i in range(16)])
    (read,) = plan.next_reads()
    assert (read.path, read.offset, read.size) == ("a", 0, 16 * 4096)
    assert not plan.is_held_up


def test_the_first_reads_are_small_and_the_next_ones_larger() -> None:
    plan = plan_of(depth=8)
    plan.add(0, [Extent("a", 65536 * i, 65536) for i in range(200)])
    sizes = [read.size for read in plan.next_reads()]
    assert sizes[0] <= 2 * 65536
    assert sizes == sorted(sizes)
    assert max(sizes) <= plan.block_bytes


@pytest.mark.parametrize("sizes", [(3000, 10), (600_000, 1_900_000), (5_000_000, 100)])
def test_the_first_sample_is_there_after_two_reads(sizes: tuple[int, int]) -> None:
    """Not after a buffer has filled: the first reads begun are those of the first sample."""
    plan = plan_of(depth=16, block_bytes=8 * MIB, space_bytes=200 * MIB)
    offset, extents = 512, []
    for _ in range(20):
        for size in sizes:
            extents.append(Extent("a", offset, size))
            offset += -(-size // 512) * 512 + 512
    plan.add(0, extents)
    first_reads = plan.next_reads()[:2]
    for extent in extents[: len(sizes)]:
        assert any(r.offset <= extent.offset and sum(extent[1:]) <= r.offset + r.size for r in first_reads)


def test_what_is_needed_out_of_order_joins_in_the_order_of_the_file() -> None:
    plan = plan_of(depth=1)
    plan.add(0, [Extent("a", 4096 * i, 4096) for i in (5, 3, 4, 0, 9)])
    (read,) = plan.next_reads()
    assert (read.offset, read.offset + read.size) == (0, 10 * 4096)


def test_extents_far_apart_or_in_other_files_are_reads_of_their_own() -> None:
    plan = plan_of()
    plan.add(0, [Extent("a", 0, 100), Extent("b", 0, 100), Extent("a", 10 * MIB, 100)])
    assert [(r.path, r.offset) for r in plan.next_reads()] == [("a", 0), ("b", 0), ("a", 10 * MIB)]


def test_a_gap_is_read_along_up_to_what_was_allowed() -> None:
    plan = plan_of(gap_bytes=8192)
    plan.add(0, [Extent("a", 0, 4096), Extent("a", 12288, 4096), Extent("a", 40960, 4096)])
    assert [(r.offset, r.size) for r in plan.next_reads()] == [(0, 16384), (40960, 4096)]


def test_an_extent_larger_than_a_block_is_read_in_pieces_at_once() -> None:
    plan = plan_of(depth=4)
    plan.add(0, [Extent("a", 0, 3 * MIB)])
    reads = plan.next_reads()
    assert [(r.offset, r.size) for r in reads] == [(0, MIB), (MIB, MIB), (2 * MIB, MIB)]
    assert len({r.block for r in reads}) == 1
    assert [r.place - reads[0].place for r in reads] == [0, MIB, 2 * MIB]
    assert plan.done(reads[1], MIB) is None
    assert plan.done(reads[0], MIB) is None
    block = plan.done(reads[2], MIB)
    assert block is not None
    assert block.state is BlockState.READY


def test_an_extent_that_fits_nowhere_is_left_to_the_workers() -> None:
    plan = plan_of(depth=2)
    plan.add(0, [Extent("a", 0, 5 * MIB), Extent("a", 8 * MIB, 10)])
    assert [r.offset for r in plan.next_reads()] == [8 * MIB]


def test_a_resident_block_is_not_read_again() -> None:
    plan = plan_of()
    extent = Extent("a", 0, 5000)
    plan.add(0, [extent])
    (read,) = plan.next_reads()
    plan.add(1, [extent])
    assert plan.next_reads() == []
    plan.done(read, read.size)
    assert not plan.used(read.block, marks_for(plan, read.block, extent))  # it is needed a second time
    assert plan.used(read.block, marks_for(plan, read.block, extent, extent))
    plan.gone(read.block)
    plan.add(2, [extent])
    assert len(plan.next_reads()) == 1


def test_what_a_worker_has_read_by_itself_is_not_read() -> None:
    plan = plan_of()
    plan.add(0, [Extent("a", 0, 10), Extent("a", 8 * MIB, 10)])
    plan.read_elsewhere("a", 0)
    plan.read_elsewhere("a", 4096)  # never planned
    plan.read_elsewhere("b", 0)
    assert [r.offset for r in plan.next_reads()] == [8 * MIB]


def test_a_batch_that_is_over_needs_nothing() -> None:
    plan = plan_of(depth=1)
    plan.add(0, [Extent("a", 0, 10)])
    plan.add(1, [Extent("a", 8 * MIB, 10)])
    (read,) = plan.next_reads()
    assert plan.passed(0) == []  # in flight: it cannot go yet
    block = plan.done(read, read.size)
    assert block is not None
    assert block.state is BlockState.RETIRING
    assert plan.vain_bytes == block.size
    plan.passed(1)
    assert plan.next_reads() == []
    plan.add(1, [Extent("a", 0, 10)])  # late
    assert not plan.is_held_up


def test_a_failed_read_and_a_file_that_ends_too_soon() -> None:
    for got in (None, 0, 999):
        plan = plan_of()
        plan.add(0, [Extent("a", 0, 1000)])
        (read,) = plan.next_reads()
        block = plan.done(read, got)
        assert block is not None
        assert block.is_failed
        assert block.state is BlockState.RETIRING
    plan = plan_of()
    plan.add(0, [Extent("a", 0, 1000)])
    (read,) = plan.next_reads()
    block = plan.done(read, 1000)  # the page was not full: enough
    assert block is not None
    assert (block.state, block.valid_end) == (BlockState.READY, 1000)


@dataclass
class _World:
    """What a driver and workers know."""

    plan: ReadPlan
    seq: int = 0
    reading: list[Read] = field(default_factory=list)
    unused: list[tuple[int, Extent]] = field(default_factory=list)
    marks: dict[int, list[Extent]] = field(default_factory=dict)
    leased: set[int] = field(default_factory=set)


class PlanMachine(RuleBasedStateMachine):
    """Any order of planning, reading, using, failing and passing keeps what is promised."""

    @initialize(depth=st.integers(1, 6), gap=st.sampled_from([0, 4096, 65536]))
    def start(self, depth: int, gap: int) -> None:
        self.world = _World(ReadPlan(depth=depth, block_bytes=32768, space_bytes=512 << 10, gap_bytes=gap))
        self.begun = 0

    @rule(
        extents=st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(0, 200), st.integers(1, 60_000)), min_size=1, max_size=12
        )
    )
    def plan_a_batch(self, extents: list[tuple[str, int, int]]) -> None:
        batch = [Extent(path, 512 * at, size) for path, at, size in extents]
        self.world.seq += 1
        self.world.plan.add(self.world.seq, batch)
        self.world.unused += [(self.world.seq, extent) for extent in batch]

    @rule()
    def begin_reads(self) -> None:
        plan = self.world.plan
        for read in plan.next_reads():
            assert 0 < read.size <= plan.block_bytes
            assert read.offset % PAGE == 0
            self.world.reading.append(read)
            self.world.marks.setdefault(read.block, [])

    @precondition(lambda self: self.world.reading)
    @rule(data=st.data(), fails=st.booleans())
    def a_read_ends(self, data: st.DataObject, fails: bool) -> None:
        reading = self.world.reading
        read = reading.pop(data.draw(st.integers(0, len(reading) - 1)))
        self.world.plan.done(read, None if fails and len(reading) % 3 == 0 else read.size)

    @precondition(lambda self: self.world.unused)
    @rule(data=st.data())
    def a_worker_uses(self, data: st.DataObject) -> None:
        world = self.world
        _, extent = world.unused.pop(data.draw(st.integers(0, min(5, len(world.unused) - 1))))
        for block in world.plan.ready:
            if block.path == extent.path and block.start <= extent.offset and sum(extent[1:]) <= block.valid_end:
                world.marks[block.number].append(extent)
                world.leased.add(block.number)
                if world.plan.used(block.number, marks_for(world.plan, block.number, *world.marks[block.number])):
                    assert block.state is BlockState.RETIRING
                return
        world.plan.read_elsewhere(extent.path, extent.offset)

    @rule()
    def leases_end(self) -> None:
        world = self.world
        world.leased.clear()
        for block in retiring(world.plan):
            world.plan.gone(block.number)
            world.marks.pop(block.number, None)

    @rule(back=st.integers(0, 3))
    def batches_are_over(self, back: int) -> None:
        seq = self.world.seq - back
        self.world.plan.passed(seq)
        self.world.unused = [(s, e) for s, e in self.world.unused if s > seq]

    @invariant()
    def blocks_lie_apart_and_within_their_memory(self) -> None:
        if not hasattr(self, "world"):
            return
        plan = self.world.plan
        places = sorted((b.place, b.place + page_up(b.size)) for b in plan.blocks.values())
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(places))
        assert not places or places[-1][1] <= 512 << 10

    @invariant()
    def memory_and_depth_are_bounded(self) -> None:
        if not hasattr(self, "world"):
            return
        plan = self.world.plan
        live = [b for b in plan.blocks.values() if b.state is not BlockState.RETIRING]
        assert plan.claimed_bytes == sum(b.size for b in live)
        assert plan.claimed_bytes <= plan.capacity_bytes
        assert plan.in_flight == len(self.world.reading) <= plan.depth

    def teardown(self) -> None:
        """Whatever happened: once all is over, everything is free again."""
        if not hasattr(self, "world"):
            return
        plan = self.world.plan
        plan.passed(self.world.seq)
        for read in [*self.world.reading, *plan.next_reads()]:
            plan.done(read, read.size)
        for read in list(plan._reads):  # reads of a large extent that had not begun
            plan.in_flight += 1
            plan.done(read, read.size)
        for block in retiring(plan):
            plan.gone(block.number)
        assert plan.blocks == {}
        assert plan._space.take(512 << 10) == 0


TestPlanMachine = PlanMachine.TestCase
TestPlanMachine.settings = settings(max_examples=60, stateful_step_count=40)


@given(sizes=st.lists(st.integers(1, 30_000), max_size=30), data=st.data())
def test_space_is_whole_again_when_all_is_given_back(sizes: list[int], data: st.DataObject) -> None:
    space = Space(1 << 18)
    held = [(start, size) for size in sizes if (start := space.take(size)) is not None]
    runs = sorted((start, start + page_up(size)) for start, size in held)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(runs))
    for start, size in data.draw(st.permutations(held)):
        space.give_back(start, size)
    assert space.take(1 << 18) == 0


def test_files_come_in_order_at_the_depth_and_not_too_far_ahead() -> None:
    plan = FilePlan(depth=2, ahead_bytes=100)
    plan.add(0, ["a", "b", "c"])
    plan.add(1, ["d"])
    assert plan.next_files() == [(0, "a"), (0, "b")]
    assert plan.next_files() == []
    plan.done(0, 60)
    plan.done(0, 60)
    assert plan.next_files() == []  # 120 bytes wait for their use
    plan.passed(0)
    assert plan.next_files() == [(1, "d")]  # c is over too
    plan.add(0, ["late"])
    plan.done(1, 10)
    assert plan.next_files() == []


def test_depth_stays_where_workers_do_not_wait() -> None:
    depth = ReadDepth(4, most=64)
    idle = {"bytes_per_s": 1e8, "waiting_share": 0.0, "full_share": 1.0}
    assert [depth.next(**idle) for _ in range(5)] == [4] * 5
    not_full = {"bytes_per_s": 1e8, "waiting_share": 0.5, "full_share": 0.1}
    assert depth.next(**not_full) == 4


@pytest.mark.parametrize("knee", [1, 2, 7, 32, 500])
def test_depth_finds_the_knee_of_a_disk(knee: int) -> None:
    """A disk that brings as many bytes as it has reads in flight, up to its knee."""
    depth = ReadDepth(2, most=128)
    for _ in range(40):
        rate = 1e6 * min(depth.depth, knee)
        depth.next(bytes_per_s=rate, waiting_share=0.3, full_share=1.0)
    assert min(knee, 2) <= depth.depth <= min(128, 2 * max(knee, 2))
    assert depth.depth >= min(knee, 128)


def test_depth_falls_to_where_it_began_when_nobody_waits() -> None:
    depth = ReadDepth(4, most=64)
    for rate in (1e8, 2e8, 4e8):
        depth.next(bytes_per_s=rate, waiting_share=0.5, full_share=1.0)
    assert depth.depth == 32
    seen = [depth.next(bytes_per_s=1e8, waiting_share=0.0, full_share=0.1) for _ in range(200)]
    assert seen[0] == 16  # the last trial brought less
    assert seen[-1] == 4
    assert seen == sorted(seen, reverse=True)
