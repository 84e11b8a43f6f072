"""Every damage of a shard is noticed, told with its offset, and costs no healthy sample."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import DataLoader
from headrace.errors import ShardDamaged, UnusableInput
from headrace.storage.shards import DamageKind, Shards

from ..tars import BLOCK, cut, data_of, expected, header_of, overwrite, pairs, write_tar

NUM = 12
MEMBERS = pairs(NUM)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "a.tar", MEMBERS)


def outcome(shards: Shards) -> tuple[list[dict[str, Any]], list[str]]:
    """The samples that come, and the keys of those that raise."""
    good, bad, told = [], [], []
    for index in range(len(shards)):
        try:
            good.append(shards[index])
        except ShardDamaged as error:
            bad.append(shards.place(index).key)
            told.append((error.evidence["shard"], bad[-1] in str(error)))
    assert told == [(shards.paths[0], True)] * len(bad)
    return good, bad


def zeros_inside(path: Path) -> int:
    """Put two blocks of zeros before a member."""
    at = header_of(path, "0005.jpg")
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes(2 * BLOCK) + data[at:])
    return at


def cut_at(place: Callable[[Path], int]) -> Callable[[Path], int]:
    def damage(path: Path) -> int:
        at = place(path)
        cut(path, at)
        return at

    return damage


def corrupt(name: str) -> Callable[[Path], int]:
    def damage(path: Path) -> int:
        at = header_of(path, name)
        overwrite(path, at + 40, b"\xff\x00\xff garbage")
        return at

    return damage


def end_of(path: Path) -> int:
    return data_of(path, f"{NUM - 1:04d}.cls") + BLOCK


def garbage_after(path: Path) -> int:
    at = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"not a header" * 100)
    return at // BLOCK * BLOCK


CASES: dict[str, tuple[Callable[[Path], int], DamageKind, list[str], int]] = {
    # what is done, what it is called, the damaged samples, how many samples are lost without a name
    "cut at a sample": (cut_at(lambda p: header_of(p, "0008.jpg")), DamageKind.NO_END, [], 4),
    "cut at a member": (cut_at(lambda p: header_of(p, "0008.cls")), DamageKind.NO_END, ["0008"], 3),
    "cut in a header": (cut_at(lambda p: header_of(p, "0008.jpg") + 200), DamageKind.CUT_IN_HEADER, [], 4),
    "cut in a second header": (cut_at(lambda p: header_of(p, "0008.cls") + 1), DamageKind.CUT_IN_HEADER, ["0008"], 3),
    "cut in data": (cut_at(lambda p: data_of(p, "0008.jpg") + 100), DamageKind.CUT_IN_DATA, ["0008"], 3),
    "cut before data": (cut_at(lambda p: data_of(p, "0008.jpg")), DamageKind.CUT_IN_DATA, ["0008"], 3),
    "corrupt first of two": (corrupt("0005.jpg"), DamageKind.CORRUPT_HEADER, ["0005"], 0),
    "corrupt second of two": (corrupt("0005.cls"), DamageKind.CORRUPT_HEADER, ["0005"], 0),
    "corrupt at the begin": (corrupt("0000.jpg"), DamageKind.CORRUPT_HEADER, ["0000"], 0),
    "corrupt at the end": (corrupt("0011.cls"), DamageKind.CORRUPT_HEADER, ["0011"], 0),
    "no end blocks": (cut_at(end_of), DamageKind.NO_END, [], 0),
    "one end block": (cut_at(lambda p: end_of(p) + BLOCK), DamageKind.NO_END, [], 0),
    "no padding": (cut_at(lambda p: data_of(p, "0011.cls") + 2), DamageKind.NO_END, [], 0),
    "zeros inside": (zeros_inside, DamageKind.ZEROS_INSIDE, [], 0),
    "garbage after the end": (garbage_after, DamageKind.AFTER_END, [], 0),
}


def damaged_shard(case: str, folder: Path) -> tuple[Path, int]:
    """A shard that has suffered a case, and the offset that has to be told."""
    folder.mkdir(exist_ok=True)
    path = write_tar(folder / f"{case.replace(' ', '-')}.tar", MEMBERS)
    end = end_of(path)
    act, kind, _, _ = CASES[case]
    at = act(path)
    if kind is DamageKind.CUT_IN_DATA:
        return path, header_of_cut("0008.jpg")
    if case == "one end block":
        return path, end
    return path, at if case == "no padding" else at // BLOCK * BLOCK


def test_damage_is_noticed_and_healthy_samples_come(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for case, (_, kind, damaged, lost) in CASES.items():
        path, offset = damaged_shard(case, tmp_path)
        with caplog.at_level(logging.WARNING):
            shards = Shards(path)
            good, bad = outcome(shards)
        assert [(damage.kind, damage.offset) for damage in shards.damage] == [(kind, offset)], case
        (damage,) = shards.damage
        assert str(damage) in caplog.text
        assert bad == damaged, case
        still_there = expected(MEMBERS, path)[: NUM - lost]
        assert good == [sample for sample in still_there if sample["__key__"] not in damaged], case
        assert 2 * len(good) <= damage.before + damage.after <= 2 * len(good) + len(bad), case


def header_of_cut(member: str) -> int:
    """Where a member's header lies in the shard before it was cut."""
    number, field = member.split(".")
    at = 0
    for name, data in MEMBERS:
        if name == f"{number}.{field}":
            return at
        at += BLOCK + -(-len(data) // BLOCK) * BLOCK
    raise AssertionError(member)


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_stream_passes_over_damage(is_indexed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for case, (_, _, damaged, _) in CASES.items():
        path, _ = damaged_shard(case, tmp_path)
        shards = Shards(path)
        good, _ = outcome(Shards(path, index_dir=tmp_path / "other"))
        if is_indexed:
            shards.prepare()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert list(iter(shards)) == good, case
        for key in damaged:
            assert f"sample {key} of {path}" in caplog.text, case


def test_with_a_quarantine_every_healthy_sample_is_delivered(tmp_path: Path) -> None:
    for case, (_, _, damaged, _) in CASES.items():
        path, _ = damaged_shard(case, tmp_path)
        shards = Shards(path)
        good, _ = outcome(shards)
        log = tmp_path / f"{case}.jsonl"
        loader = DataLoader(
            shards,
            batch_size=4,
            num_workers=0,
            on_error="quarantine",
            quarantine_file=log,
            collate_fn=list,
            max_bad=1.0,
        )
        delivered = [sample for batch in loader for sample in batch]
        assert delivered[: len(good)] == good, case
        assert all(sample in good for sample in delivered), case  # the last batch is filled up with others
        written = [json.loads(line) for line in log.read_text().splitlines()] if damaged else []
        assert [(line["file"], line["shard"]) for line in written] == [(key, str(path)) for key in damaged], case
        for line in written:
            assert shards.place(line["key"]).offset == line["offset"]


def test_workers_give_the_rest_too(shard: Path, tmp_path: Path) -> None:
    corrupt("0005.jpg")(shard)
    shards = Shards(shard)
    good, bad = outcome(shards)
    loader = DataLoader(
        shards,
        batch_size=4,
        num_workers=2,
        on_error="quarantine",
        quarantine_file=tmp_path / "bad.jsonl",
        collate_fn=list,
    )
    assert [sample for batch in loader for sample in batch][: len(good)] == good
    assert bad == ["0005"]
    assert str(shard) in (tmp_path / "bad.jsonl").read_text()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_whatever_is_destroyed_nothing_healthy_is_lost(tmp_path: Path, data: st.DataObject) -> None:
    """Blocks anywhere are overwritten: a sample none of whose blocks was touched comes, with its own bytes."""
    path = write_tar(tmp_path / "b.tar", MEMBERS)
    places: dict[str, range] = {}
    for key in dict.fromkeys(name.partition(".")[0] for name, _ in MEMBERS):
        begin = header_of(path, f"{key}.jpg") // BLOCK
        places[key] = range(begin, data_of(path, f"{key}.cls") // BLOCK + 1)
    num_blocks = path.stat().st_size // BLOCK
    touched = data.draw(st.sets(st.integers(0, num_blocks - 1), min_size=1, max_size=4))
    for block in touched:
        overwrite(path, block * BLOCK, data.draw(st.sampled_from([b"\xa5" * BLOCK, bytes(BLOCK), b"0" * BLOCK])))
    good, _ = outcome(Shards(path, index_dir=tmp_path / f"index-{data.draw(st.uuids())}"))
    by_key = {sample["__key__"]: sample for sample in good}
    for sample in expected(MEMBERS, path):
        if not touched & set(places[str(sample["__key__"])]):
            assert by_key[sample["__key__"]] == sample


def test_changed_data_is_noticed_where_verification_was_asked_for(shard: Path) -> None:
    Shards(shard, verify=True).prepare()
    facts = shard.stat()
    overwrite(shard, data_of(shard, "0003.jpg") + 10, b"!")
    os.utime(shard, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as when a disk loses a bit: nothing else changes
    shards = Shards(shard, verify=True)
    good, bad = outcome(shards)
    assert bad == ["0003"]
    assert good == [sample for sample in expected(MEMBERS, shard) if sample["__key__"] != "0003"]
    with pytest.raises(ShardDamaged, match=r"0003\.jpg is not what was indexed"):
        _ = shards[3]
    assert [sample["__key__"] for sample in shards] == [sample["__key__"] for sample in good]


NO_TAR = [
    (b"\x1f\x8b" + bytes(600), "gzip"),
    (b"PK\x03\x04" + bytes(600), "not a tar file"),
    (b"plain text " * 100, "not a tar file"),
]


def test_what_is_no_tar_is_said(tmp_path: Path) -> None:
    for content, message in NO_TAR:
        (tmp_path / "x.tar").write_bytes(content)
        with pytest.raises(UnusableInput, match=message):
            len(Shards(tmp_path / "x.tar"))
        with pytest.raises(UnusableInput, match=message):
            list(iter(Shards(tmp_path / "x.tar")))


def test_an_empty_file_is_a_shard_without_end(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"")
    shards = Shards(tmp_path / "x.tar")
    assert len(shards) == 0
    assert [damage.kind for damage in shards.damage] == [DamageKind.NO_END]
    assert list(iter(shards)) == []


def test_a_shard_that_was_cut_meanwhile_is_an_error_of_its_samples(shard: Path) -> None:
    shards = Shards(shard).prepare()
    cut(shard, data_of(shard, "0006.jpg") + 3)
    assert shards[2] == expected(MEMBERS, shard)[2]
    with pytest.raises(OSError, match="ends"):
        _ = shards[8]
