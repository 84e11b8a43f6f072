"""The way through a tar file without its data: what a header says, and from each to the next, over damage too."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from headrace.model import Text

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Fetch = Callable[[int, int], bytes | memoryview]

BLOCK = 512
REGULAR = (b"0", b"\0", b"7")
LONG_NAME, LONG_LINK, PAX, PAX_OLD, PAX_GLOBAL, SPARSE = b"L", b"K", b"x", b"X", b"g", b"S"
HARD_LINK, CONTINUED = b"1", b"M"
NEVER_FIELDS = (b"5", b"D", b"V")  # directories, their listings, the name of the volume
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, directories: a size there means nothing
_GNU_KINDS = (LONG_NAME, LONG_LINK, SPARSE)
ZEROS = bytes(BLOCK)
_MOST_BYTES = 1 << 50  # a member that says it is larger has a damaged header


class Header(NamedTuple):
    """One valid header block."""

    name: bytes
    size: int
    kind: bytes  # the type flag, one byte
    checksum: int
    is_extended: bool = False  # a sparse member's map goes on in the next block
    link: bytes = b""

    @property
    def data_blocks(self) -> int:
        return 0 if self.kind in _WITHOUT_DATA else blocks_of(self.size)


def blocks_of(size: int) -> int:
    return -(-size // BLOCK)


def parse_header(block: bytes) -> Header | None:
    """Read a header block; None where its checksum is wrong, its size cannot be, or it is no header at all."""
    if len(block) != BLOCK:
        return None
    checksum = _number(block[148:156])
    size = _number(block[124:136])
    if checksum is None or size is None or not 0 <= size <= _MOST_BYTES:
        return None
    counted = block[:148] + b" " * 8 + block[156:]
    if checksum != sum(counted) and checksum != sum(counted) - 256 * sum(byte > 127 for byte in counted):
        return None  # some old programs summed signed bytes; both are right
    name, kind = _text(block[0:100]), block[156:157]
    prefix = _text(block[345:500])
    if kind == b"\0" and name.endswith(b"/"):
        kind = b"5"  # how tar wrote a directory before it had type flags
    if prefix and kind not in _GNU_KINDS:
        name = prefix + b"/" + name
    return Header(name, size, kind, checksum, kind == SPARSE and block[482] != 0, _text(block[157:257]))


def parse_pax(data: bytes) -> dict[bytes, bytes] | None:
    """Read the records of a pax header ("29 path=…"); None where they are damaged."""
    records: dict[bytes, bytes] = {}
    at, data = 0, data.rstrip(b"\0")
    while at < len(data):
        space = data.find(b" ", at, at + 20)
        if space < 0 or not data[at:space].isdigit():
            return None
        end = at + int(data[at:space])
        keyword, equals, value = data[space + 1 : end - 1].partition(b"=")
        if end > len(data) or end <= space or not equals or data[end - 1 : end] != b"\n":
            return None
        records[keyword] = value
        at = end
    size = records.get(b"size") or b"0"
    return records if size.isdigit() and len(size) <= 20 and int(size) <= _MOST_BYTES else None


def _number(field: bytes) -> int | None:
    """Return a number as tar writes it: octal digits, or base 256 where the first bit is set."""
    if field[0] in (0x80, 0xFF):
        value = int.from_bytes(field[1:], "big")
        return value if field[0] == 0x80 else value - 256 ** (len(field) - 1)
    text = field.partition(b"\0")[0].strip()
    try:
        return int(text or b"0", 8)
    except ValueError:
        return None


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


# ------------------------------------------------------------------ all blocks of a window

_POWERS_11 = 8 ** np.arange(10, -1, -1, dtype=np.int64)
_POWERS_6 = 8 ** np.arange(5, -1, -1, dtype=np.int64)
PLAIN_LINK, PAX_LINK = 1, 2  # what `Scan.link` holds; 0: needs `parse_header`


@dataclass(frozen=True)
class Scan:
    """The valid headers of a window that are of the usual form, in order; columns of one length."""

    block: Numbers  # which block of the window
    size: Numbers
    link: Bytes  # PLAIN_LINK: a regular member; PAX_LINK: what precedes one
    checksum: Numbers
    after: Numbers  # the block where the next header lies
    leads: npt.NDArray[np.bool_]  # whether that is the next row, and of the usual form
    names: Bytes  # (n, 100)
    name_len: Numbers
    prefixes: Bytes  # (n, 155)

    def name(self, row: int) -> bytes:
        name, prefix = self.names[row, : self.name_len[row]].tobytes(), _text(self.prefixes[row].tobytes())
        return prefix + b"/" + name if prefix else name


def scan_blocks(window: Bytes) -> Scan:
    """Find the headers of the usual form in a window, wherever they lie; its length is a multiple of `BLOCK`.

    A block counts when its checksum is right. What lies inside a member's data may be found too: who walks from
    header to header passes over it.
    """
    blocks = window.reshape(-1, BLOCK)
    # Two digits of the checksum are looked at in all blocks; what remains is nearly always a header.
    found = np.flatnonzero(((blocks[:, 152] & 0xF8) == 48) & ((blocks[:, 153] & 0xF8) == 48))
    headers = blocks[found]
    said = headers[:, 148:154]
    summed = headers.sum(axis=1, dtype=np.int64) - headers[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * 32
    ends = headers[:, 154]
    usual = ((said & 0xF8) == 48).all(axis=1) & ((ends == 0) | (ends == 32))
    usual &= ((said.astype(np.int64) - 48) @ _POWERS_6) == summed
    found, headers, summed = found[usual], headers[usual], summed[usual]
    digits = headers[:, 124:135]
    size = (digits.astype(np.int64) - 48) @ _POWERS_11
    ends, kind = headers[:, 135], headers[:, 156]
    names = headers[:, :100]
    has_end = names == 0
    name_len = np.where(has_end.any(axis=1), has_end.argmax(axis=1), 100)
    plain = ((digits & 0xF8) == 48).all(axis=1) & ((ends == 0) | (ends == 32))
    plain &= name_len > 0
    last = names[np.arange(len(names)), np.maximum(name_len, 1) - 1]
    link = np.zeros(len(found), np.uint8)
    link[plain & (kind == ord("0"))] = PLAIN_LINK
    link[plain & (kind == 0) & (last != ord("/"))] = PLAIN_LINK
    link[plain & (kind == ord("x"))] = PAX_LINK
    after = found + 1 + (size + BLOCK - 1) // BLOCK
    leads = np.append((after[:-1] == found[1:]) & (link[1:] != 0), False)
    return Scan(found, size, link, summed, after, leads, names, name_len, headers[:, 345:500])


def find_header(window: Bytes) -> int | None:
    """Return the first block of a window that is a valid header of any form; None where there is none."""
    blocks = window.reshape(-1, BLOCK)
    for at in np.flatnonzero(((blocks[:, 152] & 0xF8) == 48) & (blocks[:, 0] != 0)):
        if parse_header(blocks[at].tobytes()) is not None:
            return int(at)
    return None


# ------------------------------------------------------------------ what is wrong with a shard


class DamageKind(StrEnum):
    NO_END = "no_end"  # it ends after a member: cut at a boundary, or never finished
    CUT_IN_HEADER = "cut_in_header"
    CUT_IN_DATA = "cut_in_data"
    CORRUPT_HEADER = "corrupt_header"
    ZEROS_INSIDE = "zeros_inside"  # blocks of zeros, where other readers stop, and members after them
    AFTER_END = "after_end"  # something that is no member after the end
    SPARSE = "sparse"  # a member of `tar -S`: its pieces, and a map of where they belong
    ELSEWHERE = "elsewhere"  # a hard link to no member before it, or a file that began in another volume


_TOLD = {
    DamageKind.NO_END: Text(
        "{shard}, byte {offset}: it ends without end blocks: cut at a member, or never finished",
        "{shard}，第 {offset} 字节：没有结束块就到了文件末尾，可能在两个文件之间被截断，也可能没有写完",
    ),
    DamageKind.CUT_IN_HEADER: Text(
        "{shard}, byte {offset}: it is cut inside a header ({size} bytes of it are left)",
        "{shard}，第 {offset} 字节：文件头被截断，只剩 {size} 字节",
    ),
    DamageKind.CUT_IN_DATA: Text(
        "{shard}, byte {offset}: the data of {member} is cut, {size} bytes are missing",
        "{shard}，第 {offset} 字节：{member} 的数据被截断，缺 {size} 字节",
    ),
    DamageKind.CORRUPT_HEADER: Text(
        "{shard}, byte {offset}: a corrupt header; {size} bytes are lost up to the next valid one",
        "{shard}，第 {offset} 字节：文件头损坏，到下一个完好的文件头之间丢失 {size} 字节",
    ),
    DamageKind.ZEROS_INSIDE: Text(
        "{shard}, byte {offset}: {size} bytes of zeros between members; other readers stop there",
        "{shard}，第 {offset} 字节：文件之间夹着 {size} 字节的零，其他读取程序会在此停止",
    ),
    DamageKind.AFTER_END: Text(
        "{shard}, byte {offset}: {size} bytes after the end are no tar",
        "{shard}，第 {offset} 字节：结束之后还有 {size} 字节不属于 tar 的内容",
    ),
    DamageKind.SPARSE: Text(
        "{shard}, byte {offset}: {member} is a sparse member, which is not read: pack it again without tar -S",
        "{shard}，第 {offset} 字节：{member} 以稀疏格式存储，无法读取；请重新打包，不要使用 tar -S",
    ),
    DamageKind.ELSEWHERE: Text(
        "{shard}, byte {offset}: the data of {member} is not in this shard (a hard link, or begun in another volume): "
        "pack it again with tar --hard-dereference, in one volume",
        "{shard}，第 {offset} 字节：{member} 的数据不在这个 shard 里（硬链接，或从另一分卷接续）；"
        "请用 tar --hard-dereference 重新打包成一卷",
    ),
}


@dataclass(frozen=True, kw_only=True)
class DamagedPlace:
    """One place in a shard that is not as it should be.

    >>> print(DamagedPlace(shard="a.tar", kind=DamageKind.NO_END, offset=1536, before=3, member="x.jpg"))
    a.tar, byte 1536: it ends without end blocks: cut at a member, or never finished; still readable: 3 members before \
