"""What would help and by how much, from measured service times; withheld where noise is larger than the effect. Pure.

The loop makes a step when it has a batch: a step takes as long as the slower of the two, its own work (the demand) and
the pool's time for a batch (the supply). A remedy makes the pool so many times as fast; what the loop then no longer
waits is what it gains, never more than it lost to waiting. The error is half of the 95 % interval of the gain when the
step, the pool's time for a batch and the remedy's own factor are drawn within their errors.
"""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.model import Bottleneck, LoaderSettings, PartKind, Text, format_share, three_digits, with_error

from .ceiling import Mean, mean_of
from .data_waits import DataVerdict
from .surroundings import Surroundings

_FEWEST_TASKS = 12
_WORTH = 1.05
_HEADROOM = 1.05  # as many workers as needed on average are late half of the time
_PER_DOUBLING = 0.1  # of the factor: the further from what was measured, the less sure it is
# of a gain: the least error. Runs that were changed as told and run again came within 1.3 % of it on a quiet machine
# (benchmarks/results/gain_check.json), within 26 % on cores that others filled four times over.
# Public scripts that got their first worker came within 9 % (docs/reference/run-score.md).
_MODEL_ERROR, _FIRST_ERROR, _CROWDED_ERROR = 0.05, 0.1, 0.25
_UNSURE_STEP = 0.05  # of a step: no two runs take the same, and loop and pool share cores and memory
_DRAWS = 500
_FASTER = 2.0  # times: what a faster decoder is taken for
_WORTH_SENDING_S = 0.01  # of fetching a batch: for less, the way from a worker to the loop takes as long
_START_S = 0.1  # of the workers of a pass
_SLICE = 0.5  # of a core: what hardly computes finds its slice on a machine without an idle core, too
_NO_CORE_FROM = 0.1  # of a task's time: who waits so long for a core, on full ones, takes it from others
# times as many workers as ran: the most that is told. Of tasks that stand still nobody knows what they share: there
# twice as many, and a look at that run.
_MOST_TIMES, _MOST_TIMES_STILL = 4, 2
_DISK_FULL = 0.9  # of the time with a request in flight: more readers would queue
_HIDDEN = 0.9  # of a save that is made beside the training: the state is copied first,
_HIDDEN_ERROR = 0.1  # and how long that takes is not known here
_FEWEST_SAMPLES = 12


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """So many times as fast the training would be, give or take, by a remedy."""

    name: str  # of the remedy, in figures
    gain: float
    error: float
    text: Text
    workers: int = 0  # that are advised

    @property
    def is_shown(self) -> bool:
        """Whether it is worth telling, and larger than its error."""
        return self.gain >= _WORTH and self.gain - 1 > self.error

    @property
    def figures(self) -> dict[str, float]:
        workers = {self.name: float(self.workers)} if self.workers else {}
        return {f"{self.name}_gain": self.gain, f"{self.name}_gain_error": self.error, **workers}


