"""What is in shards, and what is wrong with them, shard by shard."""

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.errors import UnusableInput
from headrace.model import Text

from ..reading import close_files
from .index_file import HAS_DATA_CRC, ShardIndex
from .indexing import Indexed, crc_of, ensure_index, find_index, opened
from .pairing import REASONS, Pairing, PairingLike, find_pairing
from .sample_reading import SampleLayout, layouts_of
from .tar_walk import BLOCK, DamagedPlace, parse_header

_MOST_NAMED = 1000  # unpaired members and damaged samples of one shard


@dataclass(frozen=True)
class UnpairedMember:
    """A member that is in no sample that is delivered."""

    shard: str
    name: str
    offset: int  # of its data
    told: Text

    @property
    def reason(self) -> str:
        return self.told.en


def count_unpaired(index: ShardIndex, layouts: Sequence[SampleLayout]) -> int:
    """Return how many members `list_unpaired` would give."""
    left_out = _rows_of(index, [layout.is_left_out for layout in layouts])
    return int(index.meta["unpaired"]) + int(index.samples["num"][left_out].sum())


def list_unpaired(
    index: ShardIndex, shard: str, fields: Sequence[str] | None, pairing: Pairing
) -> Iterator[UnpairedMember]:
    """Give the members in no sample: first those whose sample lacks a field, then those that fit no rule."""

    def member(row: int, told: Text) -> UnpairedMember:
        return UnpairedMember(shard, index.name(row), int(index.members["offset"][row]), told)

    layouts = layouts_of(index.meta, fields, pairing.required)
    for sample in _rows_of(index, [layout.is_left_out for layout in layouts]):
        has = set(layouts[int(index.samples["signature"][sample])].names)
        lacks = ", ".join(name for name in fields or pairing.required if name not in has)
        rows = index.members_of(sample)
        for row in range(rows.start, rows.stop):
            yield member(row, Text(f"its sample has no {lacks}", f"所属样本缺少 {lacks}"))
    num_paired = int(index.samples["num"].sum())
    for row in range(num_paired, len(index.members)):
        told = REASONS.get(int(index.members["field"][row]))
        if told is not None:
            yield member(row, told)


def _rows_of(index: ShardIndex, is_such: list[bool]) -> list[int]:
    """The samples whose signatures are such; the samples are not looked at where none is."""
    found: list[int] = np.flatnonzero(np.array(is_such)[index.samples["signature"]]).tolist() if any(is_such) else []
    return found


