"""A shard read from its begin to its end without an index: headers are walked through as the data comes."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace.errors import NotSupported, ShardDamaged

from ..reading import Extent
from .index_file import Content
from .indexing import COSTS_A_SAMPLE, Walked, index_content, not_a_tar
from .pairing import Groups, Pairing, group
from .sample_reading import Read, Sample, SampleReader
from .tar_walk import Members, Skipped, TarWalk, Wound

_log = logging.getLogger(__name__)

# The first read holds the whole first sample of nearly every data set; where it does not, the second one reaches to the
# end of what the headers have told so far, and this much further.
WINDOW_BYTES = 8 << 20
_MOST_HELD_BYTES = 4 * WINDOW_BYTES


class Streamed:
    """One pass over a shard. Iterate it; after that, `content` holds what its index would hold."""

    def __init__(
        self,
        path: str,
        pairing: Pairing,
        read: Read,
        *,
        fields: Sequence[str] | None = None,
        as_views: bool = False,
    ) -> None:
        self._path, self._pairing, self._fields, self._as_views = path, pairing, fields, as_views
        self._held = _HeldBytes(path, read, keeps_all=fields is None)
        self.content: Content | None = None

    def __iter__(self) -> Iterator[Sample | ShardDamaged]:
        """Give the samples as they come; a damaged one is its error.

        A sample is whole when the wanted fields are there, or, where nobody said which, when the next one begins.
        """
        size = os.stat(self._path).st_size
        parts: list[Members] = []
        wounds: list[Wound] = []
        skipped: list[Skipped] = []
        waiting = Members.joined([])
        given: set[bytes] = set()
        jumps = self._fields is not None
        for part in TarWalk(self._held.fetch, size, window_bytes=WINDOW_BYTES, jumps=jumps).parts():
            parts.append(part.members)
            wounds += part.wounds
            skipped += part.skipped
            members = Members.joined([waiting, part.members])
            hurt = [
                int(np.searchsorted(members.data_at, wound.offset)) for wound in wounds if wound.kind in COSTS_A_SAMPLE
            ]
            groups = group(members, self._pairing, wounded_at=hurt)
            rows = np.flatnonzero(self._whole(groups))
            yield from self._give(members, groups, rows, given)
            waiting = _without(members, groups, rows)
            self._held.forget_before(int(waiting.data_at.min()) if len(waiting) else part.start + len(part.window))
        walked = Walked(Members.joined(parts), wounds, skipped)
        if not len(walked.members) and not skipped and size:
            start = bytes(self._held.fetch(0, 16))
            if any(start):
                raise not_a_tar(self._path, start)
        content = index_content(self._path, walked, self._pairing)
        yield from self._give_rest(content, waiting, given)
        self.content = content

    def _whole(self, groups: Groups) -> np.ndarray[Any, Any]:
        """Which samples are known to be whole."""
        needed = set(self._fields if self._fields is not None else self._pairing.required)
        names = groups.split.fields
        if not needed or self._pairing.lists:
            is_whole = np.ones(len(groups.first), bool)
            is_whole[-1:] = False  # its next member may come
            return is_whole
        has_all = [needed <= {names[field] for field in kind.fields} for kind in groups.signatures]
        return np.array(has_all, bool)[groups.signature] if has_all else np.zeros(0, bool)

    def _give(
        self, members: Members, groups: Groups, rows: np.ndarray[Any, Any], given: set[bytes]
    ) -> Iterator[Sample | ShardDamaged]:
        for key in _keys(members, groups, rows):
            if key in given:
                raise self._scattered(key)
            given.add(key)
        content = index_content(self._path, Walked(members, [], []), self._pairing, groups=groups)
        yield from self._reader(content).samples(rows)

    def _give_rest(self, content: Content, waiting: Members, given: set[bytes]) -> Iterator[Sample | ShardDamaged]:
        """Give what was not known to be whole, now that the shard has ended."""
        late = group(waiting, self._pairing)
        for key in _keys(waiting, late, np.arange(len(late.first))):
            if key in given and self._fields is None:
                raise self._scattered(key)
        reader = self._reader(content)
        rows = np.arange(len(content.samples)) if reader.rows is None else reader.rows
        records = content.samples[rows]
        begins, lengths = records["key_at"].tolist(), records["key_len"].tolist()
        left = [content.names[at : at + n] not in given for at, n in zip(begins, lengths, strict=True)]
        yield from reader.samples(rows[np.array(left, bool)])

    def _reader(self, content: Content) -> SampleReader:
        return SampleReader(
            _InMemory(content),
            content.meta,
            self._path,
            self._held.read,
            fields=self._fields,
            required=self._pairing.required,
            as_views=self._as_views,
        )

    def _scattered(self, key: bytes) -> NotSupported:
        name = key.decode("utf-8", "backslashreplace")
        return NotSupported(
            f"the members of sample {name} do not lie side by side in {self._path}: "
            "without an index, a stream has given it away before its last member came",
            next_step=f"`headrace shards {self._path}`, to index it, or fields=[…], so that it is known what is whole",
        )


class _InMemory:
    """The content of an index that was never written."""

    def __init__(self, content: Content) -> None:
        self.samples, self.members, self._names = content.samples, content.members, content.names

    def names(self, at: int, size: int) -> bytes:
        return self._names[at : at + size]


class _HeldBytes:
    """The bytes of a stream that are still needed, as the reads brought them."""

    def __init__(self, path: str, read: Read, *, keeps_all: bool) -> None:
        self._path, self._read, self._keeps_all = path, read, keeps_all
        self._pieces: list[tuple[int, memoryview]] = []
        self._size = os.stat(path).st_size

    @property
    def _end(self) -> int:
        return self._pieces[-1][0] + len(self._pieces[-1][1]) if self._pieces else 0

    def fetch(self, offset: int, size: int) -> memoryview:
        """Read for the walk: on from where the last read ended, so that the data comes along."""
        size = min(size, self._size - offset)
        found = self._find(offset, size)
        if found is not None:
            return found
        begin = self._end
        if begin < self._start or offset < self._start or not self._keeps_all:
            self._pieces, begin = [], offset  # what is not wanted is jumped over
        self._add(begin, offset + size - begin)
        return self._find(offset, size) or memoryview(b"")

    def read(self, extent: Extent) -> memoryview:
        """Return the bytes of a member: from what is held, else from the file."""
        return self._find(extent.offset, extent.size) or self._read(extent)

    def forget_before(self, offset: int) -> None:
        """Let go of what lies before an offset."""
        offset = max(offset, self._end - _MOST_HELD_BYTES)  # scattered samples: what is needed again is read again
        while self._pieces and self._pieces[0][0] + len(self._pieces[0][1]) <= offset and len(self._pieces) > 1:
            self._pieces.pop(0)

    @property
    def _start(self) -> int:
        return self._pieces[0][0] if self._pieces else 0

    def _add(self, offset: int, size: int) -> None:
        try:
            self._pieces.append((offset, self._read(Extent(self._path, offset, size))))
        except OSError as error:
            if error.errno != errno.EIO or os.stat(self._path).st_size >= offset + size:
                raise
            self._size = os.stat(self._path).st_size  # it has become shorter: what is left of it
            left = max(0, self._size - offset)
            self._pieces.append((offset, self._read(Extent(self._path, offset, left)) if left else memoryview(b"")))

    def _find(self, offset: int, size: int) -> memoryview | None:
        if size <= 0 or not self._pieces or offset < self._start or offset + size > self._end:
            return None
        parts = []
        for begin, piece in self._pieces:
            a, b = max(offset - begin, 0), min(offset + size - begin, len(piece))
            if a < b:
                parts.append(piece[a:b])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def _keys(members: Members, groups: Groups, rows: np.ndarray[Any, Any]) -> list[bytes]:
    holders = groups.key_from[rows]
    begins = (members.name_at[holders] + groups.split.key_at[holders]).tolist()
    lengths = groups.split.key_len[holders].tolist()
    return [members.names[at : at + n] for at, n in zip(begins, lengths, strict=True)]


def _without(members: Members, groups: Groups, rows: np.ndarray[Any, Any]) -> Members:
    """The members of the samples that still wait, in the order of the file."""
    waits = np.ones(len(groups.first), bool)
    waits[rows] = False
    chosen = np.sort(groups.order[: int(groups.num.sum())][np.repeat(waits, groups.num)])
    at, length = members.name_at[chosen].tolist(), members.name_len[chosen].tolist()
    names = b"".join(members.names[a : a + n] for a, n in zip(at, length, strict=True))
    return Members(
        members.data_at[chosen], members.size[chosen], members.checksum[chosen], members.name_len[chosen], names
    )
