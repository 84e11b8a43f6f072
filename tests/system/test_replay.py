"""`headrace run --replay` on real trainings: the ceiling is what the loop itself measures, and nothing is lost."""

import json
import sys
from pathlib import Path

import pytest

from .test_run_command import document, run, script

FIRST, STEPS = 16, 16  # the first step on a cached batch, and how many there are
# Each batch takes its one worker a tenth of a second; what a step takes without it, the script measures by itself.
TRAINING = """
import json, sys, time
import torch
from torch.utils.data import Dataset
if sys.argv[1] == "headrace":
    from headrace import DataLoader
else:
    from torch.utils.data import DataLoader

class Samples(Dataset):
    def __len__(self):
        return 56
    def __getitem__(self, index):
        time.sleep(0.05)
        return {"x": torch.full((3,), float(index)), "index": index}

def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    seen, took = [], []
    for batch in DataLoader(Samples(), batch_size=2, num_workers=1):
        start = time.perf_counter()
        assert torch.equal(batch["x"][:, 0], batch["index"].float()), batch
        seen.append(batch["index"].tolist())
        if sys.argv[2] == "in_place":
            batch["x"].mul_(3)
            batch.pop("index")
        model(batch["x"]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        took.append(time.perf_counter() - start)
        if sys.argv[2] == "counted" and len(seen) == 28:
            break
    with open(sys.argv[3], "w") as file:
        json.dump([seen, took], file)

if __name__ == "__main__":
    main()
"""


def replay(
    tmp_path: Path, loader: str, kind: str = "plain"
) -> tuple[str, dict[str, object], list[list[int]], list[float]]:
    path, told = script(tmp_path, TRAINING), tmp_path / "told.json"
    done = run("--out", tmp_path / "run", "--replay-steps", str(STEPS), path, loader, kind, str(told), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen, took = json.loads(told.read_text(encoding="utf-8"))
    return " ".join(done.stderr.split()), document(tmp_path / "run"), seen, took


def assert_measured(found: dict[str, object], took: list[float]) -> None:
    """The ceiling lies within what the loop measured of its own steps, which hold no wait, and not above."""
    figures: dict[str, float] = found["figures"]  # type: ignore[assignment]
    cached = took[FIRST : FIRST + STEPS]
    assert figures["replayed_steps"] == STEPS
    assert 0.02 <= figures["ceiling_step_s"] <= max(cached) + 0.05
    assert figures["real_step_s"] >= 0.06  # one worker, a tenth of a second a batch, whatever the machine
    assert 0 < figures["accelerator_utilisation"] <= 1
    assert figures["perfect_loader_gain"] >= 1
    rows = found["times"]
    assert sum(row["share"] for row in rows) == pytest.approx(1, abs=0.01)  # type: ignore[attr-defined]
    assert any(row["activity"] == "replay" for row in rows)  # type: ignore[attr-defined]


def test_cached_steps_measure_the_ceiling_and_no_sample_is_lost(tmp_path: Path) -> None:
    said, found, seen, took = replay(tmp_path, "torch")
    assert len(seen) == 28 + STEPS  # the epoch is so much longer
    real = seen[:FIRST] + seen[FIRST + STEPS :]
    assert real == [[2 * number, 2 * number + 1] for number in range(28)]
    kept = real[8:16]
    assert [batch for batch in seen[FIRST : FIRST + STEPS] if batch not in kept] == []
    assert_measured(found, took)
    for sentence in (
        "--replay changes this training: after 16 steps it gets 16 steps on batches that it has seen already",
        "throw its weights away",
        "a perfect loader would",
        "as MLPerf Storage defines it",
        "The loader lost nothing",
    ):
        assert sentence in said
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["replay_steps"] == STEPS


@pytest.mark.slow
def test_our_loader_is_replayed_and_what_a_training_writes_stays_out_of_the_cache(tmp_path: Path) -> None:
    said, found, seen, took = replay(tmp_path, "headrace", "in_place")  # the script checks each batch that it gets
    assert len(seen) == 28 + STEPS
    assert sorted(index for batch in seen[:FIRST] + seen[FIRST + STEPS :] for index in batch) == list(range(56))
    assert_measured(found, took)
    assert "this is not the training it would have been" in said


@pytest.mark.slow
def test_a_loop_that_ends_by_count_is_told_what_it_did_not_get(tmp_path: Path) -> None:
    said, _, seen, _ = replay(tmp_path, "torch", "counted")
    assert len(seen) == 28
    assert "may not have come" in said


RANKS = """
import time, torch, torch.distributed as dist
from torch.utils.data import DataLoader
def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    steps = 0
    for batch in DataLoader([torch.ones(4)] * 60, batch_size=2, num_workers=1):
        model(batch).mean().backward()
        time.sleep(0.01)
        steps += 1
    print(steps)
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_ranks_make_the_same_steps(tmp_path: Path) -> None:
    path = script(tmp_path, RANKS)
    torchrun = Path(sys.executable).with_name("torchrun")
    command = ("--", torchrun, "--standalone", "--nproc_per_node", "2", path)
    done = run("--out", tmp_path / "run", "--replay-steps", str(STEPS), *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(30 + STEPS)] * 2
    assert "this run trained on cached batches for some steps" in done.stderr


def test_a_training_that_is_too_short_says_so_and_stays_itself(tmp_path: Path) -> None:
    path = script(tmp_path, "print('trained')")
    done = run("-q", "--out", tmp_path / "run", "--replay", path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "--replay changes this training" in done.stderr  # also when only the result is wanted
    assert "throw its weights away" not in done.stderr


@pytest.mark.parametrize(("steps", "said"), [("3", "3 is less than 16"), ("many", "'many' is not a whole number")])
def test_a_number_of_steps_that_cannot_be_is_refused(tmp_path: Path, steps: str, said: str) -> None:
    done = run("--replay-steps", steps, "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_scripts_own_option_of_that_name_is_its_own(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys\nprint(sys.argv[1:])")
    done = run("--out", tmp_path / "run", path, "--replay", "--report", "x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "['--replay', '--report', 'x']\n")
    assert "changes this training" not in done.stderr
