"""Events that are kept for a while: all of them arrive once, in order, with their thread, in a ring of any size."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import EventKind
from headrace.signals.recording import KeptEvents, Lane
from headrace.signals.recording.area import Area
from headrace.signals.recording.recorder import RingReader

SECOND_NS = 1_000_000_000


@contextmanager
def lane_of(num_records: int) -> Iterator[tuple[Lane, RingReader]]:
    area = Area.create(num_lanes=1, lane_records=num_records)
    try:
        lane = Lane(area)
        yield lane, RingReader(area.lane(0))
        lane.close()
    finally:
        area.close()


def seen(reader: RingReader) -> list[tuple[int, ...]]:
    fields = ("kind", "start_ns", "duration_ns", "value", "arg", "thread")
    return [tuple(int(record[name]) for name in fields) for record in reader.read()]


@given(
    events=st.lists(
        st.tuples(
            st.integers(0, 199),
            st.sampled_from([1_000, 50_000_000, 200_000_000]),  # to the next one
            st.sampled_from([0, 900, 30_000_000]),  # how long it takes
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.integers(0, (1 << 32) - 1),
        ),
        max_size=400,
    ),
    num_records=st.sampled_from([64, 128, 1024]),
    read_every=st.integers(1, 60),
    first=st.sampled_from([0, 1, 50]),
)
def test_every_event_arrives_once_and_in_order(
    events: list[tuple[int, int, int, int, int]], num_records: int, read_every: int, first: int
) -> None:
    with lane_of(num_records) as (lane, reader):
        kept, now_ns = KeptEvents(lane, first=first), SECOND_NS
        expected, found = [], []
        for number, (kind, gap_ns, duration_ns, value, arg) in enumerate(events):
            kept.keep(kind, now_ns, duration_ns, value, arg)
            expected.append((kind, now_ns, duration_ns, value, arg, 0))
            now_ns += gap_ns
            if number % read_every == 0:
                found += seen(reader)
                assert found == expected[: len(found)]
                assert len(found) >= min(first, len(expected))
        kept.write()
        kept.write()
        found += seen(reader)
        assert found == expected
        assert reader.num_lost == 0


def test_a_long_event_is_there_at_once_and_all_before_it() -> None:
    with lane_of(128) as (lane, reader):
        kept = KeptEvents(lane)
        for number in range(3):
            kept.keep(20, SECOND_NS + number, 5, number)
        assert seen(reader) == []
        kept.keep(21, SECOND_NS + 10, SECOND_NS)
        assert [record[0] for record in seen(reader)] == [20, 20, 20, 21]


def test_the_first_events_are_there_at_once() -> None:
    with lane_of(128) as (lane, reader):
        kept = KeptEvents(lane, first=3)
        for number in range(5):
            kept.keep(20, SECOND_NS + number, 5, number)
            assert len(seen(reader)) == (number < 3)
        kept.write()
        assert [record[3] for record in seen(reader)] == [3, 4]


def test_what_was_kept_for_long_goes_with_the_next_event() -> None:
    with lane_of(128) as (lane, reader):
        kept = KeptEvents(lane)
        kept.keep(20, SECOND_NS, 5)
        kept.keep(21, 2 * SECOND_NS, 5)
        assert [record[0] for record in seen(reader)] == [20]
        kept.write()
        assert [record[0] for record in seen(reader)] == [21]


def test_a_block_may_go_round_the_end_of_the_ring() -> None:
    with lane_of(64) as (lane, reader):
        for number in range(50):
            lane.write(10, SECOND_NS, 1, number)
        assert len(seen(reader)) == 50
        kept = KeptEvents(lane)
        for number in range(40):
            kept.keep(20, SECOND_NS + number, 5, number)
        kept.write()
        assert [record[3] for record in seen(reader)] == [*range(40)]


@pytest.mark.parametrize("value", [1 << 70, "seven", None, 1.5])
def test_a_value_that_does_not_fit_is_clamped_as_the_lane_does(value: object) -> None:
    with lane_of(128) as (lane, reader):
        kept = KeptEvents(lane)
        kept.keep(20, SECOND_NS, 5, 3)
        kept.keep(21, SECOND_NS, 5, value)  # type: ignore[arg-type]
        kept.write()
        lane.write(21, SECOND_NS, 5, value)  # type: ignore[arg-type]
        first, second, third = seen(reader)
        assert first[3] == 3
        assert second == third


def test_threads_keep_apart() -> None:
    with lane_of(1024) as (lane, reader):
        made: list[KeptEvents] = []

        def keep_here() -> None:
            made.append(KeptEvents(lane))
            for number in range(10):
                made[0].keep(20, SECOND_NS, 5, number)

        thread = threading.Thread(target=keep_here)
        thread.start()
        thread.join()
        made[0].keep(21, SECOND_NS, 5)  # of the main thread, which keeps nothing here
        assert [record[0] for record in seen(reader)] == [EventKind.THREAD, 21]
        made[0].write()
        rest = seen(reader)
        assert [record[3] for record in rest] == [*range(10)]
        assert {record[5] for record in rest} == {1}


def test_a_lane_that_is_closed_takes_them_too() -> None:
    with lane_of(128) as (lane, reader):
        kept = KeptEvents(lane)
        kept.keep(20, SECOND_NS, 5)
        lane.close()
        kept.write()
        assert len(np.asarray(reader.read())) == 0
