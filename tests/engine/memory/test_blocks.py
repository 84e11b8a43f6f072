"""Blocks never overlap, keep their bytes until freed, and are used again afterwards."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine.memory.arena import Arena
from headrace.engine.memory.blocks import NoRoom, Region, free_block, mark_told

_START, _SIZE = 1 << 16, 1 << 18


class BlocksMachine(RuleBasedStateMachine):
    """One owner takes blocks, anybody frees them, in any order and of any size."""

    @initialize()
    def start(self) -> None:
        self.arena = Arena.create(1 << 20)
        self.words = self.arena.bytes.cast("q")
        self.region = Region(self.arena, _START, _SIZE)
        self.blocks: dict[int, tuple[int, int]] = {}  # offset -> size, mark
        self.mark = 0

    @rule(size=st.one_of(st.integers(1, 600), st.integers(1, _SIZE)))
    def take(self, size: int) -> None:
        try:
            offset = self.region.take(size)
        except NoRoom:
            used = sum(size for size, _ in self.blocks.values())
            assert size + used > _SIZE // 2 or self.blocks, "an empty region has room"
            return
        assert offset % 64 == 0
        assert offset >= _START
        assert offset + size <= _START + _SIZE
        for other, (taken, _) in self.blocks.items():
            assert offset + size <= other - 64 or other + taken <= offset - 64, "blocks overlap"
        self.mark = self.mark % 255 + 1
        self.arena.view(offset, size)[:] = bytes([self.mark]) * size
        self.blocks[offset] = (size, self.mark)

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.blocks)), label="which")
        del self.blocks[offset]
        free_block(self.words, offset)

    @rule()
    def trim(self) -> None:
        self.region.trim()

    @invariant()
    def bytes_stay(self) -> None:
        for offset, (size, mark) in self.blocks.items():
            assert bytes(self.arena.view(offset, size)) == bytes([mark]) * size

    @invariant()
    def nothing_outside_the_region_is_written(self) -> None:
        assert not any(self.arena.view(0, 64))
        assert not any(self.arena.view(_START - 64, 64))
        assert not any(self.arena.view(_START + _SIZE, 64))

    @rule()
    def the_owner_is_followed_by_another(self) -> None:
        """A worker that takes a dead one's place goes on from what it left."""
        self.region = Region(self.arena, _START, _SIZE)

    def teardown(self) -> None:
        if hasattr(self, "arena"):
            for offset in self.blocks:
                free_block(self.words, offset)
            self.region.take(_SIZE - 65536)  # all is joined again, less what the header and rounding take
            del self.words, self.region
            self.arena.close()


TestBlocks = BlocksMachine.TestCase
TestBlocks.settings = settings(max_examples=80, stateful_step_count=30)


def test_a_freed_block_is_used_again(arena: Arena, region: Region) -> None:
    words = arena.bytes.cast("q")
    for size in (10, 3000, 100_000, 5_000_000):
        first = region.take(size)
        top = region.top_bytes
        for _ in range(50):
            free_block(words, first)
            assert region.take(size) == first
        assert region.top_bytes == top


def test_sizes_that_vary_a_little_share_blocks(arena: Arena, region: Region) -> None:
    words = arena.bytes.cast("q")
    for size in range(1_000_000, 1_100_000, 1000):
        free_block(words, region.take(size))
    assert region.top_bytes < 4_000_000


def test_a_full_region_says_what_to_do(region: Region) -> None:
    region.take(20 << 20)
    with pytest.raises(NoRoom, match="prefetch_batches") as caught:
        region.take(20 << 20)
    assert caught.value.evidence == {"asked_for": "20.0 MiB", "region": "32.0 MiB"}


def test_what_nobody_heard_of_is_freed_after_its_owner() -> None:
    arena = Arena.create(_START + _SIZE)
    words = arena.bytes.cast("q")
    owner = Region(arena, _START, _SIZE)
    told, untold = owner.take(5000), owner.take(5000)
    mark_told(words, told)
    heir = Region(arena, _START, _SIZE)
    assert heir.free_untold() == 1
    assert heir.take(5000) == untold
    assert heir.take(5000) not in (told, untold)
    del words, owner, heir
    arena.close()
