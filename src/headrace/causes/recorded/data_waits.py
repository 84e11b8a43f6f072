"""Why a loop waited for data: the whole pool too slow, workers in lock-step, or single late batches. Pure.

Waits at the distance of the workers look alike whether the pool is too slow or one worker holds up the others. The
workers themselves decide: all busy, the pool is too slow; most idle while the loop waits, one sample is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.model import Bottleneck, Cause, Confidence

from ..steps import Period, find_period, find_rhythm, of_weight
from .ceiling import Ceiling
from .processes import ProcessEvents
from .sample_parts import SampleParts, read_parts
from .shard_starts import ShardStarts, find_shard_starts
from .trainer import LoaderWaits
from .workers import Pool, Resources, read_pool, read_resources, workers_of

_BOUND_FROM = 0.10  # of the time: from here on a run waits for data rather than now and then
_SOME_FROM = 0.05
_ALL_BUSY = 0.8  # of the pool's time: above, there is no throughput to spare
_FEWEST_STEPS = 8
_FEWEST_LATE = 3  # late batches: fewer are no pattern,
_ONCE_FROM = 0.25  # unless they took this much of the time
_TAKING_FROM = 0.15  # of the time, where batches were ready: a fast loop spends some of it on taking them
_MOSTLY = 0.7


@dataclass(frozen=True, eq=False, kw_only=True)
class DataVerdict:
    """What the waits for one loader say; `cause` is None where they cost too little."""

    loader: LoaderWaits
    pool: Pool | None
    cause: Cause | None
    confidence: Confidence
    lost_s: float
    step_s: float  # a typical step without its wait
    supply_per_s: float
    demand_per_s: float
    wait_s: NDArray[np.float64]
    is_slow: NDArray[np.bool_]
    period: Period | None
    resources: Resources | None
    ready_share: float  # of the waiting that is for batches that were ready
    fetchers: tuple[ProcessEvents, ...] = ()  # who fetched: the workers, or the training process itself
    parts: SampleParts | None = None  # what samples went into, where that was recorded
    shard_starts: ShardStarts | None = None
    ceiling: Ceiling | None = None  # where the demand was measured by a replay

    @property
    def is_taking(self) -> bool:
        """Whether most of the waiting is for batches that were ready: taking them is what takes long."""
        return self.ready_share >= _MOSTLY

    @property
    def collating(self) -> float:
        """Return the share of the waiting in which workers collated."""
        return self.pool.during_waits.get("collate", 0.0) if self.pool is not None else 0.0

    @property
    def is_collating(self) -> bool:
        """Whether that is most of what workers did while the loop waited: samples are not what takes long."""
        return self.cause in {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP} and self.collating >= 0.5

    @property
    def bottleneck(self) -> Bottleneck | None:
        """Return what holds the loader back, where it is its throughput that is short."""
        if self.cause not in {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP} or self.resources is None:
            return None
        if self.is_taking:
            return Bottleneck.IPC_COPY
        if self.pool is not None and self.pool.during_waits.get("sending", 0.0) >= 0.5:
            return Bottleneck.IPC_COPY
        return None if self.is_collating else self.resources.bottleneck


def judge_data(
    loader: LoaderWaits, trainer: ProcessEvents, processes: Sequence[ProcessEvents], train_s: float
) -> DataVerdict | None:
    """Judge the waits for a loader; None for too few steps to say anything."""
    later = loader.batch > 0  # the first batch of an epoch is the epoch's start
    wait_s = loader.wait_s[later]
    steps = loader.step_s[later & np.isfinite(loader.step_s)]
    if len(wait_s) < _FEWEST_STEPS or not len(steps) or train_s <= 0:
        return None
    step_s = float(np.median(steps))
    total_s = float(wait_s.sum())
    usual_s = float(np.quantile(wait_s, 0.25))  # with two workers in lock-step half of all steps wait long
    is_slow = wait_s >= max(5 * usual_s, 0.3 * step_s, 0.02)
    workers = workers_of(loader, trainer, processes)
    pool = read_pool(loader, workers)
    resources = pool.resources if pool is not None else read_resources([trainer])
    period = _period(loader, later, wait_s, is_slow)
    ready_share = float(wait_s[loader.is_ready[later]].sum() / total_s) if total_s > 0 else 0.0
    if ready_share >= _MOSTLY:
        is_much = total_s >= _TAKING_FROM * train_s
        cause, confidence = (Cause.LOADER_THROUGHPUT if is_much else None), Confidence.CERTAIN
    else:
        cause, confidence = _cause(loader, wait_s, is_slow, period, pool, total_s / train_s)
    loop_s = float(wait_s.sum() + steps.sum())
    return DataVerdict(
        loader=loader,
        pool=pool,
        cause=cause,
        confidence=confidence,
        lost_s=total_s,
        step_s=step_s,
        supply_per_s=len(wait_s) / loop_s,
        demand_per_s=1 / step_s if step_s > 0 else 0.0,
        wait_s=wait_s,
        is_slow=is_slow,
        period=period,
        resources=resources,
        ready_share=ready_share,
        fetchers=workers or (trainer,),
        parts=_parts(workers or (trainer,), resources),
        shard_starts=find_shard_starts(loader, workers or (trainer,), later, is_slow) if cause is not None else None,
    )


def _parts(processes: Sequence[ProcessEvents], resources: Resources | None) -> SampleParts | None:
    if resources is None:
        return None
    return read_parts(
        processes,
        blocked=resources.blocked,
        no_core=resources.no_core,
        bytes_per_sample=resources.bytes_per_sample,
    )


def with_ceiling(verdict: DataVerdict, ceiling: Ceiling | None) -> DataVerdict:
    """Put the demand that was measured in the place of the one that was estimated."""
    if ceiling is None or ceiling.loader != verdict.loader.name:
        return verdict
    return replace(verdict, ceiling=ceiling, step_s=ceiling.step.value, demand_per_s=ceiling.steps_per_s)


def _cause(
    loader: LoaderWaits,
    wait_s: NDArray[np.float64],
    is_slow: NDArray[np.bool_],
    period: Period | None,
    pool: Pool | None,
    share: float,
) -> tuple[Cause | None, Confidence]:
    in_slow = float(wait_s[is_slow].sum() / wait_s.sum()) if wait_s.sum() > 0 else 0.0
    is_uneven = in_slow >= 0.7 and float(is_slow.mean()) <= 0.6
    if share < _SOME_FROM or (share < _BOUND_FROM and not is_uneven):
        return None, Confidence.CERTAIN
    if is_uneven and is_slow.sum() < _FEWEST_LATE and share < _ONCE_FROM:
        return None, Confidence.CERTAIN  # any machine has one bad moment
    num_workers = loader.num_workers
    is_rare = is_uneven and float(is_slow.mean()) <= 0.25
    if pool is None:
        # Fetched in the training process, or by workers that nobody recorded.
        is_lockstep = num_workers > 1 and period is not None and period.steps == num_workers
        if is_lockstep:
            return Cause.BATCH_LOCKSTEP, Confidence.LIKELY
        certainty = Confidence.CERTAIN if num_workers == 0 else Confidence.POSSIBLE
        return (Cause.STRAGGLER_SAMPLE if is_rare else Cause.LOADER_THROUGHPUT), certainty
    # The rare heavy sample, not the pool: others had time to spare, or most of the time goes into few samples.
    if is_rare and (pool.busy < _ALL_BUSY or pool.heavy_share >= 0.4) and not _in_step(period, num_workers, pool):
        return Cause.STRAGGLER_SAMPLE, Confidence.CERTAIN
    if num_workers > 1 and period is not None and period.steps == num_workers and is_uneven:
        if pool.busy >= _ALL_BUSY:
            return Cause.BATCH_LOCKSTEP, Confidence.CERTAIN
        return Cause.STRAGGLER_SAMPLE, Confidence.LIKELY
    if share < _BOUND_FROM and pool.busy < _ALL_BUSY:
        return None, Confidence.CERTAIN
    return Cause.LOADER_THROUGHPUT, Confidence.CERTAIN if pool.busy >= _ALL_BUSY else Confidence.LIKELY


def _in_step(period: Period | None, num_workers: int, pool: Pool) -> bool:
    return num_workers > 1 and period is not None and period.steps == num_workers and pool.busy >= _ALL_BUSY


def _period(
    loader: LoaderWaits, later: NDArray[np.bool_], wait_s: NDArray[np.float64], is_slow: NDArray[np.bool_]
) -> Period | None:
    num_workers = loader.num_workers
    batch, epoch = loader.batch[later], loader.epoch[later]
    chosen = is_slow & of_weight(np.where(is_slow, wait_s, 0.0))
    by_epoch = [batch[chosen & (epoch == one)].astype(float).tolist() for one in np.unique(epoch)]
    period = find_period(by_epoch)
    if period is None or period.steps != num_workers:
        longest = int(np.bincount(epoch).argmax())
        rhythm = find_rhythm(wait_s[epoch == longest])
        if rhythm is not None and (period is None or rhythm.steps == num_workers):
            period = rhythm
    return period
