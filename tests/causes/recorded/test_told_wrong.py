"""What a hostile user was told wrong: one test for each, on a recording that is made up event by event."""

from __future__ import annotations

import pytest

from headrace.model import Cause, EventKind, Finding

from .test_recorded import explain, simulate


def fixes(finding: Finding) -> str:
    return " ".join(text.en for text in finding.fix)


def futile(finding: Finding) -> str:
    return " ".join(text.en for text in finding.futile)


def evidence(finding: Finding) -> str:
    return " ".join(text.en for text in finding.evidence)


@pytest.mark.parametrize("pauses", [{0: 7.0}, {0: 7.0, 40: 3.0, 80: 3.0}])
def test_workers_that_rest_with_a_full_queue_have_no_throughput_to_spare(pauses: dict[int, float]) -> None:
    """The first step compiles for 7 s, and the loop stands still now and then; the pool is too slow all the same."""
    interruptions = {at: (EventKind.SYNC, length_s) for at, length_s in pauses.items()}
    processes, end_s = simulate(workers=2, task_s=[0.05] * 160, step_s=0.007, cpu=0.9, interruptions=interruptions)
    finding = next(one for one in explain(processes, end_s, cores=16).findings if one.cause is not Cause.UNKNOWN)
    assert finding.cause is Cause.BATCH_LOCKSTEP
    assert finding.figures["busy_share"] > 0.9
    assert "more workers" not in futile(finding)
    assert len(pauses) > 1 or finding.figures["more_workers"] in range(6, 9)  # 25 ms of the pool for each 7 ms step


@pytest.mark.parametrize(("workers", "every"), [(2, 2), (3, 3), (4, 2), (4, 4)])
def test_heavy_batches_that_always_meet_the_same_worker_are_dealt_out_unevenly(workers: int, every: int) -> None:
    tasks = [0.16 if number % every == 0 else 0.004 for number in range(30 * workers)]
    finding = explain(*simulate(workers=workers, task_s=tasks, step_s=0.016)).findings[0]
    if workers == every:
        assert finding.title is not None
        assert "unevenly dealt out" in finding.title.en
        assert f"num_workers={workers + 1}" in fixes(finding)
        assert "--feed" in finding.fix[0].en
        assert "prefetch_factor" in futile(finding)
    assert "more prefetch does help" not in fixes(finding)
    assert "more workers" not in futile(finding)


def test_heavy_batches_that_go_round_are_single_late_ones() -> None:
    tasks = [0.6 if number % 15 == 7 else 0.004 for number in range(240)]
    finding = explain(*simulate(workers=2, task_s=tasks, step_s=0.016)).findings[0]
    assert (finding.cause, finding.title) == (Cause.STRAGGLER_SAMPLE, None)
