"""`headrace run` as a user runs it: the script stays what it is, and the report tells what was wrong with it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headrace.errors import UnusableInput
from headrace.launch import command_of

from ..hard_places import become_nobody, in_hard_place
from .test_cli import HEADRACE, _environment

TRAINING = Path(__file__).parent.parent / "launch" / "training.py"
_DEADLINE_S = 100


def run(
    *args: str | Path, cwd: Path, env: dict[str, str] | None = None, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [HEADRACE, "run", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=_environment(env),
        input=stdin,
        timeout=_DEADLINE_S,
    )


def script(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def document(directory: Path) -> dict[str, object]:
    return json.loads((directory / "findings.json").read_text(encoding="utf-8"))


ECHO = """
import os, sys
print(__name__, sys.argv[1:], os.getcwd(), sys.stdin.read(), sys.path[0], sep="|")
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


def test_output_arguments_input_and_exit_code_are_the_scripts_own(tmp_path: Path) -> None:
    path = script(tmp_path, ECHO)
    plain = subprocess.run(
        [sys.executable, str(path), "--lr", "0.1", "--", "-q"], capture_output=True, text=True, input="hi", cwd=tmp_path
    )
    done = run("--out", tmp_path / "run", path, "--lr", "0.1", "--", "-q", cwd=tmp_path, stdin="hi")
    assert (done.returncode, done.stdout) == (7, plain.stdout)
    assert done.stderr.startswith(plain.stderr)
    assert "exit code 7" in done.stderr
    assert "headrace.monitor" not in done.stderr  # who reads an error wants its cause, not a way to time data
    assert document(tmp_path / "run")["verdict"] == "unknown"


