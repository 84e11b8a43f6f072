"""A walk finds what tarfile finds, whatever wrote the tar; damage is met, named and passed over."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.storage.shards.tar_walk import BLOCK, find_header, parse_header, parse_pax, scan_blocks, walk_tar

Walk = tuple[list[tuple[bytes, int, int]], list[tuple[str, int, int]], list[bytes]]


def walk(data: bytes, **settings: object) -> Walk:
    """Walk through a tar in memory: its members that can be read, its wounds, and the names of what was skipped."""
    found = walk_tar(lambda at, size: data[at : at + size], len(data), **settings)  # type: ignore[arg-type]
    members = found.members
    names = [members.names[a : a + n] for a, n in zip(members.name_at.tolist(), members.name_len.tolist(), strict=True)]
    wounds = [(str(place.kind), place.offset, place.before) for place in found.damage]
    skipped = [skip.name for skip in found.skipped]
    rows = zip(names, members.data_at.tolist(), members.size.tolist(), strict=True)
    return [row for k, row in enumerate(rows) if k not in members.unread], wounds, skipped


def by_tarfile(data: bytes) -> list[tuple[bytes, int, int]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [
            (info.name.encode("utf-8", "surrogateescape"), info.offset_data, info.size)
            for info in archive.getmembers()
            if info.isreg() and not info.issparse()
        ]


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=130).filter(
    lambda name: not name.endswith("/") and not name.startswith("/")
)
sizes = st.one_of(st.integers(0, 3), st.sampled_from([511, 512, 513, 1024, 9000]))
kinds = st.sampled_from([tarfile.REGTYPE] * 6 + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.AREGTYPE])
entries = st.lists(st.tuples(names, sizes, kinds, st.sampled_from([0, 1.5, 2**34])), max_size=20)


@given(entries, st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
@example([("a" * 140, 5, tarfile.REGTYPE, 0)], tarfile.GNU_FORMAT)
@example([("d/" * 60 + "x.jpg", 5, tarfile.REGTYPE, 0)], tarfile.USTAR_FORMAT)
def test_a_walk_finds_what_tarfile_finds(entries: list[tuple[str, int, bytes, float]], form: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, size, kind, mtime in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mtime = kind, mtime
            info.size = size if kind in (tarfile.REGTYPE, tarfile.AREGTYPE) else 0
            if kind == tarfile.SYMTYPE:
                info.linkname = "elsewhere"
            try:
                archive.addfile(info, io.BytesIO(bytes(size)))
            except (ValueError, UnicodeError):  # this format has no place for it
                pass
    data = buffer.getvalue()
    for window in (4 << 20, 32 * BLOCK, 3 * BLOCK):
        found, wounds, _ = walk(data, window_bytes=window)
        assert found == by_tarfile(data)
        assert wounds == []


@pytest.mark.parametrize("form", ["ustar", "gnu", "pax", "v7"])
def test_what_gnu_tar_writes(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(30):
        (folder / f"{k:03d}.jpg").write_bytes(bytes([k]) * (k * 100))
    (folder / ("n" * 80 if form in ("v7", "ustar") else "n" * 120)).write_bytes(b"long")
    (folder / "link").symlink_to("000.jpg")
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"x")
    done = subprocess.run(
        ["tar", f"--format={form}", *(["--sparse"] if form in ("gnu", "pax") else []), "-cf", "x.tar", "in"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"tar here cannot: {done.stderr.decode()}")
    data = (tmp_path / "x.tar").read_bytes()
    found, wounds, skipped = walk(data)
    assert found == by_tarfile(data)
    assert [kind for kind, _, _ in wounds] == (["sparse"] if form in ("gnu", "pax") else [])
    assert b"in/" in skipped


def test_a_large_size_in_a_pax_record_or_in_base_256() -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        info = tarfile.TarInfo("big.bin")
        info.size = 9 << 30
        head = info.tobuf(form)
        wanted = {len(head): b"", len(head) + info.size: bytes(2 * BLOCK)}

        def fetch(at: int, size: int, head: bytes = head, wanted: dict[int, bytes] = wanted) -> bytes:
            end = next(iter(reversed(wanted)))
            return (head[at : at + size] if at < len(head) else b"").ljust(min(size, end + 2 * BLOCK - at), b"\0")

        found = walk_tar(fetch, len(head) + info.size + 2 * BLOCK)
        assert found.members.size.tolist() == [9 << 30]
        assert found.members.data_at.tolist() == [len(head)]
        assert found.damage == []


def test_headers_inside_data_are_not_members() -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as archive:
        for k in range(20):
            info = tarfile.TarInfo(f"inner{k}")
            info.size = 600
            archive.addfile(info, io.BytesIO(bytes(600)))
    outer = io.BytesIO()
    with tarfile.open(fileobj=outer, mode="w") as archive:
        for k in range(3):
            info = tarfile.TarInfo(f"{k}.tar")
            info.size = len(inner.getvalue())
            archive.addfile(info, io.BytesIO(inner.getvalue()))
    found, wounds, _ = walk(outer.getvalue())
    assert [name for name, _, _ in found] == [b"0.tar", b"1.tar", b"2.tar"]
    assert wounds == []


def test_one_header_and_all_headers_agree() -> None:
    info = tarfile.TarInfo("a/b.jpg")
    info.size = 12345
    block = info.tobuf(tarfile.USTAR_FORMAT)
    header = parse_header(block)
    assert header is not None
    scan = scan_blocks(np.frombuffer(bytes(BLOCK) + block, np.uint8))
    assert (scan.block.tolist(), scan.size.tolist(), scan.checksum.tolist()) == ([1], [12345], [header.checksum])
    assert find_header(np.frombuffer(bytes(BLOCK) + block, np.uint8)) == 1
    for at in range(0, BLOCK, 7):
        damaged = bytearray(block)
        damaged[at] ^= 0x15
        if not 148 <= at < 156:
            assert parse_header(bytes(damaged)) is None


def test_a_damaged_pax_header_is_none() -> None:
    for data in (b"x", b"5 a=b\n", b"99 path=a\n", b"6 path", b"0 a=b\n", b"10 path=ab"):
        assert parse_pax(data) is None


@given(st.binary(min_size=1, max_size=6000))
def test_a_walk_over_anything_ends(data: bytes) -> None:
    found, wounds, _ = walk(data)
    if any(data):
        assert found or wounds
