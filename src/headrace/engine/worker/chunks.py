"""Tasks over a map-style data set: a chunk of a batch, or a batch in one piece."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from headrace.errors import BatchTooLarge

from ..memory import GENERAL, Answer, Entry, Head, NoRoom, Task, Work
from .fetch import CannotSplit, SampleSeeds
from .rows import SMALL_ROW_BYTES, Placed, append_placed
from .sharing import Sharing
from .workbench import Workbench

# below this, looking at the clock for each sample would show in the rate
_TINY_SAMPLE_NS = 20_000


class _MapTasks:
    """What chunks and whole batches have in common."""

    def __init__(self, bench: Workbench, sharing: Sharing) -> None:
        self._plan, self._words, self._dataset = bench.pool, bench.words, bench.dataset
        self._record, self._indices, self._fetcher = bench.record, bench.indices, bench.fetcher
        self._placer, self._teller, self._sharing = bench.placer, bench.teller, sharing
        self._events, self._entering = bench.events, bench.entering

    def _hand_over(self, work: Work, entry: int, done: list[Placed]) -> None:
        """Tell of rows by what was done with each: (answer, row, rows, texts or samples)."""
        for answer, row, rows, content in done:
            try:
                if answer is Answer.ROWS and not content and work.task == Task.CHUNK:
                    self._teller.account(work, entry, row, rows, quietly=True)
                elif answer is Answer.FAILED:
                    self._teller.fail(work, entry, row, content, rows=rows)
                elif answer is Answer.SHARED:
                    self._sharing.share(work, entry, row, rows, content)
                elif answer is Answer.NEEDS_WHOLE:
                    self._teller.tell(work, entry, Answer.NEEDS_WHOLE, row, rows, is_void=True)
                else:
                    block = self._entering.dump(content, entry, rows=rows)[0] if content else 0
                    self._teller.tell(work, entry, answer, row, rows, block=block)
            except Exception as error:
                if isinstance(error, (NoRoom, BatchTooLarge)) or work.task != Task.CHUNK:
                    self._teller.fail(work, entry, row, error)
                    return
                # a sample that cannot be pickled: the collation may make something of it that can
                self._teller.tell(work, entry, Answer.NEEDS_WHOLE, row, rows, is_void=True)


class Chunks(_MapTasks):
    """Serves chunks of map-style data sets."""

    def __init__(self, bench: Workbench, sharing: Sharing) -> None:
        super().__init__(bench, sharing)
        # threads share the generators, so samples cannot be seeded one by one: only notice that somebody draws
        is_watched = not bench.is_seeded and not bench.pool.is_iterable
        self._watch = SampleSeeds(bench.dataset, trial_samples=0, is_shared=True) if is_watched else None

    def _serve_one(self, work: Work, entry: int) -> bool:
        """The short way for a single sample of a batch that has its slot. False: it takes the long way.

        A worker that waits between samples finds its caches cold, so the length of this way is what a slow disk with
        small samples sees of us.
        """
        words, seeds = self._words, self._fetcher.seeds
        place = words[entry + Entry.PLACE]
        if place < 0 or seeds is None or seeds.is_on_trial or self._plan.has_getitems or self._plan.goes_on:
            return False
        index = self._indices.one(work.row, entry)
        if index is None:
            return False
        position = self._position(work, entry)
        started = self._record.begin_sample(position)
        events = self._events
        if events is not None:
            events.begin_sample()
        try:
            if seeds.per_sample:
                seeds.begin_sample(words[entry + Entry.BASE_SEED], position)
            sample = self._dataset[index]
        except Exception as error:
            self._teller.fail(work, entry, work.row, error)
            return True
        finally:
            if events is not None:
                events.end_sample(index)
        fetched = time.perf_counter_ns()
        if seeds.end_chunk():  # it drew after all: once more, seeded
            return False
        if self._placer.put(place, words[entry + Entry.NUM_ROWS], sample, work.row):
            ended = time.perf_counter_ns()
            self._record.note(fetched - started, ended - started, 1)
            self._teller.account(work, entry, work.row, 1, quietly=True)
            if events is not None:
                events.handed_over(fetched)
        else:
            done: list[Placed] = []
            self._placer.place(entry, [sample], work.row, done)
            self._hand_over(work, entry, done)
        return True

    def _position(self, work: Work, entry: int) -> int:
        """Where in the epoch's order a chunk's first sample stands; samples that were left out lie in between."""
        return self._words[entry + Entry.FIRST_POSITION] + work.row + work.shift

    def serve(self, work: Work, entry: int) -> None:
        if work.rows == 1 and self._serve_one(work, entry):
            return
        indices = self._indices.of(work, entry)
        base_seed = self._words[entry + Entry.BASE_SEED]
        position = self._position(work, entry)
        seeds = self._fetcher.seeds or self._watch
        if seeds is not None:
            seeds.begin_chunk()
        held = self._fetch_and_place(work, entry, indices, base_seed, position)
        has_drawn = seeds is not None and seeds.end_chunk()
        if has_drawn and seeds is self._fetcher.seeds:
            # it drew from a generator that had looked unused: once more, seeded
            held = self._fetch_and_place(work, entry, indices, base_seed, position)
        if seeds is not None and seeds.is_on_trial:
            self._record.note_least(seeds.least_each_ns)
        if has_drawn or (seeds is not None and seeds.is_drawing):
            self._words[Head.DRAWS] = 1
            self._watch = None
        self._hand_over(work, entry, held)

    def _fetch_and_place(
        self, work: Work, entry: int, indices: Sequence[Any], base_seed: int, position: int
    ) -> list[Placed]:
        """Run a chunk's samples. Returns what was done with them."""
        takes_slot = self._plan.uses_slots and self._words[entry + Entry.PLACE] != GENERAL
        is_tiny = len(indices) > 1 and 0 < self._record.fetch_ns < _TINY_SAMPLE_NS
        if self._plan.has_getitems or is_tiny or not (takes_slot or self._plan.goes_on):
            started = self._record.begin_sample(position, len(indices))
            try:
                samples = self._fetch_many(indices, base_seed, position, is_tiny=is_tiny)
            except CannotSplit:
                return [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
            except Exception:
                if not self._plan.goes_on:
                    raise
            else:
                fetched = time.perf_counter_ns()
                done: list[Placed] = [] if takes_slot else [(Answer.SHARED, work.row, work.rows, samples)]
                if takes_slot:
                    self._placer.place(entry, samples, work.row, done)
                    if self._events is not None:
                        self._events.handed_over(fetched)
                self._record.note(fetched - started, time.perf_counter_ns() - started, len(indices))
                return done
        if not takes_slot or (work.rows > 1 and self._placer.row_bytes(entry) < SMALL_ROW_BYTES):
            return self._fetch_together(work, entry, indices, base_seed, position, takes_slot=takes_slot)
        return self._fetch_each(work, entry, indices, base_seed, position)

    def _fetch_many(self, indices: Sequence[Any], base_seed: int, position: int, *, is_tiny: bool) -> list[Any]:
        events = self._events
        if events is None or is_tiny:  # tiny samples are in their task alone
            return self._fetcher.many(indices, base_seed, position)
        events.begin_sample()
        try:
            return self._fetcher.many(indices, base_seed, position)
        finally:
            events.end_sample(indices[0], len(indices))

    def _fetch_each(
        self, work: Work, entry: int, indices: Sequence[Any], base_seed: int, position: int
    ) -> list[Placed]:
        """Run samples one by one and place each at once."""
        done: list[Placed] = []
        events = self._events
        for offset, index in enumerate(indices):
            row = work.row + offset
            started = self._record.begin_sample(position + offset)
            if events is not None:
                events.begin_sample()
            try:
                sample = self._fetcher.one(index, base_seed, position + offset)
            except CannotSplit:
                return [(Answer.NEEDS_WHOLE, work.row, work.rows, None)]
            except Exception as error:
                done.append((Answer.FAILED, row, 1 if self._plan.goes_on else work.rows - offset, error))
                if self._plan.goes_on:
                    continue
                break
            finally:
                if events is not None:
                    events.end_sample(index)
            fetched = time.perf_counter_ns()
            self._placer.place(entry, [sample], row, done)
            del sample
            ended = time.perf_counter_ns()
            self._record.note(fetched - started, ended - started, 1)
            if events is not None:
                events.handed_over(fetched)
            if self._words[Head.STOP]:
                break
        return done

    def _fetch_together(
        self, work: Work, entry: int, indices: Sequence[Any], base_seed: int, position: int, *, takes_slot: bool
    ) -> list[Placed]:
        """Run samples one by one, and place them at the end: between two lies next to nothing.

        A worker whose samples wait for a disk finds its caches cold after each, and a line of code costs several times
        its usual price.
        """
        begin_sample, one, events = self._record.begin_sample, self._fetcher.one, self._events
        gathered: list[Any] = []
        done: list[Placed] = []
        failed: list[Placed] = []
        starts: list[int] = []

        def place() -> None:
            if gathered and takes_slot:
                self._placer.place(entry, gathered, work.row + offset - len(gathered), done)
            elif gathered:
                append_placed(done, Answer.SHARED, work.row + offset - len(gathered), list(gathered))

        offset = 0
        for offset, index in enumerate(indices):
            starts.append(begin_sample(position + offset))
            if events is not None:
                events.begin_sample()
            try:
                gathered.append(one(index, base_seed, position + offset))
            except Exception as error:
                place()
                gathered.clear()
                failed.append(
                    (Answer.FAILED, work.row + offset, 1 if self._plan.goes_on else work.rows - offset, error)
                )
                if not self._plan.goes_on:
                    break
            finally:
                if events is not None:
                    events.end_sample(index)
            if self._words[Head.STOP]:
                return done
        else:
            offset = len(indices)
        starts.append(time.perf_counter_ns())
        place()
        ended = time.perf_counter_ns()
        placing_ns = (ended - starts[-1]) // work.rows
        if events is not None and takes_slot:
            events.handed_over(starts[-1])
        for begun, ended in pairwise(starts):
            self._record.note(ended - begun, ended - begun + placing_ns, 1)
        return done + failed


class WholeBatches(_MapTasks):
    """Serves whole batches of map-style data sets."""

    def serve(self, work: Work, entry: int) -> None:
        """Fetch a batch as torch's fetcher would, and send it."""
        indices = self._indices.of(work, entry)
        base_seed, position = self._words[entry + Entry.BASE_SEED], self._words[entry + Entry.FIRST_POSITION]
        seeds = self._fetcher.seeds
        started = self._record.begin_sample(position, max(1, work.rows))
        if seeds is not None:
            seeds.begin_chunk()
        if self._events is not None:
            self._events.begin_sample()
        try:
            if work.tries and self._plan.is_batched:
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
                self._hand_over(work, entry, done)
                return
        self._sharing.collate_and_send(work, entry, samples, rows=work.rows)
