"""The stages over data sets that are broken in one way each: the right cause, within bounds, nothing left behind."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.doctor import Check, Outcome
from headrace.doctor.target import DoctorSettings, Judge, run_stages

from . import broken

TARGET = f"{Path(__file__).parent / 'broken.py'}:"
SAID = {  # what names the culprit
    "collate_fails": r"^collating samples fails: sample 17 is None",
    "collate_fails_in_workers": r"^collating samples fails: ValueError: no GPU in a worker\nFile .*broken.py",
    "no_batches": r"drop_last=True leaves out what does not fill a batch of 8, and 3 samples do not",
    "no_samples": r"^there are no samples: len\(\) of the data set is 0",
    "no_length": r"^NoLength has __getitem__ and no __len__",
    "shared_buffer": r"^sample 0 changed when sample 47 was fetched",
    "shapes_differ": r"^samples 0, 17 have different shapes",
    "shared_handle_npz": r"^dataset.archive \(.*/archive.npz\) is opened before",
    "copied_dataset": r"^each worker gets its own copy of dataset.items: .* MiB\n.*600000 objects",
    "copied_dataset_by_spawn": r"^each worker gets its own copy of dataset: 300 MiB",
    "unpicklable": r"^dataset.steps\[1\] cannot be pickled",
    "sample_hangs": r"^sample 31 did not come within",
    "worker_dies_exit": r"in hand: samples .*\b3\b",
    "init_fn_fails": r"^worker_init_fn fails: FileNotFoundError: .*\n.*broken.py",
    "batch_not_sent": r"^a worker cannot send its batch.*: .*lambda",
    "wrong_length": r"the stream gave 200 samples, and its __len__ says 48: ",
    "slow_sample": r"^sample 31 took 1.5\d s, where .* is typical \(48 samples\): ",
    "out_of_memory": r"^too little memory: .* \(it was given 900 MiB\)",
}
QUICK_ONES = {
    "no_batches",
    "no_samples",
    "no_length",
    "shared_buffer",
    "sample_fails",
    "shapes_differ",
    "collate_fails",
    "shared_handle_npz",
    "not_split",
    "out_of_memory",
    "worker_dies_late",
    "init_fn_fails",
    "batch_not_sent",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN_FOLDER", str(tmp_path))


def examine(settings: DoctorSettings) -> tuple[Check, ...]:
    return tuple(Judge(settings.target, run_stages(settings)).checks())


def look(name: str, *, timeout_s: float = 10.0) -> tuple[Check, ...]:
    began = time.monotonic()
    memory = 900 << 20 if name.startswith("broken_out") else None
    checks = examine(DoctorSettings(target=TARGET + name, timeout_s=timeout_s, memory_bytes=memory))
    assert time.monotonic() - began < 6 * timeout_s + 20
    return checks


def _slow_unless(names: set[str], name: str) -> object:
    return pytest.param(name, marks=() if name in names else pytest.mark.slow)


@pytest.mark.parametrize("name", [_slow_unless(QUICK_ONES, name) for name in broken.BROKEN if name != "fd_limit"])
def test_a_broken_one_gets_its_cause(name: str) -> None:
    checks = look(f"broken_{name}")
    problems = {check.problem for check in checks if check.problem}
    assert len(problems) == 1
    assert name.startswith(problems.pop())
    (finding,) = [check.finding for check in checks if check.finding is not None]
    assert finding.title is not None
    if name in SAID:
        assert re.search(SAID[name], "\n".join(text.en for text in (finding.title, *finding.evidence)))


@pytest.mark.parametrize("name", [_slow_unless({"opens_late"}, name) for name in broken.HEALTHY])
def test_nothing_is_found_in_a_healthy_one(name: str) -> None:
    checks = look(f"healthy_{name}")
    assert [(check.name, check.says.en) for check in checks if check.problem] == []
    assert {check.outcome for check in checks} == {Outcome.PASS}


@pytest.mark.parametrize("name", broken.NOTED)
def test_what_works_and_should_be_known_is_a_note(name: str) -> None:
    (check,) = [check for check in look(f"noted_{name}") if check.problem]
    assert (check.problem, check.outcome, check.finding) == (name, Outcome.NOTE, None)
    assert re.search(SAID[name], check.says.en)


def test_the_sample_that_fails_is_named_and_the_others_go_on() -> None:
    checks = {check.name: check for check in look("broken_corrupt_sample")}
    assert checks["sample"].says.en == "sample 31 cannot be read: ValueError: bad magic number"
    assert checks["workers_fork"].outcome is Outcome.PASS


def test_the_sample_that_ends_the_process_is_named() -> None:
    (check,) = [check for check in look("LeavesAt") if check.problem]
    assert (check.problem, check.says.en) == ("corrupt_sample", "sample 31 cannot be read: SystemExit: 3")
    assert check.finding is not None
    assert "error: no such tile" in [text.en for text in check.finding.evidence]


@pytest.mark.slow
def test_samples_that_are_fetched_a_batch_at_a_time_are_named() -> None:
    checks = {check.name: check for check in look("OfBatches", timeout_s=5)}
    assert checks["workers_fork"].problem == "worker_hangs"
    assert re.search(r"samples \[\d+, ", checks["workers_fork"].says.en)


@pytest.mark.slow
def test_descriptors_that_run_out() -> None:
    code = f"import sys; from tests.doctor.target.test_examination import tell; tell({TARGET + 'broken_fd_limit'!r})"
    limited = f"ulimit -n 128; exec {sys.executable} -c {code!r}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.split() == ["fd_limit"]


def tell(target: str) -> None:
    checks = examine(DoctorSettings(target=target, timeout_s=10))
    print(*{check.problem for check in checks if check.problem})


SCRIPTS = {
    "import_fails": "import no_such_module_here\n",
    "needs_main_guard": (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "data = DataLoader(list(range(8)), num_workers=1)\nfor batch in data: pass\n"
    ),
    "slow_import": "import time\ntime.sleep(9)\ndata = list(range(20))\n",
}


@pytest.mark.slow
def test_a_module_that_fetches_a_batch_in_a_thread_is_imported(tmp_path: Path) -> None:
    script = tmp_path / "script_of_a_thread.py"
    script.write_text(
        "import threading\nfrom torch.utils.data import DataLoader\ndata = DataLoader(list(range(8)))\nseen = []\n"
        "thread = threading.Thread(target=lambda: seen.append(next(iter(data))))\nthread.start(); thread.join()\n"
        "assert seen\n"
    )
    checks = examine(DoctorSettings(target=f"{script}:data", timeout_s=20))
    assert [check.problem for check in checks if check.problem] == []


@pytest.mark.parametrize("name", [_slow_unless({"import_fails"}, name) for name in SCRIPTS])
def test_what_is_wrong_with_a_module(name: str, tmp_path: Path) -> None:
    script = tmp_path / f"script_{name}.py"
    script.write_text(SCRIPTS[name])
    checks = examine(DoctorSettings(target=f"{script}:data", timeout_s=20))
    assert {check.problem for check in checks if check.problem} == {name}


def test_an_error_of_ours_that_a_data_set_raises_is_what_is_wrong_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script_of_a_list.py"
    script.write_text(
        "from headrace.errors import UnusableInput\n"
        "class Data:\n"
        "    def __len__(self): raise UnusableInput('the list of files is empty')\n"
        "    def __getitem__(self, index): return index\n"
        "data = Data()\n"
    )
    checks = examine(DoctorSettings(target=f"{script}:data", timeout_s=20))
    assert [check.problem for check in checks if check.problem] == ["import_fails"]
    assert "the list of files is empty" in checks[0].says.en
