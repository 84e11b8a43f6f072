"""How a recorded training ended: by the first message that is known, decided by the kernel's counters."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.causes.recorded import explain_processes
from headrace.causes.recorded.ending import find_ending
from headrace.causes.recorded.processes import ProcessEvents
from headrace.model import Cause, Confidence, EventKind, LoaderSettings, Severity, Text

EVENTS = np.dtype(
    [
        ("start_ns", "u8"), ("duration_ns", "u8"), ("kind", "u2"), ("pid", "i4"), ("thread", "u2"), ("arg", "u4"),
        ("value", "i8"),
    ]
)  # fmt: skip

KILLED = "RuntimeError: DataLoader worker (pid 22048) is killed by signal: Killed. "
TOO_MANY = "OSError: [Errno 24] Too many open files"


def process(pid: int, *texts: tuple[int, str]) -> ProcessEvents:
    events = np.zeros(len(texts), EVENTS)
    for number, (at, _) in enumerate(texts):
        events[number] = (at, 0, EventKind.EXCEPTION, pid, 0, number + 1, 0)
    return ProcessEvents(pid, 1, "trainer", events, {n + 1: text for n, (_, text) in enumerate(texts)})


def test_a_crash_before_any_training_is_no_reason_to_look_at_data() -> None:
    crashed = explain_processes([process(5, (1, "ValueError: no lr"))], start_ns=0, end_ns=9, cores=2.0, exit_code=1)
    assert crashed.findings
    assert not crashed.measure
    assert explain_processes([process(5)], start_ns=0, end_ns=9, cores=2.0, exit_code=0).measure


@pytest.mark.parametrize(("kills", "cause"), [(0, Cause.WORKER_LOST), (1, Cause.MEMORY_PRESSURE)])
def test_the_kernels_count_decides_who_killed_a_worker(kills: int, cause: Cause) -> None:
    (finding,) = find_ending([process(5, (1, KILLED))], kills, 1)
    assert (finding.cause, finding.share) == (cause, 1.0)
    assert finding.evidence[0].en == KILLED.strip()  # no number of a line: there is no log


def test_the_first_message_is_the_cause_of_those_that_follow() -> None:
    trainer, worker = process(5, (20, KILLED)), process(6, (10, TOO_MANY))
    first, *_ = find_ending([trainer, worker], 0, 1)
    assert first.cause is Cause.FD_LIMIT


def test_the_exception_itself_counts_not_the_frames_above_it() -> None:
    text = f"""Traceback (most recent call last):
  File "torch/utils/data/dataloader.py", line 1133, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
{KILLED}

During handling of the above exception, another exception occurred:

{TOO_MANY}"""
    (finding,) = find_ending([process(5, (1, text))], 0, 1)
    assert finding.cause is Cause.FD_LIMIT


def test_what_an_exception_was_raised_from_explains_it() -> None:
    text = f"""{KILLED}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
RuntimeError: DataLoader worker (pid(s) 22048) exited unexpectedly"""
    (finding,) = find_ending([process(5, (1, text))], 0, 1)
    assert finding.title is not None
    assert finding.title.en == "DataLoader worker (pid 22048) is killed by signal: Killed"
    assert finding.confidence is Confidence.CERTAIN


@pytest.mark.parametrize("code", [0, 130])
def test_a_run_that_ended_well_or_was_interrupted_has_no_such_finding(code: int) -> None:
    assert find_ending([process(5, (1, KILLED))], 0, code) == []


def test_an_exception_that_nobody_knows_is_what_ended_the_run_and_its_line_is_named() -> None:
    text = """  File "/home/me/train.py", line 12, in main
    loss = step(batch)
  File "/usr/lib/python3.12/site-packages/torch/nn/linear.py", line 3, in forward
    return F.linear(x)
