"""Which candidate to try next, or which one is best: a function of what was measured so far. Pure.

The rate of a candidate is what was measured of it; of one that was not tried, what the model says, corrected by how far
the model was off at the one that is most like it. Either has an error. The leader and whoever would beat it, were its
rate better by its error, are tried in turn, until nobody would or the time is up. Then what may help for nothing is
tried beside it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.model import Said, Text

from .model import Candidate, Service

_WORTH_A_PROBE = 0.003  # of the rate: to hope for less from another one is not worth trying it
_MODEL_ERROR, _MODEL_WEIGHT = 0.2, 2  # of the model's rate, before anything was tried; for how many probes that counts
_REACH = 2.0  # doublings of the number of workers over which that error is much the same;
_OF_FAMILY, _OF_AHEAD, _OF_BATCH = 2.4, 0.1, 0.2  # as many are another backend, a deeper queue, another batch size
_NOISE, _NOISE_WEIGHT = 0.03, 1  # of a probe, before any was repeated; for how many repetitions that counts
_PER_DOUBLING = 0.005  # of the rate: what twice as many workers must bring to be worth their memory
_MOST_TIED = 0.025  # of the rate: what is nearer to the best than its error, but no more than this, is as good
_DEEPER_FROM = 0.02  # and a deeper queue, which takes more of it
HEADROOM = 1.05  # as much as is needed on average is late half of the time
_GRAINS, _SHORTEST_S, _LONGEST_S = 12, 0.8, 5.0
_PROBES_LEFT = 3  # that the time which is left is enough for: one alone says nothing of what else there is
_ROUNDS_BESIDE, _ROUNDS_SWEPT = 2, 3
_DEEPER, _DEEPER_A_WORKER = 2, 4  # times the batches ahead that the loader chose; at least so many for each worker
# of a worker, a second: at a microsecond each they are 2 % of its time, part of it that malloc could save
_MANY_FAULTS = 20_000
_OWN_THREADS = 3  # of a worker of torch's: its own, one that sends batches, one that hands out descriptors


class Failure(Said):
    """Why a candidate has no rate."""

    DIED = "died", Text("it died", "进程中途死亡")
    HUNG = "hung", Text("it hung, and was ended", "卡住，已被终止")
    MEMORY = "memory", Text("it took more memory than allowed, and was ended", "内存超出限制，已被终止")
    ERROR = "error", Text("it raised", "抛出异常")


@dataclass(frozen=True, kw_only=True)
class ProbeOutcome:
    """What one stretch with a candidate brought; or why it brought nothing."""

    candidate: Candidate
    at_s: float  # when it ended, from the start of the search
    took_s: float  # with starting and stopping
    measured_s: float = 0.0  # of it
    samples_per_s: float = 0.0
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
    service: Service
    seconds: float
    baseline: Candidate | None = None  # what is there already
    demand_per_s: float | None = None  # samples a second that the training takes
    is_sweep: bool = False  # each of the space in turn, and nothing else
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

    @property
    def is_better(self) -> bool:
        """Whether it beats what is there by more than the noise."""
        return self.gain is None or self.gain - self.gain_error > 1


def next_step(problem: Problem, results: Sequence[ProbeOutcome]) -> Probe | TuneAnswer:
    """Return what to try next, or the answer where nothing more is worth trying or there is no time."""
    rates = _rates(problem, results)
    wanted = _next_of(problem, rates)
    answer = replace(answer_of(problem, results), is_settled=wanted is None)
    if wanted is None and not problem.is_sweep and answer.candidate is not None and answer.candidate.num_workers:
        wanted = _next_beside(problem, answer.candidate, results)
    if wanted is None:
        return answer
    left_s = problem.seconds - max((one.at_s for one in results), default=0.0)
    # starting and stopping, which the others took as well
    start_s = max((one.took_s - one.measured_s for one in results if one.failure is None), default=1.0)
    # What is under way at either end of a stretch, a batch or a sample in each worker, is its error.
    grain = max(wanted.batch_size or 1, wanted.num_workers)
    per_s = math.exp(rates[wanted].mean) if wanted in rates else problem.service.per_s(wanted)
    stretch_s = max(_SHORTEST_S, min(_LONGEST_S, _GRAINS * grain / per_s, left_s / _PROBES_LEFT - start_s))
    if problem.is_sweep:
        num_left = sum(_ROUNDS_SWEPT - rate.count for rate in rates.values())
        stretch_s = max(_SHORTEST_S, left_s / num_left - start_s)
    # what takes long to import leaves no time, and to make samples in-process is no answer to how many workers
    is_first = wanted.num_workers > 0 and not any(one.candidate.num_workers for one in results)
    must_try = answer.candidate is None or is_first or (problem.is_sweep and not rates[wanted].count)
    return Probe(wanted, stretch_s) if must_try or start_s + stretch_s <= left_s else answer


def answer_of(problem: Problem, results: Sequence[ProbeOutcome]) -> TuneAnswer:
    """Return the best so far: of those that are as good as it, the cheapest, for which one comes first is luck."""
    tried = {one: rate for one, rate in _rates(problem, results).items() if rate.count}
    if not tried:
        return TuneAnswer(candidate=None)
    seen, rates = _logs(results), {}
    for one, logs in seen.items():
        per_s = math.exp(statistics.fmean(logs))
        rates[one] = per_s, 1.96 * per_s * _noise(seen.values()) / math.sqrt(len(logs))
    best, now, demand = _leader(problem, tried), problem.baseline, problem.demand_per_s
    if demand is None:
        enough = _worth(problem, best, tried[best].mean - min(_MOST_TIED, tried[best].error))
        best = min((one for one in tried if _worth(problem, one, tried[one].mean) >= enough), key=lambda one: one.cost)
    gain, gain_error = times(rates[best], rates[now]) if now is not None and now in tried else (None, 0.0)
    return TuneAnswer(
        candidate=best,
        samples_per_s=rates[best][0],
        error=rates[best][1],
        gain=gain,
        gain_error=gain_error,
        meets_demand=None if demand is None else rates[best][0] >= HEADROOM * demand,
        rates=rates,
    )


def times(rate: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return how many times another rate one is, and the error of that."""
    gain = rate[0] / other[0]
    return gain, gain * math.hypot(rate[1] / rate[0], other[1] / other[0])


