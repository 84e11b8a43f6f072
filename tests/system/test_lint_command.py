"""`headrace lint` as a user runs it: stdout, stderr and exit code."""

import json
import subprocess
from pathlib import Path

import pytest

from .test_cli import HEADRACE, run

SCRIPT = """\
from torch.utils.data import DataLoader
名 = DataLoader(data, num_workers=0, prefetch_factor=2); X.LOAD_TRUNCATED_IMAGES = True
np.load("a.npy", allow_pickle=True)  # headrace: ignore[allow-pickle]
import numpy as np
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_findings_with_why_and_fix(script: Path) -> None:
    done = run("lint", str(script))
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{script}:2:5: workers-needed: prefetch_factor=2 with 0 workers"
    assert lines[1].startswith("    why: torch raises ValueError")
    assert lines[2].startswith("    fix: num_workers above 0")
    assert lines[3] == f"{script}:2:57: truncated-images: LOAD_TRUNCATED_IMAGES = True"
    assert lines[-1] == "2 findings in 1 file, 1 silenced by comments"


def test_why_and_fix_are_said_once_or_with_each(script: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(SCRIPT, encoding="utf-8")
    assert run("lint", str(tmp_path)).stdout.count("    why: ") == 2
    assert run("lint", str(tmp_path), "-v").stdout.count("    why: ") == 4


def test_chinese(script: Path) -> None:
    done = run("lint", str(script), "--lang", "zh")
    assert "prefetch_factor=2，而 worker 数为 0\n    原因: torch 会抛出 ValueError" in done.stdout
    assert done.stdout.endswith("1 个文件，2 个问题，1 个被注释忽略\n")


def test_the_document(script: Path) -> None:
    done = run("lint", str(script), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["num_files"]) == (1, "headrace/lint/1", 1)
    first = document["findings"][0]
    assert list(first) == ["rule", "severity", "path", "line", "column", "title", "why", "fix"]
    assert (first["rule"], first["severity"], first["line"], first["column"]) == ("workers-needed", "high", 2, 5)
    assert (document["num_ignored"], document["unread"]) == (1, [])


def test_sarif_names_rules_levels_and_places(script: Path, tmp_path: Path) -> None:
    (tmp_path / "a broken.py").write_text("def")
    done = run("lint", str(tmp_path), "--sarif", "-q")
    document = json.loads(done.stdout)
    (one,) = document["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert (done.returncode, document["version"], done.stderr) == (1, "2.1.0", "")
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    first = one["results"][0]
    place = first["locations"][0]["physicalLocation"]
    assert (first["level"], place["region"]) == ("error", {"startLine": 2, "startColumn": 5})
    assert place["artifactLocation"]["uri"].endswith("/train.py")
    (invocation,) = one["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "a broken.py" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_rules_are_chosen(script: Path) -> None:
    assert run("lint", str(script), "--select", "allow-pickle,flag-clamped").returncode == 0
    assert run("lint", str(script), "--ignore", "workers-needed", "--ignore", "truncated-images").returncode == 0
    done = run("lint", str(script), "--select", "no-such-rule")
    assert done.returncode == 2
    assert "there is no rule 'no-such-rule'; there are flag-clamped, " in done.stderr


def test_standard_input() -> None:
    done = subprocess.run([HEADRACE, "lint", "-"], input=SCRIPT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.partition("\n")[0]) == (
        1,
        "-:2:5: workers-needed: prefetch_factor=2 with 0 workers",
    )


def test_a_healthy_file_says_so_and_a_missing_one_cannot_be_looked_at(tmp_path: Path) -> None:
    healthy = tmp_path / "healthy.py"
    healthy.write_text("x = 1\n")
    done = run("lint", str(healthy))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 findings in 1 file\n", "")
    done = run("lint", str(healthy), str(tmp_path / "gone.py"))
    assert (done.returncode, done.stdout) == (2, "0 findings in 1 file\n")
    assert done.stderr == f"headrace: {tmp_path / 'gone.py'} was not looked at: No such file or directory\n"


def test_a_folder_without_scripts_is_an_error(tmp_path: Path) -> None:
    done = run("lint", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no .py, .yaml or .yml file" in done.stderr
