"""`headrace run --malloc keep --worker-threads N --files max`: set where it was asked for, told, and nowhere else."""

import json
import resource
import subprocess
from pathlib import Path

import pytest

from .test_cli import HEADRACE, _environment

SCRIPT = """
import json, os, resource
import torch
from torch.utils.data import DataLoader, Dataset

class Large(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        b"x" * (64 << 20)  # more than malloc keeps by itself
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        return [faults, torch.get_num_threads(), int(os.environ.get("OMP_NUM_THREADS", 0))]

if __name__ == "__main__":
    rows = list(DataLoader(Large(), batch_size=None, num_workers=1))
    told = {"faults": rows[-1][0], "torch": rows[-1][1], "omp": rows[-1][2]}
    told |= {"files": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "own_omp": os.environ.get("OMP_NUM_THREADS")}
    print(json.dumps(told))
"""


def _run(folder: Path, *options: str) -> tuple[dict[str, int], str]:
    (folder / "train.py").write_text(SCRIPT)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    environment = _environment({"LANG": "C"})
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [HEADRACE, "run", "--out", str(folder / "run"), *options, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_nothing_is_set_unless_asked(tmp_path: Path) -> None:
    told, said = _run(tmp_path)
    assert told["faults"] > 30  # huge pages or small ones
    assert (told["torch"], told["omp"], told["files"]) == (1, 0, 256)
    assert "--malloc" not in said


def test_what_is_asked_for_is_set_in_workers_and_told(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    told, said = _run(tmp_path, "--malloc", "keep", "--worker-threads", "2", "--files", "max")
    assert told["faults"] < 8
    assert (told["torch"], told["omp"], told["files"]) == (2, 2, hard)
    assert told["own_omp"] is None  # the training process has what it had
    for line in (
        "--malloc keep: torch's workers keep",
        "--worker-threads: 2 threads",
        f"--files max: {hard} open files, 256",
    ):
        assert line in said


@pytest.mark.parametrize("words", [("--malloc", "drop"), ("--worker-threads", "0"), ("--files", "1024")])
def test_other_values_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run([HEADRACE, "run", *words, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert words[0] in done.stderr
