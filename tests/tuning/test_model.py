"""What the model says of throughput, from what one sample costs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tuning.model import Candidate, Limit, Service, candidates, worker_counts

WAITING = Service(sample_s=0.03, cpu_s=0.0003, lock_share=0.01)
COMPUTING = Service(sample_s=0.02, cpu_s=0.02, lock_share=0.5)


def model(service: Service, cores: float = 4) -> Service:
    return replace(service, cores=cores)


def test_who_waits_gains_with_each_worker() -> None:
    rates = [model(WAITING).per_s(Candidate(num_workers=count)) for count in (1, 2, 4, 8, 16)]
    assert rates == pytest.approx([33.3, 66.7, 133, 267, 533], rel=0.01)
    assert model(WAITING).limit(Candidate(num_workers=16))[0] is Limit.WORKERS


def test_who_computes_gains_up_to_the_processors() -> None:
    said = model(COMPUTING)
    assert said.per_s(Candidate(num_workers=2)) == pytest.approx(100, rel=0.01)
    assert said.per_s(Candidate(num_workers=16)) == pytest.approx(200, rel=0.01)
    assert said.limit(Candidate(num_workers=16))[0] is Limit.PROCESSORS


def test_processors_that_others_use_are_no_waiting_for_storage() -> None:
    crowded = Service(sample_s=0.04, cpu_s=0.01, no_core_s=0.03)
    assert crowded.blocked_s == 0
    assert model(crowded).per_s(Candidate(num_workers=16)) == pytest.approx(100, rel=0.02)  # a quarter of four
    assert model(crowded).limit(Candidate(num_workers=16))[0] is Limit.PROCESSORS


def test_threads_share_the_interpreters_lock() -> None:
    threads = Candidate(num_workers=16, backend="thread")
    assert model(COMPUTING).per_s(threads) == pytest.approx(100, rel=0.01)
    assert model(COMPUTING).limit(threads)[0] is Limit.LOCK


def test_a_worker_has_one_thread_where_the_process_itself_had_several() -> None:
    in_parallel = Service(sample_s=0.01, cpu_s=0.02)
    assert model(in_parallel).per_s(Candidate(num_workers=0)) == pytest.approx(100)
    assert model(in_parallel).per_s(Candidate(num_workers=1)) == pytest.approx(50, rel=0.01)


def test_storage_serves_so_many_reads_at_a_time() -> None:
    disk = replace(WAITING, storage_depth=2)
    assert model(disk).per_s(Candidate(num_workers=16)) == pytest.approx(67, rel=0.02)
    assert model(disk).limit(Candidate(num_workers=16))[0] is Limit.STORAGE


def test_workers_that_take_turns_are_seen_by_what_more_of_them_did_not_bring() -> None:
    assert model(WAITING).take_turns({Candidate(num_workers=4): 95.0, Candidate(num_workers=16): 98.0})
    assert not model(WAITING).take_turns({Candidate(num_workers=4): 95.0})


@given(st.floats(0.3, 3.0))
def test_samples_that_are_slower_in_workers_do_not_take_turns(factor: float) -> None:
    tried = (Candidate(num_workers=2), Candidate(num_workers=16))
    assert not model(WAITING).take_turns({one: factor * model(WAITING).per_s(one) for one in tried})


@given(st.floats(1e-6, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(1, 64))
def test_more_workers_are_never_said_to_bring_less(sample_s: float, share: float, lock: float, cores: float) -> None:
    said = model(Service(sample_s=sample_s, cpu_s=share * sample_s, lock_share=lock), cores)
    for backend in ("process", "thread"):
        rates = [said.per_s(Candidate(num_workers=count, backend=backend)) for count in range(1, 40)]
        assert all(more >= less * (1 - 1e-9) > 0 for less, more in pairwise(rates))


def test_what_there_is_to_choose_from() -> None:
    found = list(candidates(worker_counts(4), batch_sizes=(8, 16)))
    assert len(found) == len(set(found)) == 2 * (1 + 4 * 2)
    assert {one.backend for one in candidates(worker_counts(4), loader="torch")} == {"process"}
    assert worker_counts(1) == (0, 1)
