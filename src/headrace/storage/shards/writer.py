"""Samples written into tar shards: plain tar, the same bytes for the same samples."""

import json
import os
import tarfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any, BinaryIO, Self

from headrace.errors import UnusableInput
from headrace.model import parse_bytes, write_step

from .tar_walk import BLOCK

_MOST_BYTES = 3 << 30  # as WebDataset's writer
_MOST_COUNT = 100_000
_RECORD = 20 * BLOCK  # tar fills its last record


class ShardWriter:
    """Writes samples into numbered tar shards that any tar program and WebDataset read.

    `pattern` takes the number of the shard: "data/x-%06d.tar" or "data/x-{:06d}.tar". A new shard begins before the
    one at hand would exceed `max_bytes`, or after `max_count` samples. A sample is a dict: `__key__`, and a value for
    each field (bytes, text, or for fields that end in "json" anything that JSON holds); other names that begin with
    "__" are left out. Shards are written under a temporary name and get theirs when they are whole. Their metadata is
    fixed (mode 0444, owner 0, time `mtime`), so the same samples give the same bytes.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        max_bytes: int | str = _MOST_BYTES,
        max_count: int = _MOST_COUNT,
        start: int = 0,
        mtime: int = 0,
    ) -> None:
        self._pattern = os.fspath(pattern)
        self.max_bytes = parse_bytes(max_bytes, name="max_bytes")
        if max_count < 1:
            raise ValueError(f"max_count={max_count}: a shard holds at least one sample")
        if self.path_of(0) == self.path_of(1):
            raise ValueError(
                f"pattern {self._pattern!r} has no place for the number of a shard, such as %06d or {{:06d}}"
            )
        self.max_count, self._next, self._mtime = max_count, start, mtime
        self.paths: list[str] = []  # the shards that are whole
        self.num_samples = 0
        self._file: BinaryIO | None = None
        self._temporary = ""
        self._pid = os.getpid()
        self._num_here = self._bytes_here = 0
        self._keys: set[str] = set()

    def __repr__(self) -> str:
        return f"ShardWriter({self._pattern!r}: {self.num_samples} samples, {len(self.paths)} shards whole)"

    def path_of(self, number: int) -> str:
        try:
            return self._pattern % number
        except (TypeError, ValueError):
            return self._pattern.format(number)

    def write(self, sample: Mapping[str, Any]) -> None:
        """Write one sample; nothing of it is written when something is wrong with it."""
        key = sample.get("__key__")
        if not isinstance(key, str) or not key:
            raise ValueError(f"a sample needs a __key__, a text that is not empty, not {key!r}")
        base = key.rpartition("/")[2]
        if "." in base or not base or "\0" in key:
            raise ValueError(
                f"__key__ {key!r}: readers take what follows the first dot for the field; use another letter"
            )
        fields = [field for field in sorted(sample) if not field.startswith("__")]
        values = {field: _encode(field, sample[field]) for field in fields}
        members = [(_header(f"{key}.{field}", len(value), self._mtime), value) for field, value in values.items()]
        if not members:
            raise ValueError(f"sample {key!r} has no fields")
        size = sum(len(header) + len(data) + -len(data) % BLOCK for header, data in members)
        is_full = self._num_here >= self.max_count or self._bytes_here + size + 2 * BLOCK > self.max_bytes
        if self._file is not None and is_full:
            self._finish()
        if self._file is None:
            self._begin()
        assert self._file is not None  # `_begin` has opened it
        if key in self._keys:
            raise ValueError(f"sample {key!r} is in this shard already")
        self._keys.add(key)
        for header, data in members:
            self._file.write(header)
            self._file.write(data)
            self._file.write(bytes(-len(data) % BLOCK))
        self._file.flush()  # a child that is forked later would write what waits here once more when it exits
        self._num_here += 1
        self.num_samples += 1
        self._bytes_here += size

    def close(self) -> None:
        """Finish the shard at hand. Safe to call twice, and in a forked child, where it does nothing."""
        if self._file is not None and self._pid == os.getpid():
            self._finish()

    def abort(self) -> None:
        """Drop the shard at hand; those that are whole stay. In a forked child it does nothing."""
        if self._file is not None and self._pid == os.getpid():
            self._file.close()
            self._file = None
            os.unlink(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _begin(self) -> None:
        path = self.path_of(self._next)
        folder, name = os.path.split(path)
        self._temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            if folder:
                os.makedirs(folder, exist_ok=True)
            self._file = open(self._temporary, "xb")  # noqa: SIM115 - closed by `_finish` or `abort`
        except OSError as error:
            next_step = write_step(error, path)
            raise UnusableInput(f"{path} cannot be written: {error.strerror}", next_step=next_step) from error
        self._num_here = self._bytes_here = 0
        self._keys = set()

    def _finish(self) -> None:
        assert self._file is not None
        path = self.path_of(self._next)
        end = self._file.tell() + 2 * BLOCK
        self._file.write(bytes(2 * BLOCK + -end % _RECORD))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        os.replace(self._temporary, path)
        self.paths.append(path)
        self._next += 1


def _encode(field: str, value: Any) -> bytes | bytearray | memoryview:
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, memoryview):
        return value.cast("B") if value.contiguous else value.tobytes()
    if isinstance(value, str):
        return value.encode()
    if field.rpartition(".")[2] == "json":
        return json.dumps(value, ensure_ascii=False).encode()
    if field.rpartition(".")[2] in ("cls", "cls2", "index", "inx", "id") and isinstance(value, int):
        return str(value).encode()
    raise TypeError(f"field {field!r} holds a {type(value).__name__}; give bytes: encode it before it is written")


def _header(name: str, size: int, mtime: int) -> bytes:
    if len(name) > 100 or not name.isascii() or size >= 8**11:  # a pax header before it
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o444, mtime
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    numbers = b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"%011o\0" % mtime
    block = name.encode().ljust(100, b"\0") + numbers + b" " * 8 + b"0" + bytes(100) + b"ustar\x0000" + bytes(64)
    block = (block + b"0000000\0" * 2).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
