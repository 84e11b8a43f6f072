"""A settled batch becomes what the training loop gets."""

import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

from headrace.model import format_bytes, is_from_signal

from ..memory import (
    MAX_LAYOUTS,
    CaughtError,
    Head,
    Layout,
    Slots,
    TensorPlan,
    block_bytes,
    dump,
    load,
    read_index,
    release_block,
    slot_tensors,
    split_place,
)
from ..pool import Pool
from .scheduler import Batch

_log = logging.getLogger(__name__)

_MOST_PLANS = 64  # ways to make tensors that are kept: one for each size that batches have


class KnownLayouts:
    """Layouts by number, as the board publishes them to workers."""

    def __init__(self, pool: Pool, slots: Slots) -> None:
        self._pool, self._slots = pool, slots
        self.known: list[Layout] = []
        self.rows = 1  # of the largest batch so far

    def consider(self, layout: Layout, num_rows: int) -> None:
        """A worker has found a layout: publish it where slots for it fit into the budget."""
        is_new = layout not in self.known and len(self.known) < MAX_LAYOUTS
        if is_new and self._provide(layout, max(num_rows, self.rows)):
            block, _ = dump(layout, self._pool.region, self._pool.arena)
            self.known.append(layout)
            self._pool.board.publish_layout(block)

    def make_room(self, num_rows: int) -> None:
        """A batch of this many rows goes out: if it is the largest so far, slots must be as large."""
        if num_rows > self.rows:
            self.rows = num_rows
            for layout in self.known:
                self._provide(layout, num_rows)

    def _provide(self, layout: Layout, rows: int) -> bool:
        in_hand = max(1, self._pool.num_workers) * layout.row_bytes
        return self._slots.provide(layout.places(rows)[1], num_rows=rows, in_hand_bytes=in_hand)


