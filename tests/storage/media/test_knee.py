"""The knee is where the rates say it is, and withheld where they do not; what is suggested rests on it."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.media import Medium, ProbeResult, StorageKind
from headrace.storage.media.knee import Coldness, Knee, KneeState, MeasuredReading, find_knee

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


@pytest.mark.parametrize("rates", [{}, {1: (100.0, 101.0)}, {1: (100.0,), 2: (200.0,)}, {1: (0.0, 0.0), 2: (0.0, 0.0)}])
def test_too_little_is_no_knee(rates: dict[int, tuple[float, ...]]) -> None:
    assert find_knee(rates).state is KneeState.NOT_MEASURED


@given(st.dictionaries(st.integers(1, 128), st.lists(st.floats(0, 1e12), max_size=5).map(tuple), max_size=8))
def test_any_rates_get_an_answer(rates: dict[int, tuple[float, ...]]) -> None:
    knee = find_knee(rates)
    assert (knee.depth is not None) == (knee.state in (KneeState.FOUND, KneeState.NOT_REACHED))


@pytest.mark.parametrize(
    ("medium", "coldness", "io_depth"),
    [
        (Medium.NVME, Coldness.COLD, 4),
        (Medium.FUSE, Coldness.UNKNOWN, 4),
        (Medium.NVME, Coldness.PARTLY, None),
        (Medium.NVME, Coldness.WARM, None),
        (Medium.MEMORY, Coldness.WARM, 4),
    ],
)
def test_the_knee_is_the_depth_to_read_with_where_it_is_of_the_storage(
    medium: Medium, coldness: Coldness, io_depth: int | None
) -> None:
    reading = MeasuredReading(1, 4096, 1.0, coldness)
    knee, none = Knee(state=KneeState.FOUND, depth=4), Knee(state=KneeState.TOO_NOISY)
    told = {"num_files": 1, "file_bytes": 4096, "in_order": reading, "warm": reading, "random": (reading,)}
    found = ProbeResult(kind=StorageKind(medium=medium), knee=knee, **told)  # type: ignore[arg-type]
    assert (found.io_depth, replace(found, knee=none).io_depth) == (io_depth, None)