it, 0 after it
    """

    shard: str
    kind: DamageKind
    offset: int
    size: int = 0  # bytes that could not be read as members
    before: int = 0  # members before it that are whole
    after: int = 0  # members after it that are whole
    member: str = ""  # the one that was cut or cannot be read, or the last before the place

    @property
    def told(self) -> Text:
        return _TOLD[self.kind].filled(shard=self.shard, offset=self.offset, size=self.size, member=self.member)

    def __str__(self) -> str:
        return f"{self.told.en}; still readable: {self.before} members before it, {self.after} after it"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it, without the shard."""
        return {name: value for name, value in vars(self).items() if name != "shard"}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], shard: str) -> Self:
        return cls(**{**document, "kind": DamageKind(document["kind"]), "shard": shard})


# ------------------------------------------------------------------ from header to header

WINDOW_BYTES = 2 << 20  # with 4 MiB, what parsing one takes goes back to the kernel after each: a third slower
# Members further apart than this are visited one by one, a read of a few blocks each. Below it, one long read that
# brings the data along is quicker: the kernel reads 128 KiB ahead anyway, and a window is parsed all at once.
JUMP_BYTES = 128 << 10
_FIRST_BYTES = 256 << 10  # enough to see how far apart members lie
_PEEK_BYTES = 4 * BLOCK  # a header with a pax header before it
_SEARCH_BYTES = 1 << 20
_PAX_TOLD = (b" path=", b" size=", b" GNU.sparse", b" hdrcharset=")  # what changes where a member lies, or its name
_MOST_EXTENDED = 1 << 20  # a longer pax header or name is taken for damage
_NOT_GLOBAL = (b"path", b"linkpath", b"size", b"GNU.sparse")  # a global pax header is not asked for these
_DAMAGED = b"\0damaged"  # in place of what an extended header says: no keyword of pax
_UNREAD = {SPARSE: DamageKind.SPARSE, CONTINUED: DamageKind.ELSEWHERE}
_COSTS_A_SAMPLE = {DamageKind.NO_END, DamageKind.CUT_IN_HEADER, DamageKind.CORRUPT_HEADER, DamageKind.ZEROS_INSIDE}


