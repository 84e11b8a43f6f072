"""`headrace quarantine` as a user runs it: stdout, stderr and exit code."""

import datetime as dt
import json
import re
from pathlib import Path

import pytest

from headrace.model import FailureKind, SampleFailure
from headrace.signals import QuarantineFile

from .test_cli import run


def _fail(key: int, file: str) -> SampleFailure:
    try:
        raise ValueError(f"cannot reshape array of size {key}")
    except ValueError as error:
        return SampleFailure.from_exception(error, key=key, worker=3, file=file, time="2026-07-30T11:00:00.000+00:00")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A quarantine of four samples, one of them condemned twice."""
    file = QuarantineFile(tmp_path / "bad.jsonl")
    file.append(_fail(4711, "/data/ct/scan_0031.npz"))
    file.append(_fail(17, "/data/ct/scan_0002.npz"))
    file.append(_fail(4711, "/data/ct/scan_0031.npz"))
    file.append(
        SampleFailure(
            key=("病例", 7),
            kind=FailureKind.WORKER_LOST,
            message="worker 2 was killed by SIGSEGV",
            shard="shards/train-0007.tar",
            offset=51200,
            worker=2,
            tries=3,
            rank=1,
            time="2026-07-31T09:30:00.000+00:00",
        )
    )
    file.append(
        SampleFailure(
            key="scan_\x1b[31m", exception="PIL.UnidentifiedImageError", time="2026-07-31T10:00:00.000+00:00", tries=6
        )
    )
    return file.path


UTC = {"TZ": "UTC"}
NOON = dt.datetime(2026, 7, 30, 12, tzinfo=dt.UTC)


def test_the_table_shows_each_sample_once(bad: Path) -> None:
    done = run("quarantine", str(bad), env=UTC)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(f"condemned samples in {bad}: 4\n")
    assert re.search(r"times +sample +where and why +tries +rank +worker +last \(UTC\)", done.stdout)
    assert re.search(r"^ +2  4711 +/data/ct/scan_0031.npz +1 +0 +3 +2026-07-30 11:00", done.stdout, re.MULTILINE)
    assert re.search(r"ValueError: cannot reshape array", done.stdout)
    assert re.search(r"1  \('病例', 7\) +shards/train-0007.tar@51200 +3 +1 +2", done.stdout)
    assert "its worker died: worker 2" in done.stdout
    assert "\x1b" not in done.stdout  # neither colour in a pipe nor what a key brings
    assert f"headrace quarantine --traceback {bad}" in done.stdout
    assert f"skip_quarantined='{bad}'" in done.stdout


def test_the_table_in_chinese_and_in_local_time(bad: Path) -> None:
    done = run("quarantine", str(bad), "--lang", "zh", env={"TZ": "CST-8"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "里被隔离的样本：4 个" in done.stdout
    for said in ("次数", "位置与原因", "最近一次（CST）", "worker 进程死亡：worker 2", "2026-07-30 19:00", "下一步："):
        assert said in done.stdout
    assert "condemned" not in done.stdout


def test_filters_that_nothing_passes_find_nothing(bad: Path) -> None:
    done = run("quarantine", str(bad), "--exception", "hang")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"condemned samples in {bad}: 4, of which 0 pass the filters\n"


def test_indices_are_one_json_a_line_for_another_program(bad: Path) -> None:
    done = run("quarantine", str(bad), "--indices")
    assert (done.returncode, done.stderr) == (1, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [4711, 17, ["病例", 7], "scan_\x1b[31m"]
    done = run("quarantine", str(bad), "--indices", "--exception", "ValueError", "--contains", "scan_0002")
    assert done.stdout == "17\n"
    assert run("quarantine", str(bad), "--indices", "--contains", "nowhere").stdout == ""


def test_groups_are_counted(bad: Path) -> None:
    done = run("quarantine", str(bad), "--by", "exception")
    assert done.returncode == 1
    assert re.search(r"^samples +exception +one of them", done.stdout, re.MULTILINE)
    assert re.search(r"^ +2  ValueError +17  /data/ct/scan_0002.npz", done.stdout, re.MULTILINE)
    assert re.search(r"^ +1  its worker died", done.stdout, re.MULTILINE)


def test_tracebacks_are_shown_in_full(bad: Path) -> None:
    done = run("quarantine", str(bad), "--traceback", "--shard", "train-*.tar")
    assert "sample ('病例', 7)  shards/train-0007.tar@51200  times 1  tries 3  rank 1  worker 2" in done.stdout
    done = run("quarantine", str(bad), "--traceback", "--contains", "4711")
    assert "Traceback (most recent call last):" in done.stdout
    assert '    raise ValueError(f"cannot reshape array of size {key}")\n' in done.stdout
    assert "cannot reshape array of size 17" not in done.stdout


def test_json_is_one_document_from_the_same_object(bad: Path) -> None:
    done = run("quarantine", str(bad), "--json", "--since", NOON.isoformat())
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/quarantine/1"
    assert (document["num_samples"], document["num_samples_in_files"]) == (2, 4)
    assert [sample["key"] for sample in document["samples"]] == [["病例", 7], "scan_\x1b[31m"]
    everything = json.loads(run("quarantine", str(bad), "--json").stdout)
    assert everything["samples"][0]["times"] == 2
    assert "raise ValueError" in everything["samples"][0]["traceback"]


def test_a_known_message_is_told_what_it_means(tmp_path: Path) -> None:
    file = QuarantineFile(tmp_path / "bad.jsonl")
    for key in (1, 2):
        file.append(SampleFailure(key=key, exception="zipfile.BadZipFile", message="File is not a zip file"))
    said = " ".join(run("quarantine", str(file.path)).stdout.split())
    assert "2 × headrace: An npz was not written to its end" in said
    assert "headrace explain --message KB-32" in said
    chinese = "".join(run("quarantine", str(file.path), "--lang", "zh").stdout.split())
    assert "npz没有写完" in chinese
    samples = json.loads(run("quarantine", str(file.path), "--json").stdout)["samples"]
    assert [sample["known"] for sample in samples] == ["KB-32", "KB-32"]


def test_several_files_are_read_as_one(bad: Path, tmp_path: Path) -> None:
    other = QuarantineFile(tmp_path / "rank 1.jsonl")
    other.append(_fail(17, "/data/ct/scan_0002.npz"))
    other.append(_fail(18, "/data/ct/scan_0003.npz"))
    done = run("quarantine", str(bad), str(other.path), "--indices")
    assert [json.loads(line) for line in done.stdout.splitlines()][:2] == [4711, 17]
    assert done.stdout.count("\n") == 5
    assert f"--traceback {bad} '{other.path}'" in run("quarantine", str(bad), str(other.path)).stdout


def test_only_the_last_ones_are_shown_of_many(tmp_path: Path) -> None:
    file = QuarantineFile(tmp_path / "many.jsonl")
    for key in range(120):
        file.append(SampleFailure(key=key, message="bad"))
    done = run("quarantine", str(file.path))
    assert "… and 20 more; --limit 0 shows all" in done.stdout
    assert not re.search(r"^ +1  19 ", done.stdout, re.MULTILINE)
    assert re.search(r"^ +1  119 ", done.stdout, re.MULTILINE)
    assert re.search(r"^ +1  0 ", run("quarantine", str(file.path), "--limit", "0").stdout, re.MULTILINE)
    assert run("quarantine", str(file.path), "--indices").stdout.count("\n") == 120


def test_damage_is_a_finding_and_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"schema": "headrace/quarantine/v1", "key"')
    done = run("quarantine", str(path))
    assert done.returncode == 1
    said = f"damaged lines that could not be read: 1, the first {path}:1: the line is cut off (--json names all)"
    assert done.stdout == f"condemned samples in {path}: 0\n{said}\n"
    assert run("quarantine", str(path), "--indices").stderr == f"headrace: {said}\n"
    (line,) = json.loads(run("quarantine", str(path), "--json").stdout)["damaged_lines"]
    assert (line["path"], line["line"]) == (str(path), 1)


def test_an_empty_quarantine_is_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.touch()
    done = run("quarantine", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"condemned samples in {path}: 0\n"


def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path: Path) -> None:
    other = tmp_path / "labels.csv"
    other.write_text("index,label\n0,1\n")
    for path, said in (
        (other, "labels.csv is not a quarantine file"),
        (tmp_path / "none.jsonl", "none.jsonl: No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        done = run("quarantine", str(path))
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "try: the file that quarantine_file= names in the script" in done.stderr
        assert "Traceback" not in done.stderr


def test_wrong_usage_is_explained(bad: Path) -> None:
    for args, said in (
        (("--since", "soon"), "'soon' is no time; write an age such as 90m"),
        (("--limit", "-1"), "-1 is less than 0"),
        (("--by", "mood"), "exception"),
        (("--indices", "--json"), "not allowed with argument --indices"),
        (("--by", "exception", "--traceback"), "not allowed with argument --by"),
    ):
        done = run("quarantine", str(bad), *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
