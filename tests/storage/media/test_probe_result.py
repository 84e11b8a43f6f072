"""The knee is where the rates say it is, and withheld where they do not; cold is what was shown to be cold."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.media import Coldness, KneeState, Medium, StorageKind, find_knee, kind_of
from headrace.storage.media.probe_result import caches_beneath, judge_coldness, judge_warmth

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
    creeping = {depth: (1.08**step * 100,) * 3 for step, depth in enumerate(DEPTHS)}
    assert find_knee(creeping).depth == 32  # the last doubling alone is not worth it


def test_readers_in_each_others_way_are_seen() -> None:
    thrashing = {1: 180.0, 2: 185.0, 4: 120.0, 8: 90.0, 16: 70.0, 32: 60.0, 64: 55.0}
    knee = find_knee({depth: (rate, rate * 1.01, rate * 0.99) for depth, rate in thrashing.items()})
    assert (knee.depth, knee.falls_beyond) == (1, 4)


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


DISK = replace(kind_of("/proc"), medium=Medium.NVME, disks=("a disk",))  # type: ignore[arg-type]  # only its being there counts
NETWORK = replace(DISK, medium=Medium.NFS, disks=())
FUSE = replace(NETWORK, medium=Medium.FUSE, layers=("FUSE (sshfs) x",))


JUDGED: list[tuple[StorageKind, bool, float | None, float | None, Coldness, str]] = [
    (DISK, True, None, 1.0, Coldness.COLD, "O_DIRECT"),
    (DISK, False, None, 1.1, Coldness.COLD, "100 % of the bytes came from the device"),
    (DISK, False, 0.0, 0.5, Coldness.PARTLY, "only 50 %"),
    (replace(DISK, layers=("overlay", "ext4?")), False, 0.0, 0.0, Coldness.COLD, "a look showed"),
    (replace(DISK, layers=("overlay", "ext4?")), False, None, 0.0, Coldness.UNKNOWN, "could not be checked"),
    (DISK, True, 0.0, 0.0, Coldness.WARM, "only 0 %"),  # a file system that takes the flag and ignores it
    (DISK, False, 0.0, None, Coldness.COLD, "a look showed"),
    (DISK, False, 0.4, None, Coldness.PARTLY, "40 % of it stayed"),
    (DISK, False, None, None, Coldness.UNKNOWN, "could not be checked"),
    (NETWORK, True, None, 0.0, Coldness.COLD, "O_DIRECT"),
    (NETWORK, False, 0.01, 0.0, Coldness.COLD, "a look showed"),
    (NETWORK, False, None, 0.0, Coldness.UNKNOWN, "not ours"),
    (FUSE, True, 0.0, 0.0, Coldness.UNKNOWN, "behind FUSE"),
    (replace(NETWORK, medium=Medium.ZFS), True, None, None, Coldness.UNKNOWN, "could not be checked"),
    (replace(NETWORK, medium=Medium.MEMORY), True, 0.0, None, Coldness.WARM, "nothing is ever cold"),
]


def test_coldness_is_judged_from_what_was_checked() -> None:
    for kind, is_direct, cached, fetched, expected, said in JUDGED:
        state, reason = judge_coldness(kind, is_direct=is_direct, cached_before=cached, fetched_share=fetched)
        assert state is expected, said
        assert said in reason.en
        assert reason.zh


def test_warmth_is_judged_too() -> None:
    assert judge_warmth(0.0, cached_now=1.0)[0] is Coldness.WARM
    assert judge_warmth(0.6, cached_now=None)[0] is Coldness.PARTLY
    assert judge_warmth(None, cached_now=0.0)[0] is Coldness.UNKNOWN


def test_caches_that_cannot_be_emptied_are_named() -> None:
    assert caches_beneath(DISK) == ()
    assert "server" in caches_beneath(NETWORK)[0].en
    assert "FUSE" in caches_beneath(FUSE)[0].en
    assert "host" in caches_beneath(replace(DISK, medium=Medium.VIRTUAL_DISK))[0].en
