"""Which candidate to try next, or which one is best: a function of what was measured so far. Pure.

The rate of a candidate is what the model says, times an error that neighbours share, times the drift of a machine that
others use as well, times the noise of a measurement. All are taken as normal in the logarithm. So what was measured
says how well each rate is known: it is drawn many times within that. The leader and whoever may still beat it are tried
in turn, until nobody may, or the time is up. Then what may help for nothing is tried beside it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from headrace.model import Text

from .model import Candidate, ThroughputModel

_WORTH_A_PROBE = 0.003  # of the rate: to hope for less from another one is not worth trying it
_MOST_PROBES = 6  # of one candidate: the mean of as many is what it is
_MODEL_ERROR, _MODEL_WEIGHT = 0.2, 2  # of the model's rate, before anything was tried; for how many probes that counts
_REACH = 2.0  # doublings of the number of workers over which that error is much the same
_OF_FAMILY, _OF_AHEAD, _OF_BATCH = 0.3, 0.95, 0.9  # how much of it others share: a backend, a deeper queue, a batch
_DRIFT, _DRIFT_S = 0.03, 15.0
_LEAST_NOISE, _MOST_NOISE = 0.02, 0.05  # of a probe, before any was repeated:
_NOISE_WEIGHT = 1  # for how many repetitions that counts
_PER_DOUBLING = 0.005  # of the rate: what twice as many workers must bring to be worth their memory
_DEEPER_FROM = 0.02  # and a deeper queue, which takes more of it
_THREADS_FROM = 0.005  # and threads, which a crash ends together and which share random generators
_SHORT_OF_DEMAND, _DEAR = 20.0, 10.0  # times as much weigh what is missing to a demand, and what it costs to meet it
_DRAWS = 2000
HEADROOM = 1.05  # as much as is needed on average is late half of the time
_GRAINS, _SHORTEST_S, _LONGEST_S = 12, 0.8, 5.0
_ROUNDS_BESIDE, _ROUNDS_SWEPT = 2, 3
_DEEPER, _DEEPER_A_WORKER = 2, 4  # times the batches ahead that the loader chose; at least so many for each worker
# of a worker, a second: at a microsecond each they are 2 % of its time, part of it that malloc could save
_MANY_FAULTS = 20_000
_OWN_THREADS = 3  # of a worker of torch's: its own, one that sends batches, one that hands out descriptors


class Failure(Enum):
    """Why a candidate has no rate."""

    DIED = Text("it died", "进程中途死亡")
    HUNG = Text("it hung, and was ended", "卡住，已被终止")
    MEMORY = Text("it took more memory than allowed, and was ended", "内存超出限制，已被终止")
    ERROR = Text("it raised", "抛出异常")


@dataclass(frozen=True, kw_only=True)
class ProbeOutcome:
    """What one stretch with a candidate brought; or why it brought nothing."""

    candidate: Candidate
    at_s: float  # when it ended, from the start of the search
    took_s: float  # with starting and stopping
    measured_s: float = 0.0  # of it
    samples_per_s: float = 0.0
    error: float = 0.0  # of the rate, as a share: half of its 95 % interval, from the batches of this stretch alone
    first_batch_s: float = 0.0
    cores: float = 0.0  # that were in use
    faults_per_s: float = 0.0  # of workers: pages that the kernel handed out anew
    threads: int = 0  # of the worker that has most
    peak_bytes: int = 0
    batches_ahead: int = 0  # that the loader had
    failure: Failure | None = None
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is searched for."""

    space: tuple[Candidate, ...]  # within the memory that may be used
    model: ThroughputModel
    seconds: float
    baseline: Candidate | None = None  # what is there already
    demand_per_s: float | None = None  # samples a second that the training takes
    is_sweep: bool = False  # each of the space in turn, and nothing else
    beside: bool = False  # whether torch's loader, and what may help for nothing, is measured at the end
    nodes: int = 1  # of memory, that workers could be placed on


