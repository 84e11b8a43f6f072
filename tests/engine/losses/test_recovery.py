"""A collation is condemned for what it did, not for what ran beside it."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.losses.recovery import CollationLosses
from headrace.engine.losses.rows_again import Claim
from headrace.engine.memory.board import COLLATING, NO_SAMPLE

MOST = 3


def claim(seq: int, position: int) -> Claim:
    return Claim(worker=seq, seq=seq, row=0, rows=8, position=position, span=1)


def test_a_collation_that_kills_each_process_alone_is_doomed_after_three() -> None:
    losses = CollationLosses(MOST)
    for number in range(MOST):
        assert not losses.is_doomed(7), number
        losses.count([claim(7, COLLATING), claim(8, NO_SAMPLE)])
    assert losses.is_doomed(7)
    assert not losses.is_doomed(8)


def test_two_that_collate_at_once_are_not_condemned_for_one_of_them() -> None:
    losses = CollationLosses(MOST)
    guilty, innocent = 7, 8
    # the innocent one is beside it three times; then each runs on its own, as a new process takes one after the other
    for _ in range(MOST):
        losses.count([claim(guilty, COLLATING), claim(innocent, COLLATING)])
    assert not losses.is_doomed(guilty)
    assert not losses.is_doomed(innocent)
    for _ in range(MOST):
        losses.count([claim(guilty, COLLATING)])
    assert losses.is_doomed(guilty)
    assert not losses.is_doomed(innocent)


def test_of_two_that_always_die_together_the_last_is_condemned_and_the_other_goes_on() -> None:
    losses = CollationLosses(MOST)
    for _ in range(MOST**2):
        losses.count([claim(7, COLLATING), claim(8, COLLATING)])
    assert losses.is_doomed(8)
    assert not losses.is_doomed(7)
    losses.count([claim(7, COLLATING)])  # and where the first was it, the next loss shows it
    assert losses.is_doomed(7)


def test_an_epoch_begins_without_blame() -> None:
    losses = CollationLosses(MOST)
    for _ in range(MOST):
        losses.count([claim(1, COLLATING)])
    losses.clear()
    assert not losses.is_doomed(1)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from([COLLATING, NO_SAMPLE, 4])), unique_by=lambda c: c[0])
    )
)
def test_who_is_always_there_is_found_whoever_is_beside_it(rounds: list[list[tuple[int, int]]]) -> None:
    losses = CollationLosses(MOST)
    guilty, num_rounds, num_beside = 9, 0, dict.fromkeys(range(6), 0)
    while not losses.is_doomed(guilty):
        beside = rounds[num_rounds] if num_rounds < len(rounds) else []
        losses.count([claim(guilty, COLLATING), *(claim(*other) for other in beside)])
        for seq, position in beside:
            num_beside[seq] += position == COLLATING
        num_rounds += 1
    assert num_rounds <= MOST**2
    for seq, count in num_beside.items():
        assert not losses.is_doomed(seq) or count >= MOST**2
