"""`headrace tune` as a user runs it: stdout, stderr and exit code."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .test_cli import HEADRACE, run

DATA = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Waiting(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((16,), float(index))

def loader():
    return DataLoader(Waiting(), batch_size=4, num_workers=1)
"""

TRAINING = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((16,), float(index))

if __name__ == "__main__":
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for batch in DataLoader(Slow(), batch_size=4, num_workers=1):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(0.004)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    (folder / "tuned_waiting.py").write_text(DATA)
    (folder / "train.py").write_text(TRAINING)
    return folder


def test_the_answer_as_a_document(place: Path) -> None:
    target, file = f"{place}/tuned_waiting.py:loader", place / "headrace.toml"
    options = ("--max-workers", "6", "--backend", "process", "--write", str(file), "--profile", "quick")
    done = run("tune", target, "--seconds", "20", *options, "--json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/tune/1"
    assert document["subject"]["baseline"]["num_workers"] == 1
    assert document["answer"]["candidate"]["num_workers"] >= 2
    assert document["answer"]["gain"] > 1
    assert document["arguments"]["headrace.DataLoader"].startswith("DataLoader(dataset, batch_size=4, num_workers=")
    assert len(document["probes"]) >= 3
    assert f"num_workers = {document['answer']['candidate']['num_workers']}" in file.read_text().splitlines()
    assert document["why"]


def test_the_answer_in_chinese_with_a_sweep(place: Path) -> None:
    target = f"{place}/tuned_waiting.py:Waiting"
    done = run("tune", target, "--sweep", "0,2", "--seconds", "3", "--batch-size", "4", "--lang", "zh", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    for said in (
        "样本/秒",
        "torch 2 workers",
        "torch in-process",
        "最佳",
        "原因：",
        "写成代码：",
        "单个样本在进程内耗时",
    ):
        assert said in done.stdout
    assert "prefetch_factor=2" in done.stdout
    assert "█" in done.stdout


def test_an_estimate_from_a_recording(place: Path) -> None:
    recorded = run("run", "--out", str(place / "run"), str(place / "train.py"))
    assert recorded.returncode in (0, 1)
    done = run("tune", str(place / "run"), "--json", "--write", str(place / "recorded.toml"), "-q")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["is_estimate"]
    assert document["loader"]["num_workers"] == 1
    assert document["answer"]["needed"] > 1
    assert f"num_workers = {document['answer']['num_workers']}" in (place / "recorded.toml").read_text()
    assert [one["num_workers"] for one in document["rates"]][:2] == [0, 1]
    done = run("tune", str(place / "run"), "--step-ms", "1000")  # a demand that one worker meets
    assert "1 worker feeds the loop" in done.stdout
    assert "nothing was run" in done.stdout
    done = run("tune", str(place / "run"), "--max-workers", "1", "--json", "-q")
    document = json.loads(done.stdout)
    assert document["answer"]["num_workers"] == 1
    assert document["why"][0].startswith("--max-workers allows 1 of the ")
    done = run("tune", str(place / "run"), "--memory", "1GiB", "--sweep", "1,2", "--backend", "thread")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--memory, --sweep, --backend: needs a TARGET, not a recording" in done.stderr


def test_ctrl_c_gives_the_best_so_far_and_leaves_nothing(place: Path) -> None:
    command = [HEADRACE, "tune", f"{place}/tuned_waiting.py:Waiting", "--seconds", "600", "-v", "--lang", "en"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "in-process" in line:  # the first result
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "interrupted: the best so far" in stdout
    assert "In code:" in stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "names no data set"),
        (("no_such_file.py:data",), "there is no file"),
        (("x.py:data", "--step-ms", "soon"), "no length of time"),
        (("x.py:data", "--memory", "lots"), "is not a size"),
        (("x.py:data", "--sweep", "0,many"), "is not a whole number"),
    ],
)
def test_wrong_input_is_told(arguments: tuple[str, ...], said: str) -> None:
    done = run("tune", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
