"""A quarantine file: the samples that runs over a data set have condemned, for people and for later runs.

A line for each of them, a JSON object with `"schema": "headrace/quarantine/v1"` and the fields of
`SampleFailure.as_json`. There is no header: the first line is like the last one, so ranks need not agree who creates
the file, files can be joined with `cat` and thinned out with `grep -v`, and a damaged line costs one sample's record.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from headrace.errors import NotAQuarantine, StaleQuarantine
from headrace.model import SampleFailure, SampleKeys, key_text, shorten, write_step

from .system import LOCK_IS_HELD, lock_file, why_unwritable

_log = logging.getLogger(__name__)

QUARANTINE_SCHEMA = "headrace/quarantine/v1"

_ANOTHER_FILE = "another file, or one that is not there yet"
_START = f'{{"schema": "{QUARANTINE_SCHEMA}"'.encode()
_LONGEST_LINE_BYTES = 64 * 2**20  # a data set given by mistake may be one line of a terabyte
_LONGEST_TEXT = 2**20  # of a message or a traceback, in characters, where a line would be longer than that
# How far to look for a first line of ours before the file is called something else.
_MOST_FOREIGN_LINES = 100
_MOST_FOREIGN_BYTES = 16 * 2**20
# A file system that has no locks, or a server without a lock service.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_LONGEST_LOCK_WAIT_S = 10.0  # a line takes less than a millisecond; a host that died may hold its lock for minutes


@dataclass(frozen=True, kw_only=True)
class DamagedLine:
    """A line that cannot be read: where, why, and how it begins."""

    path: str
    line: int
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class QuarantinedSample:
    """One condemned sample: what was last written of it, and how often it was condemned."""

    failure: SampleFailure
    times: int
    first_time: str


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """What a quarantine file holds: each sample once, in the order of its first failure, and the damaged lines."""

    samples: tuple[QuarantinedSample, ...]
    damages: tuple[DamagedLine, ...]


class QuarantineFile:
    """A quarantine file, to which any number of processes on any number of hosts may append."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name: Any = path
        if not (is_path := isinstance(name, (str, os.PathLike))) or not str(name) or "\0" in str(name):
            what = f"{path!r} names no file: a quarantine is named by its path, as in 'bad.jsonl'"
            raise ValueError(what) if is_path else TypeError(what)
        self.path = Path(path)
        self._is_checked = False

    def __repr__(self) -> str:
        return f"QuarantineFile({str(self.path)!r})"

    def check(self) -> None:
        """Raise now what the first bad sample would find out: no path to write to, or somebody's other file."""
        problem = why_unwritable(self.path)
        try:
            any(isinstance(entry, SampleFailure) for entry in self.entries())  # or it raises
        except FileNotFoundError:
            pass  # the first bad sample makes it
        except OSError as error:
            problem = problem or error
        if problem is not None:
            raise _refused(problem, self.path, "written")
        self._is_checked = True

    def append(self, failure: SampleFailure) -> None:
        """Write down a condemned sample: one line, whole or not at all; `OSError` if it could not be written."""
        if not self._is_checked:
            self.check()
        append_line(self.path, line_of(failure))

    def entries(self) -> Iterator[SampleFailure | DamagedLine]:
        """Read line by line, in the memory of one line; raise `NotAQuarantine` if no line is ours."""
        if self.path.is_fifo():  # it would be waited for
            raise NotAQuarantine(f"{self.path} is a pipe", next_step=_ANOTHER_FILE)
        with self.path.open("rb") as file:
            yield from _read_lines(self.path, file)

    def read(self) -> Quarantine:
        """Return all samples, each once, and all damaged lines."""
        entries = list(self.entries())
        failures = (entry for entry in entries if isinstance(entry, SampleFailure))
        damages = (entry for entry in entries if isinstance(entry, DamagedLine))
        return Quarantine(samples=tuple(merge_failures(failures)), damages=tuple(damages))


