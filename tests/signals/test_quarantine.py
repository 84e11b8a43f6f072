"""The quarantine file: what is appended is read again, whoever writes beside us and wherever a writer was killed."""

import errno
import fcntl
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import NotAQuarantine, StaleQuarantine
from headrace.model import FailureKind, SampleFailure, key_text
from headrace.model.samples import OpaqueKey
from headrace.signals import DamagedLine, QuarantinedSample, QuarantineFile, merge_failures, quarantine, skip_set

from ..hard_places import become_nobody, in_hard_place
from ..model.test_failures import any_text, failures, json_keys

BAD = SampleFailure(
    key=4711,
    position=17,
    exception="ValueError",
    message="bad header",
    traceback="Traceback (most recent call last):\n  …\nValueError: bad header\n",
    worker=3,
    file="scan_0031.npz",
    num_samples=10_000,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bad.jsonl"


def keys_in(path: Path) -> list[Any]:
    return [entry.key for entry in QuarantineFile(path).entries() if isinstance(entry, SampleFailure)]


# ------------------------------------------------------------------------------------ what is written is read


@settings(max_examples=60)
@given(st.lists(failures, max_size=5))
def test_what_is_appended_is_read_again(written: list[SampleFailure]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = QuarantineFile(Path(folder) / "bad.jsonl")
        for failure in written:
            file.append(failure)
        if written:
            assert list(file.entries()) == written
            assert file.path.read_bytes().count(b"\n") == len(written)


def test_a_huge_traceback_and_lines_within_it_are_kept(path: Path) -> None:
    huge = SampleFailure(key=1, message="第 31 行\r\n\x0b\u2028\x00", traceback="  File “…”, line 3\n" * 500_000)
    QuarantineFile(path).append(huge)
    QuarantineFile(path).append(BAD)
    assert list(QuarantineFile(path).entries()) == [huge, BAD]


def test_only_what_no_reader_would_take_is_shortened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_LONGEST_LINE_BYTES", 10_000)
    monkeypatch.setattr(quarantine, "_LONGEST_TEXT", 1000)
    QuarantineFile(path).append(SampleFailure(key=1, message="short", traceback="first" + "x" * 20_000 + "last"))
    (read,) = QuarantineFile(path).entries()
    assert isinstance(read, SampleFailure)
    assert read.message == "short"
    assert read.traceback.startswith("first")
    assert read.traceback.endswith("last")
    assert "19009 characters left out" in read.traceback


def test_a_line_is_the_documented_format(path: Path) -> None:
    when = "2026-01-02T03:04:05.678+00:00"
    QuarantineFile(path).append(SampleFailure(key=("病例", 7), file="扫描_0031.npz", time=when))
    line = path.read_text(encoding="utf-8")
    assert line.startswith('{"schema": "headrace/quarantine/v1", "key": ["病例", 7], ')
    assert json.loads(line) == {
        "schema": "headrace/quarantine/v1",
        "key": ["病例", 7],
        "epoch": 0,
        "kind": "exception",
        "exception": "",
        "message": "",
        "traceback": "",
        "tries": 1,
        "time": when,
        "file": "扫描_0031.npz",
        "rank": 0,
    }


def test_a_sample_condemned_twice_is_one_sample() -> None:
    first = SampleFailure(key=3, message="first", time="2026-01-01T00:00:00+00:00")
    other = SampleFailure(key="3", time="2026-01-01T12:00:00+00:00")
    last = SampleFailure(key=3, message="last", rank=5, time="2026-01-02T00:00:00+00:00")
    assert merge_failures([first, other, last]) == [
        QuarantinedSample(failure=last, times=2, first_time=first.time),
        QuarantinedSample(failure=other, times=1, first_time=other.time),
    ]


def test_samples_without_a_key_are_one_only_where_their_place_is() -> None:
    def streamed(**place: Any) -> SampleFailure:
        return SampleFailure(key=None, **place)

    merged = merge_failures(
        [
            streamed(shard="a.tar", offset=512),
            streamed(shard="a.tar", offset=512),
            streamed(shard="a.tar", offset=1024),
            streamed(file="a.npz"),
            streamed(file="a.npz"),
            streamed(),
            streamed(),
        ]
    )
    assert [condemned.times for condemned in merged] == [2, 1, 2, 1, 1]


# ------------------------------------------------------------------------------------ several writers

_APPEND_MANY = """
import sys
from headrace.model import SampleFailure
from headrace.signals import QuarantineFile
path, rank, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.stdin.read()  # all start together
file = QuarantineFile(path)
for number in range(count):
    # from a hundred bytes to some pages: a write that is not one piece would show
    file.append(SampleFailure(key=(rank, number), rank=rank, traceback=chr(97 + rank) * (number * 997 % 20_000)))
"""


def test_eight_processes_append_at_once_and_nothing_is_lost_or_torn(path: Path) -> None:
    ranks, count = 8, 200
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _APPEND_MANY, str(path), str(rank), str(count)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    for writer in writers:
        assert writer.stderr is not None
        said = writer.stderr.read()
        writer.stderr.close()
        assert (writer.wait(timeout=60), said) == (0, b"")
    entries = list(QuarantineFile(path).entries())
    assert [entry for entry in entries if isinstance(entry, DamagedLine)] == []
    assert sorted(keys_in(path)) == [(rank, number) for rank in range(ranks) for number in range(count)]
    for entry in entries:
        assert isinstance(entry, SampleFailure)
        assert entry.traceback == chr(97 + entry.rank) * (entry.key[1] * 997 % 20_000)
    for rank in range(ranks):  # each writer's own lines are in its own order
        assert [key for key in keys_in(path) if key[0] == rank] == [(rank, number) for number in range(count)]


def test_threads_append_at_once(path: Path) -> None:
    file = QuarantineFile(path)

    def append(thread: int) -> None:
        for number in range(50):
            file.append(SampleFailure(key=(thread, number), traceback="x" * 5000))

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys_in(path)) == [(thread, number) for thread in range(4) for number in range(50)]


def test_a_file_that_is_replaced_meanwhile_gets_the_line(path: Path, tmp_path: Path) -> None:
    """As an editor or `sed -i` does: the old file lives on without a name, and a line in it would be lost."""
    file = QuarantineFile(path)
    file.append(SampleFailure(key=1))  # which also checks it: from now on it is opened only to be written to
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=file.append, args=(SampleFailure(key=2),))
        writer.start()
        _wait_until_open_twice(path)
        (tmp_path / "edited.jsonl").write_bytes(b"")
        os.replace(tmp_path / "edited.jsonl", path)
    writer.join(timeout=60)
    assert keys_in(path) == [2]