def _next_beside(problem: Problem, best: Candidate, results: Sequence[ProbeOutcome]) -> Candidate | None:
    """Return what to try beside the answer: torch's loader with as many workers, then each with what may help it.

    That is what `headrace run` can set for an unchanged script, where it could matter, and our workers' places.
    """
    plain = replace(best, loader="torch", backend="process", batches_ahead=None, io_depth=None, memory_bytes=None)
    tried, variants = [one.candidate for one in results], []
    if plain not in tried:
        return plain
    for one in results:
        if one.candidate == plain and one.failure is None:
            variants += [replace(plain, keeps_heap=True)] * (one.faults_per_s > _MANY_FAULTS * plain.num_workers)
            is_crowded = one.threads > _OWN_THREADS and one.threads * plain.num_workers > problem.service.cores
            variants += [replace(plain, threads=1)] * is_crowded
    variants += [replace(best, cpus="numa")] * (problem.nodes > 1 and best.loader != "torch")
    group = [one for one in (plain, *variants) if variants and tried.count(one) < _ROUNDS_BESIDE]
    return min(group, key=tried.count, default=None)


# ------------------------------------------------------------------------------------------------ what is known


@dataclass(frozen=True)
class _Belief:
    """The logarithm of a candidate's samples a second, its error, and how many probes it had."""

    mean: float
    error: float
    count: int


def _rates(problem: Problem, results: Sequence[ProbeOutcome]) -> dict[Candidate, _Belief]:
    """Return what is known of every candidate that has not failed."""
    said = {one: math.log(problem.service.per_s(one)) for one in _space(problem, results)}
    logs, rates = _logs(results), {}
    noise, seen = _noise(logs.values()), {one: logs[one] for one in logs if one in said}  # what is beside is not chosen
    missed = {one: statistics.fmean(logs[one]) - said[one] for one in seen}
    squares = sum(miss**2 for miss in missed.values())
    wrong = math.sqrt((_MODEL_WEIGHT * _MODEL_ERROR**2 + squares) / (_MODEL_WEIGHT + len(missed)))
    for one, log_per_s in said.items():
        if _has_failed(one, results):
            continue
        rates[one] = _Belief(log_per_s, wrong, 0)
        if seen:
            near = one if one in seen else max(seen, key=partial(_likeness, one))
            like = _likeness(one, near)
            error = math.hypot(wrong * math.sqrt(1 - like**2), noise / math.sqrt(len(seen[near])))
            rates[one] = _Belief(log_per_s + like * missed[near], error, len(seen.get(one, ())))
    return rates