@dataclass(frozen=True)
class Probe:
    """Try this next, for so long."""

    candidate: Candidate
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TuneAnswer:
    """The best of what was measured."""

    candidate: Candidate | None  # None: nothing was
    samples_per_s: float = 0.0
    error: float = 0.0  # half of the 95 % interval
    gain: float | None = None  # times the baseline
    gain_error: float = 0.0
    is_settled: bool = False  # nobody else may be better, by more than is worth telling
    meets_demand: bool | None = None
    rates: dict[Candidate, tuple[float, float]] = field(default_factory=dict)  # of all that were measured
    model: ThroughputModel | None = None  # with what was learnt

    @property
    def is_better(self) -> bool:
        """Whether it beats what is there by more than the noise."""
        return self.gain is None or self.gain - self.gain_error > 1


def next_step(problem: Problem, results: Sequence[ProbeOutcome]) -> Probe | TuneAnswer:
    """Return what to try next, or the answer where nothing more is worth trying or there is no time."""
    view = _View.of(problem, results)
    wanted = _next_of_sweep(problem, results) if problem.is_sweep else view.next(problem)
    answer = replace(_answer(problem, results, view), is_settled=wanted is None)
    if wanted is None and problem.beside and answer.candidate is not None and answer.candidate.num_workers:
        wanted = _next_beside(problem, answer.candidate, results)
    if wanted is None:
        return answer
    left_s = problem.seconds - max((one.at_s for one in results), default=0.0)
    # starting and stopping, which the others took as well
    start_s = max((one.took_s - one.measured_s for one in results if one.failure is None), default=1.0)
    # What is under way at either end of a stretch, a batch or a sample in each worker, is its error.
    grain = max(wanted.batch_size or 1, wanted.num_workers)
    stretch_s = min(_LONGEST_S, max(_SHORTEST_S, _GRAINS * grain / view.model.per_s(wanted)))
    is_first = all(one.candidate != wanted for one in results)
    if problem.is_sweep:
        num_left = _ROUNDS_SWEPT * len(problem.space) - len(results)
        stretch_s = max(_SHORTEST_S, left_s / max(1, num_left) - start_s)
    must_try = not view.is_tried.any() or (problem.is_sweep and is_first)
    return Probe(wanted, stretch_s) if must_try or start_s + stretch_s <= left_s else answer


def answer_of(problem: Problem, results: Sequence[ProbeOutcome]) -> TuneAnswer:
    """Return the best so far."""
    return _answer(problem, results, _View.of(problem, results))


def _answer(problem: Problem, results: Sequence[ProbeOutcome], view: _View) -> TuneAnswer:
    demand, gain = problem.demand_per_s, None
    if not view.is_tried.any():
        return TuneAnswer(candidate=None, model=view.model)
    best, meets = view.leader(view.is_tried), None
    if demand is not None:
        meets = bool(np.median(view.draws[:, best]) >= math.log(HEADROOM * demand))
    if problem.baseline is not None and view.is_tried[place := view.space.index(problem.baseline)]:
        gain = _mean_and_error(view.draws[:, best] - view.draws[:, place])
    rates = {view.space[one]: _mean_and_error(view.draws[:, one]) for one in np.flatnonzero(view.is_tried)}
    beside = {one.candidate for one in results if one.failure is None} - {*view.space}
    return TuneAnswer(
        candidate=view.space[best],
        samples_per_s=rates[view.space[best]][0],
        error=rates[view.space[best]][1],
        gain=gain[0] if gain is not None else None,
        gain_error=gain[1] if gain is not None else 0.0,
        meets_demand=meets,
        rates=rates | {one: mean_rate(results, one) for one in beside},
        model=view.model,
    )


def _mean_and_error(draws: NDArray[np.float64]) -> tuple[float, float]:
    """Return what drawn logarithms stand for, and half of its 95 % interval."""
    mean = math.exp(float(draws.mean()))
    return mean, 1.96 * mean * float(draws.std())


def mean_rate(results: Sequence[ProbeOutcome], candidate: Candidate) -> tuple[float, float]:
    """Return a candidate's samples a second and their error, from its own probes alone."""
    rates = [(one.samples_per_s, one.error) for one in results if one.candidate == candidate and one.failure is None]
    mean, own = statistics.fmean(rate for rate, _ in rates), statistics.fmean(error for _, error in rates)
    spread = 1.96 * statistics.stdev(rate for rate, _ in rates) / mean if len(rates) > 1 else 0.0
    return mean, mean * max(own, spread) / math.sqrt(len(rates))


