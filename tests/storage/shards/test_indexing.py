"""An index is made once, beside its shard or in the cache, is refreshed when the shard changes, and stays small."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import UnusableInput
from headrace.storage.shards import Shards
from headrace.storage.shards.index_file import HEAD_BYTES, MEMBER, SAMPLE, IndexHead, ShardIndex, read_head
from headrace.storage.shards.indexing import ensure_index, find_index, index_places
from headrace.storage.shards.pairing import ByFirstDot, ByPatterns
from headrace.storage.shards.sample_reading import SampleReader

from ..tars import expected, pairs, write_tar

RULE = ByFirstDot()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text("abc./_é\n", min_size=1, max_size=12).map(lambda name: "m" + name + "x"),
            st.integers(0, 1500),
        ),
        max_size=25,
    ),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_an_index_lists_what_tarfile_lists(tmp_path: Path, members: list[tuple[str, int]], form: int) -> None:
    path = write_tar(tmp_path / "a.tar", [(name, bytes(size)) for name, size in members], form=form)
    index = ShardIndex(ensure_index(str(path), RULE, anew=True).path)
    found = sorted(
        (
            int(member["offset"]),
            int(member["size"]),
            index.names(int(member["name_at"]), int(member["name_len"])).decode("utf-8", "surrogateescape"),
        )
        for member in index.members
    )
    with tarfile.open(path) as archive:
        assert found == [(info.offset_data, info.size, info.name) for info in archive.getmembers()]
        sums = {info.offset_data: info.chksum for info in archive.getmembers()}
    assert {int(member["offset"]): int(member["header_sum"]) for member in index.members} == sums


def test_it_is_made_once_and_lies_beside_the_shard(tmp_path: Path) -> None:
    path = str(write_tar(tmp_path / "a.tar", pairs(5)))
    assert find_index(path, RULE) is None
    made = ensure_index(path, RULE)
    assert made.is_new
    assert made.path == path + ".hri"
    assert not ensure_index(path, RULE).is_new
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "a.tar.hri"]


@pytest.mark.root
def test_it_lies_in_the_cache_where_the_folder_is_read_only(tmp_path: Path) -> None:
    """Root writes everywhere, so another user tries."""
    folder = tmp_path / "data"
    folder.mkdir()
    path = str(write_tar(folder / "a.tar", pairs(3)))
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    for parent in [tmp_path, *tmp_path.parents][:4]:  # of one process of several, the folder lies a step deeper
        parent.chmod(parent.stat().st_mode | 0o011)
    child = multiprocessing.get_context("fork").Process(target=_index_as_nobody, args=(path,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert [p.name for p in folder.iterdir()] == ["a.tar"]
    assert len(list((cache / "headrace" / "shards").iterdir())) == 1


def _index_as_nobody(path: str) -> None:
    os.setuid(65534)
    made = ensure_index(path, RULE)
    assert made.path == index_places(path, RULE)[1]
    assert not ensure_index(path, RULE).is_new


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    path = str(write_tar(tmp_path / "a.tar", pairs(3)))
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableInput, match="cannot be written anywhere") as caught:
        ensure_index(path, RULE, index_dir=str(tmp_path / "file" / "x"))
    assert "index_dir=" in caught.value.next_step


def test_a_changed_shard_gets_a_new_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, pairs(5))
    assert len(Shards(path)) == 5
    write_tar(path, pairs(6))
    shards = Shards(path)
    assert [shards[k] for k in range(6)] == expected(pairs(6), path)
    # same size and time, another tail
    facts = path.stat()
    other = pairs(6)
    other[-1] = (other[-1][0], b"9")
    write_tar(path, other)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_size == facts.st_size
    assert ensure_index(str(path), RULE).is_new
    # only the time
    os.utime(path, ns=(1, 1))
    assert ensure_index(str(path), RULE).is_new


def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", pairs(5))
    index = Path(ensure_index(str(path), RULE).path)
    whole = index.read_bytes()
    for damaged in (b"", whole[:-1], *(whole[:at] + b"\x55" + whole[at + 1 :] for at in (0, 9, 60))):
        index.write_bytes(damaged)
        assert ensure_index(str(path), RULE).is_new
        assert len(Shards(path)) == 5


def test_each_pairing_has_its_own_index(tmp_path: Path) -> None:
    path = str(write_tar(tmp_path / "a.tar", [("a.jpg", b"1"), ("a_x.npz", b"2")]))
    rule = ByPatterns({"jpg": "{key}.jpg", "npz": "{key}_x.npz"})
    first, second = ensure_index(path, RULE), ensure_index(path, rule)
    assert first.path != second.path
    assert (first.head.num_samples, second.head.num_samples) == (2, 1)
    assert not ensure_index(path, RULE).is_new
    assert not ensure_index(path, rule).is_new


def _index_in_a_race(path: str, barrier: multiprocessing.synchronize.Barrier, answers: object) -> None:
    barrier.wait(60)
    for _ in range(10):
        head = ensure_index(path, RULE, anew=True).head
        found = read_head(path + ".hri")
        answers.put(found == head and len(Shards(path)) == 50)  # type: ignore[attr-defined]


def test_many_ranks_may_make_it_at_once(tmp_path: Path) -> None:
    path = str(write_tar(tmp_path / "a.tar", pairs(50)))
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(4), context.SimpleQueue()
    ranks = [context.Process(target=_index_in_a_race, args=(path, barrier, answers)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    assert all(answers.get() for _ in range(40))
    for rank in ranks:
        rank.join(60)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "a.tar.hri"]


def test_a_billion_samples_are_opened_without_being_read(tmp_path: Path) -> None:
    """An index of 2**30 samples, 112 GiB, most of it holes: opening and looking up takes pages, not the file."""
    num = 1 << 30
    meta = json.dumps(
        {
            "fields": ["x"],
            "lists": [],
            "signatures": [{"fields": [0], "damaged": False, "count": num}],
            "unpaired": 0,
            "damage": [],
        }
    ).encode()
    members_at = HEAD_BYTES + num * SAMPLE.itemsize
    names_at = members_at + num * MEMBER.itemsize
    names_bytes = 40 * num
    meta_at = names_at + names_bytes
    head = IndexHead(
        *(0, 1 << 50, 0, 0, RULE.fingerprint, num, num, 7 * num),
        *(HEAD_BYTES, members_at, names_at, names_bytes, meta_at, len(meta), meta_at + len(meta)),
    )
    data = tmp_path / "data"
    data.write_bytes(b"".join(b"sample %3d" % k for k in range(200)))
    path = tmp_path / "big.hri"
    chosen = np.random.default_rng(1).integers(0, num, 200).tolist()
    with path.open("wb") as file:
        file.write(head.pack())
        for k, row in enumerate(chosen):
            sample = np.zeros(1, SAMPLE)
            sample["first"], sample["key_at"], sample["key_len"], sample["num"] = row, 40 * row, 10, 1
            member = np.zeros(1, MEMBER)
            member["offset"], member["size"] = 10 * k, 10
            for at, content in (
                (HEAD_BYTES + row * SAMPLE.itemsize, sample.tobytes()),
                (members_at + row * MEMBER.itemsize, member.tobytes()),
                (names_at + 40 * row, b"%010d" % row),
            ):
                file.seek(at)
                file.write(content)
        file.seek(meta_at)
        file.write(meta)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    index = ShardIndex(str(path))
    reader = SampleReader(index, str(data))
    for k, row in enumerate(chosen):
        assert reader.sample(row) == {"__key__": f"{row:010d}", "__url__": str(data), "x": b"sample %3d" % k}
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 << 10
    assert len(index.samples) == num


def test_a_shard_that_is_not_there_is_no_reason_to_make_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput) as caught:
        ensure_index(str(tmp_path / "gone" / "a.tar"), ByFirstDot())
    assert "mkdir" not in str(caught.value)
    assert f"try: the right path: `ls {tmp_path}/gone` shows what is there" in str(caught.value)
