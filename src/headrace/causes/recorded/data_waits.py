"""Why a loop waited for data: a pool too slow, workers in lock-step, starts of shards, single late batches. Pure.

Waits at the distance of the workers look alike whether the pool is too slow or one worker holds up the others. The
workers themselves decide: all busy, the pool is too slow; most idle while the loop waits, one sample is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import (
    Bottleneck,
    Cause,
    Confidence,
    EventKind,
    Finding,
    Text,
    format_bytes,
    format_seconds,
    format_share,
    three_digits,
)

from ..remedies import make_finding
from ..steps import (
    BOUND_FROM,
    SUPPLY_CAUSES,
    WAITS_FROM,
    Cost,
    StepPeriod,
    cost_of,
    find_period,
    find_rhythm,
    lockstep_rounds,
    long_wait_s,
    of_weight,
    supply_and_demand,
    waits_evidence,
)
from .ceiling import Ceiling, ceiling_evidence
from .parts import SampleParts, heavy_evidence, parts_evidence, read_parts
from .processes import ProcessEvents, covering, ends_of, starts_of, total_s
from .surroundings import CoreAccount
from .trainer import LoaderWaits
from .workers import ALL_BUSY, PoolWork, Resources, SampleEnds, read_pool, read_resources, workers_of

_HEAVY_FROM = 0.4  # of all sample time, in few samples: those are what is waited for
_FEWEST_STEPS = 8
_FEWEST_LATE = 3  # late batches: fewer are no pattern,
_ONCE_FROM = 0.25  # unless they took this much of the time, or two of them had a heavy sample each
_MOSTLY = 0.7


@dataclass(frozen=True, eq=False, kw_only=True)
class DataVerdict:
    """What the waits for one loader say; `cause` is None where they cost too little."""

    loader: LoaderWaits
    pool: PoolWork | None
    cause: Cause | None
    confidence: Confidence
    lost_s: float
    step_s: float  # a typical step without its wait
    supply_per_s: float
    demand_per_s: float
    wait_s: NDArray[np.float64]
    is_slow: NDArray[np.bool_]
    period: StepPeriod | None
    resources: Resources | None
    ready_share: float  # of the waiting that is for batches that were ready
    fetchers: tuple[ProcessEvents, ...]  # who fetched: the workers, or the training process itself
    parts: SampleParts | None  # what samples went into, where that was recorded
    ceiling: Ceiling | None  # where the demand was measured by a replay

    @property
    def late(self) -> Cost:
        """Return what the late batches cost; the worst wait is one of them, if there are any."""
        slow = self.wait_s[self.is_slow]
        return Cost(**cost_of(slow)) if len(slow) else Cost(worst_s=float(self.wait_s.max()))

    @property
    def is_taking(self) -> bool:
        """Whether most of the waiting is for batches that were ready: taking them is what takes long."""
        return self.ready_share >= _MOSTLY

    @property
    def own_share(self) -> float:
        """Return the share of the waits for ready batches that is neither the queue nor unpickling."""
        ready = self.loader.is_ready & (self.loader.batch > 0)
        return 1 - float(self.loader.get_s[ready].sum()) / max(1e-9, float(self.loader.wait_s[ready].sum()))

    @property
    def is_uneven(self) -> bool:
        """Whether batches that come late are one worker's, which is always busy while the others rest."""
        if self.cause is not Cause.STRAGGLER_SAMPLE or self.pool is None or self.loader.settings.is_ours:
            return False
        late = self.loader.batch[self.loader.batch > 0][self.is_slow] % max(2, self.loader.num_workers)
        return self.pool.is_one_busy and len(late) >= _FEWEST_STEPS and np.bincount(late).max() >= 0.9 * len(late)

    @property
    def collating(self) -> float:
        """Return the share of the waiting that is collating: by workers, or by the training process itself."""
        if self.pool is not None:
            return self.pool.during_waits.get("collate", 0.0)
        collate_s, fetch_s = (total_s(self.fetchers, kind) for kind in (EventKind.COLLATE, EventKind.FETCH))
        return collate_s / fetch_s if fetch_s else 0.0

    @property
    def is_iterable(self) -> bool:
        """Whether samples are asked for without an index."""
        samples = np.concatenate([one.of(EventKind.SAMPLE)["value"].astype(np.int64) for one in self.fetchers])
        return len(samples) > 0 and bool((samples == -1).all())

    @property
    def turns(self) -> SampleEnds | None:
        """Return how samples end, where workers stand still for most of their time."""
        is_still = self.resources is not None and self.resources.blocked >= 0.5
        return self.pool.turns if is_still and self.pool is not None and self.cause in SUPPLY_CAUSES else None

    @property
    def bottleneck(self) -> Bottleneck | None:
        """Return what holds the loader back, where it is its throughput that is short."""
        if self.cause not in SUPPLY_CAUSES or self.resources is None:
            return None
        if self.collating >= 0.5:  # a batch counts as ready before its worker, busy with the next, has sent it
            return Bottleneck.COLLATE
        if self.is_taking and not self.loader.settings.is_ours and self.own_share >= 0.5:
            return Bottleneck.SAMPLER
        if self.is_taking or (self.pool is not None and self.pool.during_waits.get("sending", 0.0) >= 0.5):
            return Bottleneck.IPC_COPY
        if self.turns is not None and self.turns.are_taken and not self.resources.bytes_per_s:
            return Bottleneck.SERIAL
        return self.resources.bottleneck


