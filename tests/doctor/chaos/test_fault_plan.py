"""The plan of faults and the judgement of a round, as pure functions."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.doctor.chaos import ChaosSettings
from headrace.doctor.chaos.fault_plan import Fault, Plan, Subject, expected_delivery, plan_round
from headrace.doctor.chaos.report import LeftOutSample, RoundFacts, judge_round
from headrace.model import FaultKind


def plan_of(most_faults: int, number: int, *, num_samples: int, batch_size: int = 8, **settings: Any) -> Plan:
    subject = Subject(
        num_samples=num_samples,
        batch_size=batch_size,
        num_workers=2,
        is_default=True,
        start_method="fork",
        dataset="",
        skipped={},
    )
    return plan_round(ChaosSettings(**settings), subject, number, most_faults)


@given(seed=st.integers(0, 2**40), epoch=st.integers(0, 50), num_samples=st.integers(2, 300), most=st.integers(1, 300))
def test_an_order_is_a_function_of_seed_and_epoch(seed: int, epoch: int, num_samples: int, most: int) -> None:
    order, _ = plan_of(0, epoch, num_samples=num_samples, seed=seed, most_samples=most)
    assert order == plan_of(0, epoch, num_samples=num_samples, seed=seed, most_samples=most)[0]
    assert len(order) == len(set(order)) == min(num_samples, most)
    assert set(order) <= set(range(num_samples))


@given(
    kinds=st.lists(st.sampled_from(FaultKind), min_size=1, unique=True),
    most=st.integers(0, 60),
    seed=st.integers(0, 2**40),
    batch_size=st.integers(1, 20),
    num_samples=st.integers(40, 400),
    always_share=st.floats(0, 1),
)
def test_a_plan_strikes_each_sample_once_at_most_and_is_no_crash_loop(
    kinds: list[FaultKind], most: int, seed: int, batch_size: int, num_samples: int, always_share: float
) -> None:
    asked: dict[str, Any] = {"kinds": tuple(kinds), "seed": seed, "most_samples": 200, "always_share": always_share}
    order, faults = plan_of(most, 0, num_samples=num_samples, batch_size=batch_size, **asked)
    assert (order, faults) == plan_of(most, 0, num_samples=num_samples, batch_size=batch_size, **asked)
    assert len(faults) <= most
    assert [fault.number for fault in faults] == list(range(len(faults)))
    inside = [fault.index for fault in faults if fault.is_inside]
    assert len(inside) == len(set(inside))
    assert set(inside) <= set(order)
    assert {fault.kind for fault in faults} <= set(kinds)
    assert all(0 <= fault.batch < max(1, len(order) // batch_size) for fault in faults if not fault.is_inside)
    assert sum(fault.losses for fault in faults) <= 16
    assert sum(fault.condemns for fault in faults) <= len(order) / 5


def test_all_kinds_are_drawn_about_equally_often() -> None:
    _, faults = plan_of(24, 0, num_samples=4000, seed=1, most_samples=4000, always_share=0)
    assert {fault.kind for fault in faults} == set(FaultKind)


@given(order=st.lists(st.integers(0, 99), min_size=1, unique=True), bad=st.sets(st.integers(0, 99)))
def test_the_fill_keeps_the_length_and_takes_the_first_good_samples(order: list[int], bad: set[int]) -> None:
    wanted = expected_delivery(order, frozenset(bad))
    good = [index for index in order if index not in bad]
    assert wanted[: len(good)] == good
    assert len(wanted) == (len(order) if good else 0)
    assert wanted[len(good) :] == (good * len(order))[: len(wanted) - len(good)]


GOOD = RoundFacts(
    number=0,
    order=[5, 3, 1, 4, 2, 0],
    batch_size=2,
    faults=[Fault(number=0, kind=FaultKind.KILL, index=1, always=True), Fault(number=1, kind=FaultKind.SLOW, index=4)],
    strikes=[(0, 1.0), (0, 1.1), (0, 1.2), (1, 2.0)],
    delivered=[5, 3, 4, 2, 0, 5],
    sizes=[2, 2, 2],
    waits=[(0.0, 0.5), (0.9, 1.5), (1.9, 2.9)],
    quarantine=[LeftOutSample(index=1, kind="worker_lost", exception="", message="")],
)


def test_a_round_in_which_all_went_well() -> None:
    assert judge_round(GOOD).is_clean


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"delivered": [5, 3, 4, 2, 0]}, "lost"),
        ({"delivered": [5, 3, 4, 4, 0, 5]}, "repeated"),
        ({"delivered": [3, 5, 4, 2, 0, 5]}, "out_of_order"),
        ({"wrong": [3]}, "damaged"),
        ({"sizes": [2, 1, 3]}, "batch_sizes"),
        ({"left": ["process 17"]}, "left"),
        ({"error": "WorkerLost: …"}, "error"),
        ({"is_hang": True}, "is_hang"),
        ({"quarantine": [], "delivered": [5, 3, 1, 4, 2, 0]}, "wrongly_spared"),
        (
            {
                "quarantine": [
                    *GOOD.quarantine,
                    LeftOutSample(index=2, kind="worker_lost", exception="", message=""),
                ],
                "delivered": [5, 3, 4, 0, 5, 3],
            },
            "wrongly_condemned",
        ),
    ],
)
def test_each_thing_that_can_be_wrong_is_found(change: dict[str, Any], name: str) -> None:
    verdict = judge_round(replace(GOOD, **change))
    assert not verdict.is_clean
    assert getattr(verdict, name)


def test_a_bad_sample_of_the_users_is_told_apart_from_a_fault() -> None:
    own = LeftOutSample(index=2, kind="exception", exception="ValueError", message="bad header")
    verdict = judge_round(replace(GOOD, quarantine=[*GOOD.quarantine, own], delivered=[5, 3, 4, 0, 5, 3]))
    assert verdict.is_clean
    assert verdict.own == (own,)