def _told(name: str, said: Text, gain: float, error: float, *, workers: int = 0, **blanks: Any) -> Estimate:
    """Return the estimate that a sentence with `{gain}` tells."""
    text = said.filled(gain=with_error(gain, error), workers=workers, **blanks)
    return Estimate(name=name, gain=gain, error=error, text=text, workers=workers)


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What was measured of a loop and its pool."""

    train_s: float
    lost_s: float  # in waiting
    num_steps: int
    step: Mean  # seconds of a step without its wait
    batch: Mean  # seconds in which the pool as it is makes one batch
    model_error: float = _MODEL_ERROR
    tasks: float = 1.0  # share of that which is fetching: a loop that fetches itself takes its step, too

    @property
    def deficit(self) -> float:
        """Return demand / supply: how many times as fast the pool would have to be."""
        return self.batch.value / self.step.value if self.step.value > 0 else math.inf

    def factor(self, saved: float) -> float:
        """Return how many times as fast the pool is if tasks take this share of their time less."""
        return 1 / max(0.01, 1 - min(1.0, saved) * self.tasks)

    def gain_with(self, factor: float, *, added_s: float = 0.0) -> tuple[float, float]:
        """Return the gain of a pool that is so many times as fast, and its error; it takes `added_s` to start."""
        factor_error = _PER_DOUBLING * math.log2(max(1.0, factor)) * 1.96

        def gains(step: Any, batch: Any, factor: Any, most_s: float = math.inf) -> Any:
            saved_s = self.num_steps * (np.maximum(step, batch) - np.maximum(step, batch / factor))
            left_s = self.train_s + added_s - np.clip(saved_s, 0.0, most_s)
            return self.train_s / np.maximum(left_s, 0.01 * self.train_s)

        draws = np.random.default_rng(0).standard_normal((3, _DRAWS)) / 1.96
        step = np.maximum(0.0, self.step.value + _finite(self.step.error) * draws[0])
        batch = np.maximum(0.0, self.batch.value + _finite(self.batch.error) * draws[1])
        low, high = np.quantile(gains(step, batch, factor * np.exp(factor_error * draws[2])), [0.025, 0.975])
        gain = float(gains(self.step.value, self.batch.value, factor, self.lost_s))
        return gain, max(float(high - low) / 2, self.model_error * gain)


def supply_of(verdict: DataVerdict, train_s: float, *, device: tuple[float, float] | None = None) -> Supply | None:
    """Return what the estimates rest on; None where too little was recorded of the pool."""
    pool, loader = verdict.pool, verdict.loader
    num_tasks = pool.num_tasks if pool is not None else len(verdict.wait_s) if loader.settings.num_workers == 0 else 0
    if num_tasks < _FEWEST_TASKS or verdict.supply_per_s <= 0 or verdict.step_s <= 0:
        return None
    chosen = (loader.batch > 0) & np.isfinite(loader.step_s)
    workers = max(1, loader.num_workers)
    real = mean_of((loader.wait_s + loader.step_s)[chosen], round_length=workers)
    step = verdict.ceiling.step if verdict.ceiling is not None else mean_of(loader.step_s[chosen])
    taking = _taking(verdict)
    step_s = step.value + taking.value
    # A host that has its batches launches while the device works: what it stands waiting for it may go away, until the
    # device is busy all the time.
    hidden_s = 0.0
    if device is not None and verdict.ceiling is None:
        busy, waits = device
        hidden_s = max(0.0, min(step_s - busy * real.value, waits * real.value)) / 2
    unsure_s = max(_UNSURE_STEP * step_s, hidden_s)
    # What the pool could do is what it did, over the time in which it worked.
    batch_s = max(pool.batch_s, 0.05 * real.value) if pool is not None else real.value
    return Supply(
        train_s=train_s,
        lost_s=verdict.lost_s + hidden_s * len(verdict.wait_s),
        num_steps=len(verdict.wait_s),
        step=Mean(step_s - hidden_s, math.hypot(_finite(step.error), unsure_s, taking.error), step.count),
        batch=Mean(batch_s, batch_s / max(real.value, 1e-9) * real.error, real.count),
        model_error=_CROWDED_ERROR if verdict.resources and verdict.resources.cores_are_full else _MODEL_ERROR,
        tasks=1.0 if pool is not None else max(0.01, 1 - step_s * verdict.supply_per_s),
    )


def _taking(verdict: DataVerdict) -> Mean:
    """Return what taking a batch that is ready adds to a step: with batches in plenty that is all that is left."""
    # Where most of the waiting was for batches in the queue, that is the taking. Else a wait for one in the queue may
    # be for the worker that puts it there, whose thread for that stands back behind its next samples: the least that it
    # took is the most that taking takes.
    loader = verdict.loader
    ready = loader.wait_s[loader.is_ready & (loader.batch > 0)]
    if len(ready) < _FEWEST_TASKS:
        return Mean(0.0, 0.0, 0)
    if verdict.is_taking:
        return Mean(min(float(np.median(ready)), float(np.median(loader.wait_s))), 0.0, len(ready))
    least_s = float(np.quantile(ready, 0.05))
    return Mean(least_s / 2, least_s / 2, len(ready))


def estimate_data(
    verdict: DataVerdict,
    train_s: float,
    cores: float,
    around: Surroundings | None,
    *,
    ranks: int = 1,
    device: tuple[float, float] | None = None,
) -> list[Estimate]:
    """Return what would help against waiting for data, as far as it is worth telling; more workers first.

    `device`: where it trains on one, the shares of the time in which that had work, and in which the loop stood for it.
    """
    supply, resources = supply_of(verdict, train_s, device=device), verdict.resources
    if supply is None or resources is None:
        return []
    more = _estimate_more_workers(verdict, supply, cores, around, ranks)
    # None fits beside the loop's own core: then on that core, too, while the loop waits.
    found = [more or _estimate_more_workers(verdict, supply, cores + ranks, around, ranks, is_full=True)]
    if verdict.bottleneck in {Bottleneck.CPU_DECODE, Bottleneck.GIL}:
        found.append(_estimate_part(verdict, supply) or _faster_decode(supply, 1 - resources.blocked, _FASTER_DECODE))
    elif verdict.bottleneck in {Bottleneck.IO_BANDWIDTH, Bottleneck.IO_LATENCY} and resources.bytes_per_s > 0:
        gain, error = supply.gain_with(supply.factor(resources.blocked))
        found.append(_told("warm_cache", _WARM_CACHE, gain, error, share=format_share(resources.blocked)))
    return [one for one in found if one is not None and one.is_shown]


def _estimate_more_workers(
    verdict: DataVerdict, supply: Supply, cores: float, around: Surroundings | None, ranks: int, is_full: bool = False
) -> Estimate | None:
    """Estimate the least number of workers that feed the loop; None where more would not help, or nobody knows."""
    current, account = verdict.loader.num_workers, around.account if around is not None else None
    if verdict.loader.settings.tunes_itself or (is_full and account is None):
        return None
    most = _most_that_help(verdict, supply, cores, around, ranks)
    needed = _needed_workers(supply, current)
    helping = min(needed, most)
    times = _MOST_TIMES_STILL if verdict.bottleneck is None else _MOST_TIMES
    workers = min(helping, times * current) if current else helping
    if workers <= current:
        return None
    # The first ones: each pass starts them, and waits for a first batch with nothing beside it.
    starts = 0.0 if current else float(np.count_nonzero(verdict.loader.batch == 0))
    added_s = starts * (_START_S + supply.batch.value * supply.tasks)
    gain, error = supply.gain_with(workers / max(1, current) / supply.tasks, added_s=added_s)
    error = max(error, 0.0 if current else _FIRST_ERROR * gain)
    if is_full and account is not None:  # all cores full: that is the most, and what it costs is not measured
        gain = min(gain, 1 + account.idle / max(account.trainer + account.workers + account.ranks, 1e-9))
        error = max(error, _CROWDED_ERROR * gain)
    more = _FURTHER if workers < helping else _SHORT if needed > most else Text("", "")
    return _told("more_workers", _MORE_WORKERS, gain, error, workers=workers, more=more)


def _needed_workers(supply: Supply, current: int) -> int:
    """Return how many workers feed the loop; the first takes over from the loop itself, and so does its core."""
    return math.ceil(supply.deficit * supply.tasks * max(1, current) * _HEADROOM)


def _most_that_help(verdict: DataVerdict, supply: Supply, cores: float, around: Surroundings | None, ranks: int) -> int:
    """Return up to how many workers each makes as many batches as one of those that are there; those, if none more."""
    # A worker makes as many batches a second as one of those that are there, as long as cores are free for its CPU
    # time. A disk or a lock that is at its limit serves more of them no faster.
    resources, current = verdict.resources, verdict.loader.num_workers
    if resources is None or verdict.bottleneck in {Bottleneck.GIL, Bottleneck.THREADS, Bottleneck.SAMPLER}:
        return current
    if resources.waits_for_child and resources.child < _SLICE:
        return current  # what that program waits for is not seen
    taken = verdict.turns.are_taken if verdict.turns is not None else False
    if taken or (taken is None and verdict.bottleneck is not Bottleneck.IO_LATENCY):
        return current  # they wait for each other, or may do so
    if verdict.bottleneck in {Bottleneck.IO_BANDWIDTH, Bottleneck.IPC_COPY, None} and resources.bytes_per_s > 0:
        return current
    if verdict.bottleneck is Bottleneck.IO_LATENCY and around is not None and (around.disk_busy or 0.0) >= _DISK_FULL:
        return current
    account = around.account if around is not None else None
    if resources.no_core >= _NO_CORE_FROM and (account is None or account.is_full):
        return current
    if not current:  # the first ones: an iterable gives all to each of them unless it is told not to
        is_idle = account is None or account.idle >= _SLICE * resources.cpu
        if supply.batch.value * supply.tasks < _WORTH_SENDING_S or verdict.is_iterable or not is_idle:
            return current
    # Other ranks need likewise.
    idle = account.idle / ranks if account is not None else None
    return max(current, most_workers(max(1, current), resources.cpu + resources.child, cores / ranks, idle))


@dataclass(frozen=True, kw_only=True)
class WorkerForecast:
    """What a recorded training would do with other numbers of workers: an estimate from its service times."""

    loader: str  # the class of its data set
    settings: LoaderSettings
    supply: Supply
    needed: int  # workers that feed the loop
    most: int  # up to so many bring as much as one of those that are there; no more than those, where more do not help
    bottleneck: Bottleneck | None

    @property
    def current(self) -> int:
        return self.settings.num_workers or 0

    @property
    def workers(self) -> int:
        """Return the least number that feeds the loop, as far as more help."""
        return min(self.needed, self.most)

    def steps_per_s(self, workers: int) -> Mean:
        """Return steps a second with so many workers, and the error."""
        supply, ahead = self.supply, max(1, self.current)
        fetch_s = supply.batch.value * supply.tasks * ahead
        pool_s = fetch_s / max(1, workers) if workers else fetch_s + supply.step.value
        step_s = max(supply.step.value, pool_s)
        known = supply.batch if pool_s >= supply.step.value else supply.step
        doublings = abs(math.log2(max(1, workers) / ahead))
        errors = (_finite(known.error) / max(known.value, 1e-9), _PER_DOUBLING * doublings, supply.model_error)
        return Mean(1 / step_s, math.hypot(*errors) / step_s, known.count)


def forecast_workers(
    verdict: DataVerdict,
    train_s: float,
    cores: float,
    around: Surroundings | None,
    *,
    ranks: int = 1,
    step_s: float | None = None,
) -> WorkerForecast | None:
    """Return the forecast for a loader; None where too little was recorded. `step_s` is another demand than its own."""
    supply = supply_of(verdict, train_s)
    if supply is None:
        return None
    if step_s is not None:
        supply = replace(supply, step=Mean(step_s, 0.0, supply.step.count))
    return WorkerForecast(
        loader=verdict.loader.name,
        settings=verdict.loader.settings,
        supply=supply,
        needed=_needed_workers(supply, verdict.loader.num_workers),
        most=_most_that_help(verdict, supply, cores, around, ranks),
        bottleneck=verdict.bottleneck,
    )


def most_workers(current: int, cpu_share: float, cores: float, idle_cores: float | None) -> int:
    """Return how many workers the cores can carry, each with so much of one; one core is the training's own.

    >>> most_workers(2, 1.0, cores=8, idle_cores=None), most_workers(2, 1.0, cores=8, idle_cores=3.2)
    (7, 5)
    """
    on_core = min(1.0, max(cpu_share, 0.01))
    most = math.floor(max(1.0, cores - 1) / on_core)
    return most if idle_cores is None else min(most, current + math.floor((idle_cores + _SLICE) / on_core))


def estimate_async_checkpoint(lost_s: float, train_s: float) -> list[Estimate]:
    """Estimate what saving beside the training would bring, where saves cost `lost_s`; nothing where that is little."""
    saved_s = _HIDDEN * lost_s
    if not 0 < saved_s < train_s:
        return []
    gain = train_s / (train_s - saved_s)
    error = train_s / max(train_s - saved_s - _HIDDEN_ERROR * lost_s, 0.01 * train_s) - gain
    error = max(error, _MODEL_ERROR * gain)
    estimate = _told("async_checkpoint", _ASYNC_CHECKPOINT, gain, error)
    return [estimate] if estimate.is_shown else []


def _faster_decode(supply: Supply, share: float, said: Text, **blanks: Any) -> Estimate | None:
    """Estimate what it brings if a share of every task takes half as long."""
    if share <= 0:
        return None
    gain, error = supply.gain_with(supply.factor(share * (1 - 1 / _FASTER)))
    return _told("faster_decode", said, gain, error, share=format_share(share), **blanks)


def _finite(error: float) -> float:
    return error if math.isfinite(error) else 1.0


_FURTHER = Text(
    "; then look again with `headrace run`: whether still more of them help depends on what they share",
    "；然后用 `headrace run` 再看：继续增加是否有用，取决于它们是否共用什么",
)
_SHORT = Text(
    "; more would be needed, but the cores are used up then: less to compute for a batch is the rest",
    "；要完全跟上还需更多，但那时核心已用尽，其余只能靠减少每个 batch 的计算",
)
_MORE_WORKERS = Text(
    "num_workers={workers}: about {gain} times as fast by estimate (demand × time of a batch in the pool = workers "
    "needed){more}",
    "num_workers={workers}：估计快到 {gain} 倍（需求 × 池子产出一个 batch 的时间 = 所需 worker 数）{more}",
)
_FASTER_DECODE = Text(
    "a decoder or transform twice as fast: about {gain} times as fast by estimate (half of the {share} of a task that "
    "is computing goes away)",
    "解码或变换快一倍：估计快到 {gain} 倍（任务中占 {share} 的计算时间减半）",
)
_WARM_CACHE = Text(
    "data in memory or on a faster disk: up to {gain} times as fast by estimate (the {share} of a task that waits for "
    "bytes goes away)",
    "数据放进内存或更快的盘：估计最多快到 {gain} 倍（任务中占 {share} 的等读取时间全部省去）",
)
_ASYNC_CHECKPOINT = Text(
    "`torch.distributed.checkpoint.async_save`: about {gain} times as fast by estimate (a tenth of a save stays, give "
    "or take as much: copying the state)",
    "`torch.distributed.checkpoint.async_save` 异步保存：估计快到 {gain} 倍（每次保存约剩十分之一，误差也约十分之一："
    "复制状态的时间）",
)
_ADVICE = {
    "Pillow": Text(
        "`headrace.codecs.jpeg` or `.png` instead of Pillow, at the size that is needed",
        "用 `headrace.codecs.jpeg`、`headrace.codecs.png` 代替 Pillow，并直接解码到所需尺寸",
    ),
    "nibabel": Text("`headrace.codecs.nifti` instead of nibabel", "用 `headrace.codecs.nifti` 代替 nibabel"),
    "numpy.load": Text(
        "`headrace.codecs.npz` instead of `numpy.load`, or uncompressed arrays",
        "用 `headrace.codecs.npz` 代替 `numpy.load`，或保存为不压缩的数组",
    ),
    "torch.load": Text(
        "arrays in NPZ or safetensors instead of `torch.load`, which unpickles",
        "用 NPZ 或 safetensors 保存数组，代替需要反序列化的 `torch.load`",
    ),
    "cv2": Text(
        "`headrace.codecs.jpeg` at the size that is needed, or smaller pictures on disk",
        "用 `headrace.codecs.jpeg` 直接解码到所需尺寸，或在磁盘上存更小的图",
    ),
}
_CHEAPER_DECODE = Text("cheaper decoding ({name})", "降低解码开销（{name}）")
_CHEAPER_TRANSFORM = Text(
    "cheaper transforms ({name}), or on the device for a whole batch",
    "降低变换开销（{name}），或放到设备上对整个 batch 做",
)
_CROP_FIRST = Text(
    "cheaper transforms ({name}): crop before resize, or on the device for a whole batch",
    "降低变换开销（{name}）：先裁剪再缩放，或放到设备上对整个 batch 做",
)
# Of one that crops and resizes at once, the order is its own.
_CROPS, _RESIZES = (
    re.compile(r"^(?!.*resize).*crop", re.IGNORECASE),
    re.compile(r"^(?!.*crop).*(resize|zoom)", re.IGNORECASE),
)
_CHEAPER_STAGE = Text('a cheaper "{name}", the largest stage of a sample', "优化“{name}”，它是样本里最耗时的阶段")
_OF_PART = Text(
    "{what}: if twice as fast, the training is about {gain} times as fast by estimate, at most {most} times if it "
    "cost nothing (it takes {share} of a task, the rest stays)",
    "{what}：若快一倍，训练估计快到 {gain} 倍；若完全不耗时，最多 {most} 倍（它占任务时间的 {share}，其余不变）",
)


def _estimate_part(verdict: DataVerdict, supply: Supply) -> Estimate | None:
    """Estimate what it brings if the part that takes most of a task is twice as fast, the others as they are."""
    parts = verdict.parts
    if parts is None or parts.num_samples < _FEWEST_SAMPLES or parts.total_s <= 0:
        return None
    candidates = [part for part in parts.parts if part.kind is not PartKind.READ]
    part = max(candidates, key=lambda one: one.worked_s, default=None)
    if part is None:
        return None
    if part.kind is PartKind.DECODE:
        what = _ADVICE.get("cv2" if part.name.startswith("cv2.") else part.name, _CHEAPER_DECODE)
    elif part.kind is PartKind.STAGE:
        what = _CHEAPER_STAGE
    else:
        seen = [any(map(kind.search, (one.name for one in candidates))) for kind in (_CROPS, _RESIZES)]
        what = _CROP_FIRST if all(seen) else _CHEAPER_TRANSFORM
    share = part.worked_s / parts.total_s * parts.task_share
    most = three_digits(supply.gain_with(supply.factor(share))[0])
    found = _faster_decode(supply, share, _OF_PART, what=what.filled(name=part.name), most=most)
    return found if found is not None and found.is_shown else None
