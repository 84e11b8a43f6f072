"""From the records of a sample to its fields: which bytes to read, and what they become."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from headrace.errors import ShardDamaged

from ..reading import Extent, read_extent
from .index_file import CUT, ShardIndex, text_of

JOIN_BYTES = 64 << 10  # members of a sample within this span are read in one go
STREAM_BYTES = 1 << 20  # one read of a stream, unless a sample is larger
_FIRST_PIECE, _PIECE = 1 << 8, 1 << 14  # samples whose records are looked at together
_MOST_TOGETHER = 1024  # samples of one read, at most
_WORTH_READING = 0.25  # of a stretch that is read for several samples, this share at least is wanted

_OFFSET, _SIZE, _NAME_AT, _NAME_LEN, _CRC, _FIELD, _FLAGS = 0, 1, 2, 3, 5, 6, 7  # of a member's record as a tuple

Sample = dict[str, Any]


@dataclass(frozen=True)
class SampleLayout:
    """What samples of one signature hold: the wanted fields, and where among the sample's members each lies."""

    names: tuple[str, ...]
    places: tuple[int, ...] | None  # None: fields of several members are among them
    is_damaged: bool
    is_complete: bool

    @property
    def is_left_out(self) -> bool:
        """Whether it lacks a field and no damage is why: such samples are not delivered."""
        return not (self.is_complete or self.is_damaged)


class SampleReader:
    def __init__(
        self,
        index: ShardIndex,
        path: str,
        *,
        fields: Sequence[str] | None = None,
        required: Sequence[str] = (),
        as_views: bool = False,
        verify: bool = False,
    ) -> None:
        self.index, self.path = index, path
        self._samples, self._members = index.samples, index.members
        self._field_names: list[str] = index.meta["fields"]
        self._lists = set(index.meta["lists"])
        self._wanted = None if fields is None else tuple(fields)
        self._as_views, self._verify = as_views, verify
        self._layouts = layouts_of(index.meta, fields, required)
        is_left_out = np.array([layout.is_left_out for layout in self._layouts], bool)
        # of the samples that are delivered or damaged; None: all of them
        self.rows = np.flatnonzero(~is_left_out[self._samples["signature"]]) if is_left_out.any() else None

    def row_of(self, number: int) -> int:
        """Return the row of the sample with a number among those that are delivered."""
        return number if self.rows is None else int(self.rows[number])

    def offset(self, row: int) -> int:
        """Return where the first of a sample's bytes lies in the shard."""
        return int(self._members["offset"][self.index.members_of(row)].min())

    def extents(self, row: int) -> tuple[Extent, ...]:
        """Return the reads that fetching a sample takes, in the order of its fields; none for one that is damaged."""
        layout, members = self._look_up(row)
        if not layout.is_complete or any(member[_FLAGS] for member in members):
            return ()
        return self._plan(members)

    def sample(self, row: int) -> Sample:
        """Read a sample; raise `ShardDamaged` for one that lost something, or whose bytes are not the ones indexed."""
        layout, members = self._look_up(row)
        for member in members:
            if flags := member[_FLAGS]:
                raise self._damaged(row, "is cut" if flags & CUT else "is not there in one piece", member)
        if not layout.is_complete:
            fields = self._members["field"][self.index.members_of(row)]
            has = ", ".join(self._field_names[field] for field in fields) or "nothing"
            raise self._damaged(row, f"damage beside it has cost it some of its fields; left are: {has}")
        data = self._fetch(members)
        for member, view in zip(members, data, strict=True):
            if self._verify and zlib.crc32(view) != member[_CRC]:
                raise self._damaged(row, "is not what was indexed (CRC-32 differs)", member)
        values = data if self._as_views else [_as_bytes(view) for view in data]
        return {"__key__": self.index.key(row), "__url__": self.path} | self._named(members, values)

    def _look_up(self, row: int) -> tuple[SampleLayout, list[tuple[int, ...]]]:
        """The layout of a sample, and the records of the members that are wanted of it."""
        first, _, _, num, signature, _ = self._samples[row].item()
        layout = self._layouts[signature]
        members = self._members[first : first + num].tolist()
        if self._wanted is None:
            return layout, members
        names = self._field_names
        return layout, [member for name in layout.names for member in members if names[member[_FIELD]] == name]

    def _named(self, members: list[tuple[int, ...]], values: Sequence[Any]) -> Sample:
        named: Sample = {}
        for member, value in zip(members, values, strict=True):
            name = self._field_names[member[_FIELD]]
            if name in self._lists:
                named.setdefault(name, []).append(value)
            else:
                named[name] = value
        return named

    def _plan(self, members: list[tuple[int, ...]]) -> tuple[Extent, ...]:
        filled = [member for member in members if member[_SIZE]]
        if len(filled) > 1:
            begin = min(member[_OFFSET] for member in filled)
            span = max(member[_OFFSET] + member[_SIZE] for member in filled) - begin
            if span <= JOIN_BYTES:
                return (Extent(self.path, begin, span),)
        return tuple(Extent(self.path, member[_OFFSET], member[_SIZE]) for member in filled)

    def _fetch(self, members: list[tuple[int, ...]]) -> list[memoryview]:
        extents = self._plan(members)
        views = iter([read_extent(extent) for extent in extents])
        if len(extents) == 1 and len(members) > 1:
            whole, begin = next(views), extents[0].offset
            return [
                whole[member[_OFFSET] - begin : member[_OFFSET] - begin + member[_SIZE]] if member[_SIZE] else _NOTHING
                for member in members
            ]
        return [next(views) if member[_SIZE] else _NOTHING for member in members]

    def _damaged(self, row: int, what: str, member: tuple[int, ...] | None = None) -> ShardDamaged:
        if member is not None:
            what = f"the data of its member {self.index.text(member[_NAME_AT], member[_NAME_LEN])} {what}"
        return ShardDamaged(
            f"sample {self.index.key(row)} of {self.path} is damaged: {what}",
            shard=self.path,
            offset=self.offset(row) if member is None else member[_OFFSET],
            next_step=f"`headrace shards {self.path}` shows all damage of this shard",
        )

    def samples(self, rows: np.ndarray[Any, Any] | range | None = None) -> Iterator[Sample | ShardDamaged]:
        """Read samples, all or by their rows, in order, neighbours in one go; a damaged one is its error."""
        if rows is None:
            rows = range(len(self._samples)) if self.rows is None else self.rows
        # Records are looked at in pieces, so that a shard of any length takes a bounded memory; in small ones first, so
        # that the first sample comes at once.
        at, size = 0, _FIRST_PIECE
        while at < len(rows):
            piece = np.asarray(rows[at : at + size])
            at, size = at + size, min(2 * size, _PIECE)
            records = self._samples[piece]
            layout = self._layouts[int(records["signature"][0])]
            is_plain = layout.places and layout.is_complete and not layout.is_damaged and not self._verify
            if is_plain and (records["signature"] == records["signature"][0]).all():
                yield from self._quickly(piece, records, layout.names, layout.places or ())
                continue
            for row in piece.tolist():
                try:
                    yield self.sample(row)
                except ShardDamaged as damaged:
                    yield damaged

    def _quickly(
        self, rows: np.ndarray[Any, Any], records: np.ndarray[Any, Any], fields: tuple[str, ...], places: Sequence[int]
    ) -> Iterator[Sample]:
        """Read samples that all hold the same fields, one member each, and need no check, neighbours in one go."""
        first = records["first"].astype(np.int64)
        members = [self._members[first + place] for place in places]
        begins = np.array([member["offset"] for member in members], np.int64)
        sizes = np.array([member["size"] for member in members], np.int64)
        ends = begins + sizes
        # with all fields, headers are between them, which cost nothing to pass over
        wanted = (sizes + (1024 if self._wanted is None else 0)).sum(axis=0)
        stretches = _stretches(begins.min(axis=0).tolist(), ends.max(axis=0).tolist(), wanted.tolist())
        columns_at = list(zip(begins.tolist(), ends.tolist(), strict=True))
        keys, names, path = self._keys(records), ("__key__", "__url__", *fields), self.path
        for start, stop, begin, end in stretches:
            if stop - start == 1 and end - begin > JOIN_BYTES:
                yield self.sample(int(rows[start]))
                continue
            view = read_extent(Extent(path, begin, end - begin)) if end > begin else _NOTHING
            whole: Any = view if self._as_views else _as_bytes(view)
            columns = [
                [whole[a - begin : b - begin] for a, b in zip(begins_at[start:stop], ends_at[start:stop], strict=True)]
                for begins_at, ends_at in columns_at
            ]
            for row in zip(keys[start:stop], repeat(path), *columns):
                yield dict(zip(names, row))  # noqa: B905 - `strict` costs a third of the time here

    def _keys(self, records: np.ndarray[Any, Any]) -> list[str]:
        at, length = records["key_at"].astype(np.int64), records["key_len"].astype(np.int64)
        begin = int(at.min())
        content = self.index.names(begin, int((at + length).max()) - begin)
        spans = zip((at - begin).tolist(), (at + length - begin).tolist(), strict=True)
        return [text_of(content[a:b]) for a, b in spans]


