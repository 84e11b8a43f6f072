"""`headrace run --feed`: the script's loaders are fed where its batches stay the same, and nothing else changes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_cli import HEADRACE, _environment
from .test_run_command import document, run, script

TRAINING = """
import random, sys
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 300
    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 3

def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Rows(), batch_size=4, shuffle=True, num_workers=2)
    for epoch in range(2):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), random.random())
    torch.save(model.state_dict(), "model.pt")
    print(type(loader).__module__, type(loader).__qualname__, len(loader), loader.num_workers, loader._iterator)
    sys.exit(3)

if __name__ == "__main__":
    main()
"""


def feeds(folder: Path) -> dict[str, dict[str, Any]]:
    found: Any = document(folder)
    return {row["name"]: row for row in found["feeds"]}


def run_plainly(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    path = script(folder, text)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=folder, env=_environment({}))


@pytest.fixture(scope="module")
def plain_training(tmp_path_factory: pytest.TempPathFactory) -> tuple["subprocess.CompletedProcess[str]", bytes]:
    """What the training says without us, and the weights that it leaves."""
    folder = tmp_path_factory.mktemp("plain")
    return run_plainly(folder, TRAINING), (folder / "model.pt").read_bytes()


@pytest.mark.parametrize(
    "mode", ["--feed", "--feed=measure", pytest.param("HEADRACE_FEED=measure", marks=pytest.mark.slow)]
)
def test_a_training_is_fed_and_stays_what_it_is(
    mode: str, plain_training: tuple["subprocess.CompletedProcess[str]", bytes], tmp_path: Path
) -> None:
    path = script(tmp_path, TRAINING)
    plain, weights = plain_training
    name, _, value = mode.partition("=")
    words, env = ([], {name: value}) if mode[0] == "H" else ([mode], None)
    done = run(*words, "--out", "fed", path, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (3, plain.stdout)
    assert (tmp_path / "model.pt").read_bytes() == weights
    (row,) = feeds(tmp_path / "fed").values()
    assert (row["by"], row["reason"], row["place"]) == ("headrace", "fed", f"{path}:18")
    (loader,) = document(tmp_path / "fed")["loaders"]  # type: ignore[misc]
    assert (loader["passes"], loader["batches"]) == (2, 150)
    if "measure" in mode:
        assert row["torch_batches"] == 64
        assert row["ours_batches"] == 150 - 64
        said = " ".join(done.stderr.split())
        assert "before, with torch's workers: 64 batches" in said
        assert "with torch's loader the training waited for data for" in said
    else:
        assert (row["torch_batches"], row["ours_batches"]) == (0, 150)
        assert row["ours_wait_worst_s"] >= row["ours_wait_median_s"] > 0
    assert "fed by Headrace: Rows#1 (script.py:18)" in " ".join(done.stderr.split())
    assert len(done.stderr.splitlines()) <= 27
    assert not (tmp_path / "fed" / "not-timed.txt").exists()


SAMPLERS = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

class Rows(Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, index):
        return torch.full((4,), float(index))

class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(32.0))

class Asked(Sampler):
    def __iter__(self):
        return iter(range(95, -1, -1))
    def __len__(self):
        return 96

torch.manual_seed(0)
workers = {"batch_size": 4, "num_workers": 1}
for loader in (DataLoader(Rows(), shuffle=True, **workers), DataLoader(Rows(), sampler=Asked(), **workers),
               DataLoader(Stream(), **workers)):
    for _ in range(2):
        print([batch.flatten().tolist() for batch in loader])
"""


