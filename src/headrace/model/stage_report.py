"""What a loader's named stages took, as figures and as a table to read."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .environment import language
from .stage_table import StageRow

__all__ = ["StageStats", "Stages", "stages_of"]

_HEADINGS = {
    "en": ("stage", "count", "total", "own", "median", "p95", "worst", "of worker time", "MB/s"),
    "zh": ("阶段", "次数", "总计", "自身", "中位数", "p95", "最长", "占工作时间", "MB/s"),
}
_NONE = {
    "en": "no stage was timed; name one with `with headrace.stage(...)`",
    "zh": "没有计时的阶段；用 `with headrace.stage(...)` 给一段代码命名即可",
}


@dataclass(frozen=True, kw_only=True)
class StageStats:
    """One stage, over all workers. `own_s` leaves out the stages inside it; median and p95 are within 10 %."""

    name: str
    count: int
    total_s: float
    own_s: float
    median_s: float
    p95_s: float
    worst_s: float
    share: float  # of the time that workers were busy; stages inside each other count in both
    mb_per_s: float | None  # None: the stage did not say how many bytes it puts out


@dataclass(frozen=True)
class Stages:
    """All stages of a loader, longest first. `str()` is a table; `stages["npz decode"]` is one of them."""

    rows: tuple[StageStats, ...] = ()

    def __iter__(self) -> Iterator[StageStats]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> StageStats:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no stage {name!r}; there are: {', '.join(row.name for row in self.rows) or 'none'}")

    def __str__(self) -> str:
        return self.table(language())

    def table(self, lang: str = "en") -> str:
        """Return the stages as a table of text, in English or Chinese ("zh")."""
        lang = lang if lang in _HEADINGS else "en"
        if not self.rows:
            return _NONE[lang]
        lines = [list(_HEADINGS[lang]), *([*_cells(row)] for row in self.rows)]
        widths = [max(_width(line[k]) for line in lines) for k in range(len(lines[0]))]
        return "\n".join(
            "  ".join(
                [line[0] + " " * (widths[0] - _width(line[0]))]
                + [" " * (width - _width(cell)) + cell for cell, width in zip(line[1:], widths[1:], strict=True)]
            ).rstrip()
            for line in lines
        )


def stages_of(rows: Iterable[StageRow], *, worker_s: float) -> Stages:
    """Turn what was recorded into figures; `worker_s` is how long workers were busy in all."""
    found = [
        StageStats(
            name=row.name,
            count=row.count,
            total_s=row.total_ns / 1e9,
            own_s=row.own_ns / 1e9,
            median_s=row.quantile_ns(0.5) / 1e9,
            p95_s=row.quantile_ns(0.95) / 1e9,
            worst_s=row.worst_ns / 1e9,
            share=row.total_ns / 1e9 / worker_s if worker_s > 0 else 0.0,
            mb_per_s=row.nbytes / 1e6 / (row.total_ns / 1e9) if row.nbytes and row.total_ns else None,
        )
        for row in rows
        if row.count
    ]
    return Stages(tuple(sorted(found, key=lambda stage: -stage.total_s)))


def _cells(row: StageStats) -> Iterator[str]:
    yield row.name
    yield f"{row.count:,}"
    for value in (row.total_s, row.own_s, row.median_s, row.p95_s, row.worst_s):
        yield _time(value)
    yield f"{row.share:.1%}"
    yield "-" if row.mb_per_s is None else f"{row.mb_per_s:,.0f}"


def _time(value_s: float) -> str:
    """Three digits and a unit.

    >>> _time(2.3456), _time(0.0123), _time(0.0000456)
    ('2.35 s', '12.3 ms', '45.6 us')
    """
    value, unit = (
        (value_s, "s") if value_s >= 1 else (value_s * 1e3, "ms") if value_s >= 1e-3 else (value_s * 1e6, "us")
    )
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} {unit}"


def _width(text: str) -> int:
    """Columns that a text takes on a terminal: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
