"""`headrace shards` as a user runs it: stdout, stderr and exit code."""

import json
import os
from pathlib import Path

import pytest

from ..storage.tars import cut, data_of, header_of, overwrite, pairs, write_tar
from .test_cli import run


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Three shards: whole, with a corrupt header and a stray member, and cut."""
    write_tar(tmp_path / "x-0.tar", pairs(5))
    second = write_tar(tmp_path / "x-1.tar", [*pairs(6, first=5), ("readme", b"")])
    overwrite(second, header_of(second, "0007.jpg") + 40, b"\xff\xff garbage")
    third = write_tar(tmp_path / "x-2.tar", pairs(5, first=11))
    cut(third, data_of(third, "0013.jpg") + 10)
    return tmp_path


def test_damage_is_shown_and_counts_as_a_finding(shards: Path) -> None:
    done = run("shards", str(shards / "x-{0..2}.tar"), "--lang", "en")
    assert done.returncode == 1
    for text in (
        "samples: 12",
        "x-1.tar, byte 5120: a corrupt header; 1536 bytes are lost",
        "still readable: 4 members before it, 8 after it",
        "damaged sample: 0007",
        "the data of 0013.jpg is cut, 703 bytes are missing",
        "readme (no rule fits its name)",
        'on_error="quarantine"',
    ):
        assert text in done.stdout
    assert "reading the headers" in done.stderr
    chinese = run("shards", str(shards), "--lang", "zh", "-q")
    assert chinese.returncode == 1
    assert chinese.stderr == ""
    for text in (
        "文件头损坏",
        "受损样本：0007",
        "0013.jpg 的数据被截断，缺 703 字节",
        "索引：新建 0 个，3 个已是最新",
        "下一步",
    ):
        assert text in chinese.stdout


def test_whole_shards_are_no_finding(shards: Path) -> None:
    done = run("shards", str(shards / "x-0.tar"), "--list", "-q")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == f"{shards}/x-0.tar\t0001\tjpg:701 cls:1"
    paired = run("shards", str(shards / "x-0.tar"), "--pair", "jpg={key}.jpg", "--pair", "npz={key}_f.npz", "-q")
    assert paired.returncode == 1
    assert "0000.jpg (its sample has no npz)" in paired.stdout
    assert "--pair FIELD=PATTERN" in paired.stdout


def test_the_document_says_the_same(shards: Path) -> None:
    done = run("shards", str(shards), "--json", "--list", "-q")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/shards/1"
    assert [shard["num_samples"] for shard in document["shards"]] == [5, 5, 2]
    assert [shard["damaged_samples"] for shard in document["shards"]] == [[], ["0007"], ["0013"]]
    assert [damage["offset"] for shard in document["shards"] for damage in shard["damage"]] == [5120, 5120]
    assert document["shards"][0]["samples"][0] == {"key": "0000", "fields": {"jpg": 700, "cls": 1}}


def test_verify_finds_data_that_changed(shards: Path) -> None:
    path = shards / "x-0.tar"
    stored = run("shards", str(path), "--verify", "--lang", "en")
    assert (stored.returncode, "checksums of all data are in the index now" in stored.stdout) == (0, True)
    assert run("shards", str(path), "--verify", "-q").returncode == 0
    facts = path.stat()
    for number, name in enumerate(
        ["0000.jpg", "0004.jpg"], 1
    ):  # the second lies in the tail, which is looked at always
        overwrite(path, data_of(path, name) + 3, b"!")
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        found = run("shards", str(path), "--verify", "--lang", "en")
        assert found.returncode == 1
        assert f"not what was indexed: {number}, first 0000.jpg" in found.stdout


def test_what_cannot_be_run(shards: Path) -> None:
    (shards / "y.tar").write_bytes(b"\x1f\x8b" + bytes(600))
    packed = run("shards", str(shards / "y.tar"), "--lang", "en", "-q")
    assert (packed.returncode, "compressed with gzip" in packed.stdout) == (1, True)
    (shards / "z.tar").write_bytes(bytes(range(1, 251)) * 8)
    noise = run("shards", str(shards / "z.tar"), "--lang", "en").stdout
    assert "1.95 KiB          not a tar file" in noise
    assert "Next: give the paths of whole, unpacked tar files." in noise
    absent = run("shards", str(shards / "nothing.tar"))
    assert (absent.returncode, "1 of 1 shards are not there" in absent.stderr) == (2, True)
    wrong = run("shards", str(shards), "--pair", "jpg")
    assert (wrong.returncode, "write FIELD=PATTERN" in wrong.stderr) == (2, True)
