"""The index of a shard as a file: fixed-width records, mapped into memory, read where they are touched."""

import contextlib
import json
import mmap
import os
import struct
import zlib
from typing import Any, NamedTuple, Self

import numpy as np

from headrace.errors import UnusableInput

MAGIC = b"HRSHARDX"
VERSION = 2
ENDING = ".hri"
HAS_DATA_CRC = 1  # a bit of `IndexHead.flags`
CUT, UNREAD = 1, 2  # bits of a member's flags: its data is cut short; it is sparse, or not in the shard

MEMBER = np.dtype(
    [(name, "<u8") for name in ("offset", "size", "name_at")]
    + [(name, "<u4") for name in ("name_len", "header_sum", "data_crc")]
    + [("field", "<i2"), ("flags", "<u2")]
)
SAMPLE = np.dtype(
    [("first", "<u8"), ("key_at", "<u8"), ("key_len", "<u4"), ("num", "<u4"), ("signature", "<u4"), ("spare", "<u4")]
)
_HEAD = struct.Struct("<8sIIQqIIQQQQQQQQQQ")
_CRC = struct.Struct("<I")
HEAD_BYTES = 256


class IndexHead(NamedTuple):
    """The first bytes of an index: what it belongs to, how much it holds, and where."""

    flags: int
    shard_size: int
    shard_mtime_ns: int
    tail_crc: int
    pairing: int
    num_members: int
    num_samples: int
    data_bytes: int  # of all members that are in a sample
    samples_at: int
    members_at: int
    names_at: int
    names_bytes: int
    meta_at: int
    meta_bytes: int
    total_bytes: int

    def pack(self) -> bytes:
        packed = _HEAD.pack(MAGIC, VERSION, self.flags, *self[1:])
        return (packed + _CRC.pack(zlib.crc32(packed))).ljust(HEAD_BYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes) -> Self | None:
        """Return the head that bytes hold; None where they are none of ours, or damaged."""
        if len(data) < HEAD_BYTES:
            return None
        packed = data[: _HEAD.size]
        magic, version, flags, *others = _HEAD.unpack(packed)
        if magic != MAGIC or version != VERSION or _CRC.unpack_from(data, _HEAD.size)[0] != zlib.crc32(packed):
            return None
        return cls(flags, *others)


Content = tuple[np.ndarray, np.ndarray, bytes, dict[str, Any]]  # samples, members, names, meta


def write_index(path: str, content: Content, **belongs: int) -> IndexHead:
    """Write an index under a temporary name, then give it its own: readers see the old one or the new one, whole.

    `belongs` are the fields of `IndexHead` that name the shard.
    """
    samples, members, names, _ = content
    meta = json.dumps(content[3], ensure_ascii=True).encode()
    num_paired = int(samples["num"].sum())
    members_at = HEAD_BYTES + samples.nbytes
    names_at = members_at + members.nbytes
    meta_at = names_at + len(names)
    head = IndexHead(
        **belongs,
        num_members=len(members),
        num_samples=len(samples),
        data_bytes=int(members["size"][:num_paired].sum()),
        samples_at=HEAD_BYTES,
        members_at=members_at,
        names_at=names_at,
        names_bytes=len(names),
        meta_at=meta_at,
        meta_bytes=len(meta),
        total_bytes=meta_at + len(meta),
    )
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            for part in (head.pack(), samples.tobytes(), members.tobytes(), names, meta):
                file.write(part)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return head


def read_head(path: str) -> IndexHead | None:
    """Return the head of the index at a path; None where there is none that is whole."""
    try:
        with open(path, "rb", buffering=0) as file:
            head = IndexHead.unpack(file.read(HEAD_BYTES))
            return head if head is not None and os.fstat(file.fileno()).st_size == head.total_bytes else None
    except OSError:
        return None


class ShardIndex:
    """An index, mapped. `samples` and `members` are arrays of records over the map; touching one reads its page."""

    def __init__(self, path: str) -> None:
        head = read_head(path)
        if head is None:
            raise UnusableInput(
                f"{path} is not a whole shard index", next_step="remove it; it is built again when used"
            )
        self.head = head
        with open(path, "rb", buffering=0) as file:
            self._map = mmap.mmap(file.fileno(), head.total_bytes, prot=mmap.PROT_READ)
        self._map.madvise(mmap.MADV_RANDOM)  # shuffled samples: do not read pages around each
        self.samples = np.frombuffer(self._map, SAMPLE, head.num_samples, head.samples_at)
        self.members = np.frombuffer(self._map, MEMBER, head.num_members, head.members_at)
        self.meta: dict[str, Any] = json.loads(self._map[head.meta_at : head.meta_at + head.meta_bytes])

    def names(self, at: int, size: int) -> bytes:
        begin = self.head.names_at + at
        return self._map[begin : begin + size]

    def text(self, at: int, size: int) -> str:
        """Return a name or a key as Python spells file names."""
        return text_of(self.names(int(at), int(size)))

    def name(self, row: int) -> str:
        return self.text(self.members["name_at"][row], self.members["name_len"][row])

    def key(self, row: int) -> str:
        return self.text(self.samples["key_at"][row], self.samples["key_len"][row])

    def members_of(self, row: int) -> slice:
        first = int(self.samples["first"][row])
        return slice(first, first + int(self.samples["num"][row]))


def text_of(name: bytes) -> str:
    """Return a name as Python spells file names."""
    return name.decode("utf-8", "surrogateescape")