class Delivery:
    """Turns rows and blocks into batches, and gives back what they no longer need."""

    def __init__(self, pool: Pool, slots: Slots, collate: Callable[[Any], Any]) -> None:
        self._arena, self._board, self._words, self._ledger = pool.arena, pool.board, pool.board.words, pool.ledger
        self._all_words = pool.arena.bytes.cast("q")
        self._budget_bytes, self._is_batched = pool.plan.budget_bytes, pool.plan.is_batched
        self.slots, self._collate = slots, collate
        self.layouts = KnownLayouts(pool, slots)
        self._payloads: dict[int, int] = {}  # batch -> block of its indices
        self._plans: dict[tuple[int, int, int], TensorPlan] = {}  # by layout, rows of the slot, rows of the batch
        self.general_bytes = 0  # the largest batch that came down the general path: its samples, or the whole
        self._sample_bytes = 0  # the largest sample there
        self._held: dict[int, int] = {}  # batches of the general path that the loop has: block, and its bytes
        self._keeps_all = False  # the loop was seen to hold every slot
        self.slot_batches = self.general_batches = self.copied_batches = 0
        self._has_warned_held = False

    def keep_payload(self, seq: int, block: int) -> None:
        """Remember the block of a batch's indices until the batch has left."""
        self._payloads[seq] = block

    def key_of(self, seq: int, row: int) -> object:
        """The key of a sample in a batch in flight; None where it has none."""
        block = self._payloads.get(seq)
        return read_index(self._arena, block, row, is_batched=self._is_batched) if block else None

    def free(self, blocks: list[int]) -> None:
        for block in blocks:
            release_block(self._arena, self._all_words, block)

    def release(self, batch: Batch, *, keep_slot: bool = False) -> None:
        """A batch has left: its slot (unless leased) and its indices are free again."""
        place = self._ledger.place_of(batch.seq)
        if place >= 0 and not keep_slot:
            self.slots.free(split_place(place)[1])
        if block := self._payloads.pop(batch.seq, 0):
            self.free([block])

    def deliver(self, batch: Batch) -> Any:
        """What the loop gets; a `CaughtError` where it is to be raised."""
        if batch.failure is not None:
            error: CaughtError = load(self._arena, batch.failure[1])
            self.free([*batch.blocks_to_free(), *([batch.collated] if batch.collated else [])])
            self.release(batch)
            return error
        if batch.collated:
            self.free(batch.blocks_to_free())
            self.release(batch)
            self.general_batches += 1
            return self._lend(batch.collated)
        number, slot = split_place(self._ledger.place_of(batch.seq))
        layout = self.layouts.known[number]
        if batch.samples:
            return self._deliver_mixed(batch, layout, slot)
        texts = self._texts_of(batch) if layout.has_objects else []
        total, leased = self.slots.counts()
        # of two slots, a loop gives one back as it gets the other; only one that keeps both needs copies
        is_short = leased >= total - 1 and (total != 2 or leased > 1 or self._keeps_all)
        owner = self.slots.lease(slot)
        tensors = slot_tensors(self._plan(number, layout, batch), owner, texts)
        del owner
        self.slot_batches += 1
        if is_short:
            self._warn_held(total, leased)
            tensors = [t if isinstance(t, list) else t.clone() for t in tensors]
            self.copied_batches += 1
        self.release(batch, keep_slot=True)
        return layout.build_batch(tensors)

    def _plan(self, number: int, layout: Layout, batch: Batch) -> TensorPlan:
        key = (number, batch.num_rows, batch.count_rows)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:  # batches of ever other sizes
                self._plans.clear()
            plan = self._plans[key] = layout.plan_tensors(batch.num_rows, batch.count_rows)
        return plan

    def _lend(self, block: int) -> Any:
        """A batch of the general path; its block is released when nothing refers to it any more."""
        self._held[block] = block_bytes(self._arena, block)

        def give_back() -> None:
            self._held.pop(block, None)
            release_block(self._arena, self._all_words, block)

        return load(self._arena, block, on_release=give_back)

    @property
    def held_bytes(self) -> int:
        """Bytes of the batches of the general path that the loop has."""
        return sum(list(self._held.values()))  # a copy: one may be given back meanwhile, in another thread

    def note_samples(self, block: int, rows: int) -> None:
        """Samples of a batch have come down the general path."""
        self._sample_bytes = max(self._sample_bytes, block_bytes(self._arena, block) // max(1, rows))
        self._keep_less()

    def note_collated(self, batch: Batch | None, block: int) -> None:
        """A batch of the general path is collated; its samples may be larger than itself."""
        samples = sum(block_bytes(self._arena, shared) for shared in batch.shared) if batch is not None else 0
        self.general_bytes = max(self.general_bytes, samples, block_bytes(self._arena, block))
        self._board.expect_batch(self.general_bytes)
        self._keep_less()

    def _keep_less(self) -> None:
        """Keep what is free for reuse only as far as a batch finds room beside it."""
        if not self.layouts.known:
            self._arena.most_bytes = max(0, self._budget_bytes - 2 * self._words[Head.BATCH_BYTES])

    def expected_bytes(self, num_rows: int) -> int:
        """How large a batch on the general path will be, by those before it; 0: there was none."""
        return self.general_bytes or self._sample_bytes * num_rows

    def queued_bytes(self, batch: Batch, expected_bytes: int) -> int:
        """What a batch on the general path takes of the budget until it is delivered."""
        if not batch.collated:
            return 2 * expected_bytes
        return sum(block_bytes(self._arena, block) for block in [batch.collated, *batch.shared])

    def make_way(self, batch: Batch) -> None:
        """The loop waits for a batch and holds every slot: none will be free for it, so it takes the general path."""
        total, leased = self.slots.counts()
        if total and leased >= total and self._ledger.take_general_path(batch.seq):
            self._keeps_all = True
            self._warn_held(total, leased)

    def _texts_of(self, batch: Batch) -> list[list[Any]]:
        """The texts of a batch, leaf by leaf, taken out of their blocks."""
        parts = [load(self._arena, block) for _, _, block in sorted(batch.texts)]
        return [list(chain.from_iterable(columns)) for columns in zip(*parts, strict=True)]

    def _deliver_mixed(self, batch: Batch, layout: Layout, slot: int) -> Any:
        """Some samples did not fit the slot: gather all as samples and collate them as torch would."""
        samples: dict[int, Any] = {}
        for row, _, block in batch.samples:
            samples.update(enumerate(load(self._arena, block), row))
        texts: dict[int, list[list[Any]]] = {}
        for first, rows, block in batch.texts:
            columns = load(self._arena, block)
            texts.update({first + row: [[column[row]] for column in columns] for row in range(rows)})
        memory = self.slots.memory(slot)
        for row in set(range(batch.num_rows)) - set(samples):
            samples[row] = layout.read_samples(memory, batch.num_rows, range(row, row + 1), texts.get(row, []))[0]
        self.release(batch)
        self.general_batches += 1
        try:
            return self._collate([samples[row] for row in range(batch.num_rows)])
        except Exception as error:
            if is_from_signal(error):
                raise
            return CaughtError.from_exception(error, max(0, batch.worker))

    def _warn_held(self, total: int, leased: int) -> None:
        if self._has_warned_held:
            return
        self._has_warned_held, budget = True, format_bytes(self._budget_bytes)
        if total == 1:
            _log.warning(
                "the memory budget of %s has room for one batch only: each is copied to ordinary memory. A larger "
                "memory= saves that.",
                budget,
            )
            return
        _log.warning(
            "the training loop holds %d batches, all that the memory budget of %s has slots for (%d): further ones "
            "are copied to ordinary memory. Keep fewer batches, or give a larger memory=.",
            *(leased, budget, total),
        )
