"""`headrace explain` as a user runs it: what goes where, and which exit code."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_cli import HEADRACE, _environment, run

STORED = Path(__file__).parent.parent / "causes" / "stored_logs"
SLOW = str(STORED / "mmengine-slow_pool.log.gz")
HEALTHY = str(STORED / "mmengine-healthy.log.gz")
KILLED = "RuntimeError: DataLoader worker (pid 2811) is killed by signal: Killed. "


def test_findings_are_exit_code_1_and_stdout_alone_has_the_result() -> None:
    done = run("-q", "explain", SLOW)
    assert (done.returncode, done.stderr) == (1, "")
    assert "batch_lockstep" in done.stdout
    assert "every 4 steps" in done.stdout
    assert "\ndo: " in done.stdout
    assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []


def test_a_healthy_log_is_exit_code_0() -> None:
    done = run("-q", "explain", HEALTHY)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing wrong was found." in done.stdout


def test_json_is_one_document() -> None:
    document = json.loads(run("explain", SLOW, "--json").stdout)
    assert document["schema"] == "headrace/findings/1"
    assert document["verdict"] == "data_bound"
    assert document["findings"][0]["cause"] == "batch_lockstep"
    assert 0.7 < document["findings"][0]["share"] < 0.9
    assert json.loads(run("explain", HEALTHY, "--format", "json").stdout)["findings"] == []


def test_markdown_and_chinese() -> None:
    assert run("-q", "explain", SLOW, "--markdown").stdout.startswith("# data-bound")
    done = run("-q", "explain", SLOW, env={"LANG": "zh_CN.UTF-8"})
    assert "很可能" in done.stdout
    assert "怎么办" in done.stdout
    assert "what helps" not in done.stdout


def test_standard_input_is_read() -> None:
    done = subprocess.run(
        [HEADRACE, "-q", "explain", "-", "--json"],
        input=gzip.decompress(Path(SLOW).read_bytes()),
        capture_output=True,
        env=_environment(None),
        timeout=60,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"][0]["cause"] == "batch_lockstep"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (bytes(range(256)) * 20, "is not text"),
        (b"lorem ipsum\n" * 9, "no line tells of training steps"),
    ],
)
def test_what_is_no_log_is_exit_code_2_and_a_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    done = run("-q", "explain", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_a_document_on_a_refusal_too(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"lorem ipsum\n" * 9)
    for args in (("explain", str(path), "--json"), ("explain", "--message", "what now?", "--json")):
        done = run("-q", *args)
        document = json.loads(done.stdout)
        assert (done.returncode, document["schema"], document["findings"]) == (2, "headrace/findings/1", [])
        assert set(document["error"]) == {"what", "evidence", "next_step"}
        assert document["error"]["what"] in done.stderr


def test_missing_files_folders_and_missing_arguments_are_exit_code_2(tmp_path: Path) -> None:
    for args, said in (
        ((str(tmp_path / "none.log"),), "No such file"),
        ((str(tmp_path),), "is a folder"),
        ((), "name a log"),
        (("--message", "x", "y.log"), "one or the other"),
        (("--message", "loss went up, what now?"), "no such message is known"),
    ):
        done = run("-q", "explain", *args)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert said in done.stderr


def test_one_message_is_looked_up() -> None:
    done = run("explain", "--message", KILLED)
    assert (done.returncode, done.stderr) == (1, "")
    assert "KB-01" in done.stdout
    document = json.loads(run("explain", "--message", KILLED, "--json").stdout)
    assert document["schema"] == "headrace/findings/1"
    assert document["messages"][0]["id"] == "KB-01"
    assert document["findings"][0]["severity"] == "fatal"


def test_a_log_is_explained_without_torch() -> None:
    code = (
        "import sys\nfrom headrace.cli import main\n"
        f"main(['-q', 'explain', {HEALTHY!r}, '--json'])\nsys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
