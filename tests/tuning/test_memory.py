"""The terms of a peak, and which configurations fit: pure."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tuning import Configuration, Machine, SampleCost, peak_memory, tier_rows
from headrace.tuning.memory import TermKind

_MIB, _GIB = 1 << 20, 1 << 30
_COST = SampleCost(
    sample_bytes=5 * _MIB,
    batch_sample_bytes=4 * _MIB,
    fetch_peak_bytes=20 * _MIB,
    worker_bytes=6 * _MIB,
    collected_bytes=40 * _MIB,
    dataset_bytes=10 * _MIB,
    training_bytes=200 * _MIB,
)
_MACHINE = Machine(memory_bytes=46 * _GIB, memory_source="test", shm_bytes=23 * _GIB, cores=32)
_CONFIGURATION = Configuration(batch_size=8, num_workers=4, prefetch_factor=2)


def _terms(configuration: Configuration, loader: str, cost: SampleCost = _COST) -> dict[TermKind, int]:
    return {term.kind: term.bytes // _MIB for term in peak_memory(cost, configuration, loader).terms}


def test_torch_queues_whole_batches_and_has_one_in_the_making_per_worker() -> None:
    assert _terms(_CONFIGURATION, "torch") == {
        TermKind.QUEUE: 4 * 2 * 8 * 4,
        TermKind.LOOP: 8 * 4,
        TermKind.IN_HAND: 4 * (7 * 5 + 20),  # one decode peak a worker, not one a queued sample
        TermKind.INTERPRETER: 4 * (6 + 40),
        TermKind.DATASET: 4 * 10,
        TermKind.TRAINING: 200,
    }


def test_ours_has_one_sample_in_hand_per_worker() -> None:
    own = replace(_CONFIGURATION, prefetch_factor=None)
    terms = _terms(own, "headrace")
    assert terms[TermKind.QUEUE] == own.ahead("headrace", _COST) * 8 * 4
    assert _terms(replace(own, num_workers=16), "headrace")[TermKind.QUEUE] == terms[TermKind.QUEUE]
    assert terms[TermKind.IN_HAND] == 4 * 20
    assert terms[TermKind.INTERPRETER] < 4 * (6 + 40)


def test_a_budget_bounds_what_ours_has_ahead() -> None:
    bounded = _terms(replace(_CONFIGURATION, prefetch_factor=8, budget_bytes=200 * _MIB), "headrace")
    assert bounded[TermKind.QUEUE] + bounded[TermKind.LOOP] <= 200


def test_a_collation_of_its_own_takes_another_copy() -> None:
    cost = replace(_COST, uses_rows=False)
    assert _terms(_CONFIGURATION, "torch", cost)[TermKind.COLLATION] == 4 * 32
    assert _terms(_CONFIGURATION, "headrace", cost)[TermKind.COLLATION] == (4 * 2 + 4 * 2) * 32
    bounded = _terms(replace(_CONFIGURATION, budget_bytes=300 * _MIB), "headrace", cost)
    assert bounded[TermKind.QUEUE] + bounded[TermKind.LOOP] + bounded[TermKind.COLLATION] - 4 * 2 * 32 <= 300


def test_until_a_batch_has_come_ours_does_not_know_that_batches_are_large() -> None:
    cost, large = replace(_COST, uses_rows=False), replace(_CONFIGURATION, prefetch_factor=None, batch_size=64)
    assert large.ahead("headrace", cost) < 2 * 4
    assert _terms(large, "headrace", cost)[TermKind.COLLATION] == (2 * 4 + 4) * 64 * 4


def test_pinned_copies_are_rounded_up_and_ours_has_none() -> None:
    pinned = replace(_CONFIGURATION, batch_size=9, pin_memory=True)  # 36 MiB become 64
    assert _terms(pinned, "torch")[TermKind.PINNED] == 9 * (64 - 36) + 36
    assert TermKind.PINNED not in _terms(pinned, "headrace")


def test_a_validation_loader_and_ranks_come_on_top() -> None:
    alone, beside = (peak_memory(_COST, replace(_CONFIGURATION, val_workers=n), "torch") for n in (0, 4))
    assert beside.rank_bytes == 2 * alone.rank_bytes - _COST.training_bytes
    ranks = peak_memory(_COST, replace(_CONFIGURATION, ranks=4), "torch")
    assert ranks.total_bytes == 4 * alone.total_bytes


def test_without_workers_one_batch_is_in_hand() -> None:
    terms = _terms(Configuration(batch_size=8, num_workers=0), "torch")
    assert terms == {TermKind.LOOP: 32, TermKind.IN_HAND: 55, TermKind.TRAINING: 200}
    assert peak_memory(_COST, Configuration(batch_size=8, num_workers=0), "torch").shm_bytes == 0


@pytest.mark.parametrize("loader", ["torch", "headrace"])
@given(st.integers(1, 32), st.integers(1, 16), st.integers(1, 8), st.data())
def test_more_of_anything_takes_no_less(loader: str, rows: int, workers: int, ahead: int, data: st.DataObject) -> None:
    small = Configuration(batch_size=rows, num_workers=workers, prefetch_factor=ahead)
    field = data.draw(st.sampled_from(["batch_size", "num_workers", "prefetch_factor", "ranks"]))
    large = replace(small, **{field: getattr(small, field) + 1})
    assert peak_memory(_COST, large, loader).total_bytes >= peak_memory(_COST, small, loader).total_bytes


def test_the_rows_fit_their_shares_and_the_cores_of_a_rank() -> None:
    machine = replace(_MACHINE, ranks=2)
    cost = replace(_COST, sample_bytes=120 * _MIB, batch_sample_bytes=120 * _MIB, fetch_peak_bytes=140 * _MIB)
    rows = tier_rows(cost, machine, replace(_CONFIGURATION, batch_size=4))
    shares = {"safe": 0.25, "balanced": 0.5, "aggressive": 0.7, "limit": 0.9}
    assert [row.tier.en for row in rows] == list(shares)
    for row in rows:
        assert row.fits
        assert row.torch.total_bytes <= shares[row.tier.en] * machine.memory_bytes
        assert row.torch.shm_bytes <= machine.shm_bytes  # type: ignore[operator]
        assert row.torch.configuration.num_workers <= 16
    totals = [row.torch.total_bytes for row in rows]
    assert totals == sorted(totals)


def test_what_fits_nowhere_is_said() -> None:
    cost = replace(_COST, sample_bytes=20 * _GIB, batch_sample_bytes=20 * _GIB)
    rows = tier_rows(cost, _MACHINE, replace(_CONFIGURATION, batch_size=4))
    assert not any(row.fits for row in rows)
    assert {row.torch.configuration.num_workers for row in rows} == {1}


def test_shared_memory_bounds_torch_alone() -> None:
    small = replace(_MACHINE, shm_bytes=64 * _MIB)
    assert not small.fits(peak_memory(_COST, _CONFIGURATION, "torch"))
    assert small.fits(peak_memory(_COST, _CONFIGURATION, "headrace"))
