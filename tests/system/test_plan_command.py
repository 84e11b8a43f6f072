"""`headrace plan` as a user runs it: stdout, stderr and exit code."""

import json
import re
from pathlib import Path

import pytest

from .test_cli import run

CODE = """
import numpy as np
from torch.utils.data import DataLoader
def generated():
    yield from range(9)
def train_set(): return [np.zeros(1 << 20, np.uint8) for _ in range(16)]
def loader(): return DataLoader(train_set(), batch_size=4, num_workers=2)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "planned.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_target_is_measured_and_the_terms_are_shown(folder: Path) -> None:
    done = run("plan", "planned.py:loader", "--ranks", "2", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout
    assert said.startswith("headrace plan: batch 4, 2 workers, prefetch 2\nlist: a sample is 1.00 MiB")
    assert re.search(r"batches ahead +16.0 MiB .* measured +2 x 2 x 4 x 1.00 MiB", said)
    for term in ("in the loop's hands", "samples in the workers' hands", "interpreters of workers", "data set, copied"):
        assert term in said
    for tier in ("safe", "balanced", "aggressive", "limit"):
        assert re.search(rf"^{tier} +\d+ +\d+ ", said, re.MULTILINE)
    assert "2 ranks" in said
    assert "left for the page cache" in said
    assert "Next:" in said


def test_the_sizes_of_source_002_on_its_machine(folder: Path) -> None:
    line = "plan --sample-bytes 15MB --sequence-length 8 --batch-size 4 --num-workers 16 --prefetch-factor 8"
    done = run(*line.split(), "--memory", "46GB", "--cores", "32", "--json", "-q")
    assert (done.returncode, done.stderr) == (1, "")  # it does not fit: the source's own finding
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/plan/1"
    assert not document["plans"]["torch"]["fits"]
    theirs, ours = document["plans"]["torch"], document["plans"]["headrace"]
    queued = next(term for term in theirs["terms"] if term["kind"] == "queue")
    assert queued["bytes"] == 16 * 8 * 4 * 120_000_000
    assert ours["fits"]  # its budget bounds what is ahead
    assert [row["tier"] for row in document["tiers"]] == ["safe", "balanced", "aggressive", "limit"]
    assert all(row["fits"] and row["torch"]["total_bytes"] < 0.9 * 46e9 for row in document["tiers"])


def test_where_nothing_fits_only_what_would_is_said(folder: Path) -> None:
    done = run("plan", "--sample-bytes", "500MB", "--batch-size", "8", "--memory", "1GB", "-q")
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r"\nNext: a smaller batch, or \d+\.\d+ GiB of free memory\.\n$", done.stdout)
    for said in ("even one worker", "headrace.DataLoader takes", "a row that fits"):
        assert said not in done.stdout
    done = run("plan", "--sample-bytes", "15MB", "--batch-size", "4", "--num-workers", "64", "--memory", "3GB", "-q")
    assert "Next: a row that fits." in done.stdout


def test_what_a_target_prints_before_it_exits_is_shown(folder: Path) -> None:
    (folder / "parses.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('config')\nparser.parse_args()\n"
    )
    done = run("plan", "parses.py:train_set", "-q")
    assert done.returncode == 2
    assert "the following arguments are required: config" in done.stderr
    assert "below `if __name__ == '__main__':`" in done.stderr


def test_in_chinese(folder: Path) -> None:
    done = run("plan", "--sample-bytes", "5MB", "--lang", "zh", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    for said in ("预取的 batch", "worker 的解释器", "平衡", "给定", "下一步："):
        assert said in done.stdout
    assert "batches ahead" not in done.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plan", "plan needs a target or --sample-bytes"),
        ("plan planned.py:train_set --sample-bytes 5MB", "one of them"),
        ("plan planned.py:train_set --sequence-length 8", "a whole sequence"),
        ("plan planned.py:nothing", "planned.py has no 'nothing'"),
        ("plan planned.py:generated", "planned.py:generated is a generator, no data set"),
        ("plan --sample-bytes 5XB", "is not a size"),
        ("plan --sample-bytes 5MB --batch-size 0", "not between 1 and"),
    ],
)
def test_wrong_usage_is_explained(folder: Path, line: str, said: str) -> None:
    done = run(*line.split(), "-q")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
