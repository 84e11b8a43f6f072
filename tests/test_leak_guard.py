"""The guard around every test sees what a careless test leaves behind."""

import os
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from random import choices
from string import ascii_lowercase

import pytest

from tests.conftest import _children, _left_behind, _made_here, _open_fds, _shm_entries


def test_a_child_process_is_seen() -> None:
    before = _children(), _shm_entries(), _open_fds()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert any(f"process {child.pid}" in line for line in _left_behind(*before))
    finally:
        child.communicate()
    assert _left_behind(*before) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_a_shared_memory_segment_is_seen() -> None:
    before = _children(), _shm_entries(), _open_fds()
    segment = Path(f"/dev/shm/headrace-test-{os.getpid()}")
    segment.touch()
    try:
        assert _left_behind(*before) == [str(segment)]
    finally:
        segment.unlink()
    assert _left_behind(*before) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_a_segment_that_a_killed_child_made_is_seen() -> None:
    before = _children(), _shm_entries(), _open_fds()
    make = "import os; print(os.open(f'/dev/shm/torch_{os.getpid()}_7_0', os.O_CREAT), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", make], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    segment = Path(f"/dev/shm/torch_{child.pid}_7_0")
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert str(segment) in _left_behind(*before)  # as the guard of a test that runs meanwhile would
        child.kill()
        child.communicate()
        assert _left_behind(*before) == [str(segment)]
    finally:
        child.kill()
        child.communicate()
        segment.unlink(missing_ok=True)
    assert _left_behind(*before) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_a_segment_without_a_pid_in_its_name_is_seen_by_who_maps_it() -> None:
    before = _children(), _shm_entries(), _open_fds()
    segment = SharedMemory(create=True, size=4096, name="headrace-test-" + "".join(choices(ascii_lowercase, k=12)))
    try:
        assert f"/dev/shm/{segment.name}" in _left_behind(*before)
    finally:
        segment.close()
        segment.unlink()


# As another test run beside this one: it is nobody's child here, and leaves behind what a killed worker would.
_STRANGER = """
import multiprocessing.synchronize, os, sys
if os.fork():
    os._exit(0)
os.setsid()
gone = os.fork() or os._exit(0)
os.waitpid(gone, 0)
names = [f"torch_{gone}_7_0", f"torch_{os.getpid()}_7_1", f"sem.mp-{sys.argv[1]}"]
for name in names:
    os.close(os.open(f"/dev/shm/{name}", os.O_CREAT))
print(*names, flush=True)
sys.stdin.read()
for name in names:
    os.unlink(f"/dev/shm/{name}")
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_what_another_test_run_leaves_behind_is_not_blamed_on_this_one() -> None:
    before = _children(), _shm_entries(), _open_fds()
    word = "".join(choices(ascii_lowercase, k=8))
    stranger = subprocess.Popen([sys.executable, "-c", _STRANGER, word], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert stranger.stdout is not None
    try:
        names = stranger.stdout.readline().decode().split()
        assert len(names) == 3
        assert all(Path("/dev/shm", name).exists() for name in names)
        assert not _made_here(set(names))
        assert not any(name in line for name in names for line in _left_behind(*before))
    finally:
        stranger.communicate()


def test_open_files_are_seen() -> None:
    before = _children(), _shm_entries(), _open_fds()
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    try:
        assert len(_left_behind(*before)) == 8
    finally:
        for fd in fds:
            os.close(fd)
    assert _left_behind(*before) == []
