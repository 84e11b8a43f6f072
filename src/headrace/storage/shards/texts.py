"""Short texts that lie in one long one, told apart all at once."""

from __future__ import annotations

import numpy as np

from .tar_headers import Numbers

_WIDEST = 64  # longer texts are looked at one by one: a table of them would be mostly padding


def number_texts(text: bytes, at: Numbers, length: Numbers) -> tuple[Numbers, list[bytes]]:
    """Number texts in the order in which they first appear; return each one's number, and the texts by number.

    >>> numbers, texts = number_texts(b"abaab", np.array([0, 1, 2, 3]), np.array([1, 1, 1, 2]))
    >>> numbers.tolist(), texts
    ([0, 1, 0, 2], [b'a', b'b', b'ab'])
    """
    if not len(at):
        return np.zeros(0, np.int64), []
    begins = np.flatnonzero(_differs_from_last(text, at, length))
    run_at, run_len = at[begins].tolist(), length[begins].tolist()
    numbers: dict[bytes, int] = {}
    of_run = [numbers.setdefault(text[a : a + n], len(numbers)) for a, n in zip(run_at, run_len, strict=True)]
    runs = np.diff(begins, append=len(at))
    return np.repeat(np.array(of_run, np.int64), runs), list(numbers)


def _differs_from_last(text: bytes, at: Numbers, length: Numbers) -> np.ndarray:
    """Where a text is not the one before it. The first one never is."""
    width = int(length.max())
    if width > _WIDEST:
        return np.ones(len(at), bool)
    letters = np.frombuffer(text + bytes(width), np.uint8)
    table = letters[at[:, None] + np.arange(width)]
    is_same = (table[1:] == table[:-1]) | (np.arange(width) >= length[1:, None])
    return np.append(True, ~(is_same.all(axis=1) & (length[1:] == length[:-1])))


def number_few(text: bytes, at: Numbers, length: Numbers) -> tuple[Numbers, list[bytes]]:
    """Do what `number_texts` does, quickly where there are few different texts of up to eight bytes."""
    if not len(at) or int(length.max()) > 8:
        return number_texts(text, at, length)
    letters = np.frombuffer(text + bytes(8), np.uint8)
    table = np.where(np.arange(8) < length[:, None], letters[at[:, None] + np.arange(8)], 0).astype(np.uint8)
    codes = np.ascontiguousarray(table).view("<u8")[:, 0] ^ (length.astype(np.uint64) << np.uint64(60))
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    by_place = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[by_place] = np.arange(len(first))
    return rank[numbers], [text[at[k] : at[k] + length[k]] for k in first[by_place]]
