"""The knee is where the rates say it is, and withheld where they do not; what is suggested rests on it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import Text
from headrace.storage.media import Medium, kind_of
from headrace.storage.media.knee import Coldness, Knee, KneeState, MeasuredReading, find_knee, suggest_depth

DEPTHS = (1, 2, 4, 8, 16, 32, 64)


def _saturating(servers: float, noise: float, seed: int, rounds: int = 3) -> dict[int, tuple[float, ...]]:
    rng = random.Random(seed)
    return {
        depth: tuple(1e8 * min(depth, servers) * rng.uniform(1 - noise, 1 + noise) for _ in range(rounds))
        for depth in DEPTHS
    }


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(0, 10_000))
def test_without_noise_the_knee_is_exact(servers: int, seed: int) -> None:
    knee = find_knee(_saturating(servers, 0.002, seed))
    assert (knee.state, knee.depth) == (KneeState.FOUND, servers)
    assert knee.gain == pytest.approx(servers, rel=0.02)


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
    creeping = {depth: (1.08**step * 100,) * 3 for step, depth in enumerate(DEPTHS)}
    assert find_knee(creeping).depth == 32  # the last doubling alone is not worth it


def test_readers_in_each_others_way_have_their_knee_before() -> None:
    thrashing = {1: 180.0, 2: 185.0, 4: 120.0, 8: 90.0, 16: 70.0, 32: 60.0, 64: 55.0}
    knee = find_knee({depth: (rate, rate * 1.01, rate * 0.99) for depth, rate in thrashing.items()})
    assert knee.depth == 1


def test_a_knee_is_withheld_where_chance_is_larger() -> None:
    noisy = {1: (50, 200, 90), 2: (210, 60, 100), 4: (80, 300, 150), 8: (60, 250, 120)}
    knee = find_knee(noisy)
    assert (knee.state, knee.depth) == (KneeState.TOO_NOISY, None)
    assert knee.noise is not None
    assert knee.noise > 0.3


@pytest.mark.parametrize("rates", [{}, {1: (100.0, 101.0)}, {1: (100.0,), 2: (200.0,)}, {1: (0.0, 0.0), 2: (0.0, 0.0)}])
def test_too_little_is_no_knee(rates: dict[int, tuple[float, ...]]) -> None:
    assert find_knee(rates).state is KneeState.NOT_MEASURED


@given(st.dictionaries(st.integers(1, 128), st.lists(st.floats(0, 1e12), max_size=5).map(tuple), max_size=8))
def test_any_rates_get_an_answer(rates: dict[int, tuple[float, ...]]) -> None:
    knee = find_knee(rates)
    assert (knee.depth is not None) == (knee.state in (KneeState.FOUND, KneeState.NOT_REACHED))


def _reading(coldness: Coldness) -> MeasuredReading:
    said = Text("known", "已知")
    return MeasuredReading(
        depth=1, read_bytes=4096, rates=(1.0, 3.0, 2.0), median_s=1, worst_s=1, coldness=coldness, coldness_reason=said
    )


def test_the_knee_is_suggested_where_it_is_of_the_storage() -> None:
    kind, knee = kind_of("/proc"), Knee(state=KneeState.FOUND, depth=4, bytes_per_s=1.0)
    for coldness in (Coldness.COLD, Coldness.UNKNOWN):
        suggestion = suggest_depth(kind, knee, [_reading(coldness)])
        assert (suggestion.io_depth, suggestion.is_measured) == (4, True)
    assert kind.medium is not Medium.MEMORY
    for known, ladder in ((knee, Coldness.PARTLY), (Knee(state=KneeState.TOO_NOISY, noise=0.6), Coldness.COLD)):
        suggestion = suggest_depth(kind, known, [_reading(ladder)])
        assert (suggestion.io_depth, suggestion.is_measured) == (kind.starting_depth, False)
        assert suggestion.reason == kind.depth_reason
    last = suggest_depth(kind, Knee(state=KneeState.NOT_REACHED, depth=64), [_reading(Coldness.COLD)])
    assert "--depth-max 128" in last.reason.en


def test_a_reading_has_a_median_and_a_spread() -> None:
    reading = _reading(Coldness.COLD)
    assert (reading.bytes_per_s, reading.spread) == (2.0, 0.5)
