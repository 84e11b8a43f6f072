"""The controller against loaders that are a formula: it finds the best, loses nothing, follows changes, and rests."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.controller import Controller, TuningWindow
from headrace.model import AdjustmentReason, Lever

from .simulated import Simulated, by_turns, cores, knee, one_lock

ENDLESS = 1e6  # samples a second: a loop that always waits
starts = st.sampled_from([1, 2, 4, 8, 16, 32, 64])
noises = st.floats(0.0, 0.02)


@st.composite
def loaders(draw: st.DrawFn, *, noise: st.SearchStrategy[float] = noises) -> Simulated:
    """Disks with a knee, cores, a lock; a loop that waits always, sometimes or never."""
    more: dict[str, Any] = {}
    kind, sample_s = draw(st.sampled_from(["disk", "cores", "lock"])), draw(st.floats(0.002, 0.1))
    if kind == "disk":
        supply = knee(sample_s, draw(st.floats(1.0, 60.0)) / sample_s, fall=draw(st.sampled_from([0.0, 0.05, 0.2])))
    elif kind == "cores":
        count = draw(st.integers(1, 16))
        supply = cores(sample_s, count, switching=draw(st.sampled_from([0.002, 0.02])))
        more = {"processors": count, "on_core": 1.0, "no_core": lambda n, now: max(0.0, 1 - count / n)}
    else:
        supply = one_lock(sample_s, draw(st.floats(0.02, 1.0)))
    most = max(supply(n, 0.0) for n in range(1, 129))
    wanted = draw(st.one_of(st.just(ENDLESS), st.floats(0.2, 2.0).map(lambda share: share * most)))
    return Simulated(
        supply, lambda now: wanted, draw(starts), noise=draw(noise), seed=draw(st.integers(0, 10**6)), **more
    )


def usual_rate(loader: Simulated, last_s: float) -> float:
    """What the loop gets most of the time: a trial that fails is short."""
    return median(rate for at, _, rate in loader.history if at > loader.now_s - last_s)


@settings(max_examples=60, deadline=None)
@given(loader=loaders())
def test_from_any_start_it_comes_close_to_the_best_within_a_minute(loader: Simulated) -> None:
    before = loader.rate_of(loader.workers, 0.0)
    loader.run(60)
    assert usual_rate(loader, 15) >= 0.9 * loader.best_rate(0.0)
    assert usual_rate(loader, 15) >= 0.96 * before  # and it costs nothing to have asked for it


@pytest.mark.parametrize("start", [1, 4, 32])
@pytest.mark.parametrize(("wait_s", "compute_s", "count"), [(0.02, 0.002, 2), (0.02, 0.005, 2), (0.03, 0.001, 2)])
def test_samples_that_wait_and_compute_get_the_workers_that_keep_all_cores_busy(
    start: int, wait_s: float, compute_s: float, count: int
) -> None:
    supply, no_core = by_turns(wait_s, compute_s, count)
    on_core = compute_s / (wait_s + compute_s)
    loader = Simulated(
        supply, lambda now: ENDLESS, start, noise=0.01, processors=count, on_core=on_core, no_core=no_core
    )
    loader.run(60)
    assert usual_rate(loader, 15) >= 0.97 * loader.best_rate(0.0)


@settings(max_examples=25, deadline=None)
@given(loader=loaders())
def test_it_comes_to_rest(loader: Simulated) -> None:
    loader.run(300)
    # it looks again whether more would help, more and more rarely: there and back
    assert loader.moves(120) <= 6
    for one in loader.told:
        assert one.said().en
        assert one.said().zh


@settings(max_examples=25, deadline=None)
@given(first=st.floats(100, 1500), then=st.floats(100, 1500), start=starts, noise=noises, seed=st.integers(0, 10**6))
def test_it_follows_a_disk_that_changes(first: float, then: float, start: int, noise: float, seed: int) -> None:
    def supply(workers: int, now: float) -> float:
        return knee(0.02, first if now < 90 else then)(workers, now)

    loader = Simulated(supply, lambda now: ENDLESS, start, noise=noise, seed=seed).run(90 + 150)
    assert usual_rate(loader, 20) >= 0.9 * loader.best_rate(loader.now_s)


@settings(max_examples=25, deadline=None)
@given(at=st.integers(62, 120), noise=st.floats(0.0, 0.01), seed=st.integers(0, 10**6))
def test_a_disk_that_gets_faster_is_seen_at_once_whether_in_a_trial_or_at_rest(
    at: int, noise: float, seed: int
) -> None:
    def supply(workers: int, now: float) -> float:
        return knee(0.03, 400 if now < 40 else 100 if now < at else 800)(workers, now)

    loader = Simulated(supply, lambda now: ENDLESS, 4, noise=noise, seed=seed).run(at + 20)
    assert usual_rate(loader, 5) >= 0.95 * loader.best_rate(loader.now_s)


@settings(max_examples=25, deadline=None)
@given(rates=st.tuples(*[st.floats(50, 2000)] * 3), start=starts, noise=noises, seed=st.integers(0, 10**6))
def test_it_follows_a_loop_that_changes(rates: tuple[float, float, float], start: int, noise: float, seed: int) -> None:
    def wanted(now: float) -> float:
        return rates[min(2, int(now / 60))]

    loader = Simulated(knee(0.02, 3000), wanted, start, noise=noise, seed=seed, most_workers=64)
    for _ in rates:
        loader.run(59)
        assert usual_rate(loader, 10) >= 0.9 * min(wanted(loader.now_s), 3000)
        loader.run(1)


@settings(max_examples=25, deadline=None)
@given(others=st.integers(1, 8), start=starts, noise=noises, seed=st.integers(0, 10**6))
def test_a_second_tenant_costs_no_more_than_it_takes(others: int, start: int, noise: float, seed: int) -> None:
    def share(workers: int, now: float) -> float:
        """Of four cores: the kernel shares them among all who want one."""
        return 4.0 if not 60 <= now < 150 else max(1.0, 4.0 * min(1.0, workers / (workers + others)))

    def no_core(workers: int, now: float) -> float:
        return max(0.0, 1 - share(workers, now) / workers)

    loader = Simulated(
        lambda workers, now: cores(0.01, share(workers, now))(workers, now),
        *(lambda now: ENDLESS, start, noise, seed),
        processors=4,
        on_core=1.0,
        no_core=no_core,
    ).run(60)
    alone = loader.workers
    loader.run(90)
    assert loader.workers <= max(start, alone, 5)  # it does not take the other's cores by numbers
    assert usual_rate(loader, 30) >= 0.9 * loader.rate_of(min(start, alone), loader.now_s - 1)
    loader.run(90)
    assert usual_rate(loader, 30) >= 0.9 * loader.best_rate(loader.now_s)


@settings(max_examples=20, deadline=None)
@given(room=st.integers(2, 40), start=starts)
def test_memory_bounds_it_and_what_was_grown_is_given_back(room: int, start: int) -> None:
    loader = Simulated(knee(0.02, 5000), lambda now: ENDLESS, start, most_workers=max(start, room)).run(60)
    assert max(workers for _, workers, _ in loader.history) <= max(start, room)
    loader.is_short = lambda workers, now: workers > start
    loader.run(30)
    assert loader.workers <= start
    grown = len(loader.told)
    loader.run(60)
    assert all(one.after <= start for one in loader.told[grown:])  # for a while


def test_where_it_rests_is_no_more_than_there_is_room_for() -> None:
    for start, room in ((8, 4), (5, 4), (6, 5)):
        loader = Simulated(knee(0.03, 130), lambda now: ENDLESS, start, noise=0.005).run(8)
        loader.most_workers = room
        loader.run(60)
        settled = [one for one in loader.told if one.reason is AdjustmentReason.SETTLED]
        assert settled
        assert all(one.after <= max(one.before, room) for one in settled)


def test_workers_without_work_lead_to_more_batches_ahead() -> None:
    loader = Simulated(
        *(knee(0.02, 5000), lambda now: 600.0, 16),
        reach=lambda ahead, now: min(0.5, ahead / 32),
        ahead=4,
        most_ahead=24,
    ).run(30)
    assert loader.ahead == 16
    assert {one.lever for one in loader.told if one.before != one.after} == {Lever.AHEAD}


def test_a_pause_and_workers_that_start_are_no_windows() -> None:
    window = {"elapsed_s": 0.5, "samples": 10, "wait_s": 0.5, "busy_s": 0.5, "num_workers": 1, "most_workers": 8}
    window |= {"ahead": 2, "most_ahead": 8, "processors": 2}
    controller = Controller()
    for _ in range(20):
        assert controller.observe(TuningWindow(**window, is_steady=False)) is None  # type: ignore[arg-type]
    for _ in range(3):
        assert controller.observe(TuningWindow(**window)) is None  # type: ignore[arg-type]
    told = controller.observe(TuningWindow(**window))  # type: ignore[arg-type]
    assert told is not None
    assert (told.lever, told.after, told.reason) == (Lever.WORKERS, 2, AdjustmentReason.WAITS)
    window |= {"num_workers": 5, "busy_s": 2.5}  # somebody called `resize`
    for _ in range(4):
        controller.observe(TuningWindow(**window))  # type: ignore[arg-type]
    assert controller.told[-1].before == 5


def test_where_what_is_read_ahead_is_late_more_workers_are_no_help() -> None:
    window = TuningWindow(
        elapsed_s=0.5,
        samples=10,
        wait_s=0.5,
        busy_s=1.0,
        num_workers=2,
        most_workers=8,
        ahead=2,
        most_ahead=8,
        processors=2,
        bytes_share=0.9,
    )
    controller = Controller()
    assert [controller.observe(window) for _ in range(40)] == [None] * 40
