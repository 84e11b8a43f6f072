"""A quarantine file: the samples that runs over a data set have condemned, for people and for later runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.errors import StaleQuarantine
from headrace.model import SampleFailure, SampleKeys, key_text

from .appending import append_line
from .quarantine_lines import Damage, line_of, raise_if_foreign, read_lines

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Condemned:
    """One condemned sample: what was last written of it, and how often it was condemned."""

    failure: SampleFailure
    times: int
    first_time: str


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """What a quarantine file holds: each sample once, in the order of its first failure, and the damaged lines."""

    samples: tuple[Condemned, ...]
    damages: tuple[Damage, ...]


class QuarantineFile:
    """A quarantine file, to which any number of processes on any number of hosts may append."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._is_checked = False

    def __repr__(self) -> str:
        return f"QuarantineFile({str(self.path)!r})"

    def check(self) -> None:
        """Raise now what would otherwise be found out when the first sample fails: the path cannot be written to.

        An existing file must be a quarantine: nothing is ever appended to somebody's other file.
        """
        try:
            with self.path.open("rb") as file:
                raise_if_foreign(self.path, file)
            is_writable = os.access(self.path, os.W_OK)
        except FileNotFoundError:
            folder = self.path.parent
            if not folder.is_dir():
                raise FileNotFoundError(f"there is no folder {folder} to write the quarantine to") from None
            is_writable = os.access(folder, os.W_OK | os.X_OK)
        if not is_writable:
            raise PermissionError(f"the quarantine {self.path} cannot be written")
        self._is_checked = True

    def append(self, failure: SampleFailure) -> None:
        """Write down a condemned sample: one line, whole or not at all; `OSError` if it could not be written."""
        if not self._is_checked:
            self.check()
        append_line(self.path, line_of(failure))

    def entries(self) -> Iterator[SampleFailure | Damage]:
        """Read line by line, in the memory of one line; raise `NotAQuarantine` if no line is ours."""
        with self.path.open("rb") as file:
            yield from read_lines(self.path, file)

    def read(self) -> Quarantine:
        """Return all samples, each once, and all damaged lines."""
        damages = []
        failures = []
        for entry in self.entries():
            if isinstance(entry, Damage):
                damages.append(entry)
            else:
                failures.append(entry)
        return Quarantine(samples=tuple(merge_failures(failures)), damages=tuple(damages))


def merge_failures(failures: Iterable[SampleFailure]) -> list[Condemned]:
    """Return each sample once, in the order of its first failure, with what was last said of it.

    Failures are of one sample if their keys are equal; those without a key, if shard and offset, or else the file,
    are.
    """
    found: dict[object, Condemned] = {}
    for number, failure in enumerate(failures):
        identity = _identity(failure) or number
        known = found.get(identity)
        if known is None:
            found[identity] = Condemned(failure=failure, times=1, first_time=failure.time)
        else:
            found[identity] = replace(known, failure=failure, times=known.times + 1)
    return list(found.values())


def skip_set(source: str | os.PathLike[str] | Iterable[Any], *, num_samples: int | None = None) -> SampleKeys:
    """Return the keys that an earlier run condemned, to leave them out.

    `source` is a quarantine file, or keys as they are. A file that is not there yet condemns nothing, so a script may
    name one file to read and to append to. `num_samples` is the length of the data set: if the file was written for
    another length, its indices may be other samples by now, and `StaleQuarantine` is raised.
    """
    if not isinstance(source, (str, os.PathLike)):
        return SampleKeys(source)
    path = Path(source)
    keys, damages = [], []
    try:
        for entry in QuarantineFile(path).entries():
            if isinstance(entry, Damage):
                damages.append(entry)
            elif entry.key is not None:
                _raise_if_stale(entry, path, num_samples)
                keys.append(entry.key)
    except FileNotFoundError:
        _log.info("there is no quarantine %s yet: no sample is left out", path)
    for damage in damages:  # not before we know that it is a quarantine at all
        _log.warning("%s; the sample it named will be tried again", damage)
    return SampleKeys(keys)


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
