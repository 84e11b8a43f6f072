"""Shares of time and their intervals: right on average, and wide enough where samples are alike."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.watch.shares import Track, share_of


def drawn(rng: random.Random, share: float, stay: float, count: int) -> list[bool]:
    """Samples of something that is on for a share of the time, and stays as it is with a probability."""
    state, out = rng.random() < share, []
    for _ in range(count):
        if rng.random() > stay:
            state = rng.random() < share
        out.append(state)
    return out


def coverage(share: float, stay: float, count: int) -> float:
    rng = random.Random(7)
    shares = [share_of(drawn(rng, share, stay, count)) for _ in range(300)]
    return sum(one.low <= share <= one.high for one in shares) / len(shares)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    assert coverage(0.4, 0.0, 200) >= 0.92
    assert coverage(0.2, 0.8, 400) >= 0.85
    assert coverage(0.5, 0.95, 800) >= 0.8


def test_alike_samples_make_it_wider() -> None:
    rng = random.Random(1)
    loose, alike = share_of(drawn(rng, 0.5, 0.0, 400)), share_of(drawn(rng, 0.5, 0.95, 400))
    assert alike.high - alike.low > 1.5 * (loose.high - loose.low)


def test_all_the_same_is_not_certainty() -> None:
    always = share_of([True] * 40)
    assert always.value == always.high == 1.0
    assert 0.7 < always.low < 0.95
    never = share_of([False] * 40)
    assert never.value == never.low == 0.0
    assert 0.05 < never.high < 0.3


@given(st.lists(st.booleans(), max_size=300))
def test_any_samples_give_a_share_within_its_interval(hits: list[bool]) -> None:
    share = share_of(hits)
    assert 0 <= share.low <= share.value <= share.high <= 1
    assert share.num_samples == len(hits)


@given(st.integers(0, 5000), st.integers(16, 256))
def test_a_track_of_any_length_keeps_the_share_and_stays_small(count: int, most: int) -> None:
    track = Track(most=most)
    for number in range(count):
        track.add(number % 3 == 0)
    assert len(track.looks) < most
    if count > 200:
        assert abs(track.share(True).value - 1 / 3) < 0.2