def _worth(problem: Problem, one: Candidate, log_per_s: float) -> float:
    """Return what a rate is worth, less what a candidate costs; with a demand, what is beyond it counts nothing."""
    dear = _PER_DOUBLING * math.log2(1 + one.num_workers) + _DEEPER_FROM * (one.batches_ahead is not None)
    if problem.demand_per_s is not None:
        log_per_s = min(0.0, log_per_s - math.log(HEADROOM * problem.demand_per_s))
    return log_per_s - dear


def _leader(problem: Problem, rates: Mapping[Candidate, _Belief]) -> Candidate:
    return max(rates, key=lambda one: _worth(problem, one, rates[one].mean))


def _next_of(problem: Problem, rates: Mapping[Candidate, _Belief]) -> Candidate | None:
    """Return what to try; None where nobody may be better than the leader."""
    if problem.is_sweep or not rates:
        left = [one for one in rates if rates[one].count < _ROUNDS_SWEPT]
        return min(left, key=lambda one: rates[one].count, default=None)
    leader, now = _leader(problem, rates), problem.baseline
    num_tried = sum(rate.count > 0 for rate in rates.values())
    if now is not None and now in rates and not rates[now].count and num_tried > 1:
        return now  # what is to be beaten, once
    if not rates[leader].count:
        return leader
    hopes = {one: _worth(problem, one, rate.mean + rate.error) for one, rate in rates.items() if one != leader}
    rival = max(hopes, key=hopes.__getitem__, default=leader)
    if hopes.get(rival, -math.inf) < _worth(problem, leader, rates[leader].mean) + _WORTH_A_PROBE:
        deeper = (one for one, rate in rates.items() if one.batches_ahead and not rate.count)
        rival = next(deeper, leader) if problem.demand_per_s is None else leader  # a deeper queue, once
        return None if rates[rival].count > 1 else rival
    return leader if rates[leader].count < rates[rival].count else rival


def _space(problem: Problem, results: Sequence[ProbeOutcome]) -> tuple[Candidate, ...]:
    """Return what there is to choose from: what is there, too, and the best so far with more batches ahead."""
    if problem.is_sweep:
        return problem.space
    good = [one for one in results if one.failure is None]
    own_choice = [one for one in good if one.candidate in problem.space and one.candidate.num_workers]
    more = [problem.baseline] if problem.baseline is not None else []
    if own_choice:
        best = max(own_choice, key=lambda one: one.samples_per_s)
        deeper = max(_DEEPER * best.batches_ahead, _DEEPER_A_WORKER * best.candidate.num_workers)
        more.append(replace(best.candidate, batches_ahead=deeper))
    tried = (one.candidate for one in good if replace(one.candidate, batches_ahead=None) in problem.space)
    return tuple(dict.fromkeys((*problem.space, *more, *tried)))


def _likeness(one: Candidate, other: Candidate) -> float:
    """Return how much of the model's error two candidates share."""
    sizes = (1 + one.num_workers, 1 + other.num_workers), (1 + (one.io_depth or 8), 1 + (other.io_depth or 8))
    apart = sum(abs(math.log2(a / b)) for a, b in sizes) + _OF_FAMILY * (one.family != other.family)
    apart += _OF_AHEAD * (one.batches_ahead != other.batches_ahead) + _OF_BATCH * (one.batch_size != other.batch_size)
    return math.exp(-apart / _REACH)


def _logs(results: Sequence[ProbeOutcome]) -> dict[Candidate, list[float]]:
    """Return the logarithms of the rates that were measured of each candidate."""
    logs: dict[Candidate, list[float]] = {}
    for one in results:
        if one.failure is None:
            logs.setdefault(one.candidate, []).append(math.log(one.samples_per_s))
    return logs


def _noise(seen: Collection[Sequence[float]]) -> float:
    """Return the spread of probes of one candidate, from those that were repeated."""
    squares = sum((log - statistics.fmean(logs)) ** 2 for logs in seen for log in logs)
    return math.sqrt((_NOISE_WEIGHT * _NOISE**2 + squares) / (_NOISE_WEIGHT + sum(len(logs) - 1 for logs in seen)))


def _has_failed(one: Candidate, results: Sequence[ProbeOutcome]) -> bool:
    """Whether it is out: it failed; or where memory was the reason, one with fewer workers did."""
    failed = {each.candidate: each.failure for each in results if each.failure is not None}
    short = [each for each, why in failed.items() if why is Failure.MEMORY and each.family == one.family]
    return one in failed or any(one.cost >= each.cost for each in short)