def judge_data(
    loader: LoaderWaits,
    trainer: ProcessEvents,
    processes: Sequence[ProcessEvents],
    train_s: float,
    ceiling: Ceiling | None,
    account: CoreAccount | None = None,
) -> DataVerdict | None:
    """Judge the waits for a loader; None for too few steps to say anything. A demand that was measured is taken."""
    later = loader.batch > 0  # the first batch of an epoch is the epoch's start
    wait_s = loader.wait_s[later]
    steps = loader.step_s[later & np.isfinite(loader.step_s)]
    if len(wait_s) < _FEWEST_STEPS or not len(steps) or train_s <= 0:
        return None
    step_s = float(np.median(steps))
    total_s = float(wait_s.sum())
    is_slow = wait_s >= long_wait_s(wait_s, step_s)
    workers = workers_of(loader, trainer, processes)
    pool = read_pool(loader, workers)
    resources = pool.resources if pool is not None else read_resources([trainer])
    if pool is not None and resources is not None and account is not None:
        child, threads = account.children_of_worker, account.worker_threads
        resources = replace(resources, child=child, threads=threads, cores_are_full=account.is_full)
    period = _period(loader, later, wait_s, is_slow)
    ready_share = float(wait_s[loader.is_ready[later]].sum() / total_s) if total_s > 0 else 0.0
    if ready_share >= _MOSTLY:
        # A moment of taking that is longer than usual is one without a core, as far as there were such moments.
        is_full = account is not None and account.is_full
        delay_s = account.no_core * train_s if account is not None and is_full else 0.0
        total_s -= float(min(delay_s, np.maximum(0.0, wait_s - np.median(wait_s)).sum()))
        confidence = Confidence.LIKELY if is_full else Confidence.CERTAIN
        cause = Cause.LOADER_THROUGHPUT if total_s >= BOUND_FROM * train_s else None
    else:
        cause, confidence = _cause(loader, wait_s, is_slow, period, pool, total_s / train_s)
    loop_s = float(wait_s.sum() + steps.sum())
    fetchers = workers or (trainer,)
    ceiling = ceiling if ceiling is not None and ceiling.loader == loader.name else None
    verdict = DataVerdict(
        loader=loader,
        pool=pool,
        cause=cause,
        confidence=confidence,
        lost_s=total_s,
        step_s=step_s if ceiling is None else ceiling.step.value,
        supply_per_s=len(wait_s) / loop_s,
        demand_per_s=ceiling.steps_per_s if ceiling is not None else 1 / step_s if step_s > 0 else 0.0,
        wait_s=wait_s,
        is_slow=is_slow,
        period=period,
        resources=resources,
        ready_share=ready_share,
        fetchers=fetchers,
        parts=read_parts(
            fetchers, blocked=resources.blocked, no_core=resources.no_core, bytes_per_sample=resources.bytes_per_sample
        )
        if resources is not None
        else None,
        ceiling=ceiling,
    )
    # They are in step because they wait for the same thing, or hinder each other: the rounds are how that looks.
    is_shared = verdict.bottleneck in {Bottleneck.SERIAL, Bottleneck.THREADS}
    if account is not None and account.is_full:  # of the cores, which only cheaper samples free
        is_shared |= verdict.bottleneck is Bottleneck.CPU_DECODE and cause is Cause.BATCH_LOCKSTEP
    return replace(verdict, cause=Cause.LOADER_THROUGHPUT) if is_shared else verdict


