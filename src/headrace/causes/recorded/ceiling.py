"""What a training would do with a perfect loader, measured by a replay: its ceiling, and accelerator utilisation. Pure.

Accelerator utilisation (AU) is MLPerf Storage's: total compute time / total running time, in per cent, where the first
step of an epoch counts in neither, and running time does not hold checkpoints and evaluation. There compute time is
known beforehand, for it is a sleep; here it is the number of real steps times what a step took on cached batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.model import Activity, EventKind

from .processes import Coverage, ProcessEvents, Times, covering, ends_of, starts_of
from .spread import Mean, mean_of
from .trainer import REPLAY_NOT_DONE, LoaderWaits, Trainer
from .workers import workers_of

_SETTLING = 2  # steps: the loop has just come out of a wait
_FEWEST = 8
_OUTSIDE = (Activity.CHECKPOINT, Activity.EVALUATION, Activity.REPLAY)  # what AU's running time does not hold
# Beside the steps, in the real ones and in the cached ones: a save that happens to fall into the one or the other says
# nothing of the loader. Copies to the device are in both.
_BESIDE = (Activity.CHECKPOINT, Activity.EVALUATION, Activity.LOGGING, Activity.GC, Activity.PHASE)


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """A replay, taken apart."""

    loader: str
    num_served: int  # steps on cached batches
    step: Mean  # seconds of such a step; of those that count
    is_undisturbed: bool  # no worker made a batch meanwhile
    has_copied: bool  # each time a copy was given, whose time is not in the steps
    estimated_step_s: float  # what a real step without its wait was taken for
    real: Mean  # seconds of a real step with its wait, without what interrupts training
    au: float  # 0 to 1
    gain: float  # of the whole training, with a perfect loader
    gain_error: float
    ran_to_end: bool  # the loop went on until the loader had no more: nothing was left out

    @property
    def steps_per_s(self) -> float:
        """Return the rate with a perfect loader."""
        return 1 / self.step.value if self.step.value > 0 else 0.0

    @property
    def is_gain_shown(self) -> bool:
        """Whether the gain is larger than its error."""
        return self.gain - 1 > self.gain_error


def why_not_replayed(process: ProcessEvents) -> str:
    """Return what a process wrote down about a replay that it could not do; empty where it wrote nothing."""
    events = process.of(EventKind.REPLAY)
    events = events[events["value"] == REPLAY_NOT_DONE]
    return process.names.get(int(events["arg"][0]), "") if len(events) else ""


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
    steps, is_undisturbed = _cached_steps(trainer, loader, served, ends_of(replays), processes)
    workers = max(1, loader.num_workers)
    step = mean_of(steps)
    begin, end = _real_steps(loader)
    beside = _coverage(trainer, (*_BESIDE, Activity.REPLAY))
    real = mean_of((end - begin - beside.between(begin, end)) / 1e9, round_length=workers)
    if step.count < _FEWEST or real.count < _FEWEST or step.value <= 0:
        return None
    gain, gain_error = _gain(real, step, sum(map(trainer.seconds, _BESIDE)))
    return Ceiling(
        loader=name,
        num_served=len(served),
        step=step,
        is_undisturbed=is_undisturbed,
        has_copied=bool(np.median(served["duration_ns"]) > 0.02e9 * step.value),
        estimated_step_s=float(np.nanmedian(loader.step_s[loader.batch > 0])),
        real=real,
        au=_utilisation(trainer, loader, step.value),
        gain=gain,
        gain_error=gain_error,
        ran_to_end=_ran_to_end(process, lead, int(ends_of(served)[-1])),
    )


def _cached_steps(
    trainer: Trainer,
    loader: LoaderWaits,
    served: NDArray[np.void],
    replay_ends: Times,
    processes: Sequence[ProcessEvents],
) -> tuple[NDArray[np.float64], bool]:
    """Return the steps on cached batches: those during which no worker worked, where there are enough of them."""
    begin = ends_of(served)
    later = replay_ends[replay_ends > begin[-1]][:1]  # the last step ends where the loop asks again
    end = np.concatenate([starts_of(served)[1:], later])
    begin = begin[: len(end)]
    seconds = (end - begin - _coverage(trainer, _BESIDE).between(begin, end)) / 1e9
    is_settled = np.arange(len(seconds)) >= _SETTLING
    tasks = covering(*(one.of(EventKind.FETCH) for one in workers_of(loader, trainer.process, processes)))
    is_alone = is_settled & (tasks.between(begin, end) <= 0)
    if is_alone.sum() >= _FEWEST:
        return seconds[is_alone], True
    return seconds[is_settled], False


def _real_steps(loader: LoaderWaits) -> tuple[Times, Times]:
    """Return from when to when the real steps went, each from `next` to `next`, but the first of each epoch."""
    starts, batch, epoch = loader.start_ns, loader.batch, loader.epoch
    follows = (batch[1:] == batch[:-1] + 1) & (epoch[1:] == epoch[:-1]) & (batch[:-1] > 0)
    return starts[:-1][follows], starts[1:][follows]


def _gain(real: Mean, step: Mean, beside_s: float) -> tuple[float, float]:
    """Return how many times as fast the training would be, and the error of that; what is beside the steps stays."""
    then_s = real.count * min(step.value, real.value) + beside_s
    gain = (real.count * real.value + beside_s) / then_s
    return gain, real.count * float(np.hypot(real.error, gain * step.error)) / then_s


def _utilisation(trainer: Trainer, loader: LoaderWaits, compute_s: float) -> float:
    """Return AU over the real steps but the first of each epoch."""
    begin, end = _real_steps(loader)
    running_s = float((end - begin - _coverage(trainer, _OUTSIDE).between(begin, end)).sum()) / 1e9
    return min(1.0, compute_s * len(begin) / running_s) if running_s > 0 else 0.0


def _coverage(trainer: Trainer, activities: Sequence[Activity]) -> Coverage:
    spans = [span for span in trainer.spans if span.label[0] in activities]
    return Coverage(
        np.array([span.start for span in spans], np.int64), np.array([span.end for span in spans], np.int64)
    )


def _ran_to_end(process: ProcessEvents, lead: int, after_ns: int) -> bool:
    """Whether the pass over the loader in which batches were given again ended with the loader's own end."""
    ended = process.of(EventKind.WAIT)
    ended = ended[(ended["arg"] == lead) & (ended["value"] < 0) & (starts_of(ended) > after_ns)]
    if not len(ended):
        return False
    passes = process.of(EventKind.EPOCH)
    passes = passes[(passes["arg"] == lead) & (starts_of(passes) > after_ns)]
    return not len(passes) or int(passes["start_ns"][0]) > int(ended["start_ns"][0])
