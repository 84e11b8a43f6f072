"""A depth that was measured is kept for its own storage, for a while, and only when asked for."""

import json
import os
import time
from pathlib import Path

import pytest

from headrace.storage.media import kind_of, remember_depth
from headrace.storage.media.kinds import MAX_AGE_S


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def _measured_depth(path: Path) -> int | None:
    kind = kind_of(path)
    return kind.starting_depth if kind.is_depth_measured else None


def test_what_is_kept_is_what_a_loader_begins_with(tmp_path: Path, cache: Path) -> None:
    assert _measured_depth(tmp_path) is None
    assert not cache.exists()
    path = remember_depth(kind_of(tmp_path), 7, 5e8)
    assert path is not None
    assert path.parent == cache / "headrace" / "storage"
    assert os.listdir(path.parent) == [path.name]  # nothing half written
    kind = kind_of(tmp_path)
    assert (kind.starting_depth, kind.is_depth_measured) == (7, True)
    assert kind.depth_reason.en.startswith("measured ")
    assert "500 MB/s" in kind.depth_reason.en
    assert not kind_of(tmp_path, use_remembered=False).is_depth_measured
    assert not kind_of("/dev/shm").is_depth_measured  # another storage


def test_what_is_old_or_damaged_is_not_used(tmp_path: Path, cache: Path) -> None:
    path = remember_depth(kind_of(tmp_path), 7, 5e8)
    assert path is not None
    whole = path.read_text(encoding="utf-8")
    document, now = json.loads(whole), time.time()
    for text in (
        whole[:40],
        "[]",
        json.dumps({**document, "io_depth": 0}),
        json.dumps({**document, "io_depth": None}),
        json.dumps({**document, "schema": "other"}),
        json.dumps({**document, "measured_at_s": now - MAX_AGE_S - 60}),
        json.dumps({**document, "measured_at_s": now + 3600}),  # from the future: a clock was wrong
    ):
        path.write_text(text, encoding="utf-8")
        assert _measured_depth(tmp_path) is None, text
    path.write_text(whole, encoding="utf-8")
    assert _measured_depth(tmp_path) == 7


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert remember_depth(kind_of(tmp_path), 7, 5e8) is None
    assert _measured_depth(tmp_path) is None