def _cause(
    loader: LoaderWaits,
    wait_s: NDArray[np.float64],
    is_slow: NDArray[np.bool_],
    period: StepPeriod | None,
    pool: PoolWork | None,
    share: float,
) -> tuple[Cause | None, Confidence]:
    in_slow = float(wait_s[is_slow].sum() / wait_s.sum()) if wait_s.sum() > 0 else 0.0
    is_uneven = in_slow >= 0.7 and float(is_slow.mean()) <= 0.6
    if share < WAITS_FROM or (share < BOUND_FROM and not is_uneven):
        return None, Confidence.CERTAIN
    heavy_s = pool.sample_s[pool.is_heavy] if pool is not None else np.zeros(0)
    are_heavy = len(heavy_s) > 1 and heavy_s.sum() >= wait_s[is_slow].sum()
    if is_uneven and is_slow.sum() < _FEWEST_LATE - are_heavy and share < _ONCE_FROM:
        return None, Confidence.CERTAIN  # any machine has one bad moment
    num_workers = loader.num_workers
    # Our workers fill each batch together: what comes in rounds there, a collation, is the pool's throughput.
    in_rounds = Cause.LOADER_THROUGHPUT if loader.settings.is_ours else Cause.BATCH_LOCKSTEP
    is_rare = is_uneven and float(is_slow.mean()) <= 0.25
    is_lockstep = num_workers > 1 and period is not None and period.steps == num_workers
    if pool is None:
        # Fetched in the training process, or by workers that nobody recorded.
        if is_lockstep:
            return in_rounds, Confidence.LIKELY
        certainty = Confidence.CERTAIN if num_workers == 0 else Confidence.POSSIBLE
        return (Cause.STRAGGLER_SAMPLE if is_rare else Cause.LOADER_THROUGHPUT), certainty
    is_busy = pool.busy >= ALL_BUSY
    # The rare heavy sample, not the pool: others had time to spare, or most of the time goes into few samples.
    if is_rare and (not is_busy or pool.heavy_share >= _HEAVY_FROM) and not (is_lockstep and is_busy):
        return Cause.STRAGGLER_SAMPLE, Confidence.CERTAIN
    if is_lockstep and is_uneven:
        if is_busy:
            return in_rounds, Confidence.CERTAIN
        return Cause.STRAGGLER_SAMPLE, Confidence.LIKELY
    if share < BOUND_FROM and not is_busy:
        return None, Confidence.CERTAIN
    return Cause.LOADER_THROUGHPUT, Confidence.CERTAIN if is_busy else Confidence.LIKELY


def _period(
    loader: LoaderWaits, later: NDArray[np.bool_], wait_s: NDArray[np.float64], is_slow: NDArray[np.bool_]
) -> StepPeriod | None:
    batch, epoch = loader.batch[later], loader.epoch[later]
    chosen = is_slow & of_weight(np.where(is_slow, wait_s, 0.0))
    period = find_period([batch[chosen & (epoch == one)].astype(float).tolist() for one in np.unique(epoch)])
    if period is None or period.steps != loader.num_workers:
        rhythm = find_rhythm(wait_s[epoch == np.bincount(epoch).argmax()])  # of the longest epoch
        if rhythm is not None and (period is None or rhythm.steps == loader.num_workers):
            period = rhythm
    return period


