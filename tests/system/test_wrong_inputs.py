"""Whatever a command is given, it says what is wrong and what to do: exit code 2, a `try:` line, no traceback."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .test_cli import HEADRACE, _environment, run

SCRIPT = "import pathlib; pathlib.Path('ran').write_text('yes')\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("empty").write_bytes(b"")
    Path("binary").write_bytes(bytes(range(256)) * 64)
    Path("cut.gz").write_bytes(gzip.compress(b"step 1 time 0.1s\n" * 9999)[:-40])
    wrong = bytearray(gzip.compress(os.urandom(9999)))
    wrong[200:300] = bytes(100)
    Path("wrong.gz").write_bytes(wrong)
    Path("train.py").write_text(SCRIPT)
    Path("data.py").write_text("few = [1]\nnumber = 3\ndef fails():\n    raise ValueError('no disk')\n")
    Path("quarantined").write_text('{"schema": "headrace/quarantine/v1", "key": 3, "kind": "hang"}\n')
    Path("train.log").write_text("".join(f"step {n} time 0.{n % 3 + 1}s\n" for n in range(90)))
    with Path("huge").open("wb") as file:
        file.truncate(1 << 40)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "explain nope",
        "explain folder",
        "explain empty",
        "explain binary",
        "explain huge",
        "explain cut.gz",
        "explain wrong.gz",
        "explain --message nope",
        "quarantine nope",
        "quarantine folder",
        "quarantine binary",
        "quarantine huge",
        "quarantine train.py/x",
        "shards nope",
        "shards folder",
        "shards x-{0..99999999}.tar",
        "shards s3://bucket/x.tar",
        "shards --index-dir train.py binary",
        "shards --index-dir /sys/nope binary",
        "storage nope",
        "storage empty",
        "storage folder",
        "storage /dev/null",
        "watch nope-of-nobody",
        "watch 999999999",
        "watch 99999999999999999999999",
        "watch \N{SUPERSCRIPT TWO}",
        "watch 1 --dump folder",
        "watch 1 --dump nope/stacks.txt",
        "run nope.py",
        "run nope",
        "run folder",
        "run",
        "run --report nope",
        "run --report folder",
        "run --report train.py",
        "run --report folder --json nope/x",
        "run --out train.py train.py",
        "run --out /proc/nope train.py",
        "run --json nope/x train.py",
        "run --json folder train.py",
        "run --json train.py/x train.py",
        "plan",
        "plan nope",
        "plan folder",
        "plan data.py:fails",
        "plan data.py:number",
        "config --profile nope",
    ],
)
def test_a_wrong_input_gets_a_sentence_and_a_next_step(place: Path, line: str) -> None:
    done = run(*line.split())
    assert (done.returncode, "Traceback" in done.stderr, done.stderr.count("\n  try: ")) == (2, False, 1), done.stderr
    assert not (place / "ran").exists()  # nothing was trained whose report would be lost


@pytest.mark.parametrize(
    "target", ["nope.py:x", "data.py:nope", "data.py:fails", "data.py:few", "data.py:number", "nope"]
)
def test_a_wrong_target_of_chaos_gets_a_next_step(place: Path, target: str) -> None:
    done = run("chaos", target)
    assert (done.returncode, "Traceback" in done.stderr, done.stderr.count("\n  try: ")) == (2, False, 1), done.stderr


def test_shards_that_are_none_are_told_in_the_table(place: Path) -> None:
    done = run("shards", "binary", "empty")
    assert (done.returncode, "not a tar file" in done.stdout, "damaged: 1" in done.stdout) == (1, True, True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["quarantine quarantined", "explain train.log", "shards whole.tar --list"])
def test_a_result_that_does_not_fit_the_disk_is_no_bug(place: Path, line: str) -> None:
    Path("whole").mkdir()
    Path("whole/1.txt").write_text("1")
    shutil.make_archive("whole", "tar", "whole")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [HEADRACE, *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(None),
            timeout=100,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "No space left on device" in done.stderr
    assert "try: make room" in done.stderr


@pytest.mark.parametrize(
    ("line", "corrected"),
    [
        ("run --epochs 3 train.py", "headrace run train.py --epochs 3"),
        ("run --live --epochs 3 -b 2 train.py --lr 0.1", "headrace run --live train.py --lr 0.1 --epochs 3 -b 2"),
        ("-q run --epochs=3 -m package.train", "headrace -q run -m package.train --epochs=3"),
        ("run --epochs 3 -- torchrun train.py", "headrace run -- torchrun train.py --epochs 3"),
        ("run --epochs 3", "headrace run train.py --epochs 3"),
    ],
)
def test_an_option_before_the_name_of_the_script_gets_the_corrected_line(
    place: Path, line: str, corrected: str
) -> None:
    done = run(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"try: `{corrected}`: options of the script come behind its name\n" in done.stderr
    assert not (place / "ran").exists()


@pytest.mark.parametrize("command", ["shards", "explain", "storage", "watch", "demo", "chaos", "quarantine"])
def test_an_unknown_option_is_refused_with_the_commands_own_usage(command: str) -> None:
    done = run(command, "--nope", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"usage: headrace {command} ")


def test_a_report_may_lie_in_the_directory_of_the_run(place: Path) -> None:
    done = run("run", "--out", "runs/first", "--json", "runs/first/why.json", "train.py")
    assert (done.returncode, Path("ran").read_text()) == (0, "yes"), done.stderr
    assert Path("runs/first/why.json").read_text() == Path("runs/first/findings.json").read_text()


def test_a_report_that_cannot_be_written_after_all_loses_nothing(place: Path) -> None:
    """The folder goes while the training runs; its exit code, its output and the recording's report stay."""
    Path("train.py").write_text("import os, sys; os.rmdir('folder'); print('trained'); sys.exit(7)\n")
    done = run("run", "--out", "run", "--json", "folder/why.json", "train.py")
    assert (done.returncode, done.stdout) == (7, "trained\n"), done.stderr
    assert "cannot write folder/why.json: No such file or directory" in done.stderr
    assert Path("run/findings.json").exists()


