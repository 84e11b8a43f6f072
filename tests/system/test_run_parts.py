"""What a sample's time goes into, in real workers of torch's DataLoader under `headrace run`, the script unchanged."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.model import EventKind
from headrace.signals.recording import Recording, read_run

from ..launch.part_training import NUM_SAMPLES
from .test_cli import HEADRACE, _environment

TRAINING = Path(__file__).parent.parent / "launch" / "part_training.py"
PARTS = {
    "decode Pillow",
    "decode cv2.imdecode",
    "decode numpy.load",
    "read Path.read_bytes",
    "stage inner part",
    "stage whole sample",
    "transform Pillow convert",
    "transform cv2.resize",
}
_DEADLINE_S = 100


def train(
    folder: Path, workers: int, start: str, *options: str
) -> tuple["subprocess.CompletedProcess[str]", Recording]:
    done = subprocess.run(
        [HEADRACE, "run", "--out", str(folder / "run"), *options, str(TRAINING), str(folder), str(workers), start],
        capture_output=True,
        text=True,
        env=_environment(None),
        timeout=_DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "run" / "not-timed.txt").exists()
    return done, read_run(folder / "run")


def names(run: Recording, kind: EventKind) -> list[str]:
    return [run.name_of(event["pid"], event["arg"]) for event in run.events_of(kind)]


def samples(run: Recording) -> Iterator[tuple[np.void, dict[str, int]]]:
    """Yield each sample with its parts' own times."""
    parts = run.events_of(EventKind.PART)
    for sample in run.events_of(EventKind.SAMPLE):
        own = parts[(parts["pid"] == sample["pid"]) & (parts["start_ns"] == sample["start_ns"])]
        yield sample, {run.name_of(one["pid"], one["arg"]): int(one["duration_ns"]) for one in own}


def test_parts_and_stages_of_forked_workers(tmp_path: Path) -> None:
    """They are in the recording, in the report in both languages, and the script does what it does without us."""
    plain = subprocess.run(
        [sys.executable, str(TRAINING), str(tmp_path), "2"], capture_output=True, text=True, timeout=_DEADLINE_S
    )
    done, run = train(tmp_path, 2, "fork", "--lang", "zh", "-v")
    assert done.stdout == plain.stdout, plain.stderr
    found = list(samples(run))
    assert len(found) == NUM_SAMPLES
    assert sorted(int(sample["value"]) for sample, _ in found) == list(range(NUM_SAMPLES))
    for sample, parts in found:
        assert parts.keys() == PARTS
        assert sum(parts.values()) <= sample["duration_ns"]
        assert min(parts.values()) >= 0
    assert names(run, EventKind.STAGE).count("whole sample") == NUM_SAMPLES
    assert names(run, EventKind.STAGE).count("inner part") == NUM_SAMPLES
    (size,) = {int(one["value"]) for one in run.events_of(EventKind.STAGE) if one["value"]}
    assert size == 64 * 64 * 3 * 4
    assert len(run.events_of(EventKind.OFF_CORE)) >= 1
    (saved,) = run.events_of(EventKind.CHECKPOINT)
    assert saved["value"] == (tmp_path / "model.pt").stat().st_size
    document = json.loads((tmp_path / "run" / "findings.json").read_text(encoding="utf-8"))
    rows = {(row["kind"], row["name"]): row for row in document["parts"]}
    assert rows["decode", "Pillow"]["count"] == NUM_SAMPLES
    assert rows["decode", "Pillow"]["mb_per_s"] > 0
    assert rows["read", "Path.read_bytes"]["mb_per_s"] > 0
    whole, inner = rows["stage", "whole sample"], rows["stage", "inner part"]
    assert whole["total_s"] >= inner["total_s"] + whole["own_s"] - 1e-3
    assert sum(row["share"] for row in document["parts"]) == pytest.approx(1, abs=0.02)
    assert "worker 的时间花在哪里" in done.stderr
    assert "阶段：whole sample" in done.stderr
    assert "解码：Pillow" in done.stderr


def test_parts_of_samples_fetched_in_the_training_process(tmp_path: Path) -> None:
    """And out of a `Subset`, as `random_split` makes them."""
    done, run = train(tmp_path, 0, "subset", "-v")
    found = list(samples(run))
    assert sorted(int(sample["value"]) for sample, _ in found) == list(range(NUM_SAMPLES))
    assert {process.role for process in run.processes if process.role} == {"trainer"}
    assert all(parts.keys() == PARTS for _, parts in found)
    assert "stage: whole sample" in done.stderr
    assert "where the workers' time went" in done.stderr


@pytest.mark.parametrize("start", ["stream", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_parts_of_a_worker(tmp_path: Path, start: str) -> None:
    _, run = train(tmp_path, 1, start)
    found = [(sample, parts) for sample, parts in samples(run) if parts]
    assert len(found) == NUM_SAMPLES
    assert all(parts.keys() == PARTS for _, parts in found)
    assert all(sum(parts.values()) <= sample["duration_ns"] for sample, parts in found)
    if start == "stream":
        assert names(run, EventKind.STAGE).count("around a yield") == NUM_SAMPLES


@pytest.mark.slow
def test_parts_of_spawned_workers(tmp_path: Path) -> None:
    _, run = train(tmp_path, 2, "spawn")
    found = list(samples(run))
    assert len(found) == NUM_SAMPLES
    assert all(parts.keys() == PARTS for _, parts in found)