RuntimeError: nan in the loss"""
    (finding,) = find_ending([process(5, (1, text)), process(6, (2, "RuntimeError: NCCL error"))], 0, 1)
    assert (finding.severity, finding.title) == (Severity.FATAL, Text(*2 * ("RuntimeError: nan in the loss",)))
    assert finding.fix[0].en == "look at /home/me/train.py, line 12, in main: there your code raised it"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('  File "train.py", line 2, in <module>\nOops: all is lost', "Oops: all is lost"),
        (
            '  | Traceback\n  |   File "train.py", line 2\n'
            "  | ExceptionGroup: two (2 sub-exceptions)\n  +-+-- 1 --\n    | A: b",
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
    ],
)  # fmt: skip
def test_an_exception_of_any_name_is_one(text: str, title: str) -> None:
    (finding,) = find_ending([process(5, (1, text))], 0, 1)
    assert finding.title == Text(title, title)
    assert "train.py, line 2" in finding.fix[0].en


@pytest.mark.parametrize(
    ("code", "kills", "title", "do", "cause"),
    [
        (143, 0, "SIGTERM after 8.00 s, a signal that was sent to it", "find out who sent it", Cause.UNKNOWN),
        (129, 0, "SIGHUP after 8.00 s, a signal that was sent to it", "Start it in `tmux`", Cause.UNKNOWN),
        (137, 1, "SIGKILL after 8.00 s, a signal that was sent to it", "Give it more memory", Cause.MEMORY_PRESSURE),
        (137, 0, "SIGKILL after 8.00 s, a signal that was sent to it", "Find out who sent it", Cause.UNKNOWN),
        (139, 0, "SIGSEGV after 8.00 s, a crash of native code", "run it again with `PYTHONFAULT", Cause.UNKNOWN),
        (
            255,
            0,
            "exit code 255 after 8.00 s, and no exception was seen",
            "read what the script wrote last",
            Cause.UNKNOWN,
        ),
        (3, 0, "exit code 3 after 8.00 s, and no exception was seen", "read what the script wrote last", Cause.UNKNOWN),
    ],
)
def test_a_signal_or_an_exit_code_is_what_ended_the_run(
    code: int, kills: int, title: str, do: str, cause: Cause
) -> None:
    (finding,) = find_ending([], kills, code, 8.0)
    assert (finding.severity, finding.cause) == (Severity.FATAL, cause)
    assert finding.title is not None
    assert finding.title.en == title
    assert finding.fix[0].en.startswith(do)


BAD_CRC = "zipfile.BadZipFile: Bad CRC-32 for file 'volume.npy'"


# as `launch/hooks/tracebacks` writes it down, for one that came out of `next`
OF_A_DECODER = """  File "/home/me/train.py", line 11, in __getitem__
    return zlib.decompress(self.packed[index])
zlib.error: Error -3 while decompressing data: incorrect data check"""


# what comes out of `next`, too, and is no sample's fault
_IN_NEXT = '  File "/site-packages/torch/utils/data/dataloader.py", line 1000, in __next__\n'
OF_FILES = f"{_IN_NEXT}OSError: [Errno 24] Too many open files"
OF_A_KILL = f"{_IN_NEXT}RuntimeError: DataLoader worker (pid 20) is killed by signal: Killed. "


@pytest.mark.parametrize(
    ("text", "in_next", "cause"),
    [
        (BAD_CRC, 0, Cause.CORRUPT_SAMPLE),
        (OF_A_DECODER, 1, Cause.UNKNOWN),
        (OF_FILES, 1, Cause.FD_LIMIT),
        (OF_A_KILL, 1, Cause.WORKER_LOST),
    ],
)
@pytest.mark.parametrize("worker_number", [0, 1])
def test_a_damaged_sample_is_named_by_the_batch_that_raised_and_no_other_failure_is(
    worker_number: int, text: str, in_next: int, cause: Cause
) -> None:
    def events(pid: int, *rows: tuple[int, int, EventKind, int, int]) -> np.ndarray:  # type: ignore[type-arg]
        made = np.zeros(len(rows), EVENTS)
        for number, (start, length, kind, arg, value) in enumerate(rows):
            made[number] = (start, length, kind, pid, 0, arg, value)
        return made

    bad = 6 + worker_number
    trainer = ProcessEvents(
        5,
        1,
        "trainer",
        events(
            5,
            (9, 0, EventKind.LOADER, 4, 2),
            (10, 5, EventKind.WAIT, 2, bad - 2),
            (100, 50, EventKind.WAIT, 2, bad),
            (151, 0, EventKind.EXCEPTION, 3, in_next),
        ),
        {2: "Samples#1", 3: text, 4: LoaderSettings(by="torch", num_workers=2).as_text()},
    )
    workers = [
        ProcessEvents(
            20 + number,
            5,
            "worker",
            events(
                20 + number,
                (50, 20, EventKind.FETCH, 0, 6 + number),
                (51, 5, EventKind.SAMPLE, 0, 30 + number),
                (60, 9, EventKind.SAMPLE, 0, 40 + number),
                (80, 20, EventKind.FETCH, 0, 8 + number),  # torch's worker goes on with its next task
                (81, 5, EventKind.SAMPLE, 0, 50 + number),
            ),
        )
        for number in range(2)
    ]
    (finding,) = find_ending([trainer, *workers], 0, 1)
    assert finding.cause is cause
    if cause in {Cause.CORRUPT_SAMPLE, Cause.UNKNOWN}:
        assert finding.figures["sample_index"] == 40 + worker_number
        assert f"sample {40 + worker_number} " in finding.evidence[0].en
    else:
        assert "sample_index" not in finding.figures


def test_what_asks_slurm_is_for_its_jobs_alone() -> None:
    (finding,) = find_ending([], 0, 143, 8.0)
    asking = [text for text in finding.measure if "sacct" in text.en]
    assert asking
    assert all("in a Slurm job run `sacct" in text.en and "若是 Slurm 作业，运行 `sacct" in text.zh for text in asking)


def test_without_a_task_to_look_at_no_sample_is_named() -> None:
    (finding,) = find_ending([process(5, (1, BAD_CRC))], 0, 1)
    assert finding.cause is Cause.CORRUPT_SAMPLE
    assert "sample_index" not in finding.figures
