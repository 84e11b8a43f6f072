"""A ceiling from events that are made up: what was put in as the cost of a step comes out, whatever the loader did."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.causes.recorded import ProcessEvents
from headrace.causes.recorded.ceiling import mean_of
from headrace.model import Activity, EventKind, Findings, LoaderSettings

from .test_recorded import Tape, causes, explain

_LOADER = "Samples#1"
_ASKED_FOR = LoaderSettings(by="torch", batch_size=4, num_workers=2)
_AHEAD = 4


def replayed(
    *,
    wait_s: float,
    step_s: float,
    num_cached: int = 40,
    num_real: int = 60,
    give_s: float = 1e-5,
    checkpoint_s: float = 0.0,
    busy_worker: bool = False,
    ends: bool = True,
    is_cut: bool = False,
    seed: int = 0,
) -> tuple[list[ProcessEvents], float]:
    """A loop that waits for each batch, with a replay in its middle and batches that were made meanwhile after it."""
    random = np.random.default_rng(seed)
    trainer, worker = Tape(100, "trainer", names={1: _LOADER}, loaders={1: _ASKED_FOR}), Tape(200, "worker")
    now, batch = 1.0, 0
    trainer.add(EventKind.EPOCH, now, 0.01, 0, 1)
    now += 0.01

    def step() -> None:
        nonlocal now
        length_s = step_s * random.uniform(0.95, 1.05)
        trainer.add(EventKind.FORWARD, now, 0.5 * length_s)
        now += length_s

    def real(length_s: float) -> None:
        nonlocal now, batch
        trainer.add(EventKind.WAIT, now, length_s, batch, 1)
        worker.add(EventKind.FETCH, now, max(length_s, 1e-6), batch)
        now += length_s
        batch += 1
        step()

    for _ in range(num_real):
        real(wait_s * random.uniform(0.95, 1.05))
    begin = now
    for number in range(num_cached):
        trainer.add(EventKind.CACHED, now, give_s, number % 8, 1)
        now += give_s
        if checkpoint_s and number == 20:
            trainer.add(EventKind.CHECKPOINT, now, checkpoint_s)
            now += checkpoint_s
        step()
    if busy_worker:
        worker.add(EventKind.FETCH, begin, now - begin, 999)
    if not is_cut:
        trainer.add(EventKind.REPLAY, begin, now - begin, _AHEAD, 1)
        for _ in range(_AHEAD):
            real(1e-5)
        for _ in range(num_real):
            real(wait_s * random.uniform(0.95, 1.05))
    if ends:
        trainer.add(EventKind.WAIT, now, 1e-3, -1, 1)
    return [trainer.process(), worker.process()], now + 0.5


def said(found: Findings) -> str:
    return " ".join(text.en for text in (*found.notes, *found.facts, *found.limits))


@settings(max_examples=15)
@given(wait_s=st.floats(0.0, 0.3), step_s=st.floats(0.01, 0.1), seed=st.integers(0, 9))
def test_the_ceiling_is_the_step_and_utilisation_its_share(wait_s: float, step_s: float, seed: int) -> None:
    figures = explain(*replayed(wait_s=wait_s, step_s=step_s, seed=seed)).figures
    assert figures["replayed_steps"] == 40
    assert figures["ceiling_step_s"] == pytest.approx(step_s, rel=0.03)
    assert figures["accelerator_utilisation"] == pytest.approx(step_s / (step_s + wait_s), rel=0.05)
    gain = (step_s + wait_s) / step_s
    assert abs(figures["perfect_loader_gain"] - gain) <= figures["perfect_loader_gain_error"] + 0.03 * gain


def test_the_replay_is_a_row_of_the_table_and_no_part_of_the_training() -> None:
    processes, end_s = replayed(wait_s=0.09, step_s=0.01)
    found = explain(processes, end_s)
    (row,) = [row for row in found.times if row.activity is Activity.REPLAY]
    assert row.seconds == pytest.approx(40 * 0.01, rel=0.1)
    # the share is of the training without it, and the batches that lay ready after it do not thin it out
    assert found.findings[0].share == pytest.approx(0.9, abs=0.03)
    waited_s = sum(row.seconds for row in found.times if row.activity in {Activity.WAIT, Activity.EPOCH_START})
    assert found.loaders[0].wait_share == pytest.approx(waited_s / found.figures["train_s"], abs=0.01)
    assert found.findings[0].gain == pytest.approx(10, rel=0.1)
    assert "the demand is measured" in " ".join(text.en for text in found.findings[0].evidence)
    assert "10" in said(found)
    assert "not the training it would have been: 40 of its steps" in said(found)
    assert "The loader lost nothing" in said(found)


def test_what_interrupts_a_cached_step_is_not_in_it() -> None:
    figures = explain(*replayed(wait_s=0.05, step_s=0.02, checkpoint_s=5.0)).figures
    assert figures["ceiling_step_s"] == pytest.approx(0.02, rel=0.03)


def test_copies_that_take_long_are_not_in_the_step_and_told_of() -> None:
    found = explain(*replayed(wait_s=0.05, step_s=0.02, give_s=0.01))
    assert found.figures["ceiling_step_s"] == pytest.approx(0.02, rel=0.03)
    assert "a copy was given each time" in said(found)


def test_workers_that_fill_their_queue_meanwhile_are_told_of() -> None:
    assert "still filling their queue" in said(explain(*replayed(wait_s=0.05, step_s=0.02, busy_worker=True)))
    assert "still filling their queue" not in said(explain(*replayed(wait_s=0.05, step_s=0.02)))


def test_a_loop_that_ends_its_epoch_by_itself_may_not_have_had_all() -> None:
    assert "may not have come" in said(explain(*replayed(wait_s=0.05, step_s=0.02, ends=False)))


def test_a_replay_that_a_crash_cut_off_still_measures() -> None:
    processes, end_s = replayed(wait_s=0.05, step_s=0.02, is_cut=True, ends=False)
    found = explain(processes, end_s)
    assert found.figures["ceiling_step_s"] == pytest.approx(0.02, rel=0.03)
    assert any(row.activity is Activity.REPLAY for row in found.times)


def test_a_fed_training_gains_nothing_that_can_be_told() -> None:
    found = explain(*replayed(wait_s=1e-5, step_s=0.02))
    assert causes(found) == []
    assert "nothing that can be told from noise" in said(found)
    assert found.figures["accelerator_utilisation"] > 0.97


def test_too_few_cached_steps_measure_nothing() -> None:
    assert "ceiling_step_s" not in explain(*replayed(wait_s=0.05, step_s=0.02, num_cached=7)).figures


@settings(max_examples=30)
@given(
    values=st.lists(st.floats(0.001, 10.0), min_size=1, max_size=100),
    length=st.integers(1, 9),
)
def test_a_mean_has_an_error_or_says_that_it_has_none(values: list[float], length: int) -> None:
    mean = mean_of(np.array(values), round_length=length)
    assert mean.count == len(values)
    assert min(values) - 1e-9 <= mean.value <= max(values) + 1e-9
    assert mean.error >= 0
    assert np.isinf(mean.error) == (len(values) < 4)


def test_the_interval_of_a_mean_holds_it_in_most_cases() -> None:
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        # rounds of four: three short ones and a long one, as workers in lock-step make them
        rounds = np.repeat(random.normal(1.0, 0.1, 25), 4) * np.tile([0.1, 0.1, 0.1, 3.7], 25)
        mean = mean_of(rounds, round_length=4)
        hits += abs(mean.value - 1.0) <= mean.error
    assert 180 <= hits <= 200
