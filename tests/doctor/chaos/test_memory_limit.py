"""A real memory limit, in a control group: torch's loader dies in it, ours ends the epoch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.signals.system import memory_groups

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "memory_limit.py"


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(300)
def test_torch_dies_and_ours_ends_the_epoch(tmp_path: Path) -> None:
    groups = memory_groups()
    if not groups or not groups[0].folder.is_dir():
        pytest.skip("no memory control group here")
    out, segments = tmp_path / "result.json", Path("/dev/shm")
    before = set(segments.glob("torch_*"))
    subprocess.run([sys.executable, str(SCRIPT), "--json", str(out)], check=True, timeout=280)
    for left in set(segments.glob("torch_*")) - before:  # by torch's workers, which were killed
        left.unlink(missing_ok=True)
    results = json.loads(out.read_text())["results"]
    assert not results["torch"]["is_right"], "the limit is too high to show anything"
    assert results["torch"]["oom_kills"] > 0
    assert results["headrace"]["is_right"], results["headrace"]
    assert list(groups[0].folder.glob("headrace-bench-*")) == []
