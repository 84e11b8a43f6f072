"""What a training would do with a perfect loader, measured by a replay: its ceiling, and accelerator utilisation. Pure.

Accelerator utilisation (AU) is MLPerf Storage's: total compute time / total running time, in per cent, where the first
step of an epoch counts in neither, and running time does not hold checkpoints and evaluation. There compute time is
known beforehand, for it is a sleep; here it is the number of real steps times what a step took on cached batches.

Steps are not independent: workers in lock-step make one long wait in every round. So the spread of a mean is taken
between means of blocks that hold whole rounds, and its error is the half-width of the interval that holds it in 95 % of
cases.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.model import Activity, EventKind, Text, format_seconds, format_share, three_digits, with_error

from .processes import Coverage, ProcessEvents, Times, covering, ends_of, starts_of
from .trainer import REPLAY_NOT_DONE, Trainer
from .workers import workers_of

_FEWEST_BLOCKS = 4
_MOST_BLOCKS = 30
_SETTLING = 2  # steps: the loop has just come out of a wait
_FEWEST = 8
_OUTSIDE = (Activity.CHECKPOINT, Activity.EVALUATION, Activity.REPLAY)  # what AU's running time does not hold
# Beside the steps, in the real ones and in the cached ones: a save that happens to fall into the one or the other says
# nothing of the loader. Copies to the device are in both.
_BESIDE = (Activity.CHECKPOINT, Activity.EVALUATION, Activity.LOGGING, Activity.GC, Activity.PHASE)


@dataclass(frozen=True)
class Mean:
    """A mean and its error, half of the 95 % interval; infinite where there are too few values to tell."""

    value: float
    error: float
    count: int


def mean_of(values: NDArray[np.float64], *, round_length: int = 1) -> Mean:
    """Return the mean of a sequence and its error; a round is so many values long.

    >>> mean_of(np.tile([0.0, 0.0, 3.0], 20), round_length=3)
    Mean(value=1.0, error=0.0, count=60)
    """
    count = len(values)
    if not count:
        return Mean(0.0, math.inf, 0)
    value = float(np.mean(values))
    rounds = count // max(1, round_length)
    if rounds < _FEWEST_BLOCKS:
        round_length, rounds = 1, count  # too short for rounds: the values themselves are all there is
    if rounds < _FEWEST_BLOCKS:
        return Mean(value, math.inf, count)
    per_block = max(1, rounds // _MOST_BLOCKS) * max(1, round_length)
    blocks = count // per_block
    means = values[: blocks * per_block].reshape(blocks, per_block).mean(axis=1)
    error = student(blocks - 1) * float(np.std(means, ddof=1)) / math.sqrt(blocks)
    return Mean(value, error, count)


def student(freedom: int) -> float:
    """Return how many standard errors hold 95 %, to 4 % from 3 degrees of freedom on.

    >>> round(student(3), 1), round(student(10), 2), round(student(1000), 2)
    (3.1, 2.23, 1.96)
    """
    return 1.96 + 2.37 / freedom + 2.82 / freedom**2


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    loader: str
    num_served: int  # steps on cached batches
    step: Mean  # seconds of such a step; of those that count
    is_undisturbed: bool  # no worker made a batch meanwhile
    has_copied: bool  # each time a copy was given, whose time is not in the steps
    real: Mean  # seconds of a real step with its wait, without what interrupts training
    au: float  # 0 to 1
    gain: float  # of the whole training, with a perfect loader
    gain_error: float
    ran_to_end: bool  # the loop went on until the loader had no more: nothing was left out

    @property
    def steps_per_s(self) -> float:
        """Return the rate with a perfect loader."""
        return 1 / self.step.value if self.step.value > 0 else 0.0


def measure_ceiling(trainer: Trainer, processes: Sequence[ProcessEvents]) -> Ceiling | None:
    """Return what a replay measured; None where there was none, or too few steps on either side."""
    process = trainer.process
    cached = process.of(EventKind.CACHED)
    replays = process.of(EventKind.REPLAY)
    replays = replays[replays["value"] >= 0]
    if len(cached) < _FEWEST:
        return None
    lead = int(replays["arg"][0]) if len(replays) else int(np.bincount(cached["arg"]).argmax())
    name = process.names.get(lead, "loader")
    loader = next((one for one in trainer.loaders if one.name == name), None)
    if loader is None:
        return None
    served = cached[cached["arg"] == lead]
    tasks = covering(*(one.of(EventKind.FETCH) for one in workers_of(loader, process, processes)))
    steps, is_undisturbed = _cached_steps(trainer, served, ends_of(replays), tasks)
    step = mean_of(steps)
    # The real steps, each from `next` to `next`, but the first of each epoch.
    batch, epoch = loader.batch, loader.epoch
    follows = (batch[1:] == batch[:-1] + 1) & (epoch[1:] == epoch[:-1]) & (batch[:-1] > 0)
    begin, end = loader.start_ns[:-1][follows], loader.start_ns[1:][follows]
    beside = trainer.covered_by(*_BESIDE, Activity.REPLAY)
    real = mean_of((end - begin - beside.between(begin, end)) / 1e9, round_length=max(1, loader.num_workers))
    if step.count < _FEWEST or real.count < _FEWEST or step.value <= 0:
        return None
    running_s = float((end - begin - trainer.covered_by(*_OUTSIDE).between(begin, end)).sum()) / 1e9
    beside_s = sum(map(trainer.seconds, _BESIDE))  # stays as it is
    then_s = real.count * min(step.value, real.value) + beside_s
    gain = (real.count * real.value + beside_s) / then_s
    return Ceiling(
        loader=name,
        num_served=len(served),
        step=step,
        is_undisturbed=is_undisturbed,
        has_copied=bool(np.median(served["duration_ns"]) > 0.02e9 * step.value),
        real=real,
        au=min(1.0, step.value * len(begin) / running_s) if running_s > 0 else 0.0,
        gain=gain,
        gain_error=real.count * float(np.hypot(real.error, gain * step.error)) / then_s,
        ran_to_end=_ran_to_end(process, lead, int(ends_of(served)[-1])),
    )


def _cached_steps(
    trainer: Trainer, served: NDArray[np.void], replay_ends: Times, tasks: Coverage
) -> tuple[NDArray[np.float64], bool]:
    """Return the steps on cached batches: those during which no worker worked, where there are enough of them."""
    begin = ends_of(served)
    later = replay_ends[replay_ends > begin[-1]][:1]  # the last step ends where the loop asks again
    end = np.concatenate([starts_of(served)[1:], later])
    begin = begin[: len(end)]
    seconds = (end - begin - trainer.covered_by(*_BESIDE).between(begin, end)) / 1e9
    is_settled = np.arange(len(seconds)) >= _SETTLING
    is_alone = is_settled & (tasks.between(begin, end) <= 0)
    if is_alone.sum() >= _FEWEST:
        return seconds[is_alone], True
    return seconds[is_settled], False


def _ran_to_end(process: ProcessEvents, lead: int, after_ns: int) -> bool:
    """Whether the pass over the loader in which batches were given again ended with the loader's own end."""
    ended = process.of(EventKind.WAIT)
    ended = ended[(ended["arg"] == lead) & (ended["value"] < 0) & (starts_of(ended) > after_ns)]
    if not len(ended):
        return False
    passes = process.of(EventKind.EPOCH)
    passes = passes[(passes["arg"] == lead) & (starts_of(passes) > after_ns)]
    return not len(passes) or int(passes["start_ns"][0]) > int(ended["start_ns"][0])


