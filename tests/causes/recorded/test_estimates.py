"""What would help: estimates against a loop and a pool that are played for real, step by step."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.causes.recorded.ceiling import Mean
from headrace.causes.recorded.estimates import (
    Estimate,
    Supply,
    WorkerForecast,
    estimate_async_checkpoint,
    most_workers,
)
from headrace.model import Cause, LoaderSettings, Text

from .test_recorded import explain, simulate


def supply(*, step_s: float = 0.1, batch_s: float = 0.4, error: float = 0.0, num_steps: int = 100) -> Supply:
    loop_s = num_steps * max(step_s, batch_s)
    return Supply(
        train_s=loop_s,
        lost_s=max(0.0, num_steps * (batch_s - step_s)),
        num_steps=num_steps,
        step=Mean(step_s, error * step_s, num_steps),
        batch=Mean(batch_s, error * batch_s, num_steps),
    )


@given(step_s=st.floats(0.01, 1.0), deficit=st.floats(0.3, 20.0), factor=st.floats(1.0, 40.0))
def test_a_gain_is_bounded_by_what_is_lost_and_by_the_factor(step_s: float, deficit: float, factor: float) -> None:
    gain, error = supply(step_s=step_s, batch_s=deficit * step_s).gain_with(factor)
    assert 1 <= gain <= max(1.0, min(deficit, factor)) * (1 + 1e-9)
    assert error >= 0.05 * gain * (1 - 1e-9)  # no model is nearer to another run
    if factor >= deficit >= 1:
        assert gain == pytest.approx(deficit)
    elif deficit >= 1:
        assert gain == pytest.approx(factor)


@given(deficit=st.floats(1.2, 10.0), low=st.floats(1.0, 10.0), high=st.floats(1.0, 10.0))
def test_a_faster_pool_never_brings_less(deficit: float, low: float, high: float) -> None:
    low, high = sorted((low, high))
    one = supply(batch_s=0.1 * deficit)
    assert one.gain_with(low)[0] <= one.gain_with(high)[0] + 1e-9


@given(deficit=st.floats(3.0, 10.0), error=st.floats(0.1, 0.3))
def test_noise_of_the_measurement_is_in_the_error(deficit: float, error: float) -> None:
    sure, unsure = supply(batch_s=0.1 * deficit), supply(batch_s=0.1 * deficit, error=error)
    assert unsure.gain_with(1.4)[1] >= sure.gain_with(1.4)[1]
    assert unsure.deficit == pytest.approx(deficit)


def test_workers_that_each_pass_must_start_bring_less() -> None:
    one = supply()  # 40 s
    assert one.gain_with(2.0)[0] == pytest.approx(2.0)
    assert one.gain_with(2.0, added_s=10.0)[0] == pytest.approx(40 / 30)
    assert one.gain_with(1.1, added_s=10.0)[0] < 1


def test_an_effect_within_its_error_is_withheld() -> None:
    assert not Estimate(name="more_workers", text=Text("", ""), gain=1.2, error=0.25).is_shown
    assert not Estimate(name="more_workers", text=Text("", ""), gain=1.03, error=0.0).is_shown
    assert Estimate(name="more_workers", text=Text("", ""), gain=1.3, error=0.1).is_shown


@given(current=st.integers(1, 16), deficit=st.floats(0.2, 10.0), workers=st.integers(1, 64))
def test_a_forecast_agrees_with_the_gain_and_with_what_was_recorded(current: int, deficit: float, workers: int) -> None:
    one = supply(step_s=0.1, batch_s=0.1 * deficit)
    forecast = WorkerForecast(
        loader="Data",
        settings=LoaderSettings(num_workers=current),
        supply=one,
        needed=math.ceil(deficit * current),
        most=64,
        bottleneck=None,
    )
    now, then = forecast.steps_per_s(current), forecast.steps_per_s(workers)
    assert now.value == pytest.approx(1 / max(0.1, 0.1 * deficit))
    assert then.value <= 10 * (1 + 1e-9)  # the loop takes no more
    if workers >= current:
        assert then.value / now.value == pytest.approx(one.gain_with(workers / current)[0])
    if workers >= forecast.needed:
        assert then.value == pytest.approx(10)
    assert forecast.steps_per_s(0).value < forecast.steps_per_s(1).value


@given(current=st.integers(1, 32), cpu=st.floats(0.0, 2.0), cores=st.floats(1.0, 128.0), idle=st.floats(0.0, 128.0))
def test_workers_do_not_outgrow_the_cores(current: int, cpu: float, cores: float, idle: float) -> None:
    most = most_workers(current, cpu, cores, idle)
    assert most <= most_workers(current, cpu, cores, None)
    assert (most - current) * min(1.0, cpu) <= idle + 0.5 + 1e-6
    assert most * min(1.0, cpu) <= max(1.0, cores - 1) + 1e-6


@settings(max_examples=12)
@given(
    workers=st.integers(1, 6),
    step_s=st.floats(0.02, 0.1),
    deficit=st.floats(1.6, 6.0),
    seed=st.integers(0, 20),
)
def test_the_estimate_for_more_workers_is_what_the_played_loader_does(
    workers: int, step_s: float, deficit: float, seed: int
) -> None:
    """Judge a run of `workers`, then play the number that it asks for: the measured gain lies within the error."""
    spread = np.random.default_rng(seed).uniform(0.9, 1.1, 60 * workers)
    tasks = list(deficit * workers * step_s * spread)
    processes, end_s = simulate(workers=workers, task_s=tasks, step_s=step_s, cpu=0.05)
    finding = explain(processes, end_s, cores=64).findings[0]
    assume("more_workers" in finding.figures)
    asked = int(finding.figures["more_workers"])
    needed = min(deficit * workers * 1.05, 2 * workers)  # what such tasks share nobody knows: no further at once
    assert asked == math.ceil(needed) or abs(asked - needed) <= 1.5
    _, then_s = simulate(workers=asked, task_s=tasks, step_s=step_s, cpu=0.05)
    measured = (end_s - 1.5) / (then_s - 1.5)  # the second before the first epoch, and the half after the end
    assert abs(measured - finding.figures["more_workers_gain"]) <= finding.figures["more_workers_gain_error"] + 0.05


def test_computing_and_reading_have_their_own_remedies() -> None:
    tasks = [0.4] * 80
    computing = explain(*simulate(workers=2, task_s=tasks, step_s=0.05, cpu=0.95), cores=3)
    figures = computing.findings[0].figures
    assert figures["faster_decode_gain"] == pytest.approx(1 / (1 - 0.95 / 2), rel=0.1)
    assert "warm_cache_gain" not in figures
    said = " ".join(text.en for text in computing.findings[0].fix)
    assert "twice as fast: about" in said
    reading = explain(*simulate(workers=2, task_s=tasks, step_s=0.05, cpu=0.1, read_bytes=200_000_000))
    figures = reading.findings[0].figures
    assert figures["warm_cache_gain"] > 2
    assert "more_workers_gain" not in figures  # the disk gives what it gives
    assert "解码" not in reading.findings[0].fix[0].zh


def test_saving_beside_the_training() -> None:
    (estimate,) = estimate_async_checkpoint(40.0, 100.0)
    assert estimate.gain == pytest.approx(100 / 64)
    assert estimate.gain + estimate.error >= 100 / 60  # all of it hidden is within the error
    assert estimate_async_checkpoint(40.0, 2000.0) == []


def test_a_batch_that_a_busy_worker_is_slow_to_send_does_not_hide_the_gain() -> None:
    """The queue counts it, and the loop still waits: that wait goes with the decoding that holds up the sending."""
    task_s = np.random.default_rng(3).uniform(0.018, 0.039, 150).tolist()
    processes, end_s = simulate(workers=1, task_s=task_s, step_s=0.012, cpu=1.0, puts_early=True)
    (finding,) = [one for one in explain(processes, end_s).findings if one.cause is Cause.LOADER_THROUGHPUT]
    gain, error = finding.figures["faster_decode_gain"], finding.figures["faster_decode_gain_error"]
    assert gain - error <= 2.0 <= gain + error