def _next_of_sweep(problem: Problem, results: Sequence[ProbeOutcome]) -> Candidate | None:
    counts = {one: sum(each.candidate == one for each in results) for one in problem.space}
    failed = {one.candidate for one in results if one.failure is not None}
    left = [one for one in problem.space if counts[one] < _ROUNDS_SWEPT and one not in failed]
    return min(left, key=lambda one: counts[one], default=None)


def _next_beside(problem: Problem, best: Candidate, results: Sequence[ProbeOutcome]) -> Candidate | None:
    """Return what to try beside the answer: torch's loader with as many workers, then each with what may help it."""
    plain = replace(best, loader="torch", backend="process", batches_ahead=None, io_depth=None, memory_bytes=None)
    tried = [one.candidate for one in results]
    if plain not in tried:
        return plain
    variants = free_gains(problem, plain, results)
    if problem.nodes > 1 and best.loader != "torch":
        variants.append(replace(best, cpus="numa"))
    group = [one for one in (plain, *variants) if variants and tried.count(one) < _ROUNDS_BESIDE]
    return min(group, key=tried.count, default=None)


def free_gains(problem: Problem, plain: Candidate, results: Sequence[ProbeOutcome]) -> list[Candidate]:
    """Return torch's loader with what `headrace run` can set for an unchanged script, where that could matter."""
    seen = [one for one in results if one.candidate == plain and one.failure is None]
    found = []
    if any(one.faults_per_s > _MANY_FAULTS * plain.num_workers for one in seen):
        found.append(replace(plain, keeps_heap=True))
    if any(one.threads > _OWN_THREADS and one.threads * plain.num_workers > problem.model.cores for one in seen):
        found.append(replace(plain, threads=1))
    return found


# ------------------------------------------------------------------------------------------------ what is known


@dataclass(frozen=True, eq=False)
class _View:
    """Every candidate's logarithm of samples a second, as far as it is known: drawn many times, all at once."""

    space: tuple[Candidate, ...]
    model: ThroughputModel
    draws: NDArray[np.float64]  # a row each
    worth: NDArray[np.float64]  # the same, less what a candidate costs; with a demand, what is beyond it counts nothing
    counts: NDArray[np.int64]  # of probes
    is_out: NDArray[np.bool_]  # tried, and failed

    @classmethod
    def of(cls, problem: Problem, results: Sequence[ProbeOutcome]) -> _View:
        good = [one for one in results if one.failure is None]
        space = _space(problem, good)
        good = [one for one in good if one.candidate in space]  # what is seen beside them is not chosen
        model = problem.model.learnt([(one.candidate, one.samples_per_s) for one in good])
        prior = np.log([model.per_s(one) for one in space])
        places = np.array([space.index(one.candidate) for one in good], dtype=np.int64)
        seen = np.log([one.samples_per_s for one in good])
        misses = float(((seen - prior[places]) ** 2).sum())
        wrong = math.sqrt((_MODEL_WEIGHT * _MODEL_ERROR**2 + misses) / (_MODEL_WEIGHT + len(good)))
        kernel = wrong**2 * _likeness(space)
        mean, spread = prior, kernel
        if good:
            times = np.array([one.at_s for one in good])
            drift = _DRIFT**2 * np.exp(-np.abs(times[:, None] - times[None]) / _DRIFT_S)
            noise = np.diag(np.full(len(good), _noise(places, seen, [one.error for one in good]) ** 2))
            gain = np.linalg.solve(kernel[np.ix_(places, places)] + drift + noise, kernel[places]).T
            mean = prior + gain @ (seen - prior[places])
            spread = kernel - gain @ kernel[places]
        draws = np.random.default_rng(0).multivariate_normal(mean, spread, _DRAWS, check_valid="ignore")
        doublings = np.log2([1.0 + one.num_workers for one in space])
        dear = _PER_DOUBLING * doublings + _DEEPER_FROM * np.array([one.batches_ahead is not None for one in space])
        dear += _THREADS_FROM * np.array([one.backend == "thread" for one in space])
        worth = draws - dear
        if problem.demand_per_s is not None:
            worth = np.minimum(0.0, draws - math.log(HEADROOM * problem.demand_per_s)) * _SHORT_OF_DEMAND - _DEAR * dear
        return cls(space, model, draws, worth, np.bincount(places, minlength=len(space)), _failed(space, results))

    @property
    def is_tried(self) -> NDArray[np.bool_]:
        return (self.counts > 0) & ~self.is_out

    def leader(self, allowed: NDArray[np.bool_]) -> int:
        """Return the one that is worth most."""
        return int(np.argmax(np.where(allowed, self.worth.mean(axis=0), -np.inf)))

    def next(self, problem: Problem) -> Candidate | None:
        """Return what to try; None where nobody may be better than the leader."""
        if self.is_out.all():
            return None
        leader = self.leader(~self.is_out)
        if problem.baseline is not None and self.is_tried.sum() > 1:
            place = self.space.index(problem.baseline)
            if not self.counts[place] and not self.is_out[place]:  # what is to be beaten, once
                return problem.baseline
        if not self.counts[leader]:
            return self.space[leader]
        # What is to be hoped for from each: how far it may lie above the leader, times how likely that is.
        hope = np.maximum(0.0, self.worth - self.worth[:, [leader]]).mean(axis=0)
        hope[self.is_out | (self.counts >= _MOST_PROBES)] = 0.0
        rival = int(np.argmax(hope))
        if hope[rival] < _WORTH_A_PROBE:
            rest = (place for place, one in enumerate(self.space) if one.batches_ahead and not self.counts[place])
            rival = next(rest, leader) if problem.demand_per_s is None else leader  # a deeper queue, once
            return None if self.is_out[rival] or self.counts[rival] > 1 else self.space[rival]
        return self.space[leader if self.counts[leader] < min(self.counts[rival], _MOST_PROBES) else rival]


