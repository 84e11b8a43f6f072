"""`headrace watch` as a user runs it: what goes where, and which exit code."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.signals import find_py_spy

from ..watch.live import children_of, training, wait_until
from .test_cli import HEADRACE, _environment, run

needs_py_spy = pytest.mark.skipif(find_py_spy() is None, reason="py-spy is missing")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with training("sleep", tmp_path_factory.mktemp("slow")) as process:
        yield process.pid


def watched_until_found(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Watch for two seconds, and for longer on a machine that gets too few samples in that time."""
    for seconds in (2, 8, 32):
        done = run("-q", "watch", *arguments, "--duration", str(seconds), "--interval", "1")
        if done.returncode != 0:
            break
    return done


def test_no_such_process() -> None:
    done = run("watch", "4194999")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no process 4194999" in done.stderr
    assert "try: `ps aux" in done.stderr
    assert run("watch", "no-such-training-script.py").returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [(), ("1", "--memory", "lots"), ("1", "--stuck", "soon"), ("1", "--interval", "0.2"), ("1", "--rate", "0")],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = run("watch", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: headrace watch" in done.stderr


def test_what_is_no_training_is_refused() -> None:
    for command, text in (
        (["sleep", "60"], "not a Python training"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "no process of it has torch loaded"),
    ):
        with subprocess.Popen(command) as process:
            try:
                done = run("watch", str(process.pid), "--once")
            finally:
                process.kill()
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr


@needs_py_spy
def test_once_prints_who_is_who_and_a_verdict(slow: int) -> None:
    done = watched_until_found(str(slow), "--once")
    assert (done.returncode, done.stderr) == (1, "")
    assert f"trainer {slow}" in done.stdout
    assert "worker 1" in done.stdout
    assert "data-bound" in done.stdout
    assert "\ndo: " in done.stdout


@needs_py_spy
def test_lines_of_json_end_with_the_findings_in_chinese(slow: int) -> None:
    done = watched_until_found(str(slow), "--json", "--lang", "zh")
    *looks, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert looks
    assert all((look["schema"], look["event"]) == ("headrace/watch/2", "look") for look in looks)
    assert [trainer["pid"] for trainer in looks[-1]["trainers"]] == [slow]
    assert len(looks[-1]["workers"]) == 2
    assert looks[-1]["machine"]["memory_limit_bytes"] > 0
    assert end["event"] == "end"
    assert end["findings"]["schema"] == "headrace/findings/1"
    assert "等待数据" in end["findings"]["findings"][0]["evidence"][0]
    assert done.returncode == 1


@needs_py_spy
def test_an_interrupt_leaves_nothing_and_the_training_goes_on(slow: int) -> None:
    command = [HEADRACE, "watch", str(slow), "--interval", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(None)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
    assert b"waits for data" in first
    assert rest
    assert children_of(slow)
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_py_spy_on(pid, slow)]


def _is_py_spy_on(pid: str, target: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"record" in words and str(target).encode() in words


@needs_py_spy
def test_a_dump_holds_stacks_files_and_waits(slow: int, tmp_path: Path) -> None:
    path = tmp_path / "hung.txt"
    done = run("-q", "watch", str(slow), "--dump", str(path))
    assert done.returncode == 0
    assert str(path) in done.stdout
    text = path.read_text()
    assert f"=== trainer {slow}" in text
    assert text.count("=== worker") == 2
    assert "__getitem__" in text
    assert "it sleeps of its own accord" in text
    assert "  open: " in text
    to_stdout = run("-q", "watch", "--dump", str(slow))
    assert "=== trainer" in to_stdout.stdout


@needs_py_spy
def test_an_alarm_runs_the_command_with_what_happened(slow: int, tmp_path: Path) -> None:
    told = tmp_path / "alarms"
    script = f'echo "$HEADRACE_ALARM|$HEADRACE_ALARM_TEXT" >> {told}; cat >> {told}; echo >> {told}'
    options = ["--duration", "2", "--interval", "1", "--memory", "1MiB", "--alert-command", script]
    done = run("-q", "watch", str(slow), *options)
    assert done.returncode == 1
    assert "ALARM the training holds" in done.stdout
    # the machine may have an alarm of its own meanwhile, such as swapping
    wait_until(lambda: told.exists() and '"kind": "memory"' in told.read_text())
    lines = told.read_text().splitlines()
    assert (
        len([line for line in lines if line.startswith("memory|the training holds")]) == 1
    )  # told once, not each look
    (document,) = [json.loads(line) for line in lines if '"kind": "memory"' in line]
    assert (document["schema"], document["watched"]) == ("headrace/watch/2", str(slow))


@needs_py_spy
@pytest.mark.slow
def test_it_says_how_the_training_ended(tmp_path: Path) -> None:
    with training("ends", tmp_path) as process:
        command = [HEADRACE, "watch", str(process.pid), "--interval", "1"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment(None)
        ) as watch:
            assert watch.stdout is not None
            watch.stdout.readline()
            (tmp_path / "ready.stop").touch()
            assert process.wait(90) == 3
            rest, _ = watch.communicate(timeout=90)
    assert f"{process.pid}" in rest.decode()
    assert "exit code 3" in rest.decode() or "only its parent knows" in rest.decode()
    assert watch.returncode == 1


def _as_nobody(pid: int, path: str) -> None:
    sys.stderr = open(path, "w", buffering=1)  # noqa: SIM115  # ended with the process
    main(["-q", "watch", "99999999", "--once"])  # loads what is needed: nobody may not read where Python lies
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    os._exit(main(["-q", "watch", str(pid), "--once"]))


@pytest.mark.root
def test_another_users_training_is_refused_with_a_reason(slow: int, tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    process = multiprocessing.get_context("fork").Process(target=_as_nobody, args=(slow, str(path)))
    process.start()
    process.join(60)
    code = process.exitcode
    process.close()
    assert code == 2, path.read_text()
    assert "may not be looked into" in path.read_text()
    assert "belongs to user 0, we are user 65534" in path.read_text()
    assert f"try: run `headrace watch {slow}` as that user" in path.read_text()
