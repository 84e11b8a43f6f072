"""A depth that was measured is kept for its own storage, for a while, and only when asked for."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.model import Text
from headrace.storage.media import ProbeResult, Suggestion, kind_of, probe, recall, remember
from headrace.storage.media.remembered import MAX_AGE_S


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ProbeResult:
    folder = tmp_path_factory.mktemp("data")
    (folder / "data").write_bytes(os.urandom(9 << 20))
    measured = probe(folder, seconds=0.5, depth_max=2)
    # whether a busy machine's rates have a knee is not the question here
    return replace(measured, suggestion=Suggestion(io_depth=2, is_measured=True, reason=Text("the knee", "拐点")))


def test_a_probe_keeps_nothing_unless_told(result: ProbeResult, cache: Path) -> None:
    assert recall(result.kind) is None
    assert not cache.exists()


def test_what_is_kept_is_what_a_loader_begins_with(result: ProbeResult, cache: Path) -> None:
    path = remember(result)
    assert path is not None
    assert path.parent == cache / "headrace" / "storage"
    kind = kind_of(result.path)
    assert (kind.starting_depth, kind.is_depth_measured) == (2, True)
    assert kind.depth_reason.en.startswith("measured ")
    assert os.listdir(path.parent) == [path.name]  # nothing half written
    assert not kind_of(result.path, use_remembered=False).is_depth_measured
    assert not kind_of("/dev/shm").is_depth_measured  # another storage


def test_what_is_old_or_damaged_is_not_used(result: ProbeResult, cache: Path) -> None:
    path = remember(result)
    assert path is not None
    assert recall(result.kind) is not None
    assert recall(result.kind, now_s=time.time() + MAX_AGE_S + 60) is None
    assert recall(result.kind, now_s=time.time() - 3600) is None  # from the future: a clock was wrong
    whole = path.read_text(encoding="utf-8")
    document = json.loads(whole)
    for text in (
        whole[:40],
        "[]",
        json.dumps({**document, "io_depth": 0}),
        json.dumps({**document, "io_depth": None}),
        json.dumps({**document, "schema": "other"}),
        json.dumps({**document, "storage": "another one of the same key"}),
    ):
        path.write_text(text, encoding="utf-8")
        assert recall(result.kind) is None, text


def test_what_was_not_measured_is_not_kept(result: ProbeResult, cache: Path) -> None:
    estimated = replace(result, suggestion=replace(result.suggestion, is_measured=False))
    assert remember(estimated) is None
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_no_error(result: ProbeResult, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert remember(result) is None
    assert recall(result.kind) is None
