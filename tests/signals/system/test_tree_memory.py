"""The memory of a tree of processes counts shared pages once, and segments that nobody maps."""

import mmap
import os
import subprocess
import sys

import pytest

from headrace.signals.system import read_tree_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc/*/smaps_rollup is Linux's")

MIB = 2**20
SIZE = 64 * MIB


def memory() -> int:
    measured = read_tree_memory(os.getpid())
    assert measured is not None
    return measured


def test_a_shared_segment_counts_once_mapped_or_not() -> None:
    before = memory()
    fd = os.memfd_create("headrace-test")
    try:
        os.truncate(fd, SIZE)
        with mmap.mmap(fd, SIZE) as view:
            view[:] = b"1" * SIZE
            mapped = memory() - before
        unmapped = memory() - before
    finally:
        os.close(fd)
    assert abs(mapped - SIZE) < 16 * MIB
    assert abs(unmapped - SIZE) < 16 * MIB
    assert abs(memory() - before) < 16 * MIB


def test_children_count() -> None:
    before = memory()
    code = f"block = b'1' * {SIZE}; print('ready', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert memory() - before > SIZE * 0.9
    finally:
        child.communicate()


def test_a_process_that_is_gone_tells_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert read_tree_memory(child.pid) is None
