"""`headrace run` over real shards, a worker that hangs and a damaged file."""

import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from headrace.model import EventKind
from headrace.signals.recording import read_run

from .test_cli import HEADRACE, _environment
from .test_run_command import causes_of, document, run, script

_DEADLINE_S = 100

ARCHIVES = """
import io, sys, tarfile
member = tarfile.TarInfo("a.txt"); member.size = 5
with tarfile.open("written.tar", "w") as archive:
    archive.addfile(member, io.BytesIO(b"hello"))
with tarfile.open("written.tar") as archive:
    print(archive.extractfile("a.txt").read().decode(), archive.getnames())
with open("written.tar", "rb") as file, tarfile.TarFile.open(fileobj=io.BytesIO(file.read()), mode="r|*") as archive:
    print([one.name for one in archive])
try:
    tarfile.open("missing.tar")
except FileNotFoundError as error:
    print(type(error).__name__, isinstance(tarfile.TarFile.open.__self__, type))
print(tarfile.is_tarfile(__file__))
"""


def test_archives_that_are_opened_for_reading_are_recorded_and_stay_what_they_are(tmp_path: Path) -> None:
    path = script(tmp_path, ARCHIVES)
    plain = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path)
    done = run("-q", "--out", tmp_path / "run", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    recording = read_run(tmp_path / "run")
    opened = recording.events_of(EventKind.SHARD_OPEN)
    names = [recording.name_of(one["pid"], one["arg"]) for one in opened]
    # neither the one that was written is among them nor a file that is no archive
    assert names == ["written.tar", "", "missing.tar"]


SHARDS = """
import tarfile, time
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Samples(IterableDataset):
    def __iter__(self):
        for _ in range(6):
            time.sleep(1.0)
            with tarfile.open(f"shard-{get_worker_info().id}.tar", "r|") as archive:
                for member in archive:
                    yield torch.zeros(4)

def main():
    model = torch.nn.Linear(4, 1)
    for batch in DataLoader(Samples(), batch_size=4, num_workers=2):
        model(batch).mean().backward()
        time.sleep(0.02)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_late_batches_at_the_starts_of_shards(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for worker in range(2):
        with tarfile.open(tmp_path / f"shard-{worker}.tar", "w") as archive:
            for number in range(40):
                archive.add(tmp_path / "empty", f"{number}.txt")
    done = run("--out", tmp_path / "run", script(tmp_path, SHARDS), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = document(tmp_path / "run")
    assert causes_of(found)[0] == "shard_boundary"
    assert "shard-" in done.stderr


HANGS = """
import pathlib, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

class Samples(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == 90:
            pathlib.Path("hung").touch()
            time.sleep(60)
        return torch.zeros(4)

def main():
    model = torch.nn.Linear(4, 1)
    for batch in DataLoader(Samples(), batch_size=4, num_workers=2):
        model(batch).mean().backward()
        time.sleep(0.01)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_a_run_that_was_interrupted_while_a_worker_hung(tmp_path: Path) -> None:
    path = script(tmp_path, HANGS)
    child = subprocess.Popen(
        [HEADRACE, "run", "-q", "--out", str(tmp_path / "run"), str(path)],
        cwd=tmp_path,
        env=_environment(None),
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + _DEADLINE_S
    while not (tmp_path / "hung").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(9)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=_DEADLINE_S)
    assert causes_of(document(tmp_path / "run"))[0] == "worker_hang"


DAMAGED = """
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        with np.load(f"{'damaged' if index == 23 else 'whole'}.npz") as arrays:
            return torch.from_numpy(arrays["values"])

def main():
    model = torch.nn.Linear(64, 1)
    for batch in DataLoader(Samples(), batch_size=2, num_workers=2):
        model(batch).mean().backward()

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_a_damaged_file_is_named_with_its_sample(tmp_path: Path) -> None:
    for name in ("whole", "damaged"):
        np.savez(tmp_path / f"{name}.npz", values=np.zeros(64, np.float32))
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(damaged.read_bytes()[:200])
    done = run("--out", tmp_path / "run", script(tmp_path, DAMAGED), cwd=tmp_path)
    assert done.returncode == 1
    found = document(tmp_path / "run")
    assert causes_of(found)[0] == "corrupt_sample"
    figures = found["findings"][0]["figures"]  # type: ignore[index]
    assert figures["sample_index"] == 23.0  # which is tiny, as those are that are not all timed
