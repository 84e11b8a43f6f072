"""The real `webdataset` reads what we write, and we read what it writes, sample for sample."""

from __future__ import annotations

import gc
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import Shards, ShardWriter

from ..tars import pairs, write_tar

wds = pytest.importorskip("webdataset")

keys = st.text("abz019_-/é", min_size=1, max_size=40).filter(
    lambda key: not key.startswith(("/", "__")) and not key.endswith("/") and "//" not in key
)
fields = st.sampled_from(["jpg", "cls", "json", "seg.png", "npz", "x"])
bodies = st.binary(max_size=700)
samples = st.lists(
    st.tuples(keys, st.dictionaries(fields, bodies, min_size=1, max_size=4)), max_size=8, unique_by=lambda s: s[0]
)


def by_webdataset(*paths: Path | str) -> list[dict[str, Any]]:
    """The samples that webdataset finds, as it finds them."""
    found = []
    for path in paths:
        with open(path, "rb") as stream:
            files = wds.tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
            found += list(wds.tariterators.group_by_keys(files))
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples)
def test_webdataset_reads_what_we_write(tmp_path: Path, samples: list[tuple[str, dict[str, bytes]]]) -> None:
    with ShardWriter(tmp_path / "a-%03d.tar", max_count=3) as writer:
        for key, content in samples:
            writer.write({"__key__": key, **content})
    wanted = [{"__key__": key, **content} for key, content in samples]
    found = by_webdataset(*writer.paths)
    assert [{name: value for name, value in sample.items() if name != "__url__"} for sample in found] == wanted
    assert len(writer.paths) == -(-len(samples) // 3)
    if samples:
        ours = Shards(writer.paths, index_dir=tmp_path / "none" / str(abs(hash(str(samples)))))
        assert list(iter(ours)) == found
        assert [ours[k] for k in range(len(ours))] == found
        assert ours.damage == ()
        assert ours.unpaired == ()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples)
def test_we_read_what_webdataset_writes(tmp_path: Path, samples: list[tuple[str, dict[str, bytes]]]) -> None:
    path = tmp_path / "b.tar"
    with path.open("wb") as file, wds.TarWriter(file, encoder=False) as writer:
        for key, content in samples:
            writer.write({"__key__": key, **content})
    found = by_webdataset(path)
    assert len(found) == len(samples)
    index_dir = tmp_path / str(abs(hash(str(samples))))
    assert list(iter(Shards(path, index_dir=index_dir))) == found  # as a stream
    shards = Shards(path, index_dir=index_dir)
    assert [shards[k] for k in range(len(shards))] == found


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text("ab.B/_é\n", min_size=1, max_size=9), max_size=8, unique=True),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_the_same_names_make_the_same_samples(tmp_path: Path, names: list[str], form: int) -> None:
    """The rule that finds key and field, with dots, hidden files, line ends and metadata in odd places."""
    members = [(name, str(k).encode()) for k, name in enumerate(names) if not name.endswith("/")]
    path = write_tar(tmp_path / "c.tar", members, form=form)
    try:
        found = by_webdataset(path)
    except ValueError:  # it refuses a field that comes twice; we name it
        return
    if len({sample["__key__"] for sample in found}) < len(found):
        return  # it makes two samples of one that is scattered; we make one
    shards = Shards(path, index_dir=tmp_path / str(abs(hash((form, *names)))))
    assert [shards[k] for k in range(len(shards))] == found


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_through_its_own_pipeline(tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / f"{number}.tar", pairs(5, first=5 * number), mtime=1.5)
    theirs = list(wds.WebDataset(str(tmp_path / "{0..1}.tar"), shardshuffle=False))
    for sample in theirs:
        sample.pop("__local_path__", None)
    gc.collect()  # it leaves its files to the collector
    assert list(iter(Shards(tmp_path / "{0..1}.tar"))) == theirs
    assert list(Shards(tmp_path / "{0..1}.tar")) == theirs


