"""`headrace config` as a user runs it."""

import json
from pathlib import Path

import pytest

from .test_cli import run


def test_each_value_with_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headrace.toml").write_text('[profiles.cluster]\nnum_workers = 12\nmemory = "24GiB"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_IO_DEPTH", "8")
    monkeypatch.setenv("HEADRACE_PROFILE", "cluster")
    done = run("config")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {words[0]: " ".join(words[1:]) for words in map(str.split, done.stdout.splitlines()) if words}
    assert rows["num_workers"] == "12 profile cluster of headrace.toml"
    assert f"file: {tmp_path / 'headrace.toml'}, profiles: cluster" in done.stdout
    assert rows["io_depth"] == "8 environment: HEADRACE_IO_DEPTH"
    assert rows["backend"] == "auto default"
    document = json.loads(run("config", "--profile", "debug", "--json").stdout)
    assert document["schema"] == "headrace/config/1"
    assert document["settings"]["num_workers"]["origin"] == "built in"
    assert document["profiles"] == {"cluster": {"num_workers": 12, "memory": "24GiB"}}
    assert "环境变量：HEADRACE_IO_DEPTH" in run("config", "--lang", "zh").stdout


def test_an_unknown_profile_is_explained() -> None:
    done = run("config", "--profile", "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "known: debug, conservative, balanced, aggressive" in done.stderr
