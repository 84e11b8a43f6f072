"""What is done with the file of a checkpoint is timed as part of it; other files are left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headrace.launch.hooks import interruptions, wrapping
from headrace.model import EventKind
from headrace.signals.recording import read_run

_OF_OS = ("fsync", "fdatasync", "rename", "replace")
_OF_SHUTIL = ("copyfile",)
_SETS = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A `torch` whose saves are timed, with `calls`: the names of what was timed, in order."""
    for owner, names in ((os, _OF_OS), (shutil, _OF_SHUTIL)):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))  # as it is now, afterwards
    for name in _SETS:
        monkeypatch.setattr(os, name, set(getattr(os, name)))
    monkeypatch.setattr(interruptions, "_saved_files", {})
    texts: dict[int, str] = {}
    calls: list[str] = []

    def write(kind: int, _start: int, _duration: int, _value: int = 0, arg: int = 0) -> None:
        assert EventKind(kind) is EventKind.CHECKPOINT
        calls.append(texts[arg])

    def number(text: str) -> int:
        texts[len(texts)] = text
        return len(texts) - 1

    monkeypatch.setattr(wrapping.tape, "write", write)
    monkeypatch.setattr(wrapping.tape, "name", number)
    own = SimpleNamespace(save=torch.save, serialization=SimpleNamespace(save=torch.save), calls=calls)
    interruptions.time_save(own)  # type: ignore[arg-type]
    return own


def take(timed: SimpleNamespace) -> list[str]:
    calls = list(timed.calls)
    timed.calls.clear()
    return calls


def state(size: int = 1000) -> dict[str, Any]:
    return {"weight": torch.zeros(size)}


def test_a_file_is_synced_and_gets_its_name(timed: SimpleNamespace, tmp_path: Path) -> None:
    new, path = tmp_path / "model.pt.new", tmp_path / "best" / "model.pt"
    path.parent.mkdir()
    with open(new, "wb") as file:
        timed.save(state(), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    assert take(timed) == ["torch.save", "os.fsync", "os.replace"]
    assert torch.load(path)["weight"].shape == (1000,)
    timed.save(state(), path)
    path.rename(new)  # as `pathlib` does it
    with open(new, "rb") as file:
        os.fsync(file)  # type: ignore[arg-type]  # what has a descriptor will do, too
    assert take(timed) == ["torch.save", "os.rename", "os.fsync"]


def test_a_file_is_copied_to_where_it_is_kept(timed: SimpleNamespace, tmp_path: Path) -> None:
    path, kept, moved = tmp_path / "run" / "model.pt", tmp_path / "kept.pt", tmp_path / "moved.pt"
    path.parent.mkdir()
    timed.save(state(), str(path))
    shutil.copy(path, kept)
    shutil.copy2(src=kept, dst=tmp_path / "again.pt")
    shutil.copytree(path.parent, tmp_path / "whole")
    shutil.move(kept, moved)
    assert take(timed) == ["torch.save", *["shutil.copyfile"] * 3, "os.rename"]
    assert moved.read_bytes() == path.read_bytes() == (tmp_path / "whole" / "model.pt").read_bytes()


def test_other_files_are_left_alone(timed: SimpleNamespace, tmp_path: Path) -> None:
    other, folder = tmp_path / "samples.npz", tmp_path / "data"
    folder.mkdir()
    (folder / "one").write_bytes(b"1")

    def use() -> None:
        with open(other, "wb") as file:
            file.write(b"samples")
            file.flush()
            os.fsync(file.fileno())
        os.replace(other, tmp_path / "renamed")
        shutil.copy(tmp_path / "renamed", other)
        shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)

    use()
    timed.save(state(), tmp_path / "model.pt")
    use()
    assert take(timed) == ["torch.save"]


def test_errors_and_what_functions_can_do_stay_as_they_are(timed: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    timed.save(state(), path)
    with pytest.raises(FileNotFoundError):
        os.rename(tmp_path / "nothing", path)
    with pytest.raises(OSError, match=r"Is a directory|not empty|exists"):
        os.replace(path, tmp_path)
    with pytest.raises(TypeError):
        os.fsync()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        os.fsync("model.pt")  # type: ignore[arg-type]
    assert os.rename in os.supports_dir_fd
    assert os.rename.__name__ == "rename"
    assert take(timed) == ["torch.save", "os.replace"]  # the one that could not


def test_not_more_files_are_remembered_than_a_few(timed: SimpleNamespace, tmp_path: Path) -> None:
    for number in range(200):
        timed.save(state(1), tmp_path / f"{number}.pt")
    take(timed)
    os.replace(tmp_path / "0.pt", tmp_path / "first.pt")
    os.replace(tmp_path / "199.pt", tmp_path / "last.pt")
    assert take(timed) == ["os.replace"]
    assert len(interruptions._saved_files) <= 64


_SCRIPT = """
import os, sys, torch
with open("model.new", "wb") as file:
    torch.save({"weight": torch.zeros(1000)}, file)
    file.flush()
    os.fsync(file.fileno())
os.replace("model.new", "model.pt")
with open("log", "w") as log:
    os.fsync(log.fileno())
"""


def test_a_script_under_run_is_timed_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", "-q", "--out", "run", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    recording = read_run(tmp_path / "run")
    saves = recording.events_of(EventKind.CHECKPOINT)
    names = [recording.name_of(int(one["pid"]), int(one["arg"])) for one in saves]
    assert names == ["torch.save", "os.fsync", "os.replace"]
