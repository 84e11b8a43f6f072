"""`headrace storage` as a user runs it: stdout, stderr and exit code."""

import json
import os
import re
from pathlib import Path

import pytest

from .test_cli import run

QUICK = ("--seconds", "0.8", "--depth-max", "2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "shard.tar").write_bytes(os.urandom(12 << 20))
    os.sync()
    return folder


def test_the_result_in_english(data: Path) -> None:
    done = run("storage", str(data), *QUICK)
    assert (done.returncode, done.stderr) == (0, f"headrace: reading {data}\n")
    assert done.stdout.startswith(f"{data}: ")
    assert "  evidence: mountinfo: " in done.stdout
    assert "1 of its files, 12.0 MiB" in done.stdout
    assert re.search(r"^ +MB/s +from$", done.stdout, re.MULTILINE)
    for name in ("in order", "in order, a second time", "128 KiB at random, 2 at a time"):
        assert re.search(rf"^{name} +[0-9.]+ +\w+", done.stdout, re.MULTILINE), name
    assert "Knee" in done.stdout
    assert re.search(r"^Next: .*io_depth=\d+", done.stdout, re.MULTILINE)
    assert "num_workers is for decoding" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_result_in_chinese(data: Path) -> None:
    done = run("storage", str(data), *QUICK, "--lang", "zh")
    assert (done.returncode, done.stderr) == (0, f"headrace: 正在读取 {data}\n")
    for said in ("顺序读取", "随机读取，2 路", "拐点：", "下一步：", "num_workers 只管解码"):
        assert said in done.stdout
    assert "at random" not in done.stdout


def test_the_document(data: Path) -> None:
    done = run("storage", str(data), *QUICK, "--json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/storage/2"
    assert [reading["depth"] for reading in document["random"]] == [1, 2]
    for reading in (document["in_order"], document["warm"], *document["random"]):
        assert reading["bytes_per_s"] > 0
        assert reading["coldness"] in ("cold", "warm", "partly", "unknown")
    assert document["io_depth"] is None or document["io_depth"] >= 1
    assert document["kind"]["name"]
    assert set(document["knee"]) == {"state", "depth"}


def test_what_is_under_a_path_without_reading() -> None:
    done = run("storage", "/proc", "--no-measure")
    assert (done.returncode, done.stderr) == (0, "")
    assert "evidence: mountinfo: " in done.stdout
    assert "Next: io_depth=8 (an estimate: " in done.stdout
    document = json.loads(run("storage", "/proc", "--no-measure", "--json").stdout)
    assert (document["schema"], document["kind"]["medium"]) == ("headrace/storage/2", "unknown")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("/no/such/folder",), "No such file"),
        (("/no/such/folder",), "\n  nearest folder: /\n  try: `ls -la /` shows what is there"),
        (("/proc/self/status",), "too little to read"),
        (("/", "--seconds", "0"), "0 is not between 0.5 and 3600"),
        (("/", "--depth-max", "0"), "0 is not between 1 and 1024"),
    ],
)
def test_what_cannot_run_is_explained(args: tuple[str, ...], said: str) -> None:
    done = run("storage", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
