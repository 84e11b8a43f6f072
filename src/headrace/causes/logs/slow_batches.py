"""Reports of slow batches alone, and of the last N batches: what home-made watchers of a loader print."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .fields import NAN

_UNIT = r"(ms|毫秒|s|sec|seconds|秒)\b"
# [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted (after 31 fast batches)
_SLOW = re.compile(
    r"\b(?:slow|late|stalled)[ _-]?(?:data[ _-]?)?(?:batch|step|iter(?:ation)?|load)\b[\s#:=\[\]]{0,4}(\d+)(?!\d"
    r"|[-~]\d)[^\d×*/~%\n]{1,12}?(\d+(?:\.\d+)?)\s*"
    + _UNIT
    + r"|慢\s*(?:batch|批次|步|迭代)[\s#:：=\[\]【】第]{0,4}(\d+)(?!\d|[-~]\d)[^\d×*/~%\n]{1,12}?(\d+(?:\.\d+)?)\s*"
    + _UNIT,
    re.IGNORECASE,
)
# Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms
_RECENT = re.compile(
    r"(?:recent|last|最近)\s*(\d+)\s*(?:batches|steps|iters?|个?\s*(?:batch|批次|步))\W{0,4}"
    r"(?:avg|mean|average|平均)\s*[=:：]?\s*([\d.]+)\s*"
    + _UNIT
    + r".{0,40}?(?:max|worst|最大)\s*[=:：]?\s*([\d.]+)\s*"
    + _UNIT,
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Recent:
    """A watcher's figures of the last `count` waits."""

    count: int
    mean_s: float
    worst_s: float


def read_slow_batch(text: str) -> tuple[int, float] | None:
    """Return (batch, wait in seconds) from a report of one slow batch.

    >>> read_slow_batch("WARNING: [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted")
    (2950, 20.69)
    """
    match = _SLOW.search(text)
    if match is None:
        return None
    step, value, unit = match.groups()[:3] if match[1] else match.groups()[3:]
    return int(step), _seconds(value, unit)


def read_recent(text: str) -> Recent | None:
    """Return a watcher's figures of its last batches.

    >>> read_recent("[DATA LOAD] Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms")
    Recent(count=50, mean_s=0.4491, worst_s=22.4094)
    """
    match = _RECENT.search(text)
    if match is None:
        return None
    count, mean, mean_unit, worst, worst_unit = match.groups()
    return Recent(int(count), _seconds(mean, mean_unit), _seconds(worst, worst_unit))


def _seconds(value: str, unit: str) -> float:
    try:
        return round(float(value) * (1e-3 if unit.lower() in ("ms", "毫秒") else 1.0), 9)
    except ValueError:
        return NAN
