"""How far to look ahead: bounded, hiding the slowest sample, and never more than the samples call for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.epoch.depth import CHUNK_TARGET_S, ENOUGH_SAMPLES, Pace, batches_ahead, chunk_samples

seconds = st.one_of(st.just(0.0), st.floats(1e-7, 100))
paces = st.builds(
    Pace,
    sample_s=seconds,
    worst_sample_s=seconds,
    samples_seen=st.sampled_from([0, 10, ENOUGH_SAMPLES - 1, ENOUGH_SAMPLES, 10**6]),
    step_s=seconds,
    batch_rows=st.integers(1, 5000),
    num_workers=st.integers(1, 64),
)


@given(pace=paces)
def test_a_chunk_is_part_of_a_batch(pace: Pace) -> None:
    assert 1 <= chunk_samples(pace) <= pace.batch_rows


@given(pace=paces)
def test_dearer_samples_make_no_larger_chunks(pace: Pace) -> None:
    if pace.sample_s:
        assert chunk_samples(replace(pace, sample_s=2 * pace.sample_s)) <= chunk_samples(pace)


@given(pace=paces)
def test_dear_samples_leave_each_worker_four_chunks_of_a_batch(pace: Pace) -> None:
    if pace.sample_s >= CHUNK_TARGET_S:
        assert chunk_samples(pace) == max(1, pace.batch_rows // (4 * pace.num_workers))


@given(pace=paces, most=st.integers(1, 256))
def test_batches_ahead_are_bounded_and_explained(pace: Pace, most: int) -> None:
    ahead, reason = batches_ahead(pace, most=most)
    assert 1 <= ahead <= most
    assert reason


@given(pace=paces)
def test_every_worker_has_work(pace: Pace) -> None:
    ahead, _ = batches_ahead(pace, most=10**9)
    assert ahead * pace.batch_rows >= pace.num_workers


@given(pace=paces)
def test_the_slowest_sample_stays_hidden(pace: Pace) -> None:
    if pace.samples_seen >= ENOUGH_SAMPLES and pace.step_s > 0:
        ahead, _ = batches_ahead(pace, most=10**12)
        assert ahead * pace.step_s >= pace.worst_sample_s


@given(pace=paces)
def test_a_slower_sample_never_means_fewer_batches(pace: Pace) -> None:
    slower = replace(pace, worst_sample_s=2 * pace.worst_sample_s)
    assert batches_ahead(slower, most=10**12)[0] >= batches_ahead(pace, most=10**12)[0]


def test_heavy_tails_go_deep_and_even_samples_do_not() -> None:
    pace = Pace(sample_s=0.03, worst_sample_s=1.0, samples_seen=10_000, step_s=0.1, batch_rows=24, num_workers=8)
    assert batches_ahead(pace, most=256)[0] >= 10
    assert batches_ahead(replace(pace, worst_sample_s=0.04), most=256)[0] <= 5


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_until_the_spread_is_known_it_looks_as_far_as_torch(workers: int) -> None:
    pace = Pace(sample_s=0.01, worst_sample_s=0.0, samples_seen=3, step_s=0.0, batch_rows=32, num_workers=workers)
    assert batches_ahead(pace, most=256)[0] >= 2 * workers