def merge_failures(failures: Iterable[SampleFailure]) -> list[QuarantinedSample]:
    """Return each sample once, in the order of its first failure, with what was last said of it.

    Failures are of one sample if their keys are equal; without a key, if shard and offset, or else the file, are.
    """
    found: dict[object, QuarantinedSample] = {}
    for number, failure in enumerate(failures):
        identity = _identity(failure) or number
        known = found.get(identity)
        if known is None:
            found[identity] = QuarantinedSample(failure=failure, times=1, first_time=failure.time)
        else:
            found[identity] = replace(known, failure=failure, times=known.times + 1)
    return list(found.values())


def skip_set(source: str | os.PathLike[str] | Iterable[Any], *, num_samples: int | None = None) -> SampleKeys:
    """Return the keys that an earlier run condemned, to leave them out.

    `source` is a quarantine file, or keys as they are. A file that is not there yet condemns nothing, so a script may
    name one file to read and to append to. `num_samples` is the length of the data set: if the file was written for
    another length, its indices may be other samples by now, and `StaleQuarantine` is raised.
    """
    if isinstance(source, bytes) or not isinstance(source, (str, os.PathLike, Iterable)):
        raise TypeError(f"skip_quarantined takes the path of a quarantine, or the keys of samples, not {source!r}")
    if not isinstance(source, (str, os.PathLike)):
        return SampleKeys(source)
    file, keys, damages = QuarantineFile(source), [], []
    path = file.path
    try:
        for entry in file.entries():
            if isinstance(entry, DamagedLine):
                damages.append(entry)
            elif entry.key is not None:
                _raise_if_stale(entry, path, num_samples)
                keys.append(entry.key)
    except FileNotFoundError:
        _log.info("there is no quarantine %s yet: no sample is left out", path)
    except OSError as error:
        raise _refused(error, path, "read") from None
    for damage in damages:  # not before we know that it is a quarantine at all
        _log.warning("%s; the sample it named will be tried again", damage)
    return SampleKeys(keys)


def _refused(error: OSError, path: Path, done: str) -> OSError:
    """Return an error of the system's as one that says what to do about it."""
    what = f"the quarantine {path} cannot be {done}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        what = f"there is no folder {os.path.dirname(error.filename)} to write the quarantine to"
    step = write_step(error, error.filename or path)
    return type(error)(f"{what}\n  try: {step}" if step else what)


def _raise_if_stale(failure: SampleFailure, path: Path, num_samples: int | None) -> None:
    if num_samples is None or type(failure.key) is not int:
        return
    written_for = failure.num_samples
    if written_for not in (None, num_samples) or not -num_samples <= failure.key < num_samples:
        raise StaleQuarantine(
            f"the quarantine {path} was written for another data set: its indices may name other samples here",
            index=failure.key,
            samples_then="unknown" if written_for is None else written_for,
            samples_now=num_samples,
            next_step="remove the file, or, if its indices still hold, give them yourself: skip_quarantined=[…], "
            f"from `headrace quarantine --indices {path}`",
        )


def _identity(failure: SampleFailure) -> object:
    if failure.key is not None:
        return key_text(failure.key)
    if failure.shard is not None and failure.offset is not None:
        return (failure.shard, failure.offset)
    return ("file", failure.file) if failure.file is not None else None


# ---------------------------------------------------------------------------------------- lines


def line_of(failure: SampleFailure) -> bytes:
    """Return the line of a failure, without its end. Only texts of many megabytes are shortened."""
    line = _dump(failure)
    if len(line) < _LONGEST_LINE_BYTES:
        return line
    message, traceback = (shorten(text, _LONGEST_TEXT) for text in (failure.message, failure.traceback))
    return _dump(replace(failure, message=message, traceback=traceback))


