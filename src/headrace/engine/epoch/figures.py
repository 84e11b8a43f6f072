"""What the workers' records on the board say while an epoch runs."""

import time

import numpy as np
import numpy.typing as npt

from headrace.model import STAGE_TABLE_WORDS, SampleTimes, Stages, WorkerStats, merge_stages, read_stages, stages_of

from ..memory import BUSY, HISTOGRAM_BUCKETS, MAX_WORKERS, NO_SAMPLE, WORKER_STATES, Board, Head, Record
from ..pool import Pool

# one sample in a thousand may be an accident of the machine; what comes more often is the data set's way
_WORST_QUANTILE = 0.999
_MIDDLES_S = 2.0 ** ((np.arange(HISTOGRAM_BUCKETS) + 0.5) / 4) / 1e9


class Figures:
    """Reads a pool's records."""

    def __init__(self, pool: Pool, earlier: npt.NDArray[np.int64] | None = None) -> None:
        self.pool, self._words = pool, pool.board.words
        self._earlier = np.zeros(HISTOGRAM_BUCKETS, np.int64) if earlier is None else earlier
        self.earlier_bytes = 0  # that workers wrote which were started before these
        self._marks = (0, 0, 0, 0)  # faults and samples at the mark before last, and at the last

    def _workers(self) -> range:
        return range(min(MAX_WORKERS, self.pool.most_workers))

    def total(self, field: int) -> int:
        return sum(self._words[Board.record_at(w) + field] for w in self._workers())

    def bytes_written(self) -> int:
        return self.earlier_bytes + self.total(Record.BYTES)

    def mean_cost_s(self) -> float:
        """Mean of the workers' running means of a sample's time; 0 where none has finished a sample."""
        known = [cost for w in self._workers() if (cost := self._words[Board.record_at(w) + Record.COST_NS])]
        return sum(known) / len(known) / 1e9 if known else 0.0

    @property
    def draws(self) -> bool:
        """Whether the data set was seen to draw from a global random generator."""
        return bool(self._words[Head.DRAWS])

    def mark_faults(self) -> None:
        """Begin a new stretch of samples for `faults_per_sample`, once the last one is long enough."""
        samples = self.total(Record.SAMPLES_DONE)
        if samples - self._marks[3] > 64 * max(1, self.pool.num_workers):
            self._marks = (*self._marks[2:], self.total(Record.FAULTS), samples)

    def faults_per_sample(self) -> float | None:
        """Minor page faults per sample in the workers, over the last stretch of samples."""
        faults_before, samples_before = self._marks[:2]
        samples = self.total(Record.SAMPLES_DONE)
        if not self._words[Head.RECORD] or samples <= samples_before:
            return None
        return (self.total(Record.FAULTS) - faults_before) / (samples - samples_before)

    def histogram(self) -> npt.NDArray[np.int64]:
        """Samples by service time, in quarter octaves of a nanosecond; those of earlier epochs included."""
        start = Board.histogram_at(0)
        table = np.array(self._words[start : start + len(self._workers()) * HISTOGRAM_BUCKETS], np.int64)
        counts: npt.NDArray[np.int64] = self._earlier + table.reshape(-1, HISTOGRAM_BUCKETS).sum(0)
        return counts

    def sample_times(self) -> SampleTimes | None:
        """The spread of sample times; None where nothing is recorded."""
        counts = self.histogram() if self._words[Head.RECORD] else np.zeros(1, np.int64)
        total = int(counts.sum())
        if not total:
            return None
        running = np.cumsum(counts)

        def quantile(q: float) -> float:
            return float(_MIDDLES_S[int(np.searchsorted(running, q * total))])

        return SampleTimes(
            count=total,
            mean_s=float((counts * _MIDDLES_S).sum() / total),
            median_s=quantile(0.5),
            p95_s=quantile(0.95),
            p99_s=quantile(0.99),
            worst_s=quantile(_WORST_QUANTILE),
        )

    def quickest_sample(self, *, worker: int) -> tuple[float, float]:
        """The time of a worker's quickest sample, and the share of processor time in what it did."""
        at = Board.record_at(worker)
        busy = self._words[at + Record.CPU_OF_NS]
        share = min(1.0, self._words[at + Record.CPU_NS] / busy) if busy else 1.0
        return self._words[at + Record.LEAST_FETCH_NS] / 1e9, share

    def oldest_sample_s(self) -> float:
        """Age of the sample that is in hand for the longest time."""
        now, oldest = time.perf_counter_ns(), 0
        for worker in self._workers():
            at = Board.record_at(worker)
            if self._words[at + Record.POSITION] >= 0 and self._words[at + Record.STATE] == BUSY:
                oldest = max(oldest, now - self._words[at + Record.SAMPLE_START_NS])
        return oldest / 1e9

    def stages(self) -> Stages:
        """What the named stages of all workers took."""
        starts = [Board.stages_at(w) for w in self._workers()]
        rows = merge_stages(read_stages(self._words[at : at + STAGE_TABLE_WORDS]) for at in starts)
        return stages_of(rows, worker_s=self.total(Record.BUSY_NS) / 1e9)

    def workers(self) -> tuple[WorkerStats, ...]:
        """Each worker that was ever started: what it did, and what it is doing now."""
        now, w = time.perf_counter_ns(), self._words
        found = []
        for worker in self._workers():
            at = Board.record_at(worker)
            if not w[at + Record.START_NS]:
                continue
            position = w[at + Record.POSITION]
            state = WORKER_STATES[w[at + Record.STATE]]
            age = (now - w[at + Record.SAMPLE_START_NS]) / 1e9 if position != NO_SAMPLE and state == "busy" else None
            found.append(
                WorkerStats(
                    worker=worker,
                    pid=w[at + Record.PID],
                    state=state,
                    samples_done=w[at + Record.SAMPLES_DONE],
                    chunks_done=w[at + Record.CHUNKS_DONE],
                    bytes_written=w[at + Record.BYTES],
                    busy_share=min(1.0, w[at + Record.BUSY_NS] / max(1, now - w[at + Record.START_NS])),
                    busy_s=w[at + Record.BUSY_NS] / 1e9,
                    page_faults=w[at + Record.FAULTS],
                    current_position=position if age is not None and position >= 0 else None,
                    current_age_s=age,
                )
            )
        return tuple(found)
