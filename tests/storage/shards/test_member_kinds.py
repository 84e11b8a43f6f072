"""Every kind of member is read, or told with its name: no field goes missing in silence, and no size hides the rest."""

from __future__ import annotations

import logging
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import DataLoader
from headrace.errors import ShardDamaged
from headrace.storage.shards import DamageKind, Shards, survey_shards
from headrace.storage.shards.tar_walk import walk_tar

from ..tars import BLOCK, expected, pairs

END = bytes(2 * BLOCK)
HOLES = [(k * 8192, b"%d" % k * 512) for k in range(1, 30)]  # the pieces of a sparse file; more than a header holds
REAL_SIZE = 300_000


def member(
    name: str, data: bytes = b"", kind: bytes = b"0", *, size: int | bytes | None = None, link: str = ""
) -> bytes:
    """A member as tar holds it, with a right checksum, whatever size its header tells."""
    block = bytearray(BLOCK)
    told = len(data) if size is None else size
    digits = told if isinstance(told, bytes) else b"%011o\0" % told
    fields = [
        (0, name.encode()),
        (100, b"0000644\0"),
        (124, digits),
        (148, b" " * 8),
        (156, kind),
        (157, link.encode()),
    ]
    for place, value in [*fields, (257, b"ustar\x0000")]:
        block[place : place + len(value)] = value
    return checked(block) + data + bytes(-len(data) % BLOCK)


