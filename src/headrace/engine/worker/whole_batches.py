"""A batch that one worker fetches in one piece, as torch does: it must not be split."""

from __future__ import annotations

import time
from typing import Any

from ..memory import Answer, Entry, Work, split_tries
from .placing import Placed
from .sharing import Sharing
from .workbench import Workbench


class WholeBatches:
    """Serves whole batches of map-style data sets."""

    def __init__(self, bench: Workbench, sharing: Sharing) -> None:
        self._plan, self._words = bench.plan, bench.words
        self._record, self._payloads, self._fetcher = bench.record, bench.payloads, bench.fetcher
        self._placer, self._teller, self._sharing = bench.placer, bench.teller, sharing
        self._events = bench.events

    def serve(self, work: Work, entry: int) -> None:
        """Fetch a batch as torch's fetcher would, and send it."""
        indices = self._payloads.indices(work, entry)
        base_seed, position = self._words[entry + Entry.BASE_SEED], self._words[entry + Entry.FIRST_POSITION]
        seeds = self._fetcher.seeds
        started = self._record.begin_sample(position, max(1, work.rows))
        if seeds is not None:
            seeds.begin_chunk()
        if self._events is not None:
            self._events.begin_sample()
        try:
            if split_tries(work.argument)[0] and self._plan.is_batched:
                self._fetch_alone(indices, base_seed, position)
                started = self._record.begin_sample(position, max(1, work.rows))
            samples = self._fetcher.whole_patiently(indices, base_seed, position, is_batch=self._plan.is_batched)
        except Exception as error:
            self._fail_whole(work, entry, indices, error)
            return
        finally:
            if self._events is not None:
                self._events.end_sample(indices, len(indices) if self._plan.is_batched else 1)
        if seeds is not None and seeds.end_chunk():
            samples = self._fetcher.whole(indices, base_seed, position, is_batch=self._plan.is_batched)
        elapsed = time.perf_counter_ns() - started
        self._record.note(elapsed, elapsed, max(1, work.rows))
        self._send_whole(work, entry, samples)

    def _fetch_alone(self, indices: Any, base_seed: int, position: int) -> None:
        """Fetch each sample of a batch on its own, for one of them took a worker with it: the record tells which."""
        for row, index in enumerate(indices):
            self._record.begin_sample(position + row)
            self._fetcher.whole_patiently([index], base_seed, position + row, is_batch=True)

    def _fail_whole(self, work: Work, entry: int, indices: Any, error: Exception) -> None:
        """A batch in one piece failed: find the sample that does, where it matters which one that is."""
        row = 0
        if self._plan.goes_on and self._plan.is_batched:
            base_seed, position = self._words[entry + Entry.BASE_SEED], self._words[entry + Entry.FIRST_POSITION]
            for row, index in enumerate(indices):
                self._record.begin_sample(position + row)
                try:
                    self._fetcher.whole_patiently([index], base_seed, position + row, is_batch=True)
                except Exception as alone:
                    error = alone
                    break
            else:
                self._teller.fail(work, entry, 0, error, rows=work.rows, is_sample=False)  # only together do they fail
                return
        self._teller.fail(work, entry, row, error, rows=work.rows)

    def _send_whole(self, work: Work, entry: int, samples: Any) -> None:
        num_rows = self._words[entry + Entry.NUM_ROWS]
        if self._plan.uses_slots and isinstance(samples, (list, tuple)) and len(samples) == num_rows:
            done: list[Placed] = []
            fetched = time.perf_counter_ns()
            self._placer.place(entry, samples, 0, done)
            if self._events is not None:
                self._events.handed_over(fetched)
            if [d[0] for d in done] == [Answer.ROWS]:
                self._sharing.hand_over(work, entry, done)
                return
        self._sharing.collate_and_send(work, entry, samples, rows=work.rows)
