"""Which candidate to try next, or which one is best: a function of what was measured so far. Pure.

The rate of a candidate is what the model says, times an error that neighbours share, times the drift of a machine that
others use as well, times the noise of a measurement. All are taken as normal in the logarithm. So what was measured
says how well each rate is known, and how sure it is that one is above another. The leader and whoever may still beat it
are tried in turn, until nobody may, or the time is up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from .model import Candidate, ThroughputModel

_WORTH_A_PROBE = 0.003  # of the rate: to hope for less from another one is not worth trying it
_MOST_PROBES = 6  # of one candidate: the mean of as many is what it is
_UNSURE = 0.1  # probability of giving what is needed, or of not doing so, that is not sure yet
_MODEL_ERROR, _MODEL_WEIGHT = 0.2, 2  # of the model's rate, before anything was tried; for how many probes that counts
_REACH = 2.0  # doublings of the number of workers over which that error is much the same
_OF_FAMILY, _OF_AHEAD, _OF_BATCH = 0.3, 0.95, 0.9  # how much of it others share: a backend, batches ahead, a batch size
_DRIFT, _DRIFT_S = 0.03, 15.0
_LEAST_NOISE, _MOST_NOISE = 0.02, 0.05  # of a probe, before any was repeated:
_NOISE_WEIGHT = 1  # for how many repetitions that counts
_PER_DOUBLING = 0.005  # of the rate: what twice as many workers must bring to be worth their memory
_THREADS_FROM = 0.005  # and threads, which a crash ends together and which share random generators
HEADROOM = 1.05  # as much as is needed on average is late half of the time
_GRAINS, _SHORTEST_S, _LONGEST_S = 12, 0.8, 5.0


class Failure(Enum):
    """Why a candidate has no rate."""

    DIED = "died"
    HUNG = "hung"
    MEMORY = "memory"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class ProbeOutcome:
    """What one stretch with a candidate brought; or why it brought nothing."""

    candidate: Candidate
    at_s: float  # when it ended, from the start of the search
    took_s: float  # with starting and stopping
    measured_s: float = 0.0  # of it
    samples_per_s: float = 0.0
    error: float = 0.0  # of the rate, as a share: half of its 95 % interval, from the batches of this stretch alone
    num_batches: int = 0
    first_batch_s: float = 0.0
    cores: float = 0.0  # that were in use
    peak_bytes: int = 0
    batches_ahead: int = 0  # that the loader had
    io_depth: int = 0
    worst_sample_s: float = 0.0
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
    beside: bool = False  # whether torch's loader, with what was found, is measured at the end


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
    expected: Candidate | None = None  # not measured, and better by what is known
    rates: dict[Candidate, tuple[float, float]] = field(default_factory=dict)  # of all that were measured
    model: ThroughputModel | None = None  # with what was learnt

    @property
    def is_better(self) -> bool:
        """Whether it beats what is there by more than the noise."""
        return self.gain is None or self.gain - self.gain_error > 1


def next_step(problem: Problem, results: Sequence[ProbeOutcome]) -> Probe | TuneAnswer:
    """Return what to try next, or the answer where nothing more is worth trying or there is no time."""
    elapsed_s = max((one.at_s for one in results), default=0.0)
    view = _View.of(problem, results)
    baseline = view.place(problem.baseline)
    if len(view.tried) > 1 and baseline is not None and not view.counts[baseline] and not view.is_out[baseline]:
        place: int | None = baseline
    elif problem.demand_per_s is not None and view.may_meet(problem.demand_per_s):
        place = view.next_for_demand(problem.demand_per_s)
    else:
        place = view.next_for_rate()
    wanted = view.space[place] if place is not None else None
    answer = replace(answer_of(problem, results), is_settled=wanted is None)
    if wanted is None and problem.beside and answer.candidate is not None and answer.candidate.num_workers:
        beside = replace(answer.candidate, loader="torch", backend="process", batches_ahead=None, io_depth=None)
        wanted = beside if all(one.candidate != beside for one in results) else None
    if wanted is not None:
        stretch_s = _stretch_s(view.model, wanted)
        if elapsed_s + _start_s(results) + stretch_s <= problem.seconds or not view.tried:
            return Probe(wanted, stretch_s)
    return answer


def answer_of(problem: Problem, results: Sequence[ProbeOutcome]) -> TuneAnswer:
    """Return the best so far."""
    view = _View.of(problem, results)
    if not view.tried:
        return TuneAnswer(candidate=None, model=view.model)
    demand = problem.demand_per_s
    chosen, meets = view.leader(tried_only=True), None
    if demand is not None:
        meeting = [one for one in view.tried if view.chance_above(one, demand) > 1 - _UNSURE]
        meeting = meeting or [one for one in view.tried if view.chance_above(one, demand) >= 0.5]
        meets = bool(meeting)
        chosen = min(meeting, key=lambda one: view.space[one].cost) if meeting else chosen
    gain, error = view.ratio(chosen, view.place(problem.baseline))
    others = [one for one in results if one.failure is None and one.candidate not in view.space]
    beside = {one.candidate: (one.samples_per_s, one.error * one.samples_per_s) for one in others}
    return TuneAnswer(
        candidate=view.space[chosen],
        samples_per_s=view.rate(chosen)[0],
        error=view.rate(chosen)[1],
        gain=gain,
        gain_error=error,
        meets_demand=meets,
        expected=None if meets or view.counts[view.leader()] else view.space[view.leader()],
        rates={view.space[one]: view.rate(one) for one in view.tried} | beside,
        model=view.model,
    )


def next_of_sweep(problem: Problem, results: Sequence[ProbeOutcome], *, rounds: int) -> Probe | TuneAnswer:
    """Try each candidate of the space in turn, so many rounds or as long as there is time."""
    counts = {one: sum(each.candidate == one for each in results) for one in problem.space}
    failed = {one.candidate for one in results if one.failure is not None}
    left = [one for one in problem.space if counts[one] < rounds and one not in failed]
    if not left:
        return replace(answer_of(problem, results), is_settled=True)
    num_left = sum(rounds - counts[one] for one in left)
    left_s = problem.seconds - max((one.at_s for one in results), default=0.0)
    stretch_s = max(_SHORTEST_S, left_s / num_left - _start_s(results))
    wanted = min(left, key=lambda one: (counts[one], problem.space.index(one)))
    if counts[wanted] and _start_s(results) + stretch_s > left_s:
        return answer_of(problem, results)
    return Probe(wanted, stretch_s)


# ------------------------------------------------------------------------------------------------ what is known


@dataclass(frozen=True, eq=False)
class _View:
    """Every candidate's logarithm of samples a second, as far as it is known."""

    space: tuple[Candidate, ...]
    model: ThroughputModel
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]  # covariances
    counts: NDArray[np.int64]  # of probes
    worth: NDArray[np.float64]  # the mean, less what a candidate costs
    is_out: NDArray[np.bool_]  # tried, and failed

    @classmethod
    def of(cls, problem: Problem, results: Sequence[ProbeOutcome]) -> _View:
        good = [one for one in results if one.failure is None]
        space = _space(problem, good)
        good = [one for one in good if one.candidate in space]  # what is seen beside them is not chosen
        model = problem.model.learnt([(one.candidate, one.samples_per_s) for one in good])
        at = {candidate: place for place, candidate in enumerate(space)}
        prior = np.log([model.per_s(one) for one in space])
        places = np.array([at[one.candidate] for one in good], dtype=np.int64)
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
        counts = np.bincount(places, minlength=len(space))
        dear = [
            _PER_DOUBLING * (math.log2(1 + one.num_workers) + (one.batches_ahead is not None))
            + _THREADS_FROM * (one.backend == "thread")
            for one in space
        ]
        return cls(space, model, mean, spread, counts, mean - np.array(dear), _failed(space, results))

    @property
    def tried(self) -> list[int]:
        return np.flatnonzero((self.counts > 0) & ~self.is_out).tolist()

    def place(self, candidate: Candidate | None) -> int | None:
        return self.space.index(candidate) if candidate in self.space else None

    def leader(self, *, tried_only: bool = False) -> int:
        """Return the one that is worth most."""
        allowed = ~self.is_out & (self.counts > 0 if tried_only else True)
        return int(np.argmax(np.where(allowed, self.worth, -np.inf)))

    def rate(self, place: int) -> tuple[float, float]:
        per_s = math.exp(self.mean[place])
        return per_s, 1.96 * per_s * math.sqrt(max(0.0, self.spread[place, place]))

    def ratio(self, place: int, other: int | None) -> tuple[float | None, float]:
        """Return how many times as much one gives as another, and the error; None where that was not measured."""
        if other is None or not self.counts[other]:
            return None, 0.0
        ratio = math.exp(self.mean[place] - self.mean[other])
        return ratio, 1.96 * ratio * float(self._apart(place)[other])

    def _apart(self, place: int) -> NDArray[np.float64]:
        """Return how well the distance of each from one is known."""
        own = np.diagonal(self.spread)
        apart: NDArray[np.float64] = np.sqrt(np.maximum(own + own[place] - 2 * self.spread[place], 1e-12))
        return apart

    def next_for_rate(self) -> int | None:
        """Return what to try to find the highest rate; None where nobody may be better than the leader."""
        if self.is_out.all():
            return None
        leader = self.leader()
        if not self.counts[leader]:
            return leader
        apart = self._apart(leader)
        above = (self.worth - self.worth[leader]) / apart
        # What is to be hoped for from each: how far it may lie above the leader, times how likely that is.
        hope = apart * (np.exp(-(above**2) / 2) / math.sqrt(2 * math.pi) + above * _normal(above))
        hope[self.is_out | (self.counts >= _MOST_PROBES) | (np.arange(len(self.space)) == leader)] = 0.0
        rival = int(np.argmax(hope))
        if hope[rival] < _WORTH_A_PROBE:
            return None if self.counts[leader] > 1 else leader
        return leader if self.counts[leader] < min(self.counts[rival], _MOST_PROBES) else rival

    def chance_above(self, place: int, per_s: float) -> float:
        above = (self.mean[place] - math.log(HEADROOM * per_s)) / math.sqrt(max(self.spread[place, place], 1e-12))
        return float(_normal(np.array([above]))[0])

    def may_meet(self, per_s: float) -> bool:
        return any(self.chance_above(one, per_s) > _UNSURE for one in np.flatnonzero(~self.is_out).tolist())

    def next_for_demand(self, per_s: float) -> int | None:
        """Return what to try to find the cheapest that gives so much; None where it is found."""
        allowed = sorted(np.flatnonzero(~self.is_out).tolist(), key=lambda one: self.space[one].cost)
        chances = {one: self.chance_above(one, per_s) for one in allowed}
        sure = next((one for one in allowed if self.counts[one] and chances[one] > 1 - _UNSURE), None)
        cheaper = allowed if sure is None else allowed[: allowed.index(sure)]
        open_ones = [one for one in cheaper if chances[one] > _UNSURE and self.counts[one] < _MOST_PROBES]
        likely = [one for one in open_ones if chances[one] >= 0.5]
        return likely[0] if likely else max(open_ones, key=lambda one: chances[one], default=None)


