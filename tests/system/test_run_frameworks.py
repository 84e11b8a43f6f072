"""`headrace run` with the packages that users have: what each does beside training is seen as what it is.

Packages that are not installed are skipped: none of them is needed for `make test`. What is asserted are counts and
kinds, which no machine's speed can change.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.model import EventKind, LoaderSettings
from headrace.signals.recording import read_run

from .test_cli import HEADRACE, _environment
from .test_run_command import assert_adds_up, document

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).parent.parent / "launch" / "frameworks"
_DEADLINE_S = 110


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def run(folder: Path, *words: str) -> tuple["subprocess.CompletedProcess[str]", dict[str, dict[str, float]]]:
    """Run a command under `headrace run`; return it with the rows of its table."""
    done = subprocess.run(
        [HEADRACE, "run", "--out", "recorded", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=_environment({"CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}),
        timeout=_DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "not timed, in" not in done.stderr
    found = document(folder / "recorded")
    assert_adds_up(found)
    return done, {row["activity"]: row for row in found["times"]}  # type: ignore[attr-defined]


def evidence(folder: Path, cause: str) -> str:
    findings = document(folder / "recorded")["findings"]
    return "\n".join(
        text["en"] if isinstance(text, dict) else text
        for one in findings  # type: ignore[attr-defined]
        if one["cause"] == cause
        for text in one["evidence"]
    )


@needs("lightning", "tensorboard")
def test_lightning(tmp_path: Path) -> None:
    done, rows = run(tmp_path, str(SCRIPTS / "lightning_trainer.py"))
    assert "`Trainer.fit` stopped" in done.stderr
    assert rows["forward"]["count"] == rows["backward"]["count"] == rows["optimizer"]["count"] == 40
    assert rows["evaluation"]["count"] == 5  # the sanity check, and one every ten steps
    assert rows["checkpoint"]["count"] == 4
    assert rows["logging"]["count"] > 0
    assert rows["wait"]["count"] == 38  # but for the first of each epoch
    assert "Lightning" in evidence(tmp_path, "evaluation")


@needs("transformers", "accelerate")
def test_hugging_face_trainer(tmp_path: Path) -> None:
    done, rows = run(tmp_path, str(SCRIPTS / "hf_trainer.py"))
    assert "train_runtime" in done.stdout
    assert rows["backward"]["count"] == rows["optimizer"]["count"] == 40
    assert rows["evaluation"]["count"] == 4
    assert rows["checkpoint"]["count"] == 4
    assert rows["wait"]["count"] == 38
    assert "Trainer.evaluate" in evidence(tmp_path, "evaluation")


@needs("accelerate")
@pytest.mark.parametrize("launched", [False, True])
def test_accelerate_times_a_loader_once(tmp_path: Path, launched: bool) -> None:
    script = str(SCRIPTS / "accelerate_loop.py")
    accelerate = str(Path(sys.executable).with_name("accelerate"))
    if launched and not Path(accelerate).exists():
        pytest.skip("no accelerate beside this Python")
    words = ["--", accelerate, "launch", "--cpu", "--num_processes", "1", script] if launched else [script]
    done, rows = run(tmp_path, *words)
    assert done.stdout.strip().endswith("steps 40")
    assert rows["wait"]["count"] == 38  # its wrapper asks the loader once for each batch
    assert rows["evaluation"]["count"] == 2
    assert rows["checkpoint"]["count"] == 2
    assert rows["backward"]["count"] == 40


@needs("mmengine", "tensorboard")
def test_mmengine(tmp_path: Path) -> None:
    _, rows = run(tmp_path, str(SCRIPTS / "mmengine_runner.py"))
    assert len(list((tmp_path / "work").glob("*.pth"))) == 3  # of each epoch, and the best
    assert rows["forward"]["count"] == 39  # of the model, not of what prepares its data; by the first call it is found
    assert rows["backward"]["count"] == rows["optimizer"]["count"] == 40
    assert rows["wait"]["count"] == 38
    assert rows["evaluation"]["count"] == 2
    assert rows["checkpoint"]["count"] == 2 + 2 * 2  # the best one is saved and then the last one again, with its score
    assert rows["logging"]["count"] > 0
    assert "mmengine" in evidence(tmp_path, "evaluation")
    names = set(read_run(tmp_path / "recorded").names.values())
    assert {"LocalVisBackend", "Runner.save_checkpoint", "tensorboard"} <= names


@needs("ultralytics", "torchvision", "cv2")
def test_ultralytics(tmp_path: Path) -> None:
    done, rows = run(tmp_path, str(SCRIPTS / "ultralytics_yolo.py"))
    assert "2 epochs completed" in done.stdout
    assert rows["forward"]["count"] == 15  # by the first call the model is found
    assert rows["backward"]["count"] == rows["optimizer"]["count"] == 16
    assert rows["wait"]["count"] == 14  # but for the first of each epoch, although its iterator has no end
    assert rows["evaluation"]["count"] == 3  # after each epoch, and of the best model at the end
    assert rows["checkpoint"]["count"] == 2 + 2  # and both files once more without what the optimizer knew
    recording = read_run(tmp_path / "recorded")
    (trainer,) = (one for one in recording.processes if one.role == "trainer")
    assert sum(one.role == "worker" for one in recording.processes) == 2
    said = [recording.name_of(trainer.pid, one["arg"]) for one in recording.events_of(EventKind.LOADER, trainer.pid)]
    assert sum(LoaderSettings.from_text(one).num_workers == 2 for one in said) == 2
    assert "BaseTrainer.save_metrics" in recording.names.values()


@needs("tensorboard", "wandb", "loguru", "tqdm")
def test_log_writers_are_told_apart(tmp_path: Path) -> None:
    done, rows = run(tmp_path, str(SCRIPTS / "log_writers.py"))
    assert "40/40" in done.stderr  # the progress bar is the script's own
    assert rows["logging"]["count"] > 0
    said = evidence(tmp_path, "logging")
    assert "__main__.Slow" in said
    assert "loguru" in said


@needs("torchdata")
def test_a_stateful_loader_keeps_its_state(tmp_path: Path) -> None:
    script = str(SCRIPTS / "stateful_loader.py")
    plain = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=_DEADLINE_S)
    done, rows = run(tmp_path, script)
    assert (plain.returncode, done.stdout) == (0, plain.stdout)
    assert rows["wait"]["count"] > 0


@needs("torch")
def test_distributed_checkpoints(tmp_path: Path) -> None:
    _, rows = run(tmp_path, str(SCRIPTS / "distributed_checkpoint.py"))
    # two synchronous, two asynchronous, two times waiting for one of these, and a path, a file and memory
    assert rows["checkpoint"]["count"] == 2 + 2 + 2 + 3
