"""What a codec reads from: bytes in memory, a view into a shard, or a file named by its path."""

import functools
import importlib
import mmap
import os
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import DecodeError, NotSupported
from headrace.model import format_bytes, stage

from .buffers import result_memory, scratch

BytesLike: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[Any]
Data: TypeAlias = BytesLike | str | os.PathLike[str]

# a file up to this is read at once: one system call costs less than finding out which parts are wanted
_WHOLE_BYTES = 4 << 20

# What brings the libraries that codecs load when they first need them.
INSTALL = "pip install 'headrace[codecs]'"

# What encoded bytes can grow to.
# 258 bytes from two codes of one bit each: no deflate stream grows by more
DEFLATE_RATIO = 1032
# An 8x8 block of a picture takes at least two codes of one bit in a baseline JPEG; in a progressive one the second may
# stand for 32,767 blocks at once. With chroma halved both ways, 256 pixels of 3 bytes are 6 blocks.
JPEG_RATIO = 1024

# The most that one array may take unless `max_bytes=` says otherwise: a whole-body CT in float32 is 1.5 GB.
MAX_BYTES = 4 << 30


@functools.cache
def load_library(module: str, need: str) -> Any:
    """Return a library when it is first needed; `need` says what for, and what brings it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise NotSupported(need, next_step=INSTALL) from None


class Source:
    """Bytes by offset, with the name by which errors call them. A context manager: it may hold an open file."""

    def __init__(self, data: Data, name: str | None = None) -> None:
        self._fd = -1
        self._view: memoryview | None = None
        if isinstance(data, (str, os.PathLike)):
            path = os.fspath(data)
            self.name = path if name is None else name
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._fd).st_size
        else:
            self.name = "bytes" if name is None else name
            view = data.data if isinstance(data, np.ndarray) else memoryview(data)
            if not view.c_contiguous:
                raise TypeError(f"{self.name}: a codec reads contiguous bytes, not a strided view")
            self._view = view if view.format == "B" and view.ndim == 1 else view.cast("B")
            self.size = self._view.nbytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def read(self, offset: int, size: int) -> memoryview:
        """Return exactly these bytes; a file is only read where it is asked for, unless it is small."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise DecodeError(
                f"{self.name}: cut short, or damaged",
                offset=offset,
                wanted=f"{size} bytes",
                there_are=f"{max(0, self.size - max(0, offset))} bytes",
            )
        if self._view is None and self.size <= _WHOLE_BYTES:
            self._view = self._fill(result_memory(self.size), 0)
        if self._view is not None:
            return self._view[offset : offset + size]
        return self._fill(result_memory(size), offset)

    def borrow(self, offset: int, size: int) -> memoryview:
        """As `read`, for bytes that are only looked at before this thread's next `borrow`."""
        if self._view is not None or offset < 0 or size < 0 or offset + size > self.size:
            return self.read(offset, size)
        return self._fill(scratch("borrowed", size), offset)

    def _fill(self, buffer: npt.NDArray[np.uint8], offset: int) -> memoryview:
        """Fill a buffer with a file's bytes from `offset` on."""
        with stage("read", nbytes=buffer.nbytes):
            done, view = 0, buffer.data
            while done < buffer.nbytes:
                got = os.preadv(self._fd, [view[done:]], offset + done)
                if not got:
                    raise DecodeError(
                        f"{self.name}: the file ended while it was read",
                        offset=offset + done,
                        size_before=f"{self.size} bytes",
                    )
                done += got
        return view

    def damaged(self, what: str, *, next_step: str = "", **evidence: object) -> DecodeError:
        """The error to raise: it names what was read."""
        return DecodeError(f"{self.name}: {what}", next_step=next_step, **evidence)

    def check_claim(self, claimed: int, *, held: int, ratio: int = 1, max_bytes: int, what: str) -> None:
        """Raise unless `held` encoded bytes can be `claimed` decoded ones, and these are within the limit."""
        if claimed > held * ratio + 1024:
            raise self.damaged(
                f"{what} claims more than its bytes can hold",
                claimed=format_bytes(claimed),
                encoded=format_bytes(held),
                at_most=format_bytes(held * ratio),
            )
        if claimed > max_bytes:
            raise self.damaged(
                f"{what} is larger than allowed",
                size=format_bytes(claimed),
                limit=format_bytes(max_bytes),
                next_step=f"max_bytes={claimed} if this is meant",
            )