@pytest.mark.parametrize("stream", ["/dev/full", None])
def test_a_report_that_nobody_can_read_changes_no_exit_code(place: Path, stream: str | None) -> None:
    Path("train.py").write_text("import sys; sys.exit(7)\n")
    reading, writing = os.pipe()
    os.close(reading)
    with open(stream or writing, "wb") as stderr:
        done = subprocess.run([HEADRACE, "run", "train.py"], stderr=stderr, env=_environment(None), timeout=100)
    if stream:
        os.close(writing)
    assert done.returncode == 7


# ------------------------------------------------------------------------------- Ctrl-C while something is imported

_INTERRUPTED = """
import os, signal, sys

swallows = sys.argv[1].endswith("_multiarray_umath")

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if swallows:  # as the start of native modules may
                    raise ImportError("numpy._core.multiarray failed to import")
                raise

sys.meta_path.insert(0, Interrupting())
from headrace.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("headrace.cli.entry", "shards binary"),
        ("argparse", "shards binary"),
        ("headrace.storage.shards", "shards binary"),
        ("numpy", "shards binary"),
        ("numpy._core._multiarray_umath", "shards binary"),
        ("numpy.lib", "explain train.log"),
        ("rich.console", "shards binary"),
        ("headrace.causes", "explain train.log"),
        ("headrace.signals.system", "quarantine quarantined"),
        ("headrace.storage.media", "storage ."),
        ("headrace.watch", "watch nope-of-nobody"),
        ("headrace.launch.child", "run train.py"),
        ("headrace.doctor.chaos", "chaos data.py:few"),
        ("numpy.random", "demo"),
    ],
)
def test_ctrl_c_during_an_import_is_one_line(place: Path, module: str, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module, *line.split()],
        capture_output=True,
        text=True,
        env=_environment(None),
        timeout=100,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    assert done.stderr.endswith("headrace: interrupted\n")  # what it was at may stand before it
    assert not (place / "ran").exists()
