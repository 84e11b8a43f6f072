"""Settings by name: arguments win over the environment, that over the file, that over what is built in."""

import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset

from headrace import DataLoader, UnusableInput
from headrace.loader import BUILT_IN, Origin, read_profiles, resolve_settings, write_profile

FILE = """
title = "mine"  # whatever else is in it

[profiles.cluster]
# twelve of sixteen cores
num_workers = 2
memory = "1GiB"
prefetch_factor = 2
persistent_workers = true

[profiles.balanced]
num_workers = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "headrace.toml").write_text(FILE)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")  # the file lies above it
    return tmp_path


def _loader(**settings: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(8)), **settings)


def test_a_profile_of_the_file_is_used_and_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        loader = _loader(batch_size=2, profile="cluster")
    assert (loader.num_workers, loader.memory, loader.prefetch_factor) == (2, "1GiB", 2)
    assert loader.persistent_workers
    assert "2 workers, profile cluster" in repr(loader)
    assert f"num_workers=2 (file: {folder / 'headrace.toml'})" in caplog.text
    assert [len(batch[0]) for batch in loader] == [2, 2, 2, 2]
    del loader


def test_arguments_win_also_with_the_value_of_a_default(folder: Path) -> None:
    loader = _loader(num_workers=0, profile="cluster")
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (0, None, False)
    loader = _loader(profile="cluster", persistent_workers=False, memory=None)
    assert (loader.num_workers, loader.persistent_workers, loader.memory) == (2, False, None)


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.mark.parametrize("source", ["argument", "HEADRACE_PROFILE", "HEADRACE_NUM_WORKERS"])
def test_no_profile_gives_an_iterable_data_set_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    if source != "argument":
        monkeypatch.setenv(source, "2" if source == "HEADRACE_NUM_WORKERS" else "cluster")
    settings: dict[str, Any] = {"profile": "cluster"} if source == "argument" else {}
    loader = DataLoader(_Stream(), 2, **settings)
    assert torch.cat(list(loader)).tolist() == list(range(8))
    assert (loader.num_workers, loader.persistent_workers) == (0, False)
    assert caplog.text.count("num_workers=2 (") == 1
    assert "is left out: an IterableDataset" in caplog.text
    assert DataLoader(_Stream(), 2, num_workers=1, **settings).num_workers == 1
    assert caplog.text.count("is left out") == 1
    assert DataLoader(_Stream(), 2, profile="debug", num_workers=0).num_workers == 0


def test_a_subclass_with_arguments_of_its_own_keeps_them(folder: Path) -> None:
    class Own(DataLoader[Any]):
        def __init__(self, count: int) -> None:
            super().__init__(TensorDataset(torch.arange(count)), num_workers=1, profile="cluster")

    assert Own(4).num_workers == 1


def test_the_environment_wins_over_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PROFILE", "cluster")
    monkeypatch.setenv("HEADRACE_MEMORY", "512MiB")
    monkeypatch.setenv("HEADRACE_PERSISTENT_WORKERS", "false")
    loader = _loader()
    assert (loader.num_workers, loader.memory, loader.persistent_workers) == (2, "512MiB", False)
    assert loader.profile == "cluster"
    found = resolve_settings()
    assert (found["memory"].origin, found["memory"].place) == (Origin.ENVIRONMENT, "HEADRACE_MEMORY")
    assert found["num_workers"].origin is Origin.FILE
    assert found["backend"].origin is Origin.DEFAULT


def test_another_file_can_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "other.toml").write_text("[profiles.cluster]\nnum_workers = 1\n")
    monkeypatch.setenv("HEADRACE_CONFIG", str(folder / "other.toml"))
    assert _loader(profile="cluster").num_workers == 1
    monkeypatch.setenv("HEADRACE_CONFIG", str(folder / "absent.toml"))
    with pytest.raises(UnusableInput, match="HEADRACE_CONFIG names"):
        _loader(profile="cluster")


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_profiles_make_loaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    loader = _loader(profile=name)
    assert (loader.num_workers == 0) == (name == "debug")
    assert resolve_settings(name)["num_workers"].origin is Origin.BUILT_IN


def test_a_profile_of_the_file_takes_the_place_of_a_built_in_one(folder: Path) -> None:
    assert _loader(profile="balanced").num_workers == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[profiles.x]\nnum_workers = -1", "num_workers = -1 cannot be used\n  try: a whole number from 0 on"),
        ("[profiles.x]\nnum_workers = 1.5", "num_workers = 1.5 cannot be used"),
        ("[profiles.x]\nmemory = 'much'", "is not a size"),
        ("[profiles.x]\nbackend = 'gpu'", "one of auto, process, thread"),
        ("[profiles.x]\npin_memory = 1", "true or false"),
        ("[profiles.x]\nbatch_size = 8", "sets 'batch_size', which no profile can"),
        ("num_workers = 3", "num_workers at the top of the file, where it is no profile's"),
        ("[profile.x]\nnum_workers = 3", "profile at the top of the file"),
        ("profiles = 3", "profiles are tables"),
        ("[profiles.x", "cannot be read"),
    ],
)
def test_a_wrong_file_is_explained(folder: Path, text: str, said: str) -> None:
    (folder / "headrace.toml").write_text(text)
    with pytest.raises(UnusableInput) as caught:
        _loader(profile="x")
    assert said in str(caught.value)


def test_an_unknown_name_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableInput) as caught:
        _loader(profile="clutser")
    assert "known: cluster, balanced, debug, conservative, aggressive" in str(caught.value)
    with pytest.raises(TypeError, match="name of a profile"):
        _loader(profile=3)
    monkeypatch.setenv("HEADRACE_NUM_WORKERS", "many")
    with pytest.raises(UnusableInput, match="HEADRACE_NUM_WORKERS: num_workers = 'many'"):
        _loader()


def test_the_signature_stays_readable() -> None:
    parameters = inspect.signature(DataLoader.__init__).parameters
    assert parameters["num_workers"].default == 0
    assert parameters["profile"].default is None


def test_a_profile_is_written_and_everything_else_stays(folder: Path) -> None:
    path = folder / "headrace.toml"
    write_profile(path, "cluster", {"num_workers": 1, "memory": "2GiB", "io_depth": None}, comment="measured\ntoday")
    text = path.read_text()
    assert 'title = "mine"  # whatever else is in it' in text
    assert "# measured\n# today\nnum_workers = 1" in text
    assert text.count("[profiles.cluster]") == 1
    assert read_profiles(path) == {"balanced": {"num_workers": 1}, "cluster": {"num_workers": 1, "memory": "2GiB"}}
    write_profile(path, "new", {"pin_memory": True})
    assert _loader(profile="cluster").num_workers == 1
    assert list(read_profiles(path)) == ["balanced", "cluster", "new"]
    assert [entry.name for entry in folder.iterdir() if entry.is_file()] == ["headrace.toml"]


def test_what_cannot_be_written_leaves_the_file_as_it_was(folder: Path) -> None:
    path = folder / "headrace.toml"
    for name, settings in (("bad name", {"num_workers": 1}), ("x", {"num_workers": -1}), ("x", {"batch_size": 1})):
        with pytest.raises(UnusableInput):
            write_profile(path, name, settings)
        assert path.read_text() == FILE
    path.write_text("[broken")
    with pytest.raises(UnusableInput, match="cannot be read"):
        write_profile(path, "x", {"num_workers": 1})
    assert path.read_text() == "[broken"
    with pytest.raises(UnusableInput, match="cannot be written"):
        write_profile(folder / "absent" / "headrace.toml", "x", {"num_workers": 1})
    assert [entry.name for entry in folder.iterdir() if entry.is_file()] == ["headrace.toml"]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "a-b", "a_b"]), st.integers(0, 9)), max_size=6),
    st.sampled_from(["", "# only a comment\n", "[tool]\nx = 1\n", "[profiles.b]\nnum_workers = 1\n\n[z]\ny = 2"]),
)
def test_writing_again_and_again_keeps_the_last_of_each(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, int]], before: str
) -> None:
    path = tmp_path_factory.mktemp("profiles") / "headrace.toml"
    path.write_text(before)
    expected = {"b": {"num_workers": 1}} if "profiles" in before else {}
    for name, workers in writes:
        write_profile(path, name, {"num_workers": workers})
        expected[name] = {"num_workers": workers}
    assert read_profiles(path) == expected
    assert ("[z]" in path.read_text()) == ("[z]" in before)
