"""The members of a shard that are in no sample that is delivered, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .grouping import REASONS
from .index_file import ShardIndex, read_meta
from .indexing import Indexed
from .pairing import IGNORED, Pairing
from .sample_reading import layouts_of


@dataclass(frozen=True)
class UnpairedMember:
    """A member that is in no sample that is delivered."""

    shard: str
    name: str
    offset: int  # of its data
    reason: str


def list_unpaired(indexed: Indexed, fields: Sequence[str] | None, pairing: Pairing) -> Iterator[UnpairedMember]:
    """Give the members in no sample: first those whose sample lacks a field, then those that fit no rule."""
    index, meta = ShardIndex(indexed.path), read_meta(indexed.path, indexed.head)

    def member(row: int, reason: str) -> UnpairedMember:
        record = index.members[row]
        name = index.names(int(record["name_at"]), int(record["name_len"])).decode("utf-8", "surrogateescape")
        return UnpairedMember(indexed.shard, name, int(record["offset"]), reason)

    layouts = layouts_of(meta, fields, pairing.required)
    is_left_out = np.array([not (layout.is_complete or layout.is_damaged) for layout in layouts], bool)
    for sample in np.flatnonzero(is_left_out[index.samples["signature"]]).tolist() if is_left_out.any() else ():
        first, num = int(index.samples["first"][sample]), int(index.samples["num"][sample])
        has = {meta["fields"][field] for field in index.members["field"][first : first + num].tolist()}
        lacks = [name for name in fields or pairing.required if name not in has]
        for row in range(first, first + num):
            yield member(row, f"its sample has no {', '.join(lacks)}")
    num_paired = int(index.samples["num"].sum()) if len(index.samples) else 0
    for row in range(num_paired, len(index.members)):
        field = int(index.members["field"][row])
        if field != IGNORED:
            yield member(row, REASONS[field])
