"""Members grouped into samples by their keys, whatever their order in the shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .pairing import IGNORED, UNPAIRED, Pairing, Split
from .tar_headers import Numbers
from .tar_walk import Members
from .texts import number_texts

DUPLICATE = -3  # beside UNPAIRED and IGNORED: the sample has this field already


@dataclass(frozen=True)
class Signature:
    """The fields that a group of samples has, in order, and whether some of them lost something to damage."""

    fields: tuple[int, ...]
    is_damaged: bool
    count: int


@dataclass(frozen=True)
class Groups:
    """Samples over members. `order` lists the members: sample after sample, then those that are in none."""

    order: Numbers
    field: Numbers  # of each member, in that order; below 0 for those in no sample
    first: Numbers  # of each sample: the place of its first member in that order
    num: Numbers
    key_from: Numbers  # of each sample: the member whose name holds its key
    signature: Numbers
    signatures: tuple[Signature, ...]
    split: Split


def group(members: Members, pairing: Pairing, *, wounded_at: Iterable[int] = ()) -> Groups:
    """Group members; samples come in the order of their first members.

    `wounded_at` are places of damage, as the number of members before each. A sample beside one that lacks what the
    others have, and the one whose data is cut, are damaged.
    """
    name_at = members.name_at
    split = pairing.split(members.names, name_at, members.name_len)
    field = split.field.copy()
    paired = np.flatnonzero(field >= 0)
    sample, _ = number_texts(members.names, (name_at + split.key_at)[paired], split.key_len[paired])
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
    damaged = _damaged(members, kinds, signature, sample, paired, pairing, split, wounded_at)
    table = Counter(zip(signature.tolist(), damaged.tolist(), strict=True))
    numbers = {key: k for k, key in enumerate(table)}
    if len(table) == 1:
        final = np.zeros(len(begins), np.int64)
    else:
        final = np.array([numbers[key] for key in zip(signature.tolist(), damaged.tolist(), strict=True)], np.int64)
    signatures = tuple(Signature(kinds[kind], hurt, count) for (kind, hurt), count in table.items())
    return Groups(order, field[order], begins, num, paired[begins], final, signatures, split)


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


def _damaged(
    members: Members,
    kinds: list[tuple[int, ...]],
    signature: Numbers,
    sample: Numbers,
    paired: Numbers,
    pairing: Pairing,
    split: Split,
    wounded_at: Iterable[int],
) -> np.ndarray:
    damaged = np.zeros(len(signature), bool)
    beside = {place + step for place in wounded_at for step in (-1, 0)}
    if not len(signature) or (not beside and not members.is_cut):
        return damaged
    sample_of = dict(zip(paired.tolist(), sample.tolist(), strict=True))
    renumbered = {number: k for k, number in enumerate(dict.fromkeys(np.sort(sample).tolist()))}
    usual = Counter(signature.tolist()).most_common(1)[0][0]
    wanted = {split.fields.index(name) for name in pairing.required} or set(kinds[usual])
    for member in beside:
        if member in sample_of:
            number = renumbered[sample_of[member]]
            damaged[number] |= not wanted <= set(kinds[signature[number]])
    if members.is_cut and len(members) - 1 in sample_of:
        damaged[renumbered[sample_of[len(members) - 1]]] = True
    return damaged


REASONS = {UNPAIRED: "no rule fits its name", DUPLICATE: "its sample has this field already", IGNORED: "metadata"}
