"""What a test machine lacks (a dead file server, a broken disk) is recognised from a recorded report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.forensics.hangs import (
    StuckKind,
    StuckReport,
    recognise,
    user_frame,
)
from headrace.signals import Frame, Stacks, ThreadStack
from headrace.signals.system import Call, OpenFile, ThreadState

PID = 4711
SLEEPING = ThreadState(
    tid=PID,
    name="headrace-w3",
    state="S",
    wait_channel="",
    call=None,
    kernel_stack=(),
    cpu_s=1.0,
)


def call(name: str, *args: int) -> Call:
    return Call(name=name, args=(*args, *(0,) * (6 - len(args))), stack_pointer=0, code_pointer=0)


def report(thread: ThreadState, *more: ThreadState, is_forked: bool = True, **changes: object) -> StuckReport:
    start = StuckReport(pid=PID, watched_s=0.1, is_forked=is_forked, first=(thread, *more), threads=(thread, *more))
    return replace(start, **changes)  # type: ignore[arg-type]


def remote(system: str) -> OpenFile:
    return OpenFile(fd=7, path="/mnt/ct/scan_0031.npz", position=4096, size=None, kind="file", file_system=system)


def test_a_dead_nfs_server_in_uninterruptible_sleep() -> None:
    waits = replace(
        SLEEPING, state="D", wait_channel="rpc_wait_bit_killable", call=call("read", 7), kernel_stack=("nfs_read",)
    )
    diagnosis = recognise(report(waits, files=(remote("nfs4"),)))
    assert diagnosis.kind is StuckKind.DISK_SLEEP
    assert "/mnt/ct/scan_0031.npz rpc_wait_bit_killable" in diagnosis.said()


def test_a_moment_of_disk_sleep_is_reading_not_hanging() -> None:
    now = replace(SLEEPING, state="D", wait_channel="folio_wait_bit_common", call=call("read", 7))
    before = replace(now, state="R", wait_channel="", cpu_s=0.999)
    diagnosis = recognise(report(now, files=(remote("ext4"),), first=(before,)))
    assert diagnosis.kind is StuckKind.FILE


@pytest.mark.parametrize("system", ["nfs4", "fuse.s3fs", "lustre", "cifs"])
def test_a_remote_file_system_that_can_be_interrupted(system: str) -> None:
    waits = replace(SLEEPING, wait_channel="request_wait_answer", call=call("pread64", 7))
    assert recognise(report(waits, files=(remote(system),))).kind is StuckKind.REMOTE_FILE


def test_opening_a_file_of_a_dead_server_has_no_descriptor_yet() -> None:
    waits = replace(SLEEPING, wait_channel="request_wait_answer", call=call("openat", 2**64 - 100))
    assert recognise(report(waits)).kind is StuckKind.REMOTE_FILE


def test_held_by_a_debugger() -> None:
    diagnosis = recognise(report(replace(SLEEPING, state="t")))
    assert diagnosis.said() == "is held by a debugger"


@pytest.mark.parametrize(
    ("library", "name"),
    [("libgomp-a49a47f9.so.1.0.0", "libgomp"), ("libiomp5.so", "libiomp"), ("cv2.abi3.so", "OpenCV")],
)
def test_thread_pools_that_a_fork_breaks(library: str, name: str) -> None:
    waits = replace(SLEEPING, call=call("futex", 1, 0x80))
    diagnosis = recognise(report(waits, libraries={PID: ("libc.so.6", library)}))
    assert diagnosis.kind is StuckKind.FORKED_POOL
    assert name in diagnosis.said()
    assert "setNumThreads" in diagnosis.next_step()


def test_our_own_watching_thread_holds_nothing() -> None:
    waits = replace(SLEEPING, call=call("futex", 1, 0x189))
    own = replace(SLEEPING, tid=PID + 1, name="headrace-watch", call=call("poll", 1, 1))
    other = replace(SLEEPING, tid=PID + 2, name="reader", call=call("poll", 1, 1))
    assert recognise(report(waits, own)).kind is StuckKind.FORK_DEADLOCK
    assert recognise(report(waits, own, other)).kind is StuckKind.LOCK_WAIT
    assert recognise(report(waits, own, is_forked=False)).kind is StuckKind.DEADLOCK


def test_a_worker_that_waits_for_work_is_well() -> None:
    frames = (Frame(file="/x/headrace/engine/worker/worker.py", line=104, function="run"),)
    stack = ThreadStack(name="", tid=None, frames=frames, is_main=True)
    pipe = OpenFile(fd=5, path="pipe:[1]", position=0, size=None, kind="pipe", file_system="")
    waits = replace(SLEEPING, call=call("read", 5))
    seen = report(waits, files=(pipe,), stacks=Stacks(source="faulthandler", threads=(stack,)))
    assert recognise(seen).kind is StuckKind.IDLE
    assert recognise(replace(seen, stacks=Stacks(source=""))).kind is StuckKind.PIPE


def test_the_users_own_line_is_named() -> None:
    numpy = Frame(file="/v/lib/python3.11/site-packages/numpy/linalg.py", line=1, function="svd")
    own = Frame(file="project/data.py", line=7, function="__getitem__")
    assert user_frame((numpy, own)) is own
    assert user_frame((numpy,)) is numpy
    assert user_frame(()) is None


_THREADS = st.builds(
    ThreadState,
    tid=st.sampled_from([PID, PID + 1]),
    name=st.sampled_from(["a", "headrace-watch"]),
    state=st.sampled_from("RSDTtZXI"),
    wait_channel=st.sampled_from(["", "futex_do_wait", "nfs_wait", "request_wait_answer"]),
    call=st.none()
    | st.builds(
        call, st.sampled_from(["futex", "read", "poll", "fcntl", "call 999"]), st.integers(0, 9), st.integers(0, 512)
    ),
    kernel_stack=st.just(()),
    cpu_s=st.floats(0, 10),
)


@given(
    first=st.lists(_THREADS, max_size=3).map(tuple),
    threads=st.lists(_THREADS, max_size=3).map(tuple),
    is_forked=st.none() | st.booleans(),
    watched_s=st.sampled_from([0.0, 0.1]),
    files=st.sampled_from([(), (remote("nfs"),)]),
    language=st.sampled_from(["en", "zh"]),
)
def test_whatever_is_seen_there_is_an_answer(
    first: tuple[ThreadState, ...],
    threads: tuple[ThreadState, ...],
    is_forked: bool | None,
    watched_s: float,
    files: tuple[OpenFile, ...],
    language: str,
) -> None:
    seen = StuckReport(pid=PID, watched_s=watched_s, is_forked=is_forked, first=first, threads=threads, files=files)
    diagnosis = recognise(seen)
    assert diagnosis.said(language)
    assert str(seen)
