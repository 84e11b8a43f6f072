"""Which members make a sample: from a member's name to the key of its sample and its field there."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from .tar_headers import Numbers
from .texts import number_few

UNPAIRED, IGNORED = -1, -2  # in place of a field: no rule fits the name; it is metadata, as WebDataset has it
_METADATA = re.compile(rb"__[^/]*__($|/)")
_BY_FIRST_DOT = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$")
_PLACE = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Split:
    """Names taken apart, as columns: where the key lies in each name, which field it is, and which frame."""

    key_at: Numbers
    key_len: Numbers
    field: Numbers  # a place in `fields`, or UNPAIRED, or IGNORED
    frame: Numbers | None
    fields: tuple[str, ...]


class Pairing(Protocol):
    """A rule that takes names apart."""

    def split(self, names: bytes, name_at: Numbers, name_len: Numbers) -> Split:
        """Take all names apart; they lie one after the other in `names`."""
        ...

    @property
    def required(self) -> tuple[str, ...]:
        """Fields that every sample must have; empty where the rule does not say."""
        ...

    @property
    def lists(self) -> tuple[str, ...]:
        """Fields that hold several members, one a frame."""
        ...

    @property
    def fingerprint(self) -> int:
        """32 bits that differ between rules: an index belongs to one."""
        ...


PairingLike: TypeAlias = "str | Mapping[str, str] | Pairing"


def find_pairing(pairing: PairingLike) -> Pairing:
    """Return the rule that was asked for: "webdataset", patterns by field, or a rule of its own."""
    if pairing == "webdataset":
        return ByFirstDot()
    if isinstance(pairing, Mapping):
        return ByPatterns(pairing)
    if isinstance(pairing, str):
        raise ValueError(
            f'pairing={pairing!r}: write "webdataset" or patterns by field, such as {{"jpg": "{{key}}.jpg"}}'
        )
    return pairing


class ByFirstDot:
    """WebDataset's rule: the key is the path up to the first dot of the file name, the field what follows it."""

    required: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    fingerprint = zlib.crc32(b"first dot")

    def __repr__(self) -> str:
        return "ByFirstDot()"

    def split(self, names: bytes, name_at: Numbers, name_len: Numbers) -> Split:
        """Take all names apart."""
        text = np.frombuffer(names, np.uint8)
        ends = name_at + name_len
        slashes = np.append(-1, np.flatnonzero(text == ord("/")))
        before = slashes[np.searchsorted(slashes, ends) - 1]
        base = np.maximum(before + 1, name_at)  # a slash before the name's begin is another name's
        dots = np.append(np.flatnonzero(text == ord(".")), len(names) + 1)
        dot = dots[np.searchsorted(dots, base)]
        has_key = (dot < ends) & (dot > base)
        field = np.full(len(name_at), UNPAIRED, np.int64)
        numbers, texts = number_few(names, dot[has_key] + 1, ends[has_key] - dot[has_key] - 1)
        field[has_key] = numbers
        fields = {text: k for k, text in enumerate(texts)}
        key_len = np.where(has_key, dot - name_at, 0)
        # What the quick way gets wrong: hidden files, line ends, metadata.
        odd = (dot == base) & (dot < ends)
        if b"\n" in names:
            line_ends = np.flatnonzero(text == ord("\n"))
            odd[np.searchsorted(name_at, line_ends, side="right") - 1] = True
        if b"__" in names:
            odd |= text[np.minimum(name_at, len(names) - 1)] == ord("_")
        for k in np.flatnonzero(odd):
            name = names[name_at[k] : ends[k]]
            found = _BY_FIRST_DOT.match(name)
            if _METADATA.match(name):
                field[k], key_len[k] = IGNORED, 0
            elif found is None:
                field[k], key_len[k] = UNPAIRED, 0
            else:
                field[k] = fields.setdefault(found.group(2), len(fields))
                key_len[k] = found.end(1)
        field, words = _lowered(field, list(fields))
        return Split(np.zeros(len(name_at), np.int64), key_len, field, None, words)


