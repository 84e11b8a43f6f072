"""Time stamps of any logger, as seconds on one scale."""

from __future__ import annotations

import re
from datetime import date

_MONTHS = {
    name: 1 + index
    for index, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
}
_CLOCK = r"(?P<h>\d{1,2}):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?(?!\d|:\d)"
_SHAPES = (
    re.compile(rf"(?<!\d)(?P<Y>\d{{4}})[-/.](?P<M>\d{{1,2}})[-/.](?P<D>\d{{1,2}})[ T_]+{_CLOCK}"),
    re.compile(rf"(?<!\d)(?P<Y>\d{{4}})年(?P<M>\d{{1,2}})月(?P<D>\d{{1,2}})日\s*{_CLOCK}"),
    re.compile(rf"(?<![\d/.-])(?P<M>\d\d)[-/](?P<D>\d\d)[-/](?P<Y>\d{{4}})[ T]+{_CLOCK}"),  # 11/15/2025, accelerate
    re.compile(rf"(?<![\d/.-])(?P<M>\d\d)[-/](?P<D>\d\d)[ T]+{_CLOCK}"),  # 11/15, mmengine
    re.compile(rf"^[IWEF](?P<M>\d\d)(?P<D>\d\d)\s+{_CLOCK}"),  # glog, absl
    re.compile(rf"\b(?P<N>[A-Z][a-z]{{2}})\s+(?P<D>\d{{1,2}})\s+{_CLOCK}(?:\s+(?P<Y>\d{{4}}))?"),  # syslog, ctime
    re.compile(rf"^\s*(?:[A-Z]+\s+)?[\[(]?{_CLOCK}[\])]?(?=[\s:|,-]|$)"),  # the time of day alone
    re.compile(r"^\s*[\[(]?(?P<E>1[4-9]\d{8}(?:\.\d{1,9})?)[\])]?(?=[\s:|,-]|$)"),  # seconds since 1970
)
_LOOK_AT = 96  # characters of a line; a time further to the right belongs to the message
_DAY_S = 86400.0


class Stamps:
    """Reads the time stamp of each line; keeps the shape that this log uses, and counts midnights.

    >>> stamps = Stamps()
    >>> a = stamps.read("2025-11-15 19:26:27,537 WARNING: slow"); b = stamps.read("2025-11-15 19:26:50,852 INFO: x")
    >>> round(b - a, 3), stamps.resolution_s
    (23.315, 0.001)
    >>> stamps.read("no time here") is None
    True
    """

    def __init__(self) -> None:
        self.resolution_s = 1.0
        self._shapes = list(_SHAPES)
        self._days: dict[tuple[str | None, ...], float] = {}
        self._last_clock_s = -1.0
        self._midnights = 0

    def read(self, line: str) -> float | None:
        """Return the line's time in seconds, on a scale that only differences of have a meaning."""
        head = line[:_LOOK_AT]
        if ":" not in head and head.lstrip("[( ")[:1] != "1":
            return None
        for index, shape in enumerate(self._shapes):
            match = shape.search(head)
            if match is not None and (seconds := self._seconds(match)) is not None:
                if index:  # a log keeps to its shape: look for this one first from now on
                    self._shapes.insert(0, self._shapes.pop(index))
                return seconds
        return None

    def _seconds(self, match: re.Match[str]) -> float | None:
        groups = match.re.groupindex
        if "E" in groups:
            epoch = match["E"]
            self.resolution_s = 0.001 if "." in epoch else self.resolution_s
            return float(epoch)
        h, m, s, fraction = match.group("h", "m", "s", "f")
        hour, minute, second = int(h), int(m), int(s)
        if hour > 23 or minute > 59 or second > 60:
            return None
        clock_s = 3600.0 * hour + 60 * minute + second
        if fraction:
            clock_s += int(fraction) / 10 ** len(fraction)
            self.resolution_s = min(self.resolution_s, 10.0 ** -min(3, len(fraction)))
        if "D" not in groups:
            if clock_s < self._last_clock_s - _DAY_S / 2:
                self._midnights += 1
            self._last_clock_s = clock_s
            return self._midnights * _DAY_S + clock_s
        day_s = self._day(match["Y"] if "Y" in groups else None, match["M" if "M" in groups else "N"], match["D"])
        return None if day_s is None else day_s + clock_s

    def _day(self, year: str | None, month: str | None, day: str) -> float | None:
        key = (year, month, day)
        if key not in self._days:
            number = _MONTHS.get(month.lower(), 0) if month and month.isalpha() else int(month or 0)
            try:
                # Without a year 2024 serves: it has a 29 February, and only differences matter.
                self._days[key] = _DAY_S * date(int(year or 2024), number, int(day)).toordinal()
            except ValueError:
                return None
        return self._days[key]
