"""The installed command, as a user runs it: stdout, stderr and exit code."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import headrace
from headrace import SampleFailure
from headrace.signals import QuarantineFile

HEADRACE = str(Path(sys.executable).with_name("headrace"))
TINY = ("--epochs", "1")


def run(*args: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([HEADRACE, *args], capture_output=True, text=True, env=_environment(env), timeout=100)


def _environment(extra: dict[str, str] | None) -> dict[str, str]:
    """Return an environment that says nothing of language or colour but what the test asks for."""
    silent = {"HEADRACE_LANG", "LC_ALL", "LC_MESSAGES", "LANG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    plain = {name: value for name, value in os.environ.items() if name not in silent}
    return {**plain, "PYTHONUTF8": "1", **(extra or {})}


def test_help_names_the_commands_and_the_exit_codes() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo" in done.stdout
    assert "exit codes" in done.stdout


def test_version_says_what_a_bug_report_needs() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"headrace {headrace.__version__} (Python 3.")
    assert "torch 2." in done.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "COMMAND"),
        (("dmeo",), "dmeo"),
        (("demo", "--epochs", "0"), "0 is not between 1 and 1000"),
        (("demo", "--epochs", "four"), "'four' is not a whole number"),
        (("demo", "--lang", "fr"), "'fr'"),
        (("-q", "-v", "demo"), "not allowed with"),
    ],
)
def test_wrong_usage_is_explained_on_stderr(args: Sequence[str], said: str) -> None:
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_demo_runs_a_training_feeds_it_and_compares(tmp_path: Path) -> None:
    done = run("demo", *TINY, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    for row in ("first batch", "wait for a batch, median", "steps per second", "peak memory"):
        assert re.search(rf"{row}.*\d", done.stdout)
    assert re.search(r"losses identical +yes, all 12", done.stdout)
    assert "1  headrace run train.py\n" in done.stdout
    assert re.search(
        r"2  headrace run --feed train.py\n(.*\n)+ +torch +[▁-█]{12}\n +headrace +[▁-█]{12}\n", done.stdout
    )
    assert "\x1b[" not in done.stdout  # no colour in a pipe
    assert done.stderr.count("\n") <= 2  # progress: a line, and one a minute
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # that the report is Chinese: tests/cli/test_demo.py
def test_demo_speaks_chinese(tmp_path: Path) -> None:
    done = run("-q", "demo", *TINY, "--color", "always", env={"LANG": "zh_CN.UTF-8", "TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    for row in ("首个 batch 用时", "等待一个 batch，最长", "每秒步数"):
        assert re.search(rf"{row}.*\d", done.stdout)
    assert "一致，共 12 个" in done.stdout
    assert "steps per second" not in done.stdout
    assert "\x1b[" in done.stdout


def test_demo_prints_one_json_document(tmp_path: Path) -> None:
    done = run("demo", *TINY, "--json", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/demo/3"
    assert document["losses_identical"] is True
    assert document["settings"] == {"workers": 2, "batch_size": 8, "epochs": 1}
    figures = document["figures"]
    for loader in ("torch", "headrace"):
        assert len(document["waits_s"][loader]) == 12
        assert figures["steps_per_s"][loader] > 0
        assert 0 < figures["wait_median_s"][loader] <= figures["wait_worst_s"][loader]
        assert figures["peak_memory_bytes"][loader] > 100 << 20


@pytest.mark.parametrize(
    ("loader", "number", "code"),
    [
        ("torch", signal.SIGINT, 130),
        ("headrace", signal.SIGTERM, 143),
        pytest.param("torch", signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("headrace", signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_demo_that_is_stopped_leaves_nothing_behind(loader: str, number: signal.Signals, code: int) -> None:
    """Stop it while the workers of a loader run, and look for processes and files."""
    tmp_path = Path(tempfile.mkdtemp())  # short: the paths of sockets are limited
    demo = subprocess.Popen(
        [HEADRACE, "-q", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment({"TMPDIR": str(tmp_path)}),
        start_new_session=True,
    )
    try:
        tree = _wait_for_workers(demo.pid, loader)
        demo.send_signal(number)
        out, err = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.wait()
    assert (demo.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    tmp_path.rmdir()
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def _wait_for_workers(pid: int, loader: str) -> list[psutil.Process]:
    """Wait until the training with a loader has children of its own, and return the demo's whole tree."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        tree = psutil.Process(pid).children(recursive=True)
        for child in tree:
            with suppress(psutil.NoSuchProcess):
                record = child.environ().get("HEADRACE_RUN_DIR", "")  # of the training and its children
                if record.endswith(f"/{loader}") and child.children():
                    return tree
        time.sleep(0.02)
    raise TimeoutError(f"the demo started no workers of {loader}")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    file = QuarantineFile(path)
    for key in range(600):
        file.append(SampleFailure(key=key, exception="ValueError", message="m" * 200, traceback="t" * 400))
    command = f"'{HEADRACE}' quarantine '{path}' --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env=_environment({"TMPDIR": str(tmp_path)}),
        timeout=100,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
    assert done.returncode in {1, 141}  # a pipe may take the whole document before its reader goes
