"""Which members make a sample: rules from a member's name to its key and field, and members grouped by their keys."""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.model import Text

from .index_file import text_of
from .tar_walk import Members, Numbers

UNPAIRED, IGNORED = -1, -2  # in place of a field: no rule fits the name; it is metadata, as WebDataset has it
DUPLICATE = -3  # beside UNPAIRED and IGNORED: the sample has this field already
REASONS = {
    UNPAIRED: Text("no rule fits its name", "文件名不符合任何配对规则"),
    DUPLICATE: Text("its sample has this field already", "所属样本已有这个字段"),
}
_METADATA = re.compile(rb"__[^/]*__($|/)")
_BY_FIRST_DOT = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$")
_PLACE = re.compile(r"\{(\w*)\}")


class Split(NamedTuple):
    """Names taken apart, as columns: where the key lies in each name, which field it is, and which frame."""

    key_at: Numbers
    key_len: Numbers
    field: Numbers  # a place in `fields`, or UNPAIRED, or IGNORED
    frame: Numbers | None
    fields: tuple[str, ...]


class ByFirstDot:
    """WebDataset's rule: the key is the path up to the first dot of the file name, the field what follows it."""

    required: tuple[str, ...] = ()  # fields that every sample must have; empty: the rule does not say
    lists: tuple[str, ...] = ()  # fields that hold several members, one a frame
    fingerprint = zlib.crc32(b"first dot")  # differs between rules: an index belongs to one

    def split(self, names: bytes, name_at: Numbers, name_len: Numbers) -> Split:
        """Take all names apart; they lie one after the other in `names`."""
        letters, end = np.frombuffer(names + b"\0", np.uint8), name_at + name_len
        slashes, dots = np.flatnonzero(letters == ord("/")), np.flatnonzero(letters == ord("."))
        begin = np.maximum(name_at, np.append(-1, slashes)[np.searchsorted(slashes, end)] + 1)  # of the file name
        dot = np.append(dots, len(names))[np.searchsorted(dots, begin)]
        odd = (dot <= begin) | (dot >= end) | (letters[name_at] == ord("_")) | (b"\n" in names)
        field = np.full(len(name_at), UNPAIRED)
        for k in np.flatnonzero(odd).tolist():  # metadata; no dot, or nothing before it; what lines end with
            name = names[name_at[k] : end[k]]
            if _METADATA.match(name):
                field[k] = IGNORED
            elif (found := _BY_FIRST_DOT.match(name)) is not None:
                dot[k], odd[k] = name_at[k] + found.end(1), False
        plain = np.flatnonzero(~odd)
        spelt = _cut(names, dot[plain] + 1, (end - dot)[plain] - 1)
        fields: dict[str, int] = {}
        numbers = {text: fields.setdefault(text_of(text).lower(), len(fields)) for text in dict.fromkeys(spelt)}
        field[plain] = [numbers[text] for text in spelt]
        return Split(np.zeros_like(name_at), np.where(odd, 0, dot - name_at), field, None, tuple(fields))


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
        compiled = [(*_compile(field, pattern), k) for k, (field, pattern) in enumerate(self.patterns.items())]
        self._rules = [(rule, k) for rule, _, k in sorted(compiled, key=lambda entry: -entry[1])]

    def split(self, names: bytes, name_at: Numbers, name_len: Numbers) -> Split:
        rows = list(map(self._split_one, _cut(names, name_at, name_len)))
        key_at, key_len, field, frame = np.array(rows, np.int64).reshape(-1, 4).T
        return Split(key_at, key_len, field, frame, tuple(self.patterns))

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
    groups = {"key": "(?P<key>.+)", "frame": "(?P<frame>[0-9]{1,18})"}
    text = "".join(groups[part] if k % 2 else re.escape(part) for k, part in enumerate(parts))
    return re.compile(text.encode("utf-8", "surrogateescape"), re.DOTALL), sum(map(len, parts[::2]))


Pairing: TypeAlias = ByFirstDot | ByPatterns
PairingLike: TypeAlias = str | Mapping[str, str] | Pairing


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