_NOTHING = memoryview(b"")


def _stretches(begins: list[int], ends: list[int], wanted: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """What is read in one go: (first sample, sample after the last, where the bytes begin, where they end)."""
    start, share = 0, wanted[0]
    for k in range(1, len(begins)):
        size = ends[k] - begins[start]
        share += wanted[k]
        is_near = 0 <= begins[k] - ends[k - 1] <= JOIN_BYTES and size <= STREAM_BYTES and k - start < _MOST_TOGETHER
        if not (is_near and share >= _WORTH_READING * size):
            yield start, k, begins[start], ends[k - 1]
            start, share = k, wanted[k]
    yield start, len(begins), begins[start], ends[-1]


def layouts_of(meta: dict[str, Any], fields: Sequence[str] | None, required: Sequence[str]) -> list[SampleLayout]:
    """Return what the samples of each signature of a shard hold of the wanted fields."""
    names, lists = meta["fields"], set(meta["lists"])
    kinds = [kind for kind in meta["signatures"] if not kind["damaged"]] or meta["signatures"]
    usual = {names[field] for field in max(kinds, key=lambda kind: kind["count"])["fields"]} if kinds else set()
    layouts = []
    for signature in meta["signatures"]:
        has = [names[field] for field in signature["fields"]]
        wanted = has if fields is None else [name for name in fields if name in has]
        places = None if lists & set(has) else tuple(has.index(name) for name in wanted)
        needs = set(fields) if fields is not None else set(required)
        is_complete = needs <= set(has)
        if signature["damaged"] and fields is None:
            is_complete = is_complete and (bool(required) or usual <= set(has))
        layouts.append(SampleLayout(tuple(wanted), places, signature["damaged"], is_complete))
    return layouts


def _as_bytes(view: memoryview) -> bytes:
    whole = view.obj
    return whole if isinstance(whole, bytes) and len(whole) == len(view) else view.tobytes()
