"""The guard around every test sees what a careless test leaves behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import _children, _left_behind, _open_fds, _shm_entries


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


def test_open_files_are_seen() -> None:
    before = _children(), _shm_entries(), _open_fds()
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    try:
        assert len(_left_behind(*before)) == 8
    finally:
        for fd in fds:
            os.close(fd)
    assert _left_behind(*before) == []