@dataclass(frozen=True)
class Groups:
    """Samples over members. `order` lists the members: sample after sample, then those that are in none."""

    order: Numbers
    field: Numbers  # of each member, in that order; below 0 for those in no sample
    first: Numbers  # of each sample: the place of its first member in that order
    num: Numbers
    signature: Numbers
    # the fields that samples of one signature have, in order, and whether they lost something to damage
    signatures: list[dict[str, Any]]
    split: Split


def group(members: Members, pairing: Pairing, *, wounded_at: Sequence[int] = ()) -> Groups:
    """Group members; samples come in the order of their first members.

    `wounded_at` are places of damage, as the number of members before each. A sample beside one that lacks what the
    others have, and those with a member whose data cannot be read, are damaged.
    """
    name_at = members.name_at
    split = pairing.split(members.names, name_at, members.name_len)
    field = split.field.copy()
    paired = np.flatnonzero(field >= 0)
    # sample after sample, numbered in the order of their first members
    keys = _cut(members.names, (name_at + split.key_at)[paired], split.key_len[paired])
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    sample = np.array(list(map(numbers.__getitem__, keys)), np.int64)
    is_list = np.isin(np.arange(len(split.fields)), [split.fields.index(name) for name in pairing.lists])
    paired, sample = _without_duplicates(field, paired, sample, is_list)
    ranks = [sample] if split.frame is None else [split.frame[paired], field[paired], sample]
    if split.frame is not None or np.any(sample[1:] < sample[:-1]):
        sorted_by = np.lexsort(ranks)
        paired, sample = paired[sorted_by], sample[sorted_by]
    order = np.concatenate([paired, np.flatnonzero(field < 0)])
    begins = np.flatnonzero(np.diff(sample, prepend=-1))
    num = np.diff(begins, append=len(sample))
    kinds, signature = _signatures(field[paired], begins, num, is_list)
    damaged = np.zeros(len(begins), bool)
    if wounded_at or members.unread:
        sample_of = dict(zip(paired.tolist(), sample.tolist(), strict=True))
        usual = set(kinds[int(np.bincount(signature).argmax())]) if kinds else set()
        wanted = {split.fields.index(name) for name in pairing.required} or usual
        for number in {sample_of[k] for place in wounded_at for k in (place - 1, place) if k in sample_of}:
            damaged[number] = not wanted <= set(kinds[signature[number]])
        damaged[[sample_of[row] for row in members.unread if row in sample_of]] = True
    codes, final, counts = np.unique(2 * signature + damaged, return_inverse=True, return_counts=True)
    signatures = [
        {"fields": kinds[code // 2], "damaged": bool(code % 2), "count": count}
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
    ]
    return Groups(order, field[order], begins, num, final, signatures, split)


def _without_duplicates(
    field: Numbers, paired: Numbers, sample: Numbers, is_list: np.ndarray
) -> tuple[Numbers, Numbers]:
    """Leave out members whose sample has their field already; the first one counts."""
    single = ~is_list[field[paired]]
    code = sample * max(1, len(is_list)) + field[paired]
    _, first = np.unique(code[single], return_index=True)
    if len(first) == np.count_nonzero(single):
        return paired, sample
    keep = ~single
    keep[np.flatnonzero(single)[first]] = True
    field[paired[~keep]] = DUPLICATE
    return paired[keep], sample[keep]


def _signatures(
    field: Numbers, begins: Numbers, num: Numbers, is_list: np.ndarray
) -> tuple[list[tuple[int, ...]], Numbers]:
    if not len(begins):
        return [], np.zeros(0, np.int64)
    width = int(num[0])
    if not is_list.any() and (num == width).all():
        rows = field.reshape(-1, width)
        if (rows == rows[0]).all():
            return [tuple(rows[0].tolist())], np.zeros(len(begins), np.int64)
    numbers: dict[tuple[int, ...], int] = {}
    values, signature = field.tolist(), []
    for begin, length in zip(begins.tolist(), num.tolist(), strict=True):
        fields = tuple(dict.fromkeys(values[begin : begin + length]))
        signature.append(numbers.setdefault(fields, len(numbers)))
    return list(numbers), np.array(signature, np.int64)


def _cut(text: bytes, at: Numbers, length: Numbers) -> list[bytes]:
    return [text[a:b] for a, b in zip(at.tolist(), (at + length).tolist(), strict=True)]
