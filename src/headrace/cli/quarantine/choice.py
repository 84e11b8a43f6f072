"""Which failures of a quarantine are asked for."""

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from headrace.model import SampleFailure, key_text

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The filters of `headrace quarantine`: a failure passes if it passes each one that is given."""

    kinds: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    since: datetime | None = None
    ranks: tuple[int, ...] = ()
    shards: tuple[str, ...] = ()

    def passes(self, failure: SampleFailure) -> bool:
        """Whether a failure is asked for."""
        return (
            (not self.kinds or failure.kind in self.kinds)
            and (not self.exceptions or any(_is_named(failure.exception, name) for name in self.exceptions))
            and all(text.casefold() in _all_text(failure) for text in self.contains)
            and (self.since is None or _is_since(failure, self.since))
            and (not self.ranks or failure.rank in self.ranks)
            and (not self.shards or any(_is_shard(failure.shard, pattern) for pattern in self.shards))
        )

    def as_json(self) -> dict[str, Any]:
        """Return the filters that are given."""
        given = {name: value for name, value in asdict(self).items() if value}
        return given | ({"since": self.since.isoformat()} if self.since else {})


def parse_since(text: str, *, now: datetime) -> datetime:
    """Return the moment that "2h" (ago), "2026-07-30" or "2026-07-30 14:00" names; `ValueError` if it names none.

    A time without a zone is local time, as it is shown.

    >>> parse_since("90m", now=datetime(2026, 7, 30, 12, tzinfo=UTC)).isoformat()
    '2026-07-30T10:30:00+00:00'
    """
    age = _AGE.fullmatch(text.strip())
    if age:
        return now - timedelta(**{_UNITS[age.group(2)]: float(age.group(1))})
    return datetime.fromisoformat(text.strip()).astimezone()


def moment_of(time: str) -> datetime | None:
    """Return a time of a quarantine as a moment; `None` if a person has written something else there."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _is_named(exception: str, name: str) -> bool:
    """Whether `UnidentifiedImageError` or `PIL.UnidentifiedImageError` means this exception."""
    return exception == name or exception.rpartition(".")[2] == name


def _is_shard(shard: str | None, pattern: str) -> bool:
    """Whether a shard's path, or its last part, is the pattern or fits it."""
    if shard is None:
        return False
    names = (shard, shard.rpartition("/")[2])
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def _is_since(failure: SampleFailure, since: datetime) -> bool:
    moment = moment_of(failure.time)
    return moment is not None and moment >= since


def _all_text(failure: SampleFailure) -> str:
    texts = (failure.exception, failure.message, failure.traceback, failure.file, failure.shard, str(failure.key))
    return "\n".join([text for text in texts if text] + [key_text(failure.key)]).casefold()