class ByPatterns:
    """Patterns by field: `{key}` stands for the sample's key, `{frame}` for the number of a frame.

    Of several patterns that fit a name, the one with the most fixed letters counts: "{key}_mask.png" before
    "{key}.png". A field whose pattern has a `{frame}` is a list, in the order of the numbers. A pattern that ends in
    "?" is a field that a sample may lack.

    >>> rule = ByPatterns({"jpg": "{key}.jpg", "npz": "{key}_features.npz", "json": "{key}.json?"})
    >>> rule.required
    ('jpg', 'npz')
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        if not patterns:
            raise ValueError("pairing={}: name at least one field and its pattern")
        self.patterns = dict(patterns)
        self.required = tuple(field for field, pattern in patterns.items() if not pattern.endswith("?"))
        self.lists = tuple(field for field, pattern in patterns.items() if "{frame}" in pattern)
        self.fingerprint = zlib.crc32(repr(list(self.patterns.items())).encode())
        compiled = [(_compile(field, pattern), k) for k, (field, pattern) in enumerate(self.patterns.items())]
        compiled.sort(key=lambda entry: -entry[0][1])
        self._rules: Sequence[tuple[re.Pattern[bytes], int]] = [(rule[0], k) for rule, k in compiled]

    def __repr__(self) -> str:
        return f"ByPatterns({self.patterns!r})"

    def split(self, names: bytes, name_at: Numbers, name_len: Numbers) -> Split:
        """Take all names apart."""
        rows = [self._split_one(names[a : a + n]) for a, n in zip(name_at.tolist(), name_len.tolist(), strict=True)]
        columns = np.array(rows, np.int64).reshape(-1, 4)
        return Split(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3], tuple(self.patterns))

    def _split_one(self, name: bytes) -> tuple[int, int, int, int]:
        for rule, field in self._rules:
            found = rule.fullmatch(name)
            if found is not None:
                frame = int(found.group("frame")) if "frame" in rule.groupindex else 0
                return found.start("key"), found.end("key") - found.start("key"), field, frame
        return 0, 0, IGNORED if _METADATA.match(name) else UNPAIRED, 0


def _compile(field: str, pattern: str) -> tuple[re.Pattern[bytes], int]:
    """Return a pattern as a regular expression, and the number of its fixed letters."""
    pattern = pattern.removesuffix("?")
    places = _PLACE.findall(pattern)
    if places.count("key") != 1 or places.count("frame") > 1 or set(places) - {"key", "frame"}:
        raise ValueError(f"pairing of {field!r}: {pattern!r} must hold {{key}} once, may hold {{frame}}, and no other")
    parts = _PLACE.split(pattern)  # text, place, text, place, …, text
    fixed = parts[0::2]
    groups = {"key": "(?P<key>.+)", "frame": "(?P<frame>[0-9]{1,18})"}
    places_and_texts = zip([groups[place] for place in parts[1::2]], fixed[1:], strict=True)
    text = re.escape(fixed[0]) + "".join(place + re.escape(after) for place, after in places_and_texts)
    return re.compile(text.encode("utf-8", "surrogateescape"), re.DOTALL), sum(map(len, fixed))


def _lowered(field: Numbers, found: list[bytes]) -> tuple[Numbers, tuple[str, ...]]:
    """Turn the fields that were found, some of them by chance, into those in use, in lower case."""
    words: dict[str, int] = {}
    in_use, first = np.unique(field[field >= 0], return_index=True)
    table = np.zeros(len(found) + 1, np.int64)
    for number in in_use[np.argsort(first)].tolist():  # in the order in which they appear
        table[number] = words.setdefault(found[number].decode("utf-8", "surrogateescape").lower(), len(words))
    return np.where(field >= 0, table[field], field), tuple(words)