_BOTTLENECKS = {
    Bottleneck.CPU_DECODE: Text(
        "a task spends {cpu} of its time on a core and {no_core} waiting for a free one: computing is what takes long",
        "单个任务有 {cpu} 的时间在核心上运行，{no_core} 在等空闲核心：耗时的是计算（解码、变换）",
    ),
    Bottleneck.GIL: Text(
        "{at_once} tasks are under way at once in threads of one process, which together use {cpu} of one core: they "
        "take turns at the interpreter's lock",
        "同一进程里有 {at_once} 个任务在各自的线程中进行，合起来只用了一个核心的 {cpu}：在轮流等解释器锁（GIL）",
    ),
    Bottleneck.IO_BANDWIDTH: Text(
        "a task stands still for {blocked} of its time and reads {rate}/s meanwhile: it waits for the bandwidth",
        "单个任务有 {blocked} 的时间停住，期间读取 {rate}/s：等的是存储带宽",
    ),
    Bottleneck.IO_LATENCY: Text(
        "a task stands still for {blocked} of its time and reads only {rate}/s: it waits for answers, not for "
        "bandwidth (many small files, a network, a sleep or a lock)",
        "单个任务有 {blocked} 的时间停住，却只读取 {rate}/s：等的是响应而不是带宽（小文件多、网络、sleep 或锁）",
    ),
    Bottleneck.IPC_COPY: Text(
        "batches were ready for {ready} of the waiting, and workers sent for {sending} of it: copying between "
        "processes (pickling, mapping, unpickling) is what takes long",
        "等待中有 {ready} 的时间 batch 其实已经就绪，worker 有 {sending} 的时间在发送：耗时的是进程间传递",
    ),
    Bottleneck.SAMPLER: Text(
        "batches were ready for {ready} of the waiting, and {own} of it is inside `next` in this process: the "
        "`sampler` or `batch_sampler`, which is asked for indices there, or no free core",
        "等待中有 {ready} 的时间 batch 其实已经就绪，其中 {own} 花在本进程的 `next` 里：是生成索引的 `sampler` 或 "
        "`batch_sampler`，或没有空闲核心",
    ),
    Bottleneck.COLLATE: Text(
        "`collate_fn` is what takes long: {collating} of the time for which the loop waits, {collating_s} in all",
        "耗时的是 `collate_fn`：占训练循环等待时间的 {collating}，共 {collating_s}",
    ),
    Bottleneck.THREADS: Text(
        "a task uses {cpu} of a core and is without one for {no_core} of its time, and no core is idle: more than one "
        "thread computes in each worker ({threads} threads in each: NumPy's BLAS, OpenMP, OpenCV)",
        "单个任务占用一个核心的 {cpu}，有 {no_core} 的时间在等空闲核心：每个 worker 里不止一个线程在计算（各有 "
        "{threads} 个线程：NumPy 的 BLAS、OpenMP、OpenCV）",
    ),
    Bottleneck.SERIAL: Text(
        "workers take turns: a task stands still for {blocked} of its time, samples end {gap} apart whichever worker "
        "they are from; the shortest takes {shortest}, on average {mean}, {under_way} at once",
        "worker 在轮流等待：单个任务有 {blocked} 的时间停住；样本总是相隔 {gap} 完成一个；最短的只用 {shortest}，平均 "
        "{mean}，同时进行 {under_way} 个",
    ),
}
_ONE_BY_ONE = Text(
    "whether the workers wait for each other (a lock, one connection) or each for itself (a sleep, a network), one "
    "run with `num_workers={half}` decides: at the same rate they take turns, and more of them bring nothing",
    "worker 是在互相等待（锁、同一个连接）还是各等各的（sleep、网络），用 `num_workers={half}` 再跑一次即可判断：速度"
    "不变，说明在轮流等待，增加 worker 没有用",
)


