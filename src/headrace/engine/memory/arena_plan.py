"""Where things lie in an arena's address space."""

from __future__ import annotations

from dataclasses import dataclass

from .board import BOARD_BYTES, MAX_WORKERS

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
    total: int

    @classmethod
    def for_budget(cls, budget_bytes: int) -> ArenaPlan:
        def round_up(size: int) -> int:
            return -(-size // _MIB) * _MIB

        main_start = round_up(BOARD_BYTES)
        slots_start = main_start + _GIB
        # several times the budget, for slots may be laid out anew while old ones are still held
        slots_bytes = round_up(4 * budget_bytes + 64 * _MIB)
        regions_start = slots_start + slots_bytes
        # a process has 128 TiB of addresses, and a training several loaders, each mapped by all that are forked later
        region_bytes = min(round_up(2 * budget_bytes + 64 * _MIB), _MOST_ADDRESSES // MAX_WORKERS)
        total = regions_start + MAX_WORKERS * region_bytes
        return cls(main_start, _GIB, slots_start, slots_bytes, regions_start, region_bytes, total)
