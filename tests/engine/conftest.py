"""A small arena for tests of the parts that live in it."""

from collections.abc import Iterator

import pytest

from headrace.engine.memory.arena import Arena
from headrace.engine.memory.blocks import Region


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(64 << 20)
    yield arena
    arena.close()


@pytest.fixture
def region(arena: Arena) -> Region:
    return Region(arena, 1 << 20, 32 << 20)
