"""A table of stage times in plain 64-bit words, so that it can lie in memory that processes share."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["STAGE_TABLE_WORDS", "StageRow", "StageTable", "merge_stages", "read_stages"]

MAX_STAGES = 32
_OTHERS = "(other stages)"
_BUCKETS = 160  # quarter octaves of a nanosecond, up to 18 minutes
_NAME_WORDS = 8
_NAME_BYTES = (_NAME_WORDS - 1) * 8
_COUNT, _TOTAL_NS, _OWN_NS, _WORST_NS, _BYTES = range(_NAME_WORDS, _NAME_WORDS + 5)
_HISTOGRAM = 16
_ROW_WORDS = _HISTOGRAM + _BUCKETS
_HEAD_WORDS = 8
STAGE_TABLE_WORDS = _HEAD_WORDS + MAX_STAGES * _ROW_WORDS


class StageTable:
    """Writes one table: of a worker, or of a loader in the training process.

    Any thread of the process may write; others read the words with `read_stages` whenever they like, since a row
    is published after its name. Beyond 31 names, the rest goes into one row.
    """

    is_recorded = False  # whether what is added becomes an event of a recording, too

    def __init__(self, words: memoryview | None = None, *, switch: memoryview | None = None) -> None:
        self.words = memoryview(bytearray(STAGE_TABLE_WORDS * 8)).cast("q") if words is None else words
        self._switch = switch  # a word that is 0 while nothing is to be recorded
        self._rows: dict[str, int] = {}
        self._lock = threading.Lock()
        self.words[0] = 0

    def add(self, name: str, elapsed_ns: int, own_ns: int, nbytes: int) -> None:
        words, switch = self.words, self._switch
        if switch is not None and not switch[0]:
            return
        with self._lock:
            at = self._rows.get(name) or self._new_row(name)
            words[at + _COUNT] += 1
            words[at + _TOTAL_NS] += elapsed_ns
            words[at + _OWN_NS] += own_ns
            words[at + _WORST_NS] = max(elapsed_ns, words[at + _WORST_NS])
            if nbytes:
                words[at + _BYTES] += nbytes
            words[at + _HISTOGRAM + min(_BUCKETS - 1, int(4 * math.log2(elapsed_ns or 1)))] += 1

    def _new_row(self, name: str) -> int:
        number = self.words[0]
        if number == MAX_STAGES:
            at = self._rows[name] = _HEAD_WORDS + (MAX_STAGES - 1) * _ROW_WORDS
            return at
        shown = _OTHERS if number == MAX_STAGES - 1 else name
        at = self._rows[name] = _HEAD_WORDS + number * _ROW_WORDS
        for word in range(at, at + _ROW_WORDS):
            self.words[word] = 0
        encoded = shown.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore").encode()
        self.words[at] = len(encoded)
        padded = encoded.ljust(_NAME_BYTES, b"\0")
        for k in range(_NAME_WORDS - 1):
            self.words[at + 1 + k] = int.from_bytes(padded[8 * k : 8 * k + 8], "little", signed=True)
        self.words[0] = number + 1
        return at


@dataclass(frozen=True)
class StageRow:
    """What one table says of one stage."""

    name: str
    count: int
    total_ns: int
    own_ns: int
    worst_ns: int
    nbytes: int
    histogram: tuple[int, ...]

    def quantile_ns(self, q: float) -> float:
        """From the histogram, so within 10 %; never above the worst that was seen."""
        rest = q * sum(self.histogram)
        for bucket, num in enumerate(self.histogram):
            rest -= num
            if rest <= 0 and num:
                return float(min(self.worst_ns, 2.0 ** ((bucket + 0.5) / 4)))
        return float(self.worst_ns)


def read_stages(words: memoryview) -> list[StageRow]:
    """Return the rows of a table, which its owner may be writing at this moment."""
    rows = []
    for number in range(min(MAX_STAGES, max(0, words[0]))):
        at = _HEAD_WORDS + number * _ROW_WORDS
        length = min(_NAME_BYTES, max(0, words[at]))
        name = b"".join((words[at + 1 + k]).to_bytes(8, "little", signed=True) for k in range(_NAME_WORDS - 1))
        rows.append(
            StageRow(
                name=name[:length].decode("utf-8", "replace"),
                count=words[at + _COUNT],
                total_ns=words[at + _TOTAL_NS],
                own_ns=words[at + _OWN_NS],
                worst_ns=words[at + _WORST_NS],
                nbytes=words[at + _BYTES],
                histogram=tuple(words[at + _HISTOGRAM : at + _ROW_WORDS]),
            )
        )
    return rows


def merge_stages(tables: Iterable[Iterable[StageRow]]) -> list[StageRow]:
    """Add up tables, stage by stage, in the order in which names first appear."""
    merged: dict[str, StageRow] = {}
    for rows in tables:
        for row in rows:
            if row.name not in merged:
                merged[row.name] = row
                continue
            sofar = merged[row.name]
            merged[row.name] = StageRow(
                name=row.name,
                count=sofar.count + row.count,
                total_ns=sofar.total_ns + row.total_ns,
                own_ns=sofar.own_ns + row.own_ns,
                worst_ns=max(sofar.worst_ns, row.worst_ns),
                nbytes=sofar.nbytes + row.nbytes,
                histogram=tuple(a + b for a, b in zip(sofar.histogram, row.histogram, strict=True)),
            )
    return list(merged.values())