@dataclass(frozen=True, kw_only=True)
class ShardFacts:
    """One shard: what its index says, and what was found wrong."""

    path: str
    error: str = ""  # why it is no shard; the rest is empty then
    compression: str = ""  # what it is compressed with, if that is why
    is_no_tar: bool = False
    index: str = ""
    is_new_index: bool = False
    size: int = 0
    num_samples: int = 0  # that can be delivered
    num_members: int = 0
    fields: tuple[str, ...] = ()
    damage: tuple[DamagedPlace, ...] = ()
    damaged_samples: tuple[str, ...] = ()
    num_unpaired: int = 0
    unpaired: tuple[UnpairedMember, ...] = ()
    num_skipped: int = 0
    skipped: tuple[tuple[str, int, str], ...] = ()  # (name, offset, type flag) of symbolic links, directories, devices
    was_verified: bool = False
    wrong_data: tuple[str, ...] = ()  # members whose header or data is not what was indexed

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it, members in no sample among that."""
        return self.has_only_unpaired and not self.num_unpaired

    @property
    def has_only_unpaired(self) -> bool:
        """Whether nothing else is wrong than members in no sample, if these."""
        return not (self.error or self.damage or self.damaged_samples or self.wrong_data)


def survey_shards(
    paths: Sequence[str],
    *,
    pairing: PairingLike = "webdataset",
    fields: Sequence[str] | None = None,
    verify: bool = False,
    rebuild: bool = False,
    index_dir: str | None = None,
) -> Iterator[ShardFacts]:
    """Index shards where that is missing, and give what is in each. A file that is no shard is told, not raised.

    With `verify`, all headers and data are read and compared with the index; one that holds no checksums of the data
    yet gets them, and there is nothing to compare with.
    """
    rule = find_pairing(pairing)
    close_files()
    for path in paths:
        try:
            # a tail that changed while size and time did not is what a verification looks for
            found = find_index(path, rule, index_dir=index_dir, checks_tail=not verify)
            had_crcs = found is not None and bool(found.head.flags & HAS_DATA_CRC)
            compares = verify and had_crcs and not rebuild
            if found is None or not compares:
                found = ensure_index(path, rule, index_dir=index_dir, with_data=verify or had_crcs, anew=rebuild)
            yield _facts(found, rule, fields, compares=compares)
        except UnusableInput as error:
            compression = str(error.evidence.get("compression", ""))
            is_no_tar = "begins_with" in error.evidence
            size = os.stat(path).st_size if os.path.exists(path) else 0
            yield ShardFacts(path=path, error=error.what, compression=compression, is_no_tar=is_no_tar, size=size)
    close_files()


def list_samples(
    facts: ShardFacts, *, pairing: PairingLike = "webdataset", fields: Sequence[str] | None = None
) -> Iterator[tuple[str, dict[str, int]]]:
    """Give the samples of a shard that was surveyed: the key, and the bytes of each field (frames added up)."""
    index = ShardIndex(facts.index)
    layouts = layouts_of(index.meta, fields, find_pairing(pairing).required)
    names = index.meta["fields"]
    for row in _rows_of(index, [not layout.is_left_out for layout in layouts]):
        members = index.members[index.members_of(row)]
        sizes: dict[str, int] = {}
        for number, size in zip(members["field"].tolist(), members["size"].tolist(), strict=True):
            sizes[names[number]] = sizes.get(names[number], 0) + size
        yield index.key(row), sizes


def _facts(indexed: Indexed, rule: Pairing, fields: Sequence[str] | None, *, compares: bool) -> ShardFacts:
    index = ShardIndex(indexed.path)
    meta = index.meta
    layouts = layouts_of(meta, fields, rule.required)
    damaged = _rows_of(index, [layout.is_damaged for layout in layouts])[:_MOST_NAMED]
    num = sum(
        kind["count"]
        for kind, layout in zip(meta["signatures"], layouts, strict=True)
        if layout.is_complete and not layout.is_damaged
    )
    unpaired = list_unpaired(index, indexed.shard, fields, rule)
    return ShardFacts(
        path=indexed.shard,
        index=indexed.path,
        is_new_index=indexed.is_new,
        size=os.stat(indexed.shard).st_size,
        num_samples=num,
        num_members=indexed.head.num_members - int(np.count_nonzero(index.members["flags"])),
        fields=tuple(meta["fields"]),
        damage=tuple(DamagedPlace.from_json(document, indexed.shard) for document in meta["damage"]),
        damaged_samples=tuple(index.key(row) for row in damaged),
        num_unpaired=count_unpaired(index, layouts),
        unpaired=tuple(itertools.islice(unpaired, _MOST_NAMED)),
        num_skipped=int(meta["skipped"]),
        skipped=tuple((name, offset, kind) for name, offset, kind in meta["skipped_first"]),
        was_verified=compares,
        wrong_data=tuple(_wrong_members(indexed.shard, index)) if compares else (),
    )


def _wrong_members(path: str, index: ShardIndex) -> Iterator[str]:
    """The members whose header or data is not what the index says."""
    with opened(path) as (fetch, _):
        for row in np.argsort(index.members["offset"]).tolist():
            offset, size, _, _, header_sum, data_crc, _, flags = index.members[row].item()
            header = parse_header(bytes(fetch(offset - BLOCK, BLOCK)))
            is_right = header is not None and header.checksum == header_sum and crc_of(fetch, offset, size) == data_crc
            if not (is_right or flags):
                yield index.name(row)
