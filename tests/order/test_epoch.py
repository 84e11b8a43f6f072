"""Whatever is left out, and whenever that is found: the same order, the same sizes, as many batches."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.errors import TooManyBad
from headrace.order import EpochOrder, PlannedBatch

BATCHES = st.lists(st.lists(st.integers(0, 30), max_size=5), max_size=8)


def expected(batches: list[list[int]], bad: set[int]) -> list[list[int]]:
    order = [key for batch in batches for key in batch]
    good = [key for key in order if key not in bad]
    assume(good or not order)  # else there is nothing to fill a batch with
    endless = iter([*good, *(good * (len(order) + 1))])
    return [[next(endless) for _ in batch] if good else [] for batch in batches]


@given(BATCHES, st.sets(st.integers(0, 30)))
def test_the_rest_moves_up_and_the_end_is_filled_with_the_first(batches: list[list[int]], bad: set[int]) -> None:
    wanted = expected(batches, bad)
    order = EpochOrder(iter(batches), bad.__contains__)
    planned = list(order)
    assert [list(batch.keys) for batch in planned] == wanted
    num_filled = sum(batch.num_filled for batch in planned)
    assert order.given_out == sum(map(len, batches))
    assert order.given_out == sum(len(batch.keys) for batch in planned) - num_filled + order.left_out
    positions = [position for batch in planned for position in batch.positions]
    assert positions == sorted(set(positions)), "every sample has a place of its own"


@given(BATCHES, st.sets(st.integers(0, 30)), st.integers(1, 4), st.data())
def test_it_does_not_matter_when_a_sample_is_found_bad(
    batches: list[list[int]], bad: set[int], ahead: int, data: st.DataObject
) -> None:
    wanted = expected(batches, bad)
    found: set[int] = set()
    order = EpochOrder(iter(batches), found.__contains__)
    in_flight: list[PlannedBatch] = []
    taken: list[list[int]] = []
    while True:
        while len(in_flight) < ahead and (batch := next(order, None)) is not None:
            in_flight.append(batch)
        if not in_flight:
            break
        hit = [i for i, batch in enumerate(in_flight) if bad & set(batch.keys)]
        if hit and (hit[0] == 0 or data.draw(st.booleans())):
            at = data.draw(st.sampled_from(hit)) if hit[0] else 0
            found |= {next(key for key in in_flight[at].keys if key in bad)}
            order.give_back(in_flight[at:])
            del in_flight[at:]
            continue
        taken.append(list(in_flight.pop(0).keys))
    assert taken == wanted
    assert order.given_out == sum(map(len, batches))


@given(BATCHES, st.sets(st.integers(0, 30)))
def test_gaps_tell_where_each_row_stands(batches: list[list[int]], bad: set[int]) -> None:
    expected(batches, bad)
    for batch in EpochOrder(iter(batches), bad.__contains__):
        shifts = dict(batch.gaps)
        shift = 0
        for row, position in enumerate(batch.positions):
            shift = shifts.get(row, shift)
            assert position == batch.first_position + row + shift


def test_an_epoch_without_a_good_sample_is_an_error() -> None:
    order = EpochOrder(iter([[], [3, 4]]), {3, 4}.__contains__)
    assert list(next(order).keys) == []  # what the sampler gave
    with pytest.raises(TooManyBad, match="every sample"):
        next(order)
