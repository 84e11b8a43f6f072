"""How a recorded training ended: by the first message that is known, decided by the kernel's counters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.causes.recorded.ending import find_ending
from headrace.causes.recorded.processes import ProcessEvents
from headrace.causes.recorded.surroundings import Surroundings
from headrace.model import Cause, EventKind

EVENTS = np.dtype(
    [
        ("start_ns", "u8"), ("duration_ns", "u8"), ("kind", "u2"), ("pid", "i4"), ("thread", "u2"), ("arg", "u4"),
        ("value", "i8"),
    ]
)  # fmt: skip

AROUND = Surroundings(
    seconds=5.0,
    throttled_share=None,
    throttled_s=0.0,
    quota_cores=None,
    num_working=1,
    swapped_in_bytes=0,
    swapped_bytes=0,
    memory_stall_s=None,
    refault_bytes=None,
    limit_bytes=None,
    most_used_bytes=0,
    kills=0,
)
KILLED = "RuntimeError: DataLoader worker (pid 22048) is killed by signal: Killed. "
TOO_MANY = "OSError: [Errno 24] Too many open files"


def process(pid: int, *texts: tuple[int, str]) -> ProcessEvents:
    events = np.zeros(len(texts), EVENTS)
    for number, (at, _) in enumerate(texts):
        events[number] = (at, 0, EventKind.EXCEPTION, pid, 0, number + 1, 0)
    return ProcessEvents(pid, 1, "trainer", events, {n + 1: text for n, (_, text) in enumerate(texts)})


@pytest.mark.parametrize(("kills", "cause"), [(0, Cause.WORKER_LOST), (1, Cause.MEMORY_PRESSURE)])
def test_the_kernels_count_decides_who_killed_a_worker(kills: int, cause: Cause) -> None:
    (finding,) = find_ending([process(5, (1, KILLED))], replace(AROUND, kills=kills), 1)
    assert (finding.cause, finding.share) == (cause, 1.0)


def test_the_first_message_is_the_cause_of_those_that_follow() -> None:
    trainer, worker = process(5, (20, KILLED)), process(6, (10, TOO_MANY))
    first, *_ = find_ending([trainer, worker], AROUND, 1)
    assert first.cause is Cause.FD_LIMIT


def test_the_exception_itself_counts_not_the_frames_above_it() -> None:
    text = f"""Traceback (most recent call last):
  File "torch/utils/data/dataloader.py", line 1133, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
{KILLED}

During handling of the above exception, another exception occurred:

{TOO_MANY}"""
    (finding,) = find_ending([process(5, (1, text))], AROUND, 1)
    assert finding.cause is Cause.FD_LIMIT


def test_a_run_that_ended_well_or_for_reasons_of_its_own_has_no_such_finding() -> None:
    assert find_ending([process(5, (1, KILLED))], AROUND, 0) == []
    assert find_ending([process(5, (1, "ValueError: nan in the loss"))], AROUND, 1) == []
    assert find_ending([], None, 1) == []
