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
    assert "4 samples are condemned in" in done.stdout
    assert "from 2026-07-30 11:00 to 2026-07-31 10:00" in done.stdout
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
    assert "里有 4 个被隔离的样本" in done.stdout
    for said in ("次数", "位置与原因", "最近一次（CST）", "worker 进程死亡：worker 2", "2026-07-30 19:00", "下一步："):
        assert said in done.stdout
    assert "condemned" not in done.stdout


def test_filters_that_nothing_passes_find_nothing(bad: Path) -> None:
    done = run("quarantine", str(bad), "--kind", "hang")
    assert (done.returncode, done.stderr) == (0, "")
    assert "none of the 4 condemned samples" in done.stdout


def test_indices_are_one_json_a_line_for_another_program(bad: Path) -> None:
    done = run("quarantine", str(bad), "--indices")
    assert (done.returncode, done.stderr) == (1, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [4711, 17, ["病例", 7], "scan_\x1b[31m"]
    done = run("quarantine", str(bad), "--indices", "--exception", "ValueError", "--contains", "scan_0002")
    assert done.stdout == "17\n"
    assert run("quarantine", str(bad), "--indices", "--rank", "9").stdout == ""


def test_groups_are_counted(bad: Path) -> None:
    done = run("quarantine", str(bad), "--by", "exception")
    assert done.returncode == 1
    assert re.search(r"^samples +exception +one of them", done.stdout, re.MULTILINE)
    assert re.search(r"^ +2  ValueError +17  /data/ct/scan_0002.npz", done.stdout, re.MULTILINE)
    assert re.search(r"^ +1  its worker died", done.stdout, re.MULTILINE)


def test_tracebacks_are_shown_in_full(bad: Path) -> None:
    done = run("quarantine", str(bad), "--traceback", "--shard", "train-*.tar", "--rank", "1")
    assert "sample ('病例', 7)  shards/train-0007.tar@51200  times 1  tries 3  rank 1  worker 2" in done.stdout
    done = run("quarantine", str(bad), "--traceback", "--contains", "4711")
    assert "Traceback (most recent call last):" in done.stdout
    assert '    raise ValueError(f"cannot reshape array of size {key}")\n' in done.stdout
    assert "cannot reshape array of size 17" not in done.stdout


def test_json_is_one_document_from_the_same_object(bad: Path) -> None:
    done = run("quarantine", str(bad), "--json", "--by", "file", "--since", NOON.isoformat())
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "headrace/quarantine/1"
    assert (document["num_samples"], document["num_samples_in_files"]) == (2, 4)
    assert dt.datetime.fromisoformat(document["filters"]["since"]) == NOON
    assert [sample["key"] for sample in document["samples"]] == [["病例", 7], "scan_\x1b[31m"]
    assert document["groups"] == [{"name": None, "num_samples": 2, "keys": [["病例", 7], "scan_\x1b[31m"]}]
    everything = json.loads(run("quarantine", str(bad), "--json").stdout)
    assert everything["samples"][0]["times"] == 2
    assert "raise ValueError" in everything["samples"][0]["traceback"]
    assert "groups" not in everything


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


def test_damage_is_a_finding_and_named_on_stderr(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"schema": "headrace/quarantine/v1", "key"')
    done = run("quarantine", str(path))
    assert done.returncode == 1
    assert "1 damaged line could not be read" in done.stdout
    assert done.stderr == f"headrace: damaged line {path}:1: the line is cut off\n"
    assert run("-q", "quarantine", str(path)).stderr == ""


def test_an_empty_quarantine_is_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.touch()
    done = run("quarantine", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no sample is condemned in ")


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
        assert "Traceback" not in done.stderr


def test_wrong_usage_is_explained(bad: Path) -> None:
    for args, said in (
        (("--since", "soon"), "'soon' is no time; write an age such as 90m"),
        (("--limit", "-1"), "-1 is less than 0"),
        (("--kind", "tired"), "worker_lost"),
        (("--json", "--indices"), "not allowed with argument --indices"),
        (("--by", "exception", "--traceback"), "not allowed with argument --by"),
    ):
        done = run("quarantine", str(bad), *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