def _space(problem: Problem, good: Sequence[ProbeOutcome]) -> tuple[Candidate, ...]:
    """Return what there is to choose from: with more batches ahead, too, where a slow sample needs them."""
    space = dict.fromkeys(problem.space)
    if problem.baseline is not None:
        space[problem.baseline] = None
    for one in good:
        # What is ahead lasts for so long: a sample that takes longer is waited for.
        lasts_s = one.batches_ahead * (one.candidate.batch_size or 1) / one.samples_per_s
        is_own_choice = one.candidate in space and one.candidate.batches_ahead is None
        if is_own_choice and one.candidate.num_workers and one.worst_sample_s > lasts_s > 0:
            space[replace(one.candidate, batches_ahead=2 * one.batches_ahead)] = None
    return tuple(space)


def _likeness(space: Sequence[Candidate]) -> NDArray[np.float64]:
    """Return how much of the model's error two candidates share."""
    doublings = np.log2([1.0 + one.num_workers for one in space])
    like: NDArray[np.float64] = np.exp(-np.abs(doublings[:, None] - doublings[None]) / _REACH)
    depths = np.log2([1.0 + (one.io_depth or 8) for one in space])
    like *= np.exp(-np.abs(depths[:, None] - depths[None]) / _REACH)
    shares = {_OF_FAMILY: "family", _OF_AHEAD: "batches_ahead", _OF_BATCH: "batch_size"}
    for share, name in shares.items():
        keys = [getattr(one, name) for one in space]
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
        [
            one in failed or any(one.family == other.family and one.num_workers >= other.num_workers for other in short)
            for one in space
        ]
    )


def _start_s(results: Sequence[ProbeOutcome]) -> float:
    """Return what starting and stopping took beside the last stretches."""
    return max((one.took_s - one.measured_s for one in results[-3:] if one.failure is None), default=1.0)


def _stretch_s(model: ThroughputModel, candidate: Candidate) -> float:
    """Return how long to try one."""
    # What is under way at either end of a stretch, a batch or a sample in each worker, is its error.
    grain = max(candidate.batch_size or 1, candidate.num_workers)
    return min(_LONGEST_S, max(_SHORTEST_S, _GRAINS * grain / model.per_s(candidate)))


def _normal(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of a normal distribution below each value."""
    return np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in values])