@pytest.fixture(scope="module")
def plain_samplers(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_plainly(tmp_path_factory.mktemp("plain"), SAMPLERS).stdout


@pytest.mark.parametrize("mode", ["--feed", "--feed=tune"])
def test_a_profile_and_tuning_reach_the_loaders_that_keep_their_batches(
    mode: str, plain_samplers: str, tmp_path: Path
) -> None:
    path = script(tmp_path, SAMPLERS)
    (tmp_path / "headrace.toml").write_text("[profiles.more]\nnum_workers = 2\nprefetch_factor = 3\n")
    done = run(mode, "--profile", "more", "--out", "fed", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, plain_samplers), done.stderr
    tuned = mode == "--feed=tune"
    rows = [(row["num_workers"], row["profile"], row["is_tuned"]) for row in feeds(tmp_path / "fed").values()]
    assert rows == [
        (2, "more", True if tuned else None),
        (1, "more", False if tuned else None),  # its sampler is asked as torch asks it
        (1, "more", False if tuned else None),  # each worker has its part
    ]
    said = " ".join(done.stderr.split())
    assert "profile more, 2 workers" in said
    assert ("not tuned" in " ".join(document(tmp_path / "fed")["facts"])) == tuned  # type: ignore[arg-type]
    refused = run(mode, "--profile", "nope", path, cwd=tmp_path)
    assert (refused.returncode, "there is no profile 'nope'" in refused.stderr) == (2, True)


CHANGING = """
from torch.utils.data import DataLoader
loader = DataLoader(list(range(24)), 4, num_workers=2)
for loader.num_workers in (2, 0, 1):
    print([batch.tolist() for batch in loader])
"""


def test_a_loader_whose_workers_are_changed_between_passes_goes_on(tmp_path: Path) -> None:
    path = script(tmp_path, CHANGING)
    done = run("--feed", "--out", "fed", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{[list(range(at, at + 4)) for at in range(0, 24, 4)]}\n" * 3)


KINDS = """
import random
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.datapipes.iter import IterableWrapper

class Plain(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return float(index)

class Drawing(Plain):
    def __getitem__(self, index):
        return index + random.random()

class Failing(Plain):
    def __getitem__(self, index):
        raise ValueError("no such sample")

class InProcess(Plain): pass
class OwnIterator(Plain): pass
class Endless(Plain): pass
class Broken(Plain): pass

class Stream(IterableDataset):
    def __iter__(self):
        return iter([random.random() for _ in range(8)])

class Own(DataLoader):
    def _get_iterator(self):
        return iter([1, 2, 3])

class Repeating(DataLoader):
    def __iter__(self):
        for _ in range(2):
            yield from super().__iter__()

random.seed(1)
torch.manual_seed(1)
workers = {"batch_size": 4, "num_workers": 1}
for loader in (
    DataLoader(Plain(), **workers),
    DataLoader(Drawing(), **workers),
    DataLoader(InProcess(), batch_size=4),
    DataLoader(IterableWrapper(range(24)), **workers),
    DataLoader(Stream(), **workers),
    Own(OwnIterator(), **workers),
    Repeating(Endless(), **workers),
):
    print([batch.tolist() if torch.is_tensor(batch) else batch for batch in loader])
failing = iter(DataLoader(Failing(), **workers))
try:
    next(failing)
except ValueError as error:
    print(str(error).splitlines()[0], str(error).splitlines()[-1])
failing._shutdown_workers()  # its error keeps it: as garbage, it would wait for its worker for five seconds

import sys
if "headrace.loader" in sys.modules:  # what stands in fails, at the fourth batch
    from headrace.loader.workers import WorkersIterator
    WorkersIterator._next_batch = lambda self, original=WorkersIterator._next_batch: (
        original(self) if self._num_yielded < 3 else [][0]
    )
print([batch.tolist() for batch in DataLoader(Broken(), **workers)])
"""


def test_what_cannot_be_fed_stays_torchs_with_its_reason(tmp_path: Path) -> None:
    path = script(tmp_path, KINDS)
    command = [sys.executable, "-W", "ignore", str(path)]
    plain = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=_environment({}))
    assert plain.returncode == 0, plain.stderr
    done = run("--feed", "--out", "fed", "--", *command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    rows = {name.partition("#")[0]: (row["by"], row["reason"]) for name, row in feeds(tmp_path / "fed").items()}
    assert rows == {
        "Plain": ("headrace", "fed"),
        "Drawing": ("torch", "draws"),
        "InProcess": ("torch", "in_process"),
        "_IterDataPipeSerializationWrapper": ("torch", "data_pipe"),
        "Stream": ("headrace", "fed"),
        "Endless": ("headrace", "fed"),
        "Failing": ("torch", "probe_failed"),
        "Broken": ("torch", "failed"),
    }
    said = [line for line in done.stderr.splitlines() if line.startswith("headrace: ")]
    assert said == ["headrace: Broken#1 goes on with torch's own loader, for feeding it failed: IndexError: list index "
                    "out of range"]  # fmt: skip
    done = run("--feed-random", "--out", "random", "--", *command, cwd=tmp_path)
    assert feeds(tmp_path / "random")["Drawing#1"]["by"] == "headrace"


@pytest.mark.parametrize(
    ("words", "env", "problem"),
    [
        (("--feed", "--replay"), {}, "do not go together"),
        (("--profile", "debug"), {}, "--profile is of --feed"),
        ((), {"HEADRACE_FEED": "always"}, "nothing is known of feeding by 'always'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: tuple[str, ...], env: dict[str, str], problem: str, tmp_path: Path
) -> None:
    done = run(*words, script(tmp_path, "print(1)"), cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "try: " in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_the_ranks_of_torchrun_are_fed(tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING.replace("sys.exit(3)", "").replace('"model.pt"', '"/dev/null"'))
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc_per_node", "2", str(path)]
    plain = subprocess.run(torchrun, capture_output=True, text=True, cwd=tmp_path, env=_environment({}))
    done = subprocess.run(
        [HEADRACE, "run", "--feed", "--out", "fed", "--", *torchrun],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment({}),
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, sorted(plain.stdout.splitlines())), done.stderr
    (row,) = feeds(tmp_path / "fed").values()
    assert (row["by"], row["ours_batches"]) == ("headrace", 150)
