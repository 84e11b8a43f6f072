"""Tests in several processes, as of `make test`: who ends his process is tried again, who measures is by himself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
DIES_ONCE = """
import os, pathlib

def test_dies():
    path = pathlib.Path("died")
    if not path.exists():
        path.touch()
        os._exit(1)

def test_is_healthy():
    pass
"""
MEASURES = """
import pathlib, time, pytest

@pytest.mark.parametrize("number", range(8))
def test_takes_its_time(number, request):
    begin = time.monotonic()
    time.sleep(0.1)
    pathlib.Path(f"{request.node.path.stem}-{number}").write_text(f"{begin} {time.monotonic()}")
"""


def run_in_two(folder: Path, **files: str) -> "subprocess.CompletedProcess[str]":
    pytest.importorskip("xdist")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone:\n    root:\n    leaves_behind:\n")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--numprocesses=2", "--dist=loadfile"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**others, "PYTHONPATH": path},
        timeout=100,
    )


def test_one_that_ends_its_process_has_failed_though_it_passes_in_the_next(tmp_path: Path) -> None:
    done = run_in_two(tmp_path, test_dying=DIES_ONCE)
    assert done.returncode == 1, done.stdout
    assert "crashed while running 'test_dying.py::test_dies'" in done.stdout
    failed = json.loads((tmp_path / ".pytest_cache/v/cache/lastfailed").read_text())
    assert failed == {"test_dying.py::test_dies": True}


def test_nothing_runs_beside_one_that_is_alone(tmp_path: Path) -> None:
    done = run_in_two(tmp_path, test_beside=MEASURES, test_alone=MEASURES + "\npytestmark = pytest.mark.alone\n")
    assert done.returncode == 0, done.stdout
    beside, alone = (
        [tuple(map(float, path.read_text().split())) for path in tmp_path.glob(f"{name}-*")]
        for name in ("test_beside", "test_alone")
    )
    assert len(beside) == len(alone) == 8
    begin, end = min(one[0] for one in alone), max(one[1] for one in alone)  # they follow each other
    assert not [other for other in beside if begin < other[1] and other[0] < end]
