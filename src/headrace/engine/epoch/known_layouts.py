"""The layouts that samples were seen to have, and slots for batches of them."""

from __future__ import annotations

from ..memory import MAX_LAYOUTS, Layout, Slots, dump
from ..pool import Pool


class KnownLayouts:
    """Layouts by number, as the board publishes them to workers."""

    def __init__(self, pool: Pool, slots: Slots) -> None:
        self._pool, self._slots = pool, slots
        self.layouts: list[Layout] = []
        self.rows = 1  # of the largest batch so far

    def consider(self, layout: Layout, num_rows: int) -> None:
        """A worker has found a layout: publish it where slots for it fit into the budget."""
        if layout in self.layouts or len(self.layouts) >= MAX_LAYOUTS:
            return
        rows = max(num_rows, self.rows)
        if not self._provide(layout, rows):
            return
        block, size = dump(layout, self._pool.region, self._pool.arena)
        self.layouts.append(layout)
        self._pool.board.publish_layout(block, size)

    def make_room(self, num_rows: int) -> None:
        """A batch of this many rows goes out: if it is the largest so far, slots must be as large."""
        if num_rows > self.rows:
            self.rows = num_rows
            for layout in self.layouts:
                self._provide(layout, num_rows)

    def _provide(self, layout: Layout, rows: int) -> bool:
        in_hand = max(1, self._pool.num_workers) * layout.row_bytes
        return self._slots.provide(layout.places(rows)[1], num_rows=rows, in_hand_bytes=in_hand)
