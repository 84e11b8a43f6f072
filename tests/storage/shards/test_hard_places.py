"""Indexes of shards where nothing can be written: a full disk, no home, no temporary folder."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from headrace import Shards
from headrace.errors import UnusableInput
from headrace.model import cache_folder

from ...hard_places import become_nobody, in_hard_place

TEMPORARY = (Path("/tmp"), Path("/var/tmp"))
pytestmark = pytest.mark.root


@pytest.fixture
def folder() -> Any:
    """Not in a temporary folder, which some of these tests take away."""
    with tempfile.TemporaryDirectory(prefix="headrace-shards-", dir="/dev/shm") as name:
        with tarfile.open(f"{name}/a.tar", "w") as tar:
            for key in range(20):
                member = tarfile.TarInfo(f"{key}.txt")
                member.size = 2
                tar.addfile(member, io.BytesIO(b"%02d" % key))
        yield Path(name)


def read(folder: Path) -> list[bytes]:
    dataset = Shards(f"{folder}/a.tar")
    return [bytes(dataset[row]["txt"]) for row in range(len(dataset))]


def without_places(cache: Path) -> None:
    os.chdir("/proc")
    tempfile.tempdir = None
    os.environ["XDG_CACHE_HOME"] = str(cache)


def test_on_a_full_disk_the_index_is_refused_with_a_next_step_and_leaves_nothing(folder: Path) -> None:
    def act() -> Any:
        without_places(folder / "cache")
        with pytest.raises(UnusableInput, match="cannot be written anywhere") as caught:
            read(folder)
        return str(caught.value), sorted(path.name for path in folder.rglob("*") if path.is_file())

    said, left = in_hard_place(act, full=folder, read_only=TEMPORARY)
    assert "No space left on device" in said
    assert "index_dir=" in said
    assert left == ["a.tar", "fill"]


def test_an_index_that_is_there_is_read_where_nothing_can_be_written(folder: Path) -> None:
    expected = read(folder)

    def act() -> Any:
        without_places(Path("/proc/nowhere"))
        return read(folder)

    assert in_hard_place(act, read_only=TEMPORARY) == expected == [b"%02d" % key for key in range(20)]


def test_a_user_without_a_name_or_a_home_gets_no_folder_named_tilde(tmp_path: Path) -> None:
    def act() -> Any:
        os.environ.pop("XDG_CACHE_HOME", None)
        become_nobody()
        return cache_folder()

    assert in_hard_place(act) == Path("/tmp/headrace-cache-54321/headrace")