def test_what_tar_has_not_to_say_is_fixed(tmp_path: Path) -> None:
    """The same samples give the same bytes, and a member has no owner and no time."""
    for name in ("one", "two"):
        with ShardWriter(tmp_path / f"{name}-%d.tar") as writer:
            writer.write({"__key__": "a", "jpg": b"x", "json": {"é": 1}, "txt": "text", "cls": 3, "__url__": "no"})
    assert (tmp_path / "one-0.tar").read_bytes() == (tmp_path / "two-0.tar").read_bytes()
    with tarfile.open(tmp_path / "one-0.tar") as archive:
        for info in archive.getmembers():
            assert (info.mode, info.uid, info.gid, info.mtime, info.uname, info.gname) == (0o444, 0, 0, 0, "", "")
        members = {info.name: _content(archive, info) for info in archive.getmembers()}
    assert members == {"a.cls": b"3", "a.jpg": b"x", "a.json": '{"é": 1}'.encode(), "a.txt": b"text"}
    assert (tmp_path / "one-0.tar").stat().st_size % 10240 == 0


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(info)
    assert isinstance(file, io.BufferedReader)
    return file.read()


def test_a_shard_is_full_by_bytes_or_by_count(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a-{:02d}.tar", max_bytes="20 KiB") as writer:
        for k in range(10):
            writer.write({"__key__": f"{k}", "bin": bytes(5000)})
    assert len(writer.paths) == 4
    assert all(Path(path).stat().st_size <= 20 << 10 for path in writer.paths)
    assert [sample["__key__"] for sample in Shards(writer.paths)] == [str(k) for k in range(10)]
    with ShardWriter(tmp_path / "b-%02d.tar", max_bytes=1000, start=7) as writer:
        writer.write({"__key__": "large", "bin": bytes(5000)})  # alone, it may be larger than a shard
    assert writer.paths == [str(tmp_path / "b-07.tar")]


def test_an_error_leaves_no_half_shard(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with ShardWriter(tmp_path / "a-%d.tar", max_count=1) as writer:
            writer.write({"__key__": "0", "x": b"1"})
            writer.write({"__key__": "1", "x": b"1"})
            assert sorted(path.name for path in tmp_path.glob("*.tar")) == ["a-0.tar"]
            raise KeyError("the source is gone")

    with pytest.raises(KeyError):
        write_and_fail()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a-0.tar"]


def test_a_forked_child_that_leaves_the_writer_changes_no_shard(tmp_path: Path) -> None:
    for name in ("alone", "forked"):
        writer = ShardWriter(tmp_path / f"{name}-%d.tar")
        for number in range(20):
            writer.write({"__key__": str(number), "x": bytes([number]) * 100})
            if name == "forked" and number == 9:
                pid = os.fork()
                if pid == 0:  # what an exception such as SystemExit does on its way out, and then the collector
                    writer.abort()
                    writer.close()
                    del writer
                    os._exit(0)
                os.waitpid(pid, 0)
        writer.close()
    assert (tmp_path / "forked-0.tar").read_bytes() == (tmp_path / "alone-0.tar").read_bytes()


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": b""}, ValueError, "__key__"),
    ({"__key__": "a.b", "x": b""}, ValueError, "first dot"),
    ({"__key__": "a"}, ValueError, "no fields"),
    ({"__key__": "a", "npy": object()}, TypeError, "give bytes"),
    ({"__key__": "again", "x": b""}, ValueError, "already"),
]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a-%d.tar") as writer:
        writer.write({"__key__": "again", "x": b"1"})
        for sample, error, message in REFUSED:
            with pytest.raises(error, match=message):
                writer.write(sample)
    assert len(Shards(tmp_path / "a-0.tar")) == 1
    with pytest.raises(ValueError, match="no place for the number"):
        ShardWriter(tmp_path / "a.tar")
    with pytest.raises(ValueError, match="max_count"):
        ShardWriter(tmp_path / "a-%d.tar", max_count=0)