def _space(problem: Problem, good: Sequence[ProbeOutcome]) -> tuple[Candidate, ...]:
    """Return what there is to choose from: what is there, too, and the best so far with more batches ahead.

    A deeper queue brings nothing on average, unless workers stand still while a slow sample is waited for. What that
    costs depends on how sample times, processors and others on the machine happen to fall together: it is tried.
    """
    space = dict.fromkeys(problem.space)
    if problem.baseline is not None:
        space[problem.baseline] = None
    own_choice = [one for one in good if one.candidate in problem.space and one.candidate.num_workers]
    if own_choice and not problem.is_sweep:
        best = max(own_choice, key=lambda one: one.samples_per_s)
        deeper = max(_DEEPER * best.batches_ahead, _DEEPER_A_WORKER * best.candidate.num_workers)
        space[replace(best.candidate, batches_ahead=deeper)] = None
    tried = (one.candidate for one in good if replace(one.candidate, batches_ahead=None) in problem.space)
    return tuple(space | dict.fromkeys(tried))


def _likeness(space: Sequence[Candidate]) -> NDArray[np.float64]:
    """Return how much of the model's error two candidates share."""
    like: NDArray[np.float64] = np.ones((len(space), len(space)))
    for sizes in ([1.0 + one.num_workers for one in space], [1.0 + (one.io_depth or 8) for one in space]):
        doublings = np.log2(sizes)
        like *= np.exp(-np.abs(doublings[:, None] - doublings[None]) / _REACH)
    parts = [(one.family, one.batches_ahead is None, one.batch_size) for one in space]
    for share, keys in zip((_OF_FAMILY, _OF_AHEAD, _OF_BATCH), zip(*parts, strict=True), strict=True):
        like *= np.array([[1.0 if a == b else share for b in keys] for a in keys])
    return like


def _noise(places: NDArray[np.int64], seen: NDArray[np.float64], errors: Sequence[float]) -> float:
    """Return the spread of probes of one candidate: at first from their own errors, then from those repeated."""
    own = min(_MOST_NOISE, max(_LEAST_NOISE, float(np.median(errors)) / 1.96))
    groups = [seen[places == place] for place in np.unique(places)]
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return math.sqrt((_NOISE_WEIGHT * own**2 + squares) / (_NOISE_WEIGHT + len(seen) - len(groups)))


def _failed(space: Sequence[Candidate], results: Sequence[ProbeOutcome]) -> NDArray[np.bool_]:
    """Return who is out: whoever failed; and where memory was the reason, whoever has more workers, too."""
    failed = {one.candidate for one in results if one.failure is not None}
    short = [one.candidate for one in results if one.failure is Failure.MEMORY]
    return np.array(
        [one in failed or any(one.family == each.family and one.cost >= each.cost for each in short) for one in space]
    )