def _wait_until_open_twice(path: Path) -> None:
    for _ in range(10_000):
        targets = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                targets.append(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:
                continue
        if targets.count(str(path)) >= 2:
            return
        threading.Event().wait(0.001)
    raise TimeoutError("the writer never opened the file")


def test_a_lock_that_is_never_released_does_not_stop_a_training(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(quarantine, "_LONGEST_LOCK_WAIT_S", 0.05)
    QuarantineFile(path).append(SampleFailure(key=1))
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        QuarantineFile(path).append(SampleFailure(key=2))
        QuarantineFile(path).append(SampleFailure(key=3))
    assert keys_in(path) == [1, 2, 3]
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # once
    assert "has held its lock" in caplog.text


def test_a_file_system_without_locks_is_said_and_written_to(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(quarantine.fcntl, "flock", no_locks)
    QuarantineFile(path).append(BAD)
    assert keys_in(path) == [4711]
    assert "its file system has no locks (No locks available)" in caplog.text


# ------------------------------------------------------------------------------------ damage


_APPEND_FOR_EVER = """
import sys
from headrace.model import SampleFailure
from headrace.signals import QuarantineFile
file, number = QuarantineFile(sys.argv[1]), int(sys.argv[2])
while True:
    file.append(SampleFailure(key=number, traceback="x" * 3_000_000))
    print(number, flush=True)
    number += 1
"""


def test_a_killed_writer_loses_nothing_that_it_had_written(path: Path) -> None:
    """Kill writers amid their work; what one was told is written is there, and at most its last line is damaged."""
    told: list[int] = []
    kills = 6
    for kill in range(kills):
        command = [sys.executable, "-c", _APPEND_FOR_EVER, str(path), str(1000 * kill)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            told += [int(writer.stdout.readline()) for _ in range(2 + kill)]
            threading.Event().wait(0.0007 * kill)  # another moment of the next write each time
            writer.kill()
            told += [int(line) for line in writer.stdout if line.endswith("\n")]
    QuarantineFile(path).append(BAD)
    entries = list(QuarantineFile(path).entries())
    assert len([entry for entry in entries if isinstance(entry, DamagedLine)]) <= kills
    found = [entry for entry in entries if isinstance(entry, SampleFailure)]
    assert set(told) <= {failure.key for failure in found}
    assert all(failure.traceback == "x" * 3_000_000 for failure in found[:-1])
    assert found[-1] == BAD


@settings(max_examples=60)
@given(st.data())
def test_wherever_a_writer_was_killed_the_other_lines_are_read(data: st.DataObject) -> None:
    """Cut the file at any byte: every line before is read, and the next append starts a line of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = QuarantineFile(Path(folder) / "bad.jsonl")
        written = [SampleFailure(key=number, message="错误" * number) for number in range(3)]
        ends = [0]
        for failure in written:
            file.append(failure)
            ends.append(file.path.stat().st_size)
        cut = data.draw(st.integers(0, ends[-1]))
        os.truncate(file.path, cut)
        # a line that lacks nothing but its end is whole
        whole = [failure for failure, end in zip(written, ends[1:], strict=True) if end - 1 <= cut]
        entries = list(file.entries())
        assert [entry for entry in entries if isinstance(entry, SampleFailure)] == whole
        torn = [entry for entry in entries if isinstance(entry, DamagedLine)]
        assert len(torn) == (0 if cut in ends or cut + 1 in ends else 1)
        assert all(entry.reason == "the line is cut off" and entry.line == len(whole) + 1 for entry in torn)

        QuarantineFile(file.path).append(BAD)
        repaired = list(file.entries())
        assert [entry for entry in repaired if isinstance(entry, SampleFailure)] == [*whole, BAD]
        assert len(repaired) == len(entries) + 1


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=300), st.integers(0, 3))
def test_any_bytes_between_two_lines_cost_only_themselves(rubbish: bytes, at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = QuarantineFile(Path(folder) / "bad.jsonl")
        for number in range(3):
            file.append(SampleFailure(key=number))
        lines = file.path.read_bytes().splitlines(keepends=True)
        file.path.write_bytes(b"".join([*lines[:at], rubbish.replace(b"\n", b"\t") + b"\n", *lines[at:]]))
        entries = list(file.entries())
        assert [entry.key for entry in entries if isinstance(entry, SampleFailure)] == [0, 1, 2]
        damages = [entry.line for entry in entries if isinstance(entry, DamagedLine)]
        assert damages == ([at + 1] if rubbish.replace(b"\n", b"\t").strip() else [])


def test_damage_is_named_with_its_line(path: Path) -> None:
    QuarantineFile(path).append(BAD)
    with path.open("a") as file:
        file.write('\n{"schema": "headrace/quarantine/v2", "key": 3}\n[1, 2]\n')
        file.write('{"schema": "headrace/quarantine/v1", "key": 3, "tries": "two"}\n')
    said = [str(damage) for damage in QuarantineFile(path).read().damages]
    assert said == [
        f"{path}:3: its schema is 'headrace/quarantine/v2'; this version reads 'headrace/quarantine/v1'",
        f"{path}:4: not a JSON object with a schema",
        f"{path}:5: tries is 'two', not of type int",
    ]


def test_a_full_disk_leaves_no_half_line(path: Path) -> None:
    """A limit on the size of files stands for the full disk: the write begins, and fails in the middle."""
    QuarantineFile(path).append(BAD)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(OSError, match=r"too large"):
            QuarantineFile(path).append(BAD)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


# ------------------------------------------------------------------------------------ files that are something else


@pytest.mark.parametrize(
    "content",
    [b"index,label\n0,1\n", b'{"model": "resnet"}\n', b"\x1f\x8b\x08" * 50, b"x" * 200 + b"\n" * 200, b"["],
    ids=["csv", "json", "binary", "text", "bracket"],
)
def test_another_file_is_refused_and_never_written_to(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAQuarantine, match="is not a quarantine file"):
        QuarantineFile(path).check()
    with pytest.raises(NotAQuarantine, match="is not a quarantine file"):
        QuarantineFile(path).append(BAD)
    with pytest.raises(NotAQuarantine):
        list(QuarantineFile(path).entries())
    with pytest.raises(NotAQuarantine):
        skip_set(path)
    assert path.read_bytes() == content
    assert caplog.text == ""  # the error says all


def test_a_large_foreign_file_is_not_read_to_its_end(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse terabyte without a line
    with pytest.raises(NotAQuarantine):
        QuarantineFile(path).check()


def test_a_missing_folder_is_found_before_the_first_sample_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*runs"):
        QuarantineFile(tmp_path / "runs" / "bad.jsonl").check()
    QuarantineFile(tmp_path / "bad.jsonl").check()
    assert list(tmp_path.iterdir()) == []  # looking creates nothing


# ------------------------------------------------------------------------------------ what a later run leaves out


@settings(max_examples=60)
@given(st.lists(json_keys | st.binary().map(repr).map(OpaqueKey), max_size=6), any_text)
def test_a_later_run_leaves_out_what_was_condemned(keys: list[Any], other: str) -> None:
    keys = [key for key in keys if key is not None]
    with tempfile.TemporaryDirectory() as folder:
        file = QuarantineFile(Path(folder) / "bad.jsonl")
        for key in keys:
            file.append(SampleFailure(key=key))
        found = skip_set(file.path)
    assert all(key in found for key in keys)
    assert len(found) == len({key_text(key) for key in keys})
    assert (other in found) == (key_text(other) in set(map(key_text, keys)))


def test_a_file_that_is_not_there_yet_leaves_out_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert len(skip_set(path)) == 0
    assert "no sample is left out" in caplog.text


def test_a_damaged_line_is_said_when_skipping(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    QuarantineFile(path).append(BAD)
    with path.open("a") as file:
        file.write('{"schema": "headrace/qu')
    assert list(skip_set(path, num_samples=10_000)) == [4711]
    assert "bad.jsonl:2: the line is cut off; the sample it named will be tried again" in caplog.text


def test_indices_of_a_data_set_of_another_length_are_refused(path: Path) -> None:
    """The bad files were deleted since, say: then index 4711 is a good sample, and leaving it out would be silent."""
    QuarantineFile(path).append(BAD)
    with pytest.raises(StaleQuarantine) as caught:
        skip_set(path, num_samples=9_999)
    assert "samples then: 10000   samples now: 9999" in str(caught.value)
    assert "headrace quarantine --indices" in caught.value.next_step
    assert list(skip_set([4711, "a"], num_samples=9_999)) == [4711, "a"]  # keys that a person gives are taken


def test_an_index_out_of_range_is_refused_even_if_the_length_was_not_written_down(path: Path) -> None:
    QuarantineFile(path).append(SampleFailure(key=10, kind=FailureKind.HANG))
    assert list(skip_set(path, num_samples=11)) == [10]
    with pytest.raises(StaleQuarantine, match="another data set"):
        skip_set(path, num_samples=10)


def test_names_hold_in_a_data_set_of_any_length(path: Path) -> None:
    QuarantineFile(path).append(SampleFailure(key="scan_0031", num_samples=10_000))
    assert "scan_0031" in skip_set(path, num_samples=5)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = QuarantineFile(tmp_path / "pipe")
    with pytest.raises(NotAQuarantine, match="is a pipe"):
        file.check()
    with pytest.raises(NotAQuarantine, match="is a pipe"):
        file.read()


# ------------------------------------------------------------------------------------ what to do about it


def test_what_cannot_be_a_quarantine_is_refused_with_a_next_step_that_fits(tmp_path: Path) -> None:
    """Room is for a full disk; a folder that is not there or is a file, and a file that is a folder, need another."""
    (tmp_path / "file").write_text("")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "gone" / "bad.jsonl")
    for name, kind, step in (
        ("nope/bad.jsonl", FileNotFoundError, f"try: `mkdir -p {tmp_path}/nope`"),
        ("file/bad.jsonl", NotADirectoryError, "try: another folder: a file has that name"),
        (".", IsADirectoryError, "try: a file: a folder has that name"),
        ("nope/../bad.jsonl", FileNotFoundError, f"try: `mkdir -p {tmp_path}/nope/..`"),
        ("elsewhere", FileNotFoundError, f"try: `mkdir -p {tmp_path}/gone`"),
        ("circle", OSError, "try: another path: links in it lead back to themselves"),
        ("x" * 300, OSError, "try: a shorter name"),
    ):
        with pytest.raises(kind) as caught:
            QuarantineFile(tmp_path / name).check()
        assert step in str(caught.value)
        assert "make room" not in str(caught.value)
    with pytest.raises(IsADirectoryError, match="cannot be read: Is a directory\n  try: a file"):
        skip_set(tmp_path)


@pytest.mark.root
def test_a_quarantine_without_rights_is_refused_with_a_next_step_that_fits(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    shut, unreadable = tmp_path / "shut", tmp_path / "unreadable.jsonl"
    shut.mkdir(mode=0o700)
    unreadable.write_text("")
    unreadable.chmod(0o200)

    def act() -> list[str]:
        become_nobody()
        said = []
        for path in (shut / "bad.jsonl", tmp_path / "bad.jsonl", unreadable):
            with pytest.raises(PermissionError) as caught:
                QuarantineFile(path).check()
            said.append(str(caught.value))
        with pytest.raises(PermissionError) as caught:
            skip_set(unreadable)
        return [*said, str(caught.value)]

    said = in_hard_place(act)
    folders = [shut, tmp_path, tmp_path, tmp_path]
    for one, folder in zip(said, folders, strict=True):
        assert f": Permission denied\n  try: `ls -la {folder}` shows who may read and write there" in one


@pytest.mark.root
def test_a_read_only_folder_is_called_that(tmp_path: Path) -> None:
    def act() -> str:
        with pytest.raises(OSError, match="cannot be written") as caught:
            QuarantineFile(tmp_path / "bad.jsonl").check()
        return str(caught.value)

    said = in_hard_place(act, read_only=(tmp_path,))
    assert f"Read-only file system\n  try: a folder that is not mounted read-only, as {tmp_path} is" in said
