"""A fast look for the few places of a log that may hold a message: its literal anchors, over a whole block at once.

A log is almost all lines of no interest, and a hundred literals cost too much one by one (a `bytes.find` each) or as
an alternation (`re` does 200 MB/s with ten of them). So a large block is read as aligned words of four bytes: wherever
an anchor of seven bytes or more stands, one of four neighbouring runs of four of its bytes lies on a multiple of four.
A table tells for each word whether it can be such a run, a second one the same for it and the word behind it, and what
both let through is compared in full. Small blocks are searched literal by literal.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIN_ANCHOR_BYTES = 7  # so that one of its runs of four bytes lies on a multiple of four wherever it stands
_WORD_BYTES = 4
_PAIR_BYTES = 11  # from this length on, the same is true of a run of eight bytes
_SMALL_BYTES = 1 << 16  # below this, importing NumPy (0.1 s) is not worth it
_TABLE_BITS = 18  # 256 KiB: stays in the second-level cache, and a random word passes one time in 800
_MULTIPLIER = 2654435761  # Knuth's multiplicative hash: 2**32 divided by the golden ratio
_STEP_WORDS = 1 << 16  # 256 KiB of text at a time: what is computed on the way stays in the cache
# How often each byte turns up in training logs, roughly: digits, separators and the commonest letters first.
_COMMON_FIRST = b" 0123456789.:,-=/[]()|_\t\"'%eationslrdcmpughbfkywvxzqj"


@dataclass(frozen=True, slots=True)
class _Tables:
    words: "NDArray[np.bool_]"  # hashed words that can be part of an anchor
    pairs: "NDArray[np.bool_]"  # the same for a hashed word and the one behind it
    short: "NDArray[np.uint32]"  # words of anchors that are too short for the second table
    owners: dict[int, list[tuple[int, int]]]  # word to (number of the anchor, offset in it)


class AnchorFinder:
    """Finds the places of many literals in blocks of bytes."""

    def __init__(self, anchors: Iterable[bytes]) -> None:
        self.anchors = tuple(dict.fromkeys(anchors))
        short = [anchor for anchor in self.anchors if len(anchor) < MIN_ANCHOR_BYTES]
        if short:
            raise ValueError(f"an anchor has at least {MIN_ANCHOR_BYTES} bytes: {short}")

    def find(self, block: bytes) -> list[tuple[int, int]]:
        """Return where anchors start, as (position, number of the anchor), in order of position."""
        return sorted(self._find_one_by_one(block) if len(block) < _SMALL_BYTES else self._find_by_words(block))

    def _find_one_by_one(self, block: bytes) -> Iterator[tuple[int, int]]:
        for number, anchor in enumerate(self.anchors):
            position = block.find(anchor)
            while position >= 0:
                yield position, number
                position = block.find(anchor, position + 1)

    def _find_by_words(self, block: bytes) -> Iterator[tuple[int, int]]:
        import numpy as np

        tables = self._tables
        words = np.frombuffer(block, dtype="<u4", count=len(block) // _WORD_BYTES)
        shift, multiplier = np.uint32(32 - _TABLE_BITS), np.uint32(_MULTIPLIER)
        for start in range(0, len(words), _STEP_WORDS):
            step = words[start : start + _STEP_WORDS]
            at = np.flatnonzero(tables.words[(step * multiplier) >> shift]) + start
            first, second = words[at], words[np.minimum(at + 1, len(words) - 1)]
            is_pair = tables.pairs[((first * multiplier) ^ (second * multiplier * multiplier)) >> shift]
            at = at[is_pair | np.isin(first, tables.short)]
            for index, word in zip(at.tolist(), words[at].tolist(), strict=True):
                position = index * _WORD_BYTES
                for number, offset in tables.owners.get(word, ()):
                    if position >= offset and block.startswith(self.anchors[number], position - offset):
                        yield position - offset, number

    @cached_property
    def _tables(self) -> _Tables:
        import numpy as np

        words, pairs = np.zeros(1 << _TABLE_BITS, bool), np.zeros(1 << _TABLE_BITS, bool)
        owners: dict[int, list[tuple[int, int]]] = {}
        for number, anchor in enumerate(self.anchors):
            length = min(len(anchor), _PAIR_BYTES)
            first = min(range(len(anchor) - length + 1), key=lambda at: _commonness(anchor[at : at + length]))
            for offset in range(first, first + _WORD_BYTES):
                word = int.from_bytes(anchor[offset : offset + _WORD_BYTES], "little")
                behind = int.from_bytes(anchor[offset + _WORD_BYTES : offset + 2 * _WORD_BYTES], "little")
                owners.setdefault(word, []).append((number, offset))
                words[_hash(word * _MULTIPLIER)] = True
                pairs[_hash((word * _MULTIPLIER) ^ (behind * _MULTIPLIER * _MULTIPLIER))] = True
        short = [word for word, of in owners.items() if any(len(self.anchors[one]) < _PAIR_BYTES for one, _ in of)]
        return _Tables(words, pairs, np.array(short, dtype=np.uint32), owners)


def _hash(product: int) -> int:
    return (product % (1 << 32)) >> (32 - _TABLE_BITS)


def _commonness(run: bytes) -> int:
    """Return how likely the bytes of a run are in a log; rare ones make the tables let less through."""
    return sum(len(_COMMON_FIRST) - _COMMON_FIRST.find(byte) for byte in run if byte in _COMMON_FIRST)