def undecided_turns(verdict: DataVerdict) -> Iterator[Text]:
    """Yield how to tell workers that take turns from such as wait each for itself, where the recording does not."""
    if verdict.turns is not None and verdict.turns.are_taken is None and verdict.bottleneck is None:
        yield _ONE_BY_ONE.filled(half=max(1, verdict.loader.num_workers // 2))


def data_evidence(verdict: DataVerdict, share: float) -> Iterator[Text]:
    pool, cause = verdict.pool, verdict.cause
    num_workers = verdict.loader.num_workers
    if cause is Cause.BATCH_LOCKSTEP:
        yield from lockstep_rounds(verdict.period, verdict.late, num_workers)
    elif cause is Cause.STRAGGLER_SAMPLE:
        yield Text(
            "{count} of {all:batch(es)} came late and held {held} of all waiting: {each}",
            "{all} 个 batch 中有 {count} 个迟到，占全部等待的 {held}：{each}",
        ).filled(
            all=len(verdict.wait_s),
            held=format_share(verdict.late.lost_s / float(verdict.wait_s.sum())),
            **verdict.late.blanks,
        )
    else:
        yield waits_evidence(share, float(np.median(verdict.wait_s)), float(verdict.wait_s.max()))
    if verdict.resources is not None and cause is not Cause.STRAGGLER_SAMPLE:
        yield from _resource_evidence(verdict, verdict.resources)
    if cause is not Cause.STRAGGLER_SAMPLE:
        yield supply_and_demand(verdict.supply_per_s, verdict.demand_per_s)
    if verdict.ceiling is not None:
        yield ceiling_evidence(verdict.ceiling)
    if pool is not None and verdict.is_uneven:
        *others, most = sorted(pool.each_busy)
        yield _ONE_BUSY.filled(workers=num_workers, most=format_share(most), least=format_share(1 - others[-1]))
    elif pool is not None:
        if not verdict.is_taking and verdict.bottleneck is not Bottleneck.IPC_COPY:
            yield from _pool_evidence(pool, num_workers, is_straggler=cause is Cause.STRAGGLER_SAMPLE)
    elif num_workers == 0:
        yield Text(
            "num_workers=0: samples are fetched by the training process itself, one after the other",
            "num_workers=0：样本由训练进程自己逐个读取",
        )
    are_samples_slow = verdict.bottleneck not in {Bottleneck.IPC_COPY, Bottleneck.COLLATE, Bottleneck.SAMPLER}
    if verdict.parts is not None and are_samples_slow:
        yield from (heavy_evidence if cause is Cause.STRAGGLER_SAMPLE else parts_evidence)(verdict.parts)


_ONE_BUSY = Text(
    "the late batches are those of one worker of {workers}: it was busy for {most} of the waiting, any other idle for "
    "{least} of it. Its batches are heavier, or it is slower itself",
    "迟到的 batch 都出自 {workers} 个 worker 中的同一个：等待期间它有 {most} 的时间在工作，其余 worker 有 {least} 以上"
    "的时间空闲。要么重的 batch 总分给它，要么它本身就慢",
)


def _pool_evidence(pool: PoolWork, num_workers: int, *, is_straggler: bool) -> Iterator[Text]:
    meaning, only = Text("", ""), ""
    if is_straggler:
        meaning, only = Text(": there was throughput to spare", "：产能有富余"), "只"
    elif pool.busy >= ALL_BUSY:
        meaning = Text(": the whole pool is too slow", "：是整个 worker 池太慢")
    if not is_straggler or pool.busy < ALL_BUSY or pool.heavy_share < _HEAVY_FROM:
        yield Text(
            "the {workers:worker(s) (was|were)} busy for {busy} of the waiting{meaning}",
            "等待期间，{workers} 个 worker {only}有 {busy} 的时间在工作{meaning}",
        ).filled(workers=num_workers or pool.num_seen, busy=format_share(pool.busy), only=only, meaning=meaning)
    if len(pool.sample_s) >= 8:
        worst = int(np.argmax(pool.sample_s))
        index = int(pool.sample_index[worst])
        yield Text(
            "a sample takes {median} typically, {worst} at worst{which}", "单个样本通常 {median}，最长 {worst}{which}"
        ).filled(
            median=format_seconds(float(np.median(pool.sample_s))),
            worst=format_seconds(float(pool.sample_s[worst])),
            which=f" ({index})" if index >= 0 and is_straggler else "",
        )
    slowest_first = pool.sample_index[np.argsort(-pool.sample_s, kind="stable")[: int(pool.is_heavy.sum())]].tolist()
    if is_straggler and (indices := [index for index in dict.fromkeys(slowest_first) if index != -1]):
        shown = ", ".join(map(str, indices[:8])) + (" …" if len(indices) > 8 else "")
        yield Text(
            "samples of more than five times that: {count}, with the indices {indices}, the slowest first",
            "超过其五倍的样本：{count} 个，由慢到快的索引为 {indices}",
        ).filled(count=int(pool.is_heavy.sum()), indices=shown)


def _resource_evidence(verdict: DataVerdict, resources: Resources) -> Iterator[Text]:
    bottleneck, pool = verdict.bottleneck, verdict.pool
    if bottleneck is None and resources.blocked >= 0.5:
        yield Text(
            "a task stands still for {blocked} of its time and reads nothing by `read`: a sleep, a lock, a mapped file",
            "单个任务有 {blocked} 的时间停住，且没有通过 `read` 读取数据：sleep、锁或内存映射的文件",
        ).filled(blocked=format_share(resources.blocked))
    elif resources.waits_for_child:
        yield Text(
            "a task stands still while a program that it starts computes ({child} of a core): that is what takes long",
            "任务在等它启动的程序计算（占一个核心的 {child}）：耗时的是该程序的计算",
        ).filled(child=format_share(resources.child))
    elif bottleneck is not None:
        several, turns = Text("several", "多"), {} if verdict.turns is None else verdict.turns.blanks
        yield _BOTTLENECKS[bottleneck].filled(
            **turns,
            cpu=format_share(resources.cpu if bottleneck is Bottleneck.THREADS else min(1.0, resources.cpu)),
            at_once=three_digits(resources.at_once),
            threads=resources.threads or several,
            collating=format_share(verdict.collating),
            collating_s=format_seconds(verdict.collating * verdict.lost_s),
            no_core=format_share(resources.no_core),
            blocked=format_share(resources.blocked),
            rate=format_bytes(int(resources.bytes_per_s / max(0.01, resources.blocked))),
            ready=format_share(verdict.ready_share),
            own=format_share(verdict.own_share),
            sending=format_share(pool.during_waits.get("sending", 0.0) if pool is not None else 0.0),
        )


# ---------------------------------------------------------------------------------------- starts of shards

# A late batch at a shard's start looks like a straggler, and shards of one size look like workers in lock-step. Two
# things decide: the late batches are those in whose task a shard was opened, and such tasks take much longer than the
# others. Where every task opens one, or opening is quick, shards are not what is waited for.
_FEWEST_STARTS = 3  # tasks that open a shard: fewer are no pattern
_MOST_OF_TASKS = 0.5  # where more tasks than that open one, that is how samples are read
_TIMES_LONGER = 2.0
_LONGER_S = 0.02
_MOST_OF_LATE = 0.6  # of the waiting for late batches
_COVERED = 0.5  # of a wait, where batches cannot be told apart


def find_shard_starts(
    loader: LoaderWaits, workers: Sequence[ProcessEvents], is_late: NDArray[np.bool_], train_s: float
) -> Finding | None:
    """Return what starts of shards cost the loop; None where it does not wait for them."""
    # `is_late` tells of the batches but the first of each epoch which came late.
    later = loader.batch > 0
    if not is_late.any() or not any(len(worker.of(EventKind.SHARD_OPEN)) for worker in workers):
        return None
    tasks, opened, names = _tasks(workers)
    length_s = tasks["duration_ns"] / 1e9
    is_later = starts_of(tasks) >= int(loader.end_ns[0])  # what began before belongs to the epoch's start
    opens, others = (opened > 0) & is_later, (opened == 0) & is_later
    if opens.sum() < _FEWEST_STARTS or not others.any() or opens.sum() > _MOST_OF_TASKS * is_later.sum():
        return None
    with_start_s, without_s = float(np.median(length_s[opens])), float(np.median(length_s[others]))
    if with_start_s < max(_TIMES_LONGER * without_s, without_s + _LONGER_S):
        return None
    wait_s = loader.wait_s[later]
    at_start = _begin_shards(loader, tasks, opened > 0, later, is_late)
    of_late = float(wait_s[at_start].sum() / wait_s[is_late].sum())
    if at_start.sum() < _FEWEST_STARTS or of_late < _MOST_OF_LATE:
        return None
    cost = Cost(**cost_of(wait_s[at_start]))
    evidence = [
        Text(
            "{count} late batches were made by tasks that opened a shard: {lost} in all, {each}, {share} of the "
            "waiting for late batches",
            "有 {count} 个迟到的 batch，其任务打开了新的分片（shard）：共等 {lost}，{each}，占迟到等待的 {share}",
        ).filled(share=format_share(of_late), **cost.blanks),
        Text(
            "a task that opens a shard takes {with_start} typically, one that does not {without}; "
            "{opened:shard(s) (was|were)} opened, one every {every} tasks",
            "打开分片的任务通常要 {with_start}，否则 {without}；共打开 {opened} 个分片，约每 {every} 个任务一次",
        ).filled(
            with_start=format_seconds(with_start_s),
            without=format_seconds(without_s),
            opened=int(opened.sum()),
            every=three_digits(len(tasks) / float(opened.sum())),
        ),
    ]
    if slowest := names[int(np.argmax(np.where(opens, length_s, 0.0)))]:
        evidence.append(Text("the slowest: {name}", "最慢的是 {name}").filled(name=slowest))
    figures = {"lost_s": cost.lost_s, "count": float(cost.count)}
    return make_finding(Cause.SHARD_BOUNDARY, cost.lost_s / train_s, evidence, figures=figures)


def _tasks(workers: Sequence[ProcessEvents]) -> tuple[NDArray[Any], NDArray[np.int64], list[str]]:
    """Return all tasks in the order of their ends, how many shards each opened, and the name of its first shard."""
    tasks, opened, names = [], [], []
    for worker in workers:
        fetches, openings = worker.of(EventKind.FETCH), worker.of(EventKind.SHARD_OPEN)
        first, last = (np.searchsorted(starts_of(openings), edge(fetches)) for edge in (starts_of, ends_of))
        args = [int(openings["arg"][low]) if high > low else 0 for low, high in zip(first, last, strict=True)]
        tasks.append(fetches)
        opened.append(last - first)
        names += [worker.names.get(arg, "") for arg in args]
    whole = np.concatenate(tasks)
    order = np.argsort(ends_of(whole), kind="stable")
    return whole[order], np.concatenate(opened)[order], [names[place] for place in order]


def _begin_shards(
    loader: LoaderWaits,
    tasks: NDArray[Any],
    opens: NDArray[np.bool_],
    later: NDArray[np.bool_],
    is_late: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return which of the late batches were made by a task that opened a shard."""
    starts, ends, batch = loader.start_ns[later], loader.end_ns[later], loader.batch[later]
    if loader.settings.is_ours:
        # several tasks fill a batch: the loop waited at a shard's start if such a task covers the wait
        covered = covering(tasks[opens]).between(starts, ends)
        return np.asarray(is_late & (covered >= _COVERED * np.maximum(ends - starts, 1)))
    by_batch = np.argsort(tasks["value"], kind="stable")  # of each number one task an epoch, in the order of their ends
    numbers, task_ends = tasks["value"][by_batch], ends_of(tasks)[by_batch]
    found = np.zeros(len(batch), bool)
    for place in np.flatnonzero(is_late):
        low, high = np.searchsorted(numbers, [batch[place], batch[place] + 1])
        made = low + np.searchsorted(task_ends[low:high], ends[place], side="right") - 1  # the last before it came
        found[place] = made >= low and bool(opens[by_batch[made]])
    return found
