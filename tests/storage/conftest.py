"""What holds for the tests of shards: indexes stay in the test's folder, and no file stays open."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.storage.reading.extents import close_files


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    close_files()
