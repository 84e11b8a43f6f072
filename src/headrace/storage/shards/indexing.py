"""Indexes made, found and refreshed: where they lie, and whether they still belong to their shard."""

import contextlib
import hashlib
import logging
import mmap
import os
import shlex
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import UnusableInput
from headrace.model import cache_folder, write_step

from .index_file import CUT, ENDING, HAS_DATA_CRC, MEMBER, SAMPLE, UNREAD, Content, IndexHead, read_head, write_index
from .pairing import DUPLICATE, IGNORED, UNPAIRED, ByFirstDot, Pairing, group
from .tar_walk import BLOCK, NEVER_FIELDS, WINDOW_BYTES, DamageKind, Fetch, Members, Walked, walk_tar

_log = logging.getLogger(__name__)

_TAIL_BYTES = 16 << 10  # more than the zeros at the end of a tar, which fill up 10 KiB: the last members, too
_MOST_NAMED = 1000  # of members that are links or directories, in an index
_READ_BYTES = 8 << 20
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"(\xb5/\xfd": ("zstd", "zstd -d"),
    b"\xfd7zXZ": ("xz", "xz -d"),
    b"BZh": ("bzip2", "bunzip2"),
}


@dataclass(frozen=True)
class Indexed:
    """A shard, where its index lies, and that index's head."""

    shard: str
    path: str
    head: IndexHead
    is_new: bool = False


def ensure_index(
    shard: str, pairing: Pairing, *, index_dir: str | None = None, with_data: bool = False, anew: bool = False
) -> Indexed:
    """Return the index of one shard; with `with_data` it holds checksums of the data too, for which all is read."""
    if not anew:
        found = find_index(shard, pairing, index_dir=index_dir, with_data=with_data)
        if found is not None:
            return found
    began = time.monotonic()
    for _ in range(3):
        belongs = _belongings(shard, pairing)
        walked = walk_shard(shard)
        crcs = _data_crcs(shard, walked.members) if with_data else None
        if _belongings(shard, pairing) == belongs:  # else it is being written right now
            break
    content = _content(shard, walked, pairing, crcs)
    belongs["flags"] = HAS_DATA_CRC if with_data else 0
    path, head = _write_somewhere(index_places(shard, pairing, index_dir), content, belongs)
    _log.info(
        "indexed %s: %d samples, %d members in %.2f s, as %s",
        *(shard, head.num_samples, head.num_members, time.monotonic() - began, path),
    )
    return Indexed(shard, path, head, is_new=True)


def find_index(
    shard: str, pairing: Pairing, *, index_dir: str | None = None, with_data: bool = False, checks_tail: bool = True
) -> Indexed | None:
    """Return the index of a shard where there is one that still belongs to it: same size, time and tail."""
    heads = [(path, head) for path in index_places(shard, pairing, index_dir) if (head := read_head(path)) is not None]
    if not heads:
        return None
    belongs = _belongings(shard, pairing)
    if not checks_tail:
        del belongs["tail_crc"]
    for path, head in heads:
        is_same = all(getattr(head, name) == value for name, value in belongs.items())
        if is_same and (not with_data or head.flags & HAS_DATA_CRC):
            return Indexed(shard, path, head)
    return None


def index_places(shard: str, pairing: Pairing, index_dir: str | None = None) -> list[str]:
    """Where the index of a shard may lie, best first: in `index_dir`, else beside it, in the user's cache, in /tmp."""
    full = os.path.abspath(shard)
    other = "" if isinstance(pairing, ByFirstDot) else f".{pairing.fingerprint:08x}"
    name = os.path.basename(full) + other + ENDING
    apart = f"{hashlib.sha256(os.fsencode(full)).hexdigest()[:16]}-{name}"
    if index_dir is not None:
        return [os.path.join(index_dir, apart)]
    places = [os.path.join(os.path.dirname(full), name), os.path.join(cache_folder(), "shards", apart)]
    with contextlib.suppress(FileNotFoundError):  # there is no temporary folder that can be written
        places.append(os.path.join(tempfile.gettempdir(), f"headrace-shards-{os.getuid()}", apart))
    return places


def _write_somewhere(places: list[str], content: Content, belongs: dict[str, int]) -> tuple[str, IndexHead]:
    problems = []
    for path in places:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            return path, write_index(path, content, **belongs)
        except OSError as error:  # read-only, no room, no rights: the next place
            problems.append(f"{os.path.dirname(path)}: {error.strerror or error}")
    raise UnusableInput(
        "an index of the shards cannot be written anywhere",
        tried="; ".join(problems),
        next_step="index_dir= (of `headrace shards`: --index-dir) with a folder that can be written",
    )


