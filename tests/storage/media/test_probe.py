"""A probe of real files: what it reads, what it says, and that it leaves everything as it was."""

import os
import random
from pathlib import Path

import pytest

from headrace.errors import UnusableInput
from headrace.storage.media import Coldness, KneeState, MeasuredReading, Medium, kind_of, probe
from headrace.storage.media.page_cache import fetched_bytes
from headrace.storage.media.probe import LARGE_BYTES, find_files, written_test_file

MIB = 1 << 20


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What a writer would have changed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two large files, forty small ones, an empty one and a link that leads out."""
    folder = tmp_path_factory.mktemp("data")
    for number in range(2):
        (folder / f"shard-{number}.tar").write_bytes(os.urandom(LARGE_BYTES + number * MIB + 100))
    (folder / "small").mkdir()
    for number in range(40):
        (folder / "small" / f"{number}.jpg").write_bytes(os.urandom(30_000 + number))
    (folder / "empty").write_bytes(b"")
    (folder / "link").symlink_to("/")
    os.sync()
    return folder


def _all_readings(result: object) -> list[MeasuredReading]:
    readings: list[MeasuredReading] = [*result.in_order, *result.random, *result.whole_files]  # type: ignore[attr-defined]
    return readings + [each for each in (result.small_random, result.warm) if each is not None]  # type: ignore[attr-defined]


def test_a_folder_is_measured_and_left_as_it_was(data: Path) -> None:
    before = _state(data)
    phases: list[str] = []
    result = probe(data, seconds=1.5, depth_max=4, on_phase=lambda text: phases.append(text.zh), seed=7)
    assert _state(data) == before
    assert (result.files.num_large, result.files.num_small) == (2, 40)
    assert dict(result.files.passed_over)["empty"] == 1
    assert [reading.depth for reading in result.random] == [1, 2, 4]
    assert [reading.depth for reading in result.in_order] == [1, 4]
    assert [reading.depth for reading in result.whole_files] == [1]
    assert result.small_random is not None
    assert result.warm is not None
    for reading in _all_readings(result):
        assert reading.bytes_per_s > 0
        assert reading.num_reads > 0
        assert reading.latency is not None
        assert 0 < reading.latency.median_s <= reading.latency.p95_s <= reading.latency.worst_s
    assert all(len(reading.rates) >= 2 for reading in result.random)
    assert result.num_bytes == pytest.approx(sum(each.num_bytes for each in _all_readings(result)), rel=1.0)
    assert result.suggestion.io_depth >= 1
    assert result.kind == kind_of(data)
    assert "顺序读取，1 路并发" in phases
    assert repr(result).startswith("ProbeResult(")


def test_cold_reads_are_shown_to_be_cold(data: Path) -> None:
    result = probe(data / "shard-0.tar", seconds=0.8, depth_max=2)
    if not result.kind.disks or result.kind.is_guessed or fetched_bytes() is None:
        pytest.skip("the temporary folder is not on a disk that counts")
    for reading in (*result.in_order, *result.random):
        assert reading.coldness is Coldness.COLD, reading.coldness_reason.en
        assert reading.fetched_share is not None
        assert reading.fetched_share > 0.9


def test_holes_are_not_taken_for_a_fast_disk(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(64 * MIB)
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE) != 0:
            pytest.skip("this file system does not tell of holes")
    with pytest.raises(UnusableInput, match="too little to read") as caught:
        probe(tmp_path, seconds=1)
    assert caught.value.evidence["sparse"] == 1


def test_small_files_alone_are_read_whole(data: Path) -> None:
    result = probe(data / "small", seconds=1.0, depth_max=4)
    assert (result.in_order, result.random, result.small_random) == ((), (), None)
    assert [reading.depth for reading in result.whole_files] == [1, 2, 4]
    assert all(reading.read_bytes is None for reading in result.whole_files)
    assert result.whole_files[0].num_bytes / result.whole_files[0].num_reads == pytest.approx(30_020, abs=40)
    assert any("inodes" in said.en for said in result.unknown)


def test_the_bytes_are_bounded(data: Path) -> None:
    """Whatever the speed: once they are used up, only reads that are under way still end."""
    result = probe(data, seconds=30.0, max_bytes="32MiB", depth_max=2)
    assert result.num_bytes <= 32 * MIB + 20 * MIB  # a few reads at the end of each window
    assert any("32.0 MiB was reached" in said.en for said in result.unknown)


def test_a_test_file_is_written_read_and_removed(tmp_path: Path) -> None:
    result = probe(tmp_path, seconds=0.8, depth_max=2, write_test_bytes=16 * MIB)
    assert os.listdir(tmp_path) == []
    assert result.files.is_temporary
    assert result.files.examples == ()
    assert result.kind == kind_of(tmp_path)


def test_a_test_file_is_removed_when_something_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with written_test_file(tmp_path, MIB) as path:
            assert path.stat().st_size == MIB
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert os.listdir(tmp_path) == []


def test_a_test_file_that_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="too little is free") as caught, written_test_file(tmp_path, 1 << 60):
        pass
    assert caught.value.next_step == "a smaller --write-test"
    assert os.listdir(tmp_path) == []


def test_too_little_to_read_says_what_is_there_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 5000)
    (tmp_path / "none").write_bytes(b"")
    with pytest.raises(UnusableInput, match="too little to read") as caught:
        probe(tmp_path, seconds=1)
    assert caught.value.evidence == {"entries_seen": 2, "files": 1, "largest": "4.88 KiB", "empty": 1}
    assert f"headrace storage {tmp_path} --write-test 256" in caught.value.next_step


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="No such file"):
        probe(tmp_path / "gone")
    with pytest.raises(UnusableInput, match="neither a file nor a folder"):
        probe("/dev/null")
    with pytest.raises(UnusableInput, match="is not a folder"):
        probe("/dev/null", write_test_bytes=MIB)
    for wrong in ({"seconds": 0.1}, {"depth_max": 0}, {"depth_max": 5000}, {"read_bytes": 5000}, {"max_bytes": "x"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            probe(tmp_path, **wrong)  # type: ignore[arg-type]


def test_memory_is_never_called_cold(data: Path) -> None:
    folder = Path("/dev/shm") / f"headrace-test-{os.getpid()}"
    if kind_of("/dev/shm").medium is not Medium.MEMORY:
        pytest.skip("/dev/shm is not memory here")
    folder.mkdir()
    try:
        (folder / "data").write_bytes((data / "shard-0.tar").read_bytes())
        result = probe(folder, seconds=0.6, depth_max=2)
        assert {reading.coldness for reading in (*result.in_order, *result.random)} == {Coldness.WARM}
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_one_depth_alone_has_no_knee(data: Path) -> None:
    assert probe(data, seconds=0.5, depth_max=1).knee.state is KneeState.NOT_MEASURED


def test_links_are_not_followed_and_files_are_drawn(data: Path) -> None:
    found = find_files(str(data), seconds=5.0, rng=random.Random(1))
    assert found.num_seen == 45  # not those behind the link
    assert found.is_all_seen
    assert {os.path.basename(file.path) for file in found.large} >= {"shard-0.tar", "shard-1.tar"}