def ceiling_facts(ceiling: Ceiling) -> Iterator[Text]:
    yield Text(
        "replay: {count} steps on cached batches took {step} each: {rate} steps a second is the ceiling, "
        "whatever the loader, against {real} a second in the real steps",
        "回放：用缓存 batch 训练了 {count} 步，每步 {step}：无论加载器多快，上限就是每秒 {rate} 步；"
        "真实步为每秒 {real} 步",
    ).filled(
        count=ceiling.num_served,
        step=format_seconds(ceiling.step.value, ceiling.step.error),
        rate=three_digits(ceiling.steps_per_s),
        real=three_digits(1 / ceiling.real.value if ceiling.real.value > 0 else 0.0),
    )
    would = Text(
        "a perfect loader would make this training {gain} times as fast",
        "换成完美的加载器，这个训练会快到 {gain} 倍",
    )
    if ceiling.gain - 1 <= ceiling.gain_error:
        would = Text(
            "a perfect loader would bring nothing that can be told from noise: {gain} times as fast",
            "换成完美的加载器也看不出区别：{gain} 倍，在误差之内",
        )
    yield would.filled(gain=with_error(ceiling.gain, ceiling.gain_error))
    yield Text(
        "accelerator utilisation (AU) {au}, as MLPerf Storage defines it: compute time / running time",
        "加速器利用率（AU）{au}，按 MLPerf Storage 的定义：计算时间 / 运行时间",
    ).filled(au=format_share(ceiling.au))


