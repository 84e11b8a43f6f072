"""Rows change places between batches: each is delivered with what the order says, whatever lay where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.losses.row_moves import find_moves, together


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), unique=True))
def test_neighbours_are_moved_together_and_all_of_them(moves: list[tuple[int, int]]) -> None:
    moves = sorted(moves)
    apart = [(row + i, source + i) for row, source, count in together(moves) for i in range(count)]
    assert apart == moves


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_batches_come_out_in_order_when_the_left_out_are_replaced_in_their_rows(
    sizes: list[int], data: st.DataObject
) -> None:
    """Plays the batches in flight: a row that is left out holds the sample that now comes last."""
    batches = []
    position = 0
    for size in sizes:
        batches.append(list(range(position, position + size)))
        position += size
    order = list(range(position))
    delivered: list[int] = []
    while batches:
        for _ in range(data.draw(st.integers(0, 3), label="left out")):
            rows = [(n, row) for n, batch in enumerate(batches) for row in range(len(batch))]
            number, row = data.draw(st.sampled_from(rows), label="which")
            order.remove(batches[number][row])
            order.append(position)
            batches[number][row] = position
            position += 1
        first = batches.pop(0)
        wanted = order[: len(first)]
        moves = find_moves(wanted, first)
        assert len(moves.coming) == len(moves.leaving)
        held = list(first)
        for row, source in moves.up:  # one by one, in this order: none is overwritten before it was moved
            assert row < source
            held[row] = held[source]
        for row, source in moves.down:
            held[row] = first[source]
        for (row, wanted_position), leaving in zip(moves.coming, moves.leaving, strict=True):
            source_batch = next(batch for batch in batches if wanted_position in batch)
            held[row] = wanted_position
            source_batch[source_batch.index(wanted_position)] = first[leaving]
        assert held == wanted
        delivered += held
        del order[: len(first)]
    assert delivered == sorted(delivered)
    assert order == []