class Skipped(NamedTuple):
    """A member that holds no bytes of its own: a symbolic link, a directory, a device."""

    name: bytes
    offset: int
    kind: bytes


@dataclass
class Members:
    """Members in the order of the file, as columns. `names` holds all names, one after the other."""

    data_at: Numbers
    size: Numbers
    checksum: Numbers
    name_len: Numbers
    names: bytes
    unread: dict[int, DamageKind] = field(default_factory=dict)  # those whose data is not there in one piece, and why

    def __len__(self) -> int:
        return len(self.size)

    @property
    def name_at(self) -> Numbers:
        return np.cumsum(self.name_len) - self.name_len


@dataclass(frozen=True)
class Walked:
    """What a walk through a whole tar file has found."""

    members: Members
    damage: list[DamagedPlace]
    wounded_at: list[int]  # where members may be missing: the number of members before each place
    skipped: list[Skipped]


def walk_tar(fetch: Fetch, size: int, shard: str = "", *, window_bytes: int = WINDOW_BYTES) -> Walked:
    """Walk through a tar file of a known size. `fetch(offset, size)` reads; it may return less at the file's end."""
    return _TarWalk(fetch, size, shard).walk(window_bytes)


class _TarWalk:
    def __init__(self, fetch: Fetch, size: int, shard: str) -> None:
        self._fetch, self._size, self._shard = fetch, size, shard
        self._at = 0  # the next header
        self._start = 0
        self._window = memoryview(b"")
        self._told: dict[bytes, bytes] = {}  # by extended headers, of the member that follows them
        self._passed = 0  # members so far
        self._last = b""
        self._ended = False
        self._unread: dict[int, DamageKind] = {}
        self._columns = [np.zeros((4, 0), np.int64)]  # of the members met so far, as `Members` has them
        self._names = [b""]
        self._targets: dict[bytes, tuple[int, ...]] = {}  # of hard links, by name: row, offset, size, checksum
        self._num_targets = self._num_searched = 0
        self._damage: list[DamagedPlace] = []
        self._wounded_at: list[int] = []
        self._skipped: list[Skipped] = []

    def walk(self, window_bytes: int) -> Walked:
        size = min(window_bytes, _FIRST_BYTES)
        while not self._ended:
            before, was_at = self._passed, self._at
            self._start = self._at
            self._window = memoryview(self._fetch(self._at, min(size, self._size - self._at)))
            self._cross_window()
            num = self._passed - before
            is_dense = num > 0 and (self._at - was_at) / num < JUMP_BYTES
            size = window_bytes if is_dense else _PEEK_BYTES
        data_at, size_of, checksum, name_len = np.concatenate(self._columns, axis=1)
        members = Members(data_at, size_of, checksum, name_len, b"".join(self._names), self._unread)
        num = len(members) - len(self._unread)
        damage = [replace(place, after=num - place.before) for place in self._damage]
        return Walked(members, damage, self._wounded_at, self._skipped)

    def _add(self, names: bytes, *columns: Numbers | list[int]) -> None:
        """Note members that follow each other; `names` holds their names, one after the other."""
        self._columns.append(np.array(columns, np.int64))
        self._names.append(names)
        self._passed += len(columns[0])
        self._last = names[len(names) - int(columns[-1][-1]) :]

    def _bytes(self, at: int, size: int) -> bytes:
        inside = at - self._start
        if inside >= 0 and inside + size <= len(self._window):
            return bytes(self._window[inside : inside + size])
        return bytes(self._fetch(at, size))

    def _cross_window(self) -> None:
        usable = len(self._window) // BLOCK * BLOCK
        if not usable:  # the end, or the file has become shorter meanwhile
            self._size = self._start + len(self._window)
            self._meet_end()
            return
        scan = scan_blocks(np.frombuffer(self._window[:usable], np.uint8)) if usable > 16 * BLOCK else None
        end = self._start + usable
        while not self._ended and self._at + BLOCK <= end:
            if scan is not None and not self._told and self._run(scan):
                continue
            self._step()
        if not self._ended and self._at >= self._size:
            self._meet_end()

    def _run(self, scan: Scan) -> bool:
        """Pass over as many members of the usual form as follow each other here; False where none does."""
        block = (self._at - self._start) // BLOCK
        first = int(np.searchsorted(scan.block, block))
        if first == len(scan.block) or scan.block[first] != block or scan.link[first] == 0:
            return False
        stop = first + 1 + int(scan.leads[first:].argmin())
        if self._start + BLOCK * (int(scan.block[stop - 1]) + 1) + int(scan.size[stop - 1]) > self._size:
            stop -= 1
        for row in first + np.flatnonzero(scan.link[first:stop] == PAX_LINK):
            size = min(int(scan.size[row]), _MOST_EXTENDED)
            data = self._bytes(self._start + BLOCK * (int(scan.block[row]) + 1), size)
            if data[-1:] != b"\n" or any(told in data for told in _PAX_TOLD):
                stop = int(row)
                break
        plain = first + np.flatnonzero(scan.link[first:stop] == PLAIN_LINK)
        if not len(plain):
            return False
        name_len = scan.name_len[plain]
        if scan.prefixes[plain, 0].any():
            texts = [scan.name(row) for row in plain.tolist()]
            name_len, names = np.array([len(text) for text in texts], np.int64), b"".join(texts)
        else:
            names = scan.names[plain][np.arange(100) < name_len[:, None]].tobytes()
        data_at = self._start + BLOCK * (scan.block[plain] + 1)
        self._add(names, data_at, scan.size[plain], scan.checksum[plain], name_len)
        # an extended header without its member waits for the next window
        self._at = self._start + BLOCK * int(scan.after[plain[-1]])
        return True

    def _step(self) -> None:
        block = self._bytes(self._at, BLOCK)
        if block == ZEROS:
            self._meet_zeros()
            return
        header = parse_header(block)
        if header is None:
            self._resume(DamageKind.CORRUPT_HEADER, self._at, self._at + BLOCK)
            return
        if header.kind in (PAX, PAX_OLD, PAX_GLOBAL, LONG_NAME, LONG_LINK):
            self._extend(header)
        else:
            self._meet_member(header)

    def _extend(self, header: Header) -> None:
        at, size = self._at + BLOCK, header.size
        after = at + BLOCK * blocks_of(size)
        is_there, is_absurd = at + size <= self._size, size > _MOST_EXTENDED
        records = _records(header.kind, self._bytes(at, size)) if is_there and not is_absurd else None
        if records is None:
            if not (is_there or is_absurd or self._find(at, find_header)):
                self._end_in_header()
                return
            self._resume(DamageKind.CORRUPT_HEADER, self._at, at)  # the member keeps the name of its own header
            if is_absurd and self._at == after:  # the map of a sparse file that has no end, most likely
                self._told = {_DAMAGED: b""}
            return
        self._at = after
        if header.kind != PAX_GLOBAL:  # that one is about all members: comments, times; no name, no size
            self._told |= records

    def _meet_member(self, header: Header) -> None:
        told, self._told = self._told, {}
        name = told.get(b"GNU.sparse.name", told.get(b"path", header.name))
        size = int(told.get(b"size") or header.size)
        header = header._replace(size=size)
        head_at, data_at, checksum = self._at, self._at + BLOCK, header.checksum
        is_sparse = any(keyword.startswith(b"GNU.sparse") for keyword in told)
        lost = DamageKind.SPARSE if is_sparse else DamageKind.CORRUPT_HEADER if _DAMAGED in told else None
        unread = _UNREAD.get(header.kind, lost)
        is_extended = header.is_extended
        while is_extended:  # the map of a sparse file goes on
            is_extended = self._bytes(data_at, BLOCK)[504:505] not in (b"\0", b"")
            data_at += BLOCK
        if header.data_blocks > 0 and data_at + size > self._size:
            if not any(self._bytes(max(0, self._size - 2 * BLOCK), 2 * BLOCK)) and self._find(
                head_at + BLOCK, find_header
            ):
                self._resume(DamageKind.CORRUPT_HEADER, head_at, head_at + BLOCK)  # the tar has its end: a wrong size
                return
            unread, self._ended = DamageKind.CUT_IN_DATA, True
            self._wound(unread, head_at, data_at + size - self._size, name)
        self._at = data_at + BLOCK * header.data_blocks
        if header.kind == HARD_LINK:
            target = self._find_target(told.get(b"linkpath", header.link))
            row, data_at, size, checksum = target or (-1, data_at, 0, checksum)
            unread = self._unread.get(row) if target else DamageKind.ELSEWHERE
        elif header.kind not in (*REGULAR, *_UNREAD):
            self._skipped.append(Skipped(name, head_at, header.kind))
            return
        if unread is not None:
            if unread in _UNREAD.values():  # else it was told already
                self._wound(unread, head_at, size, name)
            self._unread[self._passed] = unread
        self._add(name, [data_at], [size], [checksum], [len(name)])

    def _find_target(self, name: bytes) -> tuple[int, ...] | None:
        """Return the row, offset, size and checksum of the last member of this name."""
        for columns, names in zip(self._columns[self._num_searched :], self._names[self._num_searched :], strict=True):
            at = 0
            for data_at, size, checksum, length in columns.T.tolist():
                self._targets[names[at : at + length]] = (self._num_targets, data_at, size, checksum)
                self._num_targets, at = self._num_targets + 1, at + length
        self._num_searched = len(self._names)
        return self._targets.get(name)

    def _wound(self, kind: DamageKind, offset: int, size: int, member: bytes | None = None) -> None:
        name = (self._last if member is None else member).decode("utf-8", "backslashreplace")
        before = self._passed - len(self._unread)
        self._damage.append(
            DamagedPlace(shard=self._shard, kind=kind, offset=offset, size=size, before=before, member=name)
        )
        if kind in _COSTS_A_SAMPLE:
            self._wounded_at.append(self._passed)

    def _meet_end(self) -> None:
        """The file ends here, without the two blocks of zeros that end a tar."""
        left = self._size - self._at
        if self._told or (left > 0 and any(self._bytes(self._at, left))):
            self._end_in_header()
        else:
            self._wound(DamageKind.NO_END, self._size, 0)
        self._ended = True

    def _end_in_header(self) -> None:
        self._wound(DamageKind.CUT_IN_HEADER, self._at, self._size - self._at)
        self._told, self._ended = {}, True

    def _meet_zeros(self) -> None:
        begin = self._at
        content = self._find(begin, _first_content)
        if content is None:
            if self._size - begin < 2 * BLOCK:
                self._wound(DamageKind.NO_END, begin, 0)
            self._ended = True
            return
        self._resume(DamageKind.ZEROS_INSIDE, begin, content, if_none=DamageKind.AFTER_END)

    def _resume(self, kind: DamageKind, begin: int, search_from: int, if_none: DamageKind | None = None) -> None:
        """Look for the next valid header; note what lies before it as damage, and go on there."""
        found = self._find(search_from, find_header)
        self._told = {}
        if found is None:
            start = begin if if_none is None else search_from
            self._wound(if_none or kind, start, self._size - start)
            self._ended = True
        else:
            self._wound(kind, begin, found - begin)
            self._at = found

    def _find(self, begin: int, look: Callable[[Bytes], int | None]) -> int | None:
        """Return where `look` first finds a block, in windows from `begin` on."""
        at = begin
        while at < self._size:
            data = bytes(self._fetch(at, min(_SEARCH_BYTES, self._size - at)))
            if not data:
                return None
            padded = data.ljust(BLOCK * blocks_of(len(data)), b"\0")
            found = look(np.frombuffer(padded, np.uint8))
            if found is not None:
                return at + BLOCK * found
            at += len(padded)
        return None


def _first_content(window: Bytes) -> int | None:
    filled = window.reshape(-1, BLOCK).any(axis=1)
    return int(filled.argmax()) if filled.any() else None


def _records(kind: bytes, data: bytes) -> dict[bytes, bytes] | None:
    """Read what an extended header says, as the records of a pax header; None where it is damaged."""
    if kind in (LONG_NAME, LONG_LINK):
        text = data.rstrip(b"\0")
        return None if b"\0" in text else {b"path" if kind == LONG_NAME else b"linkpath": text}
    records = parse_pax(data)
    is_misplaced = kind == PAX_GLOBAL and any(keyword.startswith(_NOT_GLOBAL) for keyword in records or ())
    return None if is_misplaced else records
