"""Every moment of a thread is counted exactly once, however its events lie."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.causes.recorded.processes import Coverage, Span, exclusive_times

_SPANS = st.lists(
    st.builds(
        lambda start, length, label, is_opaque: Span(start, start + length, label, is_opaque),
        st.integers(-50, 150),
        st.integers(0, 80),
        st.sampled_from("abcd"),
        st.booleans(),
    ),
    max_size=30,
)


@given(spans=_SPANS, start=st.integers(-20, 50), length=st.integers(0, 120))
def test_the_times_add_up_to_the_window(spans: list[Span[str]], start: int, length: int) -> None:
    totals = exclusive_times(spans, start, start + length, rest="rest")
    assert sum(totals.values()) == length
    assert all(value > 0 for value in totals.values())


@given(spans=_SPANS)
def test_rest_is_what_no_span_covers(spans: list[Span[str]]) -> None:
    covered = {moment for span in spans for moment in range(max(span.start, 0), min(span.end, 100))}
    assert exclusive_times(spans, 0, 100, rest="rest").get("rest", 0) == 100 - len(covered)


@given(spans=_SPANS)
def test_each_moment_belongs_to_what_began_last(spans: list[Span[str]]) -> None:
    # of two with the same bounds either may be the inner one, so there are none
    plain = list({(span.start, span.end): Span(span.start, span.end, span.label) for span in spans}.values())
    expected: dict[str, int] = {}
    for moment in range(100):
        around = [span for span in plain if span.start <= moment < span.end]
        label = max(around, key=lambda one: (max(one.start, 0), one.start, -one.end)).label if around else "rest"
        expected[label] = expected.get(label, 0) + 1
    assert exclusive_times(plain, 0, 100, rest="rest") == expected


def test_an_opaque_span_keeps_what_lies_inside_it() -> None:
    spans = [Span(0, 50, "evaluation", is_opaque=True), Span(10, 20, "wait"), Span(12, 15, "gc"), Span(60, 70, "wait")]
    assert exclusive_times(spans, 0, 100, rest="other") == {"evaluation": 50, "wait": 10, "other": 40}


@given(
    intervals=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12),
    windows=st.lists(st.tuples(st.integers(-5, 70), st.integers(0, 30)), min_size=1, max_size=5),
)
def test_coverage_counts_each_covered_moment_once(
    intervals: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    starts = np.array([start for start, _ in intervals], np.int64)
    ends = np.array([start + length for start, length in intervals], np.int64)
    covered = {moment for start, end in zip(starts, ends, strict=True) for moment in range(start, end)}
    first = np.array([start for start, _ in windows], np.int64)
    last = np.array([start + length for start, length in windows], np.int64)
    expected = [len(covered & set(range(a, b))) for a, b in zip(first, last, strict=True)]
    assert Coverage(starts, ends).between(first, last).tolist() == expected


def test_what_shows_through_an_opaque_span_is_counted_by_itself() -> None:
    spans = [
        Span(0, 50, "evaluation", is_opaque=True),
        Span(10, 30, "checkpoint", is_opaque=True, shows_through=True),
        Span(12, 20, "wait"),
        Span(35, 40, "wait"),
    ]
    assert exclusive_times(spans, 0, 60, rest="other") == {"evaluation": 30, "checkpoint": 20, "other": 10}
