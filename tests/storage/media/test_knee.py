"""The knee is where the rates say it is, and withheld where they do not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.media import DepthRate, KneeState, find_knee

DEPTHS = (1, 2, 4, 8, 16, 32, 64)


def _ladder(rates: dict[int, tuple[float, ...]]) -> list[DepthRate]:
    return [DepthRate(depth=depth, rates=each) for depth, each in rates.items()]


def _saturating(servers: float, noise: float, seed: int, rounds: int = 3) -> list[DepthRate]:
    rng = random.Random(seed)
    return _ladder(
        {
            depth: tuple(1e8 * min(depth, servers) * rng.uniform(1 - noise, 1 + noise) for _ in range(rounds))
            for depth in DEPTHS
        }
    )


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(0, 10_000))
def test_without_noise_the_knee_is_exact(servers: int, seed: int) -> None:
    knee = find_knee(_saturating(servers, 0.002, seed))
    assert (knee.state, knee.depth) == (KneeState.FOUND, servers)
    assert knee.gain == pytest.approx(servers, rel=0.02)
    assert knee.falls_beyond is None


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(0, 10_000))
def test_with_noise_the_knee_is_never_below(servers: int, seed: int) -> None:
    knee = find_knee(_saturating(servers, 0.08, seed))
    if knee.state is KneeState.TOO_NOISY:
        return  # allowed to say so, not to be wrong by a doubling that is there
    assert knee.depth is not None
    assert servers <= knee.depth


def test_with_noise_it_is_mostly_found() -> None:
    found = [find_knee(_saturating(8, 0.05, seed)).depth for seed in range(200)]
    assert found.count(8) > 180


@given(st.integers(0, 10_000))
def test_what_is_still_rising_is_not_called_a_knee(seed: int) -> None:
    knee = find_knee(_saturating(1000, 0.02, seed))
    assert (knee.state, knee.depth) == (KneeState.NOT_REACHED, 64)


def test_a_slow_creep_is_seen_as_a_whole() -> None:
    """Each doubling brings 8 %, less than is worth it; all of them together bring half as much again."""
    creeping = _ladder({depth: (1.08**step * 100,) * 3 for step, depth in enumerate(DEPTHS)})
    assert find_knee(creeping).depth == 32  # the last doubling alone is not worth it


def test_readers_in_each_others_way_are_seen() -> None:
    thrashing = {1: 180.0, 2: 185.0, 4: 120.0, 8: 90.0, 16: 70.0, 32: 60.0, 64: 55.0}
    knee = find_knee(_ladder({depth: (rate, rate * 1.01, rate * 0.99) for depth, rate in thrashing.items()}))
    assert (knee.depth, knee.falls_beyond) == (1, 4)


def test_a_knee_is_withheld_where_chance_is_larger() -> None:
    noisy = _ladder({1: (50, 200, 90), 2: (210, 60, 100), 4: (80, 300, 150), 8: (60, 250, 120)})
    knee = find_knee(noisy)
    assert (knee.state, knee.depth) == (KneeState.TOO_NOISY, None)
    assert knee.noise is not None
    assert knee.noise > 0.3


@pytest.mark.parametrize("rates", [{}, {1: (100.0, 101.0)}, {1: (100.0,), 2: (200.0,)}, {1: (0.0, 0.0), 2: (0.0, 0.0)}])
def test_too_little_is_no_knee(rates: dict[int, tuple[float, ...]]) -> None:
    assert find_knee(_ladder(rates)).state is KneeState.NOT_MEASURED


@given(st.dictionaries(st.integers(1, 128), st.lists(st.floats(0, 1e12), max_size=5).map(tuple), max_size=8))
def test_any_rates_get_an_answer(rates: dict[int, tuple[float, ...]]) -> None:
    knee = find_knee(_ladder(rates))
    assert (knee.depth is not None) == (knee.state in (KneeState.FOUND, KneeState.NOT_REACHED))