def _content(shard: str, walked: Walked, pairing: Pairing, crcs: np.ndarray[Any, Any] | None) -> Content:
    members = walked.members
    groups = group(members, pairing, wounded_at=walked.wounded_at)
    order, split = groups.order, groups.split
    at, name_len = members.name_at[order], members.name_len[order]
    name_at = np.cumsum(name_len) - name_len

    listed = np.zeros(len(order), MEMBER)
    listed["offset"], listed["size"] = members.data_at[order], members.size[order]
    listed["name_at"], listed["name_len"] = name_at, name_len
    listed["header_sum"], listed["field"] = members.checksum[order], groups.field
    if crcs is not None:
        listed["data_crc"] = crcs[order]
    flags = np.zeros(len(members), np.uint16)
    flags[list(members.unread)] = [CUT if k is DamageKind.CUT_IN_DATA else UNREAD for k in members.unread.values()]
    listed["flags"] = flags[order]

    samples = np.zeros(len(groups.first), SAMPLE)
    key_from = order[groups.first]  # the member whose name holds the key
    samples["first"], samples["num"], samples["signature"] = groups.first, groups.num, groups.signature
    samples["key_at"] = name_at[groups.first] + split.key_at[key_from]
    samples["key_len"] = split.key_len[key_from]

    names = members.names
    if (np.diff(order) != 1).any():
        names = b"".join(names[a : a + n] for a, n in zip(at.tolist(), name_len.tolist(), strict=True))
    skipped = sorted(walked.skipped, key=lambda skip: skip.kind in NEVER_FIELDS)
    meta = {
        "shard": os.path.basename(shard),
        "fields": split.fields,
        "lists": pairing.lists,
        "signatures": groups.signatures,
        "unpaired": int(np.isin(groups.field, [UNPAIRED, DUPLICATE]).sum()),
        "ignored": int((groups.field == IGNORED).sum()),
        "skipped": len(skipped),
        "links": sum(skip.kind not in NEVER_FIELDS for skip in skipped),
        "skipped_first": [
            [skip.name.decode("utf-8", "backslashreplace"), skip.offset, skip.kind.decode("latin-1")]
            for skip in skipped[:_MOST_NAMED]
        ],
        "damage": [place.as_json() for place in walked.damage],
    }
    return samples, listed, names, meta


def walk_shard(shard: str) -> Walked:
    with opened(shard) as (fetch, facts):
        size = facts.st_size
        walked = walk_tar(fetch, size, shard)
        if not len(walked.members) and not walked.skipped and size and any(fetch(0, min(size, BLOCK))):
            raise _not_a_tar(shard, bytes(fetch(0, 16)))
    return walked


def _not_a_tar(shard: str, start: bytes) -> UnusableInput:
    """Return the error that says why a file is no shard."""
    for magic, (name, command) in _COMPRESSED.items():
        if start.startswith(magic):
            return UnusableInput(
                f"{shard} is compressed with {name}: its samples cannot be reached one by one",
                compression=name,
                next_step=f"{command} {shard}",
            )
    what, next_step = f"{shard} is not a tar file: no valid header was found in it", "the path of a tar file"
    return UnusableInput(what, begins_with=start.hex(" ") or "nothing: it is empty", next_step=next_step)


def _data_crcs(shard: str, members: Members) -> np.ndarray[Any, Any]:
    crcs = []
    with opened(shard) as (fetch, _):
        for at, size in zip(members.data_at.tolist(), members.size.tolist(), strict=True):
            crcs.append(crc_of(fetch, at, size))
    return np.array(crcs, np.uint32)


def crc_of(fetch: Fetch, at: int, size: int) -> int:
    """Return the CRC-32 of bytes of a shard, of as many as are there."""
    crc, end = 0, at + size
    while at < end and (data := fetch(at, min(_READ_BYTES, end - at))):
        crc = zlib.crc32(data, crc)
        at += len(data)
    return crc


@contextlib.contextmanager
def opened(shard: str) -> Iterator[tuple[Fetch, os.stat_result]]:
    """Open a shard for a walk: how to fetch from it, and its facts."""
    try:
        fd = os.open(shard, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        folder, is_missing = shlex.quote(os.path.dirname(shard) or "."), isinstance(error, FileNotFoundError)
        next_step = f"the right path: `ls {folder}` shows what is there" if is_missing else write_step(error, shard)
        raise UnusableInput(f"{shard} cannot be read: {error.strerror}", next_step=next_step) from error
    buffer: memoryview | None = None

    def fetch(offset: int, size: int) -> bytes | memoryview:
        nonlocal buffer
        if size < WINDOW_BYTES:
            return os.pread(fd, size, offset)
        # only windows, and pieces whose checksum is wanted, are this large, and each is done with before the next
        if buffer is None:  # kept: fresh memory costs more than what is read into it; aligned: copied twice as fast
            buffer = memoryview(mmap.mmap(-1, max(WINDOW_BYTES, _READ_BYTES), flags=mmap.MAP_PRIVATE))
        return buffer[: os.preadv(fd, [buffer[:size]], offset)]

    try:
        yield fetch, os.fstat(fd)
    finally:
        os.close(fd)


def _belongings(shard: str, pairing: Pairing) -> dict[str, int]:
    """What an index must agree with to belong to a shard as it is now."""
    with opened(shard) as (fetch, facts):
        tail = fetch(max(0, facts.st_size - _TAIL_BYTES), _TAIL_BYTES)
    return {
        "shard_size": facts.st_size,
        "shard_mtime_ns": facts.st_mtime_ns,
        "tail_crc": zlib.crc32(tail),
        "pairing": pairing.fingerprint,
    }