def _dump(failure: SampleFailure) -> bytes:
    document = {"schema": QUARANTINE_SCHEMA, **failure.as_json()}
    try:
        return json.dumps(document, ensure_ascii=False).encode()  # `grep` finds a name in any language
    except UnicodeEncodeError:  # a file name that is not UTF-8
        return json.dumps(document).encode()


def _read_lines(path: Path, file: BinaryIO) -> Iterator[SampleFailure | DamagedLine]:
    number = foreign_lines = foreign_bytes = 0
    has_own, last_reason = False, ""
    while line := file.readline(_LONGEST_LINE_BYTES):
        number += 1
        if not line.strip():
            continue  # a person put it in
        is_whole = line.endswith(b"\n")
        entry = _parse(path, number, line, is_whole=is_whole)
        if isinstance(entry, SampleFailure) or line.startswith(_START) or (not is_whole and _START.startswith(line)):
            has_own = True
        elif not has_own:
            foreign_lines, foreign_bytes, last_reason = foreign_lines + 1, foreign_bytes + len(line), entry.reason
            if foreign_lines > _MOST_FOREIGN_LINES or foreign_bytes > _MOST_FOREIGN_BYTES:
                break
        yield entry
    if foreign_lines and not has_own:
        raise NotAQuarantine(
            f"{path} is not a quarantine file",
            lines_read=number,
            last_of_them=last_reason,
            wanted=f'JSON lines with "schema": "{QUARANTINE_SCHEMA}"',
            next_step=_ANOTHER_FILE,
        )


def _parse(path: Path, number: int, line: bytes, *, is_whole: bool) -> SampleFailure | DamagedLine:
    try:
        document = json.loads(line.decode("utf-8"))
        if not isinstance(document, dict) or "schema" not in document:
            reason = "not a JSON object with a schema"
        elif document["schema"] != QUARANTINE_SCHEMA:
            reason = f"its schema is {document['schema']!r}; this version reads {QUARANTINE_SCHEMA!r}"
        else:
            return SampleFailure.from_json(document)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = f"not JSON ({error})" if is_whole else "the line is cut off"
    except ValueError as error:
        reason = str(error)
    text = line[:80].decode("utf-8", errors="replace").rstrip("\n")
    return DamagedLine(path=str(path), line=number, reason=reason, text=text)


# ---------------------------------------------------------------------------------------- a file that many append to


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, whole or not at all, whoever else is adding lines at the same time.

    One write to the end, under `flock`. What an earlier writer left half written gets a line of its own. If this write
    fails half way (a full disk), what was written is taken back, and the `OSError` is raised.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        is_locked = False
        try:
            is_locked = _lock(fd, path)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return _add(fd, line, is_locked=is_locked)
            # somebody put another file in its place, as an editor does: add to that one
        finally:
            if is_locked:
                # Not left to `close`: a child that was forked just now has the file open too, and with it the lock.
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _add(fd: int, line: bytes, *, is_locked: bool) -> None:
    size = os.fstat(fd).st_size
    is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    rest = memoryview((b"\n" if is_torn else b"") + line + b"\n")
    try:
        while rest:  # once round, but for a full disk
            rest = rest[os.write(fd, rest) :]
    except OSError:
        if is_locked:  # without the lock it might be another's line
            os.ftruncate(fd, size)
        raise


def _lock(fd: int, path: Path) -> bool:
    """Wait for the lock; return whether we have it. Without it lines may mix, and a sample must not wait for ever."""
    error = lock_file(fd, _LONGEST_LOCK_WAIT_S)
    if error is None:
        return True
    if error.errno in _NO_LOCKS:
        _say_once(path, f"its file system has no locks ({error.strerror})")
    elif error.errno in LOCK_IS_HELD:
        _say_once(path, f"somebody has held its lock for {_LONGEST_LOCK_WAIT_S:.0f} s")
    else:
        raise error
    return False


@cache
def _say_once(path: Path, why: str) -> None:
    _log.warning("%s is written without a lock, so lines of several processes may mix: %s", path, why)