def test_a_module_and_the_default_directory(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    script(tmp_path / "package", "print(__name__, __package__, __import__('sys').argv[1:])", "train.py")
    done = run("-m", "package.train", "--epochs", "3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "__main__ package ['--epochs', '3']\n")
    assert "headrace.monitor" in done.stderr  # no DataLoader: it says what would be seen
    (directory,) = (tmp_path / "headrace-runs").iterdir()
    assert directory.name.startswith("train-")
    assert {path.name for path in directory.iterdir()} == {"events.bin", "findings.json", "run.json", "system.jsonl"}


@pytest.mark.parametrize("words", [("--", "sh", "-c", "exit 5"), ("sh", "-c", "exit 5")])
def test_any_command(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert run("--out", tmp_path / "run", *words, cwd=tmp_path).returncode == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [(("nosuch.py",), "no script 'nosuch.py'"), (("nosuch",), "neither a script nor"), ((), "nothing to run")],
)
def test_what_cannot_be_run_is_explained(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "headrace run train.py" in done.stderr or "path of the script" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_findings_are_not_written_between_the_scripts_own_output(tmp_path: Path) -> None:
    done = run("--json", "-", script(tmp_path, "print(1)"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--json why.json" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_directory_that_holds_a_recording_is_not_overwritten(tmp_path: Path) -> None:
    path = script(tmp_path, "print('ran')")
    assert run("--out", tmp_path / "run", path, cwd=tmp_path).returncode == 0
    done = run("--out", tmp_path / "run", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds a recording already" in done.stderr


@pytest.mark.root
def test_disks_that_cannot_be_written_or_are_full(tmp_path: Path) -> None:
    """Before the script starts it is an error with a next step; a disk that fills up later ends nothing."""
    done = run("--out", "/proc/nowhere/run", "true", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot write /proc/nowhere/run" in done.stderr
    assert "headrace run --out DIR" in done.stderr
    (tmp_path / "run").mkdir()

    def act() -> tuple[int, str, str]:
        full = run("--out", tmp_path / "run" / "here", "sh", "-c", "echo whole; exit 5", cwd=tmp_path)
        return full.returncode, full.stdout, full.stderr

    code, out, said = in_hard_place(act, full=tmp_path / "run")
    assert (code, out) == (5, "whole\n")
    assert "findings.json: No space left on device" in said
    assert "exit code 5" in said
    assert "Traceback" not in said


@pytest.mark.root
def test_a_program_in_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "train").touch()

    def act() -> str:
        become_nobody()
        with pytest.raises(UnusableInput) as caught:
            command_of([f"{tmp_path}/closed/train"])
        return caught.value.next_step

    assert "headrace run train.py" in in_hard_place(act)


def test_a_script_that_ends_by_a_signal_ends_us_by_it(tmp_path: Path) -> None:
    path = script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)")
    done = run("--out", tmp_path / "run", path, cwd=tmp_path)
    assert done.returncode == -signal.SIGUSR1
    assert "recorded in" in done.stderr
    said = re.search(
        r"^the run was ended: SIGUSR1 after \S+ m?s, a signal that was sent to it, certain$", done.stderr, re.MULTILINE
    )
    assert said is not None
    assert said[0] in run("--report", tmp_path / "run", cwd=tmp_path).stdout  # and afterwards it says the same


def test_a_script_that_leaves_at_once(tmp_path: Path) -> None:
    path = script(tmp_path, "import os\nos._exit(3)")
    assert run("--out", tmp_path / "run", path, cwd=tmp_path).returncode == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nraise ValueError('plain')", "ValueError: plain"),
        ("\nraise ValueError('\x1b[1min bold\x1b[0m, as torch.load')", "ValueError: in bold, as torch.load"),
        ("\nraise ValueError('long' + 200 * '\\n and more of it')", "ValueError: long"),
        (
            "import sys\nsys.excepthook = lambda *_: None; import no_such",
            "ModuleNotFoundError: No module named 'no_such'",
        ),
        ("\ndef broken(:", "SyntaxError: invalid syntax"),
    ],
)
def test_what_nobody_caught_is_told_without_torch_and_with_a_hook_of_the_scripts_own(
    tmp_path: Path, text: str, said: str
) -> None:
    done = run("--out", tmp_path / "run", script(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 1
    assert f"the run was ended: {said}, certain" in done.stderr
    assert "script.py, line 2" in " ".join(done.stderr.rpartition("do: ")[2].split())


CRASHES = """
import torch
from torch import nn
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        raise KeyError(index)
if {in_step}:
    nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(2, 2))))(torch.zeros(3, 7))  # deep in torch
for _ in torch.utils.data.DataLoader(Rows()):
    pass
"""


@pytest.mark.parametrize(
    ("in_step", "said"),
    [(True, ["line 10, in <module>: there your"]), (False, ["line 8,", "it ended after 0 batches"])],
)
def test_the_scripts_own_line_is_named_and_a_batch_that_did_not_come_is_not_counted(
    tmp_path: Path, in_step: bool, said: list[str]
) -> None:
    done = run("--out", tmp_path / "run", script(tmp_path, CRASHES.format(in_step=in_step)), cwd=tmp_path)
    report = " ".join(done.stderr.rpartition("the run was ended")[2].split())
    assert all(one in report for one in said), report


HANDLES = """
import os, signal, sys, time
def handle(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    if number != signal.SIGUSR1:
        sys.exit(9)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(number, handle)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def test_signals_are_passed_on_and_nothing_stays_behind(tmp_path: Path) -> None:
    path = script(tmp_path, HANDLES)
    running = subprocess.Popen(
        [HEADRACE, "run", "--out", str(tmp_path / "run"), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(None),
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    children = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(signal.SIGUSR1)
    assert running.stdout.readline() == "got SIGUSR1\n"
    running.send_signal(signal.SIGTERM)
    assert running.stdout.readline() == "got SIGTERM\n"
    assert running.wait(_DEADLINE_S) == 9
    running.stdout.close()
    assert not any(child.is_running() for child in children)
    assert document(tmp_path / "run")["source"]["exit_code"] == 9  # type: ignore[index]


def test_an_interrupt_is_the_scripts_own(tmp_path: Path) -> None:
    path = script(tmp_path, "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)")
    running = subprocess.Popen(
        [HEADRACE, "run", "--out", str(tmp_path / "run"), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(None),
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=_DEADLINE_S)
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in said
    assert "recorded in" in said


def test_the_scripts_own_sitecustomize_runs_and_sys_path_is_unchanged(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    script(own, "import builtins\nbuiltins.OWN = 'own sitecustomize'", "sitecustomize.py")
    path = script(tmp_path, "import sys, sitecustomize\nprint(OWN, sys.path, sitecustomize.__file__)")
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [str(own), os.environ.get("PYTHONPATH", "")]))}
    plain = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=_environment(environment), cwd=tmp_path
    )
    done = run("--out", tmp_path / "run", path, cwd=tmp_path, env=environment)
    assert plain.stdout.startswith("own sitecustomize")
    assert done.stdout == plain.stdout


def test_a_python_that_ignores_the_environment_runs_and_nothing_is_said_of_its_waits(tmp_path: Path) -> None:
    path = script(tmp_path, "print('ran')")
    done = run("--out", tmp_path / "run", "--", sys.executable, "-I", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "no process asked a DataLoader for a batch" in done.stderr


def test_what_cannot_be_timed_is_told_of_and_runs(tmp_path: Path) -> None:
    (tmp_path / "tqdm").mkdir()
    script(tmp_path / "tqdm", "", "__init__.py")
    script(tmp_path / "tqdm", "", "std.py")
    path = script(tmp_path, "import tqdm.std\nprint(tqdm.std.__spec__.loader.__class__.__name__)")
    done = run("--out", tmp_path / "run", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "SourceFileLoader\n")
    assert "not timed, in 1 process: tqdm.std" in done.stderr


def test_the_scripts_terminal_is_its_own(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys\nprint(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())")
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [HEADRACE, "-q", "run", "--out", str(tmp_path / "run"), str(path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=_environment(None),
    )
    os.close(theirs)
    said = b""
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the terminal is gone with the last process on it
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert running.wait(_DEADLINE_S) == 0
    assert b"True True True" in said


def test_quiet_and_chinese(tmp_path: Path) -> None:
    path = script(tmp_path, "print('ran')")
    quiet = run("-q", "--out", tmp_path / "quiet", path, cwd=tmp_path)
    assert quiet.stderr.count("\n") == 1
    directory = tmp_path / "[bold]chinese" / ("long" * 30)
    chinese = run("--lang", "zh", "--out", directory, path, cwd=tmp_path)
    assert "无法判断" in chinese.stderr
    assert f"\n录制保存在 {directory}\n" in chinese.stderr


# ------------------------------------------------------------------------------------------------- trainings


def train(tmp_path: Path, case: str, *options: str) -> tuple["subprocess.CompletedProcess[str]", dict[str, object]]:
    done = run("--out", tmp_path / "run", *options, TRAINING, case, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done, document(tmp_path / "run")


def causes_of(found: dict[str, object]) -> list[str]:
    return [finding["cause"] for finding in found["findings"]]  # type: ignore[attr-defined]


def assert_adds_up(found: dict[str, object]) -> None:
    rows = found["times"]
    assert sum(row["share"] for row in rows) == pytest.approx(1, abs=0.01)  # type: ignore[attr-defined]


def test_a_healthy_training_has_no_findings(tmp_path: Path) -> None:
    done, found = train(tmp_path, "healthy", "--live", "--json", str(tmp_path / "why.json"))
    assert done.stdout == "trained 40 0\n"
    # What a busy machine does to a run of two seconds is no finding of ours to assert on, unless it is large, or
    # called by its name.
    large = {one["cause"] for one in found["findings"] if one["share"] > 0.3}  # type: ignore[attr-defined]
    assert large <= {"cpu_contended"}
    assert json.loads((tmp_path / "why.json").read_text(encoding="utf-8")) == found
    assert_adds_up(found)
    activities = {row["activity"]: row["count"] for row in found["times"]}  # type: ignore[attr-defined]
    assert activities["backward"] == activities["optimizer"] == 40
    assert activities["forward"] == 39  # the first call is the one by which the model is found


@pytest.mark.alone
def test_a_pool_that_is_too_slow(tmp_path: Path) -> None:
    done, found = train(tmp_path, "slow_pool")
    assert causes_of(found)[0] == "batch_lockstep"
    first = found["findings"][0]  # type: ignore[index]
    assert first["confidence"] == "certain"
    assert first["figures"]["period_steps"] == 2
    assert first["figures"]["busy_share"] > 0.8
    assert found["verdict"] == "data_bound"
    assert "num_workers=2" in done.stderr
    assert "the whole pool is too slow" in str(first["evidence"])
    _, lost, *lines = done.stderr.strip().splitlines()
    assert re.match(r"[\d.]+ m?s of the training's [\d.]+ m?s \(\d+ %\) lost: workers in lock-step", lost)
    assert len(lines) <= 23  # a screen, whatever was found
    assert [line for line in done.stderr.splitlines() if line != line.rstrip()] == []
    assert_adds_up(found)


def test_what_interrupts_a_training(tmp_path: Path) -> None:
    _, found = train(tmp_path, "interrupted")
    assert set(causes_of(found)) >= {"checkpoint", "evaluation", "logging"}
    said = run("--report", tmp_path / "run", "-v", cwd=tmp_path).stdout
    assert "4 saves (torch.save)" in said
    assert "2 evaluations" in said
    assert_adds_up(found)


@pytest.mark.slow
def test_a_worker_that_raises_leaves_the_traceback_that_it_would_leave(tmp_path: Path) -> None:
    plain = subprocess.run([sys.executable, str(TRAINING), "raises"], capture_output=True, text=True, timeout=100)
    done = run("--out", tmp_path / "run", TRAINING, "raises", cwd=tmp_path)
    assert done.returncode == plain.returncode == 1
    assert "sample 5 is bad" in plain.stderr
    assert done.stderr.startswith(plain.stderr)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "cause", "bottleneck"),
    [("decode", "loader_throughput", "cpu_decode"), ("straggler", "straggler_sample", None), ("gc", "gc", None)],
)
def test_other_causes(tmp_path: Path, case: str, cause: str, bottleneck: str | None) -> None:
    _, found = train(tmp_path, case)
    assert causes_of(found)[0] == cause
    assert found["findings"][0]["bottleneck"] == bottleneck  # type: ignore[index]


@pytest.mark.slow
def test_workers_by_spawn_are_timed(tmp_path: Path) -> None:
    _, found = train(tmp_path, "spawn")
    # How far apart spawned workers start decides whether their waits come in rounds; the pool is too slow either way.
    assert causes_of(found)[0] in {"batch_lockstep", "loader_throughput"}
    assert found["findings"][0]["figures"]["busy_share"] > 0.8  # type: ignore[index]


RANKS = """
import sys, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader
def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    for batch in DataLoader([torch.ones(4)] * 40, batch_size=2):
        model(batch).mean().backward()
        time.sleep(0.02)
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_ranks_of_torchrun_are_reached(tmp_path: Path) -> None:
    path = script(tmp_path, RANKS)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    done = run("--out", tmp_path / "run", "--", torchrun, "--standalone", "--nproc_per_node", "2", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 training processes" in done.stderr
    assert_adds_up(document(tmp_path / "run"))