def checked(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def base_256(number: int) -> bytes:
    """A number as tar writes it where octal digits do not hold it."""
    return (number % 256**12 | 0x80 << 88).to_bytes(12, "big")


def pax(*records: tuple[str, object]) -> bytes:
    found = []
    for keyword, value in records:
        body = f" {keyword}={value}\n".encode()
        length = len(body) + len(str(len(body)))
        found.append(b"%d" % (len(body) + len(str(length))) + body)
    return b"".join(found)


def plain(members: list[tuple[str, bytes]]) -> bytes:
    return b"".join(member(name, data) for name, data in members)


def shard_of(folder: Path, *parts: bytes, name: str = "a.tar") -> Path:
    path = folder / name
    path.write_bytes(b"".join(parts) + END)
    return path


def damages(shards: Shards) -> list[tuple[DamageKind, int, str]]:
    return [(place.kind, place.offset, place.member) for place in shards.damage]


def come(shards: Shards) -> list[object]:
    """What comes by index: samples, and the keys of those that are damaged."""
    found: list[object] = []
    for index in range(len(shards)):
        try:
            found.append(shards[index])
        except ShardDamaged:
            found.append(shards.place(index).key)
    return found


# ------------------------------------------------------------------ sparse members


def old_sparse(name: str) -> bytes:
    """As `tar -S --format=gnu` writes it: a map in the header, which goes on in blocks after it."""
    pieces = [b"%011o\0%011o\0" % (at, len(piece)) for at, piece in [*HOLES, (REAL_SIZE, b"")]]
    data = b"".join(piece for _, piece in HOLES)
    block = bytearray(member(name, kind=b"S", size=len(data)))
    block[257:265] = b"ustar  \0"
    block[386:482] = b"".join(pieces[:4])
    block[482], block[483:495] = 1, b"%011o\0" % REAL_SIZE
    rest, blocks = pieces[4:], b""
    while rest:
        blocks += b"".join(rest[:21]).ljust(504, b"\0") + bytes([len(rest) > 21]).ljust(8, b"\0")
        rest = rest[21:]
    return checked(block) + blocks + data


def pax_sparse(version: str, name: str) -> bytes:
    hidden, data = f"./GNUSparseFile.7/{name}", b"".join(piece for _, piece in HOLES)
    places = [(at, len(piece)) for at, piece in [*HOLES, (REAL_SIZE, b"")]]
    told: list[tuple[str, object]] = [("GNU.sparse.size", REAL_SIZE), ("GNU.sparse.numblocks", len(places))]
    if version == "0.0":
        hidden = name
        for at, size in places:
            told += [("GNU.sparse.offset", at), ("GNU.sparse.numbytes", size)]
    elif version == "0.1":
        told += [("GNU.sparse.name", name), ("GNU.sparse.map", ",".join(f"{at},{size}" for at, size in places))]
    else:
        told = [("GNU.sparse.major", 1), ("GNU.sparse.minor", 0), ("GNU.sparse.name", name)]
        told += [("GNU.sparse.realsize", REAL_SIZE)]
        digits = "".join(f"{n}\n" for n in [len(places), *(n for place in places for n in place)]).encode()
        data = digits + bytes(-len(digits) % BLOCK) + data
    return member("./PaxHeaders/x", pax(*told), b"x") + member(hidden, data)


def packed_by_bytes(folder: Path, form: str) -> Path:
    sparse = old_sparse("0001.bin") if form == "gnu" else pax_sparse(form, "0001.bin")
    parts = [member("0000.bin", b"zero"), member("0000.cls", b"0"), sparse, member("0001.cls", b"1")]
    return shard_of(folder, *parts, plain(pairs(3, first=2)))


def packed_by_tar(folder: Path, form: str) -> Path:
    source = folder / "in"
    source.mkdir()
    (source / "0000.bin").write_bytes(b"zero")
    (source / "0000.cls").write_bytes(b"0")
    with (source / "0001.bin").open("wb") as file:
        for at, piece in HOLES:
            file.seek(at * 8)
            file.write(piece)
        file.truncate(4 << 20)
    (source / "0001.cls").write_bytes(b"1")
    for name, data in pairs(3, first=2):
        (source / name).write_bytes(data)
    options = ["--format=gnu"] if form == "gnu" else ["--format=posix", f"--sparse-version={form}"]
    command = ["tar", "-S", *options, "-cf", str(folder / "a.tar"), *sorted(p.name for p in source.iterdir())]
    done = subprocess.run(command, cwd=source, capture_output=True, check=False)
    with tarfile.open(folder / "a.tar") if done.returncode == 0 else pytest.skip("no GNU tar here") as archive:
        if not archive.getmember("0001.bin").issparse():
            pytest.skip("files have no holes here")
    return folder / "a.tar"


@pytest.mark.parametrize("form", ["gnu", "0.0", "0.1", "1.0"])
@pytest.mark.parametrize("pack", [packed_by_bytes, packed_by_tar])
def test_a_sparse_member_is_told_and_costs_its_sample_only(
    pack: Callable[[Path, str], Path], form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = pack(tmp_path, form)
    with tarfile.open(path) as archive:  # the bytes made here are what tarfile takes for a sparse member, too
        assert [info.name for info in archive if info.issparse()] == ["0001.bin"]
        offset = archive.getmember("0001.cls").offset
    shards = Shards(path)
    with caplog.at_level(logging.WARNING):
        found = come(shards)
    ((kind, at, name),) = damages(shards)
    assert (kind, name) == (DamageKind.SPARSE, "0001.bin")
    assert 0 < at < offset
    others = pairs(3, first=2)
    assert found[0] == {"__key__": "0000", "__url__": str(path), "bin": b"zero", "cls": b"0"}
    assert found[1:] == ["0001", *expected(others, path)]
    assert f"{path}, byte {at}: 0001.bin is a sparse member" in caplog.text
    assert "without tar -S" in caplog.text
    (place,) = shards.damage
    assert (place.before, place.after) == (2, 1 + len(others))
    labels = Shards(path, fields=["cls"])
    assert [sample["cls"] for sample in labels] == [
        b"0",
        b"1",
        *(data for name, data in others if name.endswith("cls")),
    ]
    for verify in (False, True, True):
        (facts,) = survey_shards([str(path)], verify=verify)
        assert not facts.is_whole
        assert (facts.damage, facts.damaged_samples, facts.wrong_data) == (shards.damage, ("0001",), ())
        assert (facts.num_samples, facts.num_members, facts.num_skipped) == (4, 3 + len(others), 0)


@pytest.mark.parametrize("way", [{"num_workers": 0}, {"num_workers": 2, "backend": "thread"}])
def test_a_quarantine_names_a_sparse_sample(tmp_path: Path, way: dict[str, Any]) -> None:
    path = packed_by_bytes(tmp_path, "1.0")
    loader = DataLoader(Shards(path), batch_size=2, on_error="quarantine", collate_fn=list, max_bad=1.0, **way)
    keys = {sample["__key__"] for batch in loader for sample in batch}
    assert keys == {"0000", "0002", "0003", "0004"}
    assert [(bad.file, bad.shard) for bad in loader.quarantine] == [("0001", str(path))]
    assert loader.quarantine[0].offset is not None


def test_where_all_members_of_a_field_are_sparse_no_sample_comes_without_it(tmp_path: Path) -> None:
    parts = [old_sparse(f"{k:04d}.bin") + member(f"{k:04d}.cls", b"1") for k in range(4)]
    alone = [old_sparse(f"{k:04d}.bin") for k in range(4)]
    for number, path in enumerate([shard_of(tmp_path, *parts), shard_of(tmp_path, *alone, name="b.tar")]):
        shards = Shards(path)
        assert come(shards) == ["0000", "0001", "0002", "0003"], number
        assert list(iter(shards)) == []
        assert [kind for kind, _, _ in damages(shards)] == [DamageKind.SPARSE] * 4


def test_a_sparse_member_that_is_cut_is_cut(tmp_path: Path) -> None:
    head = plain(pairs(2))
    path = tmp_path / "a.tar"
    path.write_bytes((head + old_sparse("0002.jpg"))[:-700])
    shards = Shards(path)
    assert damages(shards) == [(DamageKind.CUT_IN_DATA, len(head), "0002.jpg")]
    assert come(shards) == [*expected(pairs(2), path), "0002"]


def test_a_map_that_is_too_long_to_be_read_spoils_its_member_only(tmp_path: Path) -> None:
    """Its member's own header looks as if the pieces of a sparse file were the file."""
    told = pax(*[("GNU.sparse.offset", 10**9 + k) for k in range(40_000)])
    assert len(told) > 1 << 20
    odd = member("x", told, b"x") + plain([("0000.jpg", b"pieces"), ("0000.cls", b"0")])
    path = shard_of(tmp_path, odd, plain(pairs(3, first=1)))
    shards = Shards(path)
    assert damages(shards) == [(DamageKind.CORRUPT_HEADER, 0, "")]
    assert come(shards) == ["0000", *expected(pairs(3, first=1), path)]


# ------------------------------------------------------------------ sizes that cannot be

FIRST, LAST = pairs(4), pairs(40, first=5, size=3000)
ABSURD = {
    "more than 64 bits": base_256(1 << 80),
    "63 bits": base_256((1 << 63) - 1),
    "a terabyte": base_256(1 << 40),
    "below zero": base_256(-512),
    "the most digits": b"77777777777\0",
    "beyond the end": b"%011o\0" % (1 << 20),
}


@pytest.mark.parametrize("kind", [b"0", b"7", b"S", b"M", b"x", b"g", b"L", b"K", b"Q"])
def test_a_size_that_cannot_be_hides_nothing(kind: bytes, tmp_path: Path) -> None:
    for case, size in ABSURD.items():
        before = plain(FIRST)
        odd = member("0004.jpg", b"picture", kind, size=size) + member("0004.cls", b"4")
        path = shard_of(tmp_path, before, odd, plain(LAST), name=f"{case.replace(' ', '-')}.tar")
        shards = Shards(path)
        assert damages(shards) == [(DamageKind.CORRUPT_HEADER, len(before), "0003.cls")], case
        assert come(shards) == [*expected(FIRST, path), "0004", *expected(LAST, path)], case


def test_a_size_that_cannot_be_in_the_last_header_is_told(tmp_path: Path) -> None:
    before = plain(FIRST)
    for case in ("more than 64 bits", "63 bits", "below zero"):
        path = shard_of(tmp_path, before, member("0004.jpg", b"x", size=ABSURD[case]), name=f"{case}.tar")
        shards = Shards(path)
        assert damages(shards) == [(DamageKind.CORRUPT_HEADER, len(before), "0003.cls")]
        assert come(shards) == expected(FIRST, path)


@pytest.mark.parametrize("size", ["1" + "0" * 5000, str(1 << 63), str(1 << 80), "-512", "12x"])
def test_a_size_that_cannot_be_in_a_pax_record(size: str, tmp_path: Path) -> None:
    before = plain(FIRST)
    odd = member("x", pax(("size", size)), b"x") + member("0004.jpg", b"picture") + member("0004.cls", b"4")
    path = shard_of(tmp_path, before, odd, plain(LAST))
    shards = Shards(path)
    assert damages(shards) == [(DamageKind.CORRUPT_HEADER, len(before), "0003.cls")]
    assert come(shards) == expected([*FIRST, ("0004.jpg", b"picture"), ("0004.cls", b"4"), *LAST], path)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_an_extended_header_that_claims_what_is_behind_it_hides_nothing(kind: bytes, tmp_path: Path) -> None:
    """Its size reaches over healthy members: to a block inside one, to the header of one, and over very many."""
    many = pairs(400, first=5, size=9000)
    for size in (40 * BLOCK, 5 * BLOCK, 900 << 10, 3 << 20):
        text = pax(("mtime", "1700000000.123456789")) if kind in b"xg" else b"0004.jpg\0"
        odd = member("././@LongLink", text, kind, size=size) + plain([("0004.jpg", b"picture"), ("0004.cls", b"4")])
        path = shard_of(tmp_path, plain(FIRST), odd, plain(many), name=f"{size}.tar")
        shards = Shards(path)
        assert [kind for kind, _, _ in damages(shards)] == [DamageKind.CORRUPT_HEADER]
        found = [one["__key__"] if isinstance(one, dict) else one for one in come(shards)]
        assert found == [f"{k:04d}" for k in range(405)]


def test_a_shard_that_ends_in_the_data_of_a_member_is_still_cut_there(tmp_path: Path) -> None:
    """A tar in a tar, cut: what lies inside it does not become members."""
    inner = plain(pairs(5, first=100)) + END
    path = tmp_path / "a.tar"
    path.write_bytes(plain(FIRST) + member("0004.tar", inner)[: BLOCK + 3000])
    shards = Shards(path)
    assert damages(shards) == [(DamageKind.CUT_IN_DATA, len(plain(FIRST)), "0004.tar")]
    assert come(shards) == [*expected(FIRST, path), "0004"]


sizes = st.one_of(st.integers(0, 5000), st.integers(0, 8**11 - 1), st.integers(-(2**88), 2**87).map(base_256))
kinds = st.sampled_from([bytes([letter]) for letter in b"01234567xXgLKSMVDNQ\0"])
records = st.sampled_from([b"", b"name\0", pax(("path", "a.b")), pax(("size", 700)), pax(("GNU.sparse.map", "1,2"))])


@settings(max_examples=300)
@given(st.lists(st.tuples(kinds, st.one_of(st.none(), sizes), records), max_size=8), st.booleans())
def test_whatever_kinds_and_sizes_follow_each_other_a_walk_ends(
    parts: list[tuple[bytes, int | bytes | None, bytes]], has_end: bool
) -> None:
    """No error, and what is not told as damage lies inside the file."""
    data = b"".join(member("a.b", content, kind, size=size, link="a.b") for kind, size, content in parts)
    data += plain(pairs(2)) + END if has_end else b""
    walked = walk_tar(lambda at, size: data[at : at + size], len(data))
    members = walked.members
    for row, (at, size) in enumerate(zip(members.data_at.tolist(), members.size.tolist(), strict=True)):
        assert row in members.unread or BLOCK <= at <= at + size <= len(data)
    for place in walked.damage:
        assert (place.before >= 0, place.after >= 0, 0 <= place.offset <= len(data)) == (True, True, True)


# ------------------------------------------------------------------ other kinds


def test_hard_links_are_read(tmp_path: Path) -> None:
    """By the three ways to name their target, and a link to a link."""
    long = "d/" * 70 + "0000.cls"
    parts = [
        *(member("0000.jpg", b"zero"), member("././@LongLink", long.encode() + b"\0", b"L"), member(long, b"7")),
        *(member("0001.jpg", b"one"), member("././@LongLink", long.encode() + b"\0", b"K")),
        *(member("0001.cls", kind=b"1", link=long[:100]), member("0002.jpg", kind=b"1", link="0001.jpg")),
        *(member("x", pax(("linkpath", "0001.cls")), b"x"), member("0002.cls", kind=b"1", link="nowhere")),
        plain(pairs(2, first=3)),
    ]
    path = shard_of(tmp_path, *parts)
    shards = Shards(path)
    told = [("0000.jpg", b"zero"), (long, b"7"), ("0001.jpg", b"one"), ("0001.cls", b"7"), ("0002.jpg", b"one")]
    wanted = expected([*told, ("0002.cls", b"7"), *pairs(2, first=3)], path)
    assert come(shards) == wanted
    assert list(iter(shards)) == wanted
    assert shards.damage == ()
    for _ in range(2):
        (facts,) = survey_shards([str(path)], verify=True)
        assert facts.is_whole
        assert (facts.num_samples, facts.num_skipped) == (len(wanted), 0)


def test_hard_links_as_tar_writes_them(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for name, data in pairs(3):
        (source / name).write_bytes(data)
    os.link(source / "0000.jpg", source / "0003.jpg")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in sorted(os.listdir(source)):
            archive.add(source / name, name)
        assert archive.getmember("0003.jpg").islnk()
    found = {sample["__key__"]: sample for sample in Shards(tmp_path / "a.tar")}
    assert found["0003"]["jpg"] == found["0000"]["jpg"] == pairs(1)[0][1]


def test_what_lies_elsewhere_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A hard link without a target, one to a sparse member, and the rest of a file of another volume."""
    parts = [
        *(member("0000.jpg", b"the rest", b"M"), member("0000.cls", b"0"), old_sparse("0001.jpg")),
        *(member("0001.cls", b"1"), member("0002.jpg", kind=b"1", link="0001.jpg"), member("0002.cls", b"2")),
        *(member("0003.jpg", kind=b"1", link="nowhere.jpg"), member("0003.cls", b"3"), plain(pairs(3, first=4))),
    ]
    path = shard_of(tmp_path, *parts)
    shards = Shards(path)
    with caplog.at_level(logging.WARNING):
        assert come(shards) == ["0000", "0001", "0002", "0003", *expected(pairs(3, first=4), path)]
    assert [(kind, name) for kind, _, name in damages(shards)] == [
        (DamageKind.ELSEWHERE, "0000.jpg"),
        (DamageKind.SPARSE, "0001.jpg"),
        (DamageKind.SPARSE, "0002.jpg"),
        (DamageKind.ELSEWHERE, "0003.jpg"),
    ]
    assert [(place.before, place.after) for place in shards.damage] == [(0, 10), (1, 9), (2, 8), (3, 7)]
    assert "the data of 0003.jpg is not in this shard" in caplog.text
    assert "--hard-dereference" in caplog.text


def test_links_devices_and_unknown_types_are_said_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Directories and the name of a volume lose nothing, and are not."""
    harmless = [member("volume", kind=b"V"), member("d/", kind=b"5"), member("dump/", b"Yname\0", b"D")]
    path = shard_of(tmp_path, *harmless, plain(pairs(2)))
    with caplog.at_level(logging.WARNING):
        assert come(Shards(path)) == expected(pairs(2), path)
    assert caplog.text == ""
    odd = [member("0000.json", kind=b"2", link="/data/0.json"), member("pipe", kind=b"6"), member("0001.q", b"q", b"Q")]
    path = shard_of(tmp_path, *harmless, plain(pairs(1)), *odd, plain(pairs(1, first=1)), name="b.tar")
    with caplog.at_level(logging.WARNING):
        assert list(iter(Shards(path))) == expected(pairs(2), path)
    (record,) = caplog.records
    assert "3 members are passed over" in record.getMessage()
    assert f"first 0000.json in {path}" in record.getMessage()
    assert "tar -h" in record.getMessage()
    (facts,) = survey_shards([str(path)])
    assert facts.num_skipped == 6
    assert facts.is_whole


def test_contiguous_files_are_read(tmp_path: Path) -> None:
    path = shard_of(tmp_path, member("0000.jpg", b"7", b"7"), member("0000.cls", b"0"))
    shards = Shards(path)
    assert come(shards) == expected([("0000.jpg", b"7"), ("0000.cls", b"0")], path)
    assert shards.damage == ()


def test_a_global_pax_header_that_would_rename_or_resize_is_told(tmp_path: Path) -> None:
    rest = [("0000.jpg", b"zero"), ("0000.cls", b"0"), *pairs(2, first=1)]
    for record, is_told in (("comment", False), ("mtime", False), ("path", True), ("size", True), ("linkpath", True)):
        path = shard_of(tmp_path, member("g", pax((record, "1")), b"g"), plain(rest), name=f"{record}.tar")
        shards = Shards(path)
        assert damages(shards) == ([(DamageKind.CORRUPT_HEADER, 0, "")] if is_told else []), record
        assert come(shards) == expected(rest, path)
