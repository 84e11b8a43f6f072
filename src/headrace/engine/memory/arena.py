"""One anonymous memory file that every process of a loader maps once."""

import contextlib
import functools
import gc
import mmap
import os
from dataclasses import dataclass
from typing import Self

from headrace.errors import NotSupported
from headrace.model import format_bytes
from headrace.signals.system import Fd, anonymous_file

from .board import BOARD_BYTES, MAX_WORKERS

# most of such a mapping is never written; Python 3.11 has no name for it
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


@functools.cache
def lies_in_dev_shm() -> bool:
    """Whether arenas must be files of /dev/shm, because this system refuses memfd_create (a sandbox may)."""
    try:
        os.close(os.memfd_create("headrace-try", os.MFD_CLOEXEC))
    except (OSError, AttributeError):
        return True
    return False


class Arena:
    """A sparse memory file: its size is only address space, pages exist once they are written.

    It has no name, so nothing can be left behind, and it does not live in /dev/shm, so the size of that mount
    does not matter. Where memfd_create is refused, an unlinked file in /dev/shm takes its place.
    """

    def __init__(self, fd: Fd, size: int) -> None:
        self.fd, self.size = fd, size
        self.most_bytes = size  # beyond this, large blocks are not kept for reuse
        self._map()

    @classmethod
    def create(cls, size: int) -> Self:
        """Make an arena with `size` bytes of address space."""
        if not hasattr(os, "memfd_create"):
            raise NotSupported(
                "Headrace's workers need Linux: their batches live in an anonymous memory file",
                next_step="use num_workers=0, or torch.utils.data.DataLoader on this system",
            )
        fd = Fd(anonymous_file("headrace", "/dev/shm"))  # which closes it, whatever comes in between
        os.ftruncate(fd.fd, size)
        try:
            return cls(fd, size)
        except OSError:
            # a loop that ended with an error may leave its loader's addresses to the next garbage collection
            gc.collect()
            return cls(fd, size)

    def _map(self) -> None:
        self.map = mmap.mmap(self.fd.fileno(), self.size, flags=mmap.MAP_SHARED)
        self.bytes = memoryview(self.map)
        self._mapped_by = os.getpid()
        # where the system allows huge pages for shared memory, fresh memory costs a tenth, mapping it next to nothing
        with contextlib.suppress(OSError, AttributeError):
            self.map.madvise(mmap.MADV_HUGEPAGE)
        # the whole address range would make a core dump of terabytes of holes
        with contextlib.suppress(OSError, AttributeError):
            self.map.madvise(mmap.MADV_DONTDUMP)

    def attach(self) -> None:
        """Map the file anew in a child: memory that CUDA registered in the parent may not come along a fork.

        Where there are too few addresses for another mapping, the one that did come along has to do.
        """
        if self._mapped_by != os.getpid():
            with contextlib.suppress(OSError):
                self._map()

    def view(self, offset: int, size: int) -> memoryview:
        return self.bytes[offset : offset + size]

    def map_apart(self, offset: int, size: int) -> tuple[mmap.mmap, int]:
        """Map a range once more, so that what is written there stays with the writer; returns where it begins in it."""
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        return mmap.mmap(self.fd.fileno(), offset + size - start, flags=flags, offset=start), offset - start

    def give_back(self, offset: int, size: int) -> None:
        """Return the whole pages inside a range to the kernel; they read as zeros afterwards."""
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (offset + size) // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start:
            with contextlib.suppress(OSError):
                self.map.madvise(mmap.MADV_REMOVE, start, stop - start)

    def used_bytes(self) -> int:
        """Bytes that exist as pages, in use or kept for reuse."""
        return os.fstat(self.fd.fileno()).st_blocks * 512 if self.fd.fd >= 0 else 0

    def close(self) -> None:
        """Close the descriptor. The mapping ends with the last view of it, so tensors that a user holds stay valid."""
        self.fd.close()

    def __reduce__(self) -> "tuple[type[Arena], tuple[Fd, int]]":
        return Arena, (self.fd, self.size)


_MIB, _GIB = 1 << 20, 1 << 30
_MOST_ADDRESSES = 8 << 40


@dataclass(frozen=True)
class ArenaPlan:
    """Board, indices, slots, and a region per worker; pages exist only once they are written."""

    main_start: int
    main_bytes: int
    slots_start: int
    slots_bytes: int
    regions_start: int
    region_bytes: int
    num_regions: int  # of workers that there may be
    total: int

    @classmethod
    def for_budget(cls, budget_bytes: int, *, room_bytes: int | None = None, num_workers: int = MAX_WORKERS) -> Self:
        """Lay out generously, or within `room_bytes` for so many workers, and as many more."""
        # several times the budget, for slots may be laid out anew while old ones are still held; a process has 128 TiB
        # of addresses, and a training several loaders, each mapped by all that are forked later
        region_bytes = min(2 * budget_bytes + 64 * _MIB, _MOST_ADDRESSES // MAX_WORKERS)
        generous = cls._laid_out(_GIB, 4 * budget_bytes + 64 * _MIB, region_bytes, MAX_WORKERS)
        if room_bytes is None or generous.total <= room_bytes:
            return generous
        num_regions = min(MAX_WORKERS, 2 * num_workers)
        part = (room_bytes - BOARD_BYTES - (3 + num_regions) * _MIB) // 8
        if part < 8 * _MIB:
            raise NotSupported(
                "the system leaves this process too little room for shared memory",
                room=format_bytes(room_bytes),
                next_step="a larger `ulimit -v` and `ulimit -f`, or num_workers=0",
            )
        return cls._laid_out(part, 4 * part, 3 * part // num_regions, num_regions)

    @classmethod
    def _laid_out(cls, main_bytes: int, slots_bytes: int, region_bytes: int, num_regions: int) -> Self:
        def round_up(size: int) -> int:
            return -(-size // _MIB) * _MIB

        main_start = round_up(BOARD_BYTES)
        slots_start = main_start + round_up(main_bytes)
        regions_start = slots_start + round_up(slots_bytes)
        region_bytes = round_up(region_bytes)
        total = regions_start + num_regions * region_bytes
        return cls(main_start, main_bytes, slots_start, slots_bytes, regions_start, region_bytes, num_regions, total)
