"""When stacks are sampled: the price that is promised, and no change that goes unseen for long."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.watch.sampling import StackPace

WHO = frozenset({(1, 10), (2, 20)})
STRETCH_S = 2.0


def sampled_at(seconds: float, cpu_s: float, *, still_from_s: float = 1e9, others_from_s: float = 1e9) -> list[float]:
    """Return when stacks were sampled in a watch whose every sampling costs `cpu_s`."""
    pace, at_s, found = StackPace(), 0.0, []
    while at_s < seconds:
        who = WHO if at_s < others_from_s else frozenset({(3, 30)})
        if pace.is_due(at_s, who, is_still=at_s >= still_from_s):
            found.append(at_s)
            pace.sampled(at_s, who, cpu_s)
        at_s += STRETCH_S
    return found


@given(cpu_s=st.floats(0.01, 5.0))
def test_in_the_long_run_stacks_take_the_share_that_they_may(cpu_s: float) -> None:
    times = [at_s for at_s in sampled_at(5000.0, cpu_s) if at_s >= 6.0]
    assert len(times) * cpu_s <= 0.011 * 5000 + cpu_s


@given(cpu_s=st.floats(0.0, 5.0))
def test_the_first_seconds_are_sampled_without_a_gap(cpu_s: float) -> None:
    assert sampled_at(6.0, cpu_s) == [0.0, 2.0, 4.0]


def test_new_processes_are_looked_at_soon() -> None:
    times = sampled_at(120.0, 0.2, others_from_s=61.0)
    assert min(at_s for at_s in times if at_s >= 61.0) <= 66.0


def test_one_that_stands_still_is_looked_at_again_and_again() -> None:
    times = [at_s for at_s in sampled_at(200.0, 0.2, still_from_s=100.0) if at_s >= 100.0]
    assert all(b - a <= 4.0 + STRETCH_S for a, b in pairwise(times))
    assert len(times) >= 16


def test_stacks_that_cost_nothing_are_always_sampled() -> None:
    assert len(sampled_at(60.0, 0.0)) == 30