def ceiling_evidence(ceiling: Ceiling) -> Text:
    """Return the sentence that a finding about data rests on."""
    return Text(
        "the demand is measured, not estimated: {count} steps on cached batches (--replay) at {step} each; "
        "what would help is reckoned from it",
        "这里的需求是实测而非估计：用缓存 batch 训练 {count} 步（--replay），每步 {step}；下面的收益都按它计算",
    ).filled(count=ceiling.num_served, step=format_seconds(ceiling.step.value, ceiling.step.error))


def ceiling_limits(ceiling: Ceiling) -> Iterator[Text]:
    """Yield what the replay changed, and what its figure does not say."""
    lost = Text(
        "The loop ended that epoch by itself (by a count, or a `break`), so as many batches of it may not have come",
        "循环自己结束了这个 epoch（按步数或 `break`），因此可能有同样多的 batch 没有被取到",
    )
    if ceiling.ran_to_end:
        lost = Text(
            "The loader lost nothing: the epoch was that much longer", "加载器的数据一个不少：这个 epoch 多了这么多步"
        )
    yield Text(
        "this is not the training it would have been: {count} of its steps were made on batches that it had seen "
        "already. {lost}",
        "这次训练已不是原来的训练：有 {count} 步用的是已经见过的 batch。{lost}",
    ).filled(count=ceiling.num_served, lost=lost)
    if not ceiling.is_undisturbed:
        yield Text(
            "workers were still filling their queue during the replay, on the same cores: the ceiling may be higher",
            "回放期间 worker 还在填队列，与训练共用核心：真实上限可能更高",
        )
    if ceiling.has_copied:
        yield Text("a copy was given each time; copying is not in the steps", "每次给的是副本；复制的时间不计入步长")


def no_replay_text(processes: Sequence[ProcessEvents]) -> Text:
    """Return that a replay was asked for and did not measure anything, and why, where a process wrote that down."""
    for process in processes:
        events = process.of(EventKind.REPLAY)
        for arg in events["arg"][events["value"] == REPLAY_NOT_DONE].tolist():
            if why := process.names.get(arg, ""):
                return Text("--replay did not happen: {why}", "--replay 没有进行：{why}").filled(why=why)
    return Text(
        "--replay measured nothing: it takes 16 steps with a backward pass or an optimizer step between two batches of "
        "one DataLoader, then at least ten cached ones and some real ones beside them",
        "--replay 没有测到结果：它需要同一个 DataLoader 先有 16 步训练（两个 batch 之间有反向或优化器更新），之后至少十"
        "步缓存 batch，另有若干真实步可比",
    )
