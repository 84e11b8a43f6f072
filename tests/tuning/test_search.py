"""The search, against simulated loaders: what it chooses, what it tries, and when it stops."""

import math
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.tuning.model import Candidate, Service, candidates, worker_counts
from headrace.tuning.search import Failure, Probe, ProbeOutcome, Problem, TuneAnswer, answer_of, next_step

SPACE = tuple(candidates(worker_counts(16), batch_sizes=(8,)))


@dataclass(frozen=True)
class Simulated:
    """A loader whose rates are known: what a sample costs, and what is shared."""

    sample_s: float = 0.03
    cpu_share: float = 0.02
    lock_share: float = 0.0  # of the computing
    cores: float = 2.0
    turn_s: float = 0.0  # of a sample, one after the other
    thrash: float = 0.0  # lost by each worker beyond the fourth
    most_workers: int = 64  # more than these take too much memory
    noise: float = 0.02
    bias: float = 1.0  # of what is measured in-process
    deeper_gain: float = 1.0  # of more batches ahead
    keeps_gain: float = 1.0  # of torch's workers that keep their heaps
    faults_per_s: float = 0.0
    threads: int = 1

    def per_s(self, one: Candidate) -> float:
        cpu_s, workers = self.cpu_share * self.sample_s, one.num_workers
        if not workers:
            return 1 / self.sample_s
        limits = [workers / self.sample_s, self.cores / cpu_s, 1 / max(self.turn_s, 1e-9)]
        if one.backend == "thread":
            limits.append(1 / max(self.lock_share * cpu_s, 1e-9))
        lost = (1 - self.thrash) ** max(0, workers - 4) * (0.995 if one.backend == "thread" else 1)
        gains = (self.deeper_gain if one.batches_ahead else 1) * (self.keeps_gain if one.keeps_heap else 1)
        return min(limits) * lost * gains * (0.85 if one.loader == "torch" else 1)

    def problem(self, *, seconds: float = 60.0, **more: object) -> Problem:
        sample_s = self.sample_s * self.bias
        service = Service(
            sample_s=sample_s,
            cpu_s=self.cpu_share * sample_s,
            cores=self.cores,
            lock_share=self.lock_share * self.cpu_share,
        )
        return Problem(space=SPACE, service=service, seconds=seconds, **more)  # type: ignore[arg-type]  # as they are named

    def search(self, problem: Problem, seed: int = 0) -> tuple[TuneAnswer, list[ProbeOutcome]]:
        """Do what the search says until it has an answer."""
        draw, results, now = random.Random(seed), [], 3.0
        for _ in range(200):
            step = next_step(problem, results)
            if isinstance(step, TuneAnswer):
                return step, results
            assert isinstance(step, Probe)
            assert step == next_step(problem, results)  # nothing but what it is given
            now += step.seconds + 0.5
            is_too_large = step.candidate.num_workers > self.most_workers
            results.append(
                ProbeOutcome(
                    candidate=step.candidate,
                    at_s=now,
                    took_s=step.seconds + 0.5,
                    measured_s=step.seconds,
                    samples_per_s=0.0
                    if is_too_large
                    else self.per_s(step.candidate) * math.exp(draw.gauss(0, self.noise)),
                    first_batch_s=0.3,
                    batches_ahead=4,
                    faults_per_s=self.faults_per_s,
                    threads=self.threads,
                    failure=Failure.MEMORY if is_too_large else None,
                )
            )
        raise AssertionError("it goes on for ever")

    def share(self, answer: TuneAnswer) -> float:
        """Return the part of the best rate that the answer truly gives."""
        assert answer.candidate is not None
        within = [one for one in SPACE if one.num_workers <= self.most_workers]
        return self.per_s(answer.candidate) / max(map(self.per_s, within))


LOADERS = {
    "waiting": Simulated(),
    "computing": Simulated(cpu_share=1.0, lock_share=0.6),
    "computing on eight": Simulated(cpu_share=1.0, lock_share=0.2, cores=8),
    "mixed": Simulated(cpu_share=0.3, lock_share=0.5),
    "one lock": Simulated(turn_s=0.01),
    "all but one lock": Simulated(turn_s=0.028),
    "a disk that thrashes": Simulated(thrash=0.06),
    "little memory": Simulated(most_workers=7),
    "measured wrong in-process": Simulated(bias=3.0),
    "measured too well in-process": Simulated(cpu_share=0.5, bias=0.4),
    "noisy": Simulated(cpu_share=0.6, noise=0.06),
}


@pytest.mark.parametrize("name", LOADERS)
def test_it_finds_what_is_near_the_best(name: str) -> None:
    simulated = LOADERS[name]
    found = [simulated.search(simulated.problem(), seed) for seed in range(12)]
    shares = sorted(simulated.share(answer) for answer, _ in found)
    assert shares[6] >= 0.97
    assert shares[0] >= 0.93 - 2 * simulated.noise
    assert sum(len(results) for _, results in found) / 12 < 30  # of the 17 that there are: most of them equal, some


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        Simulated,
        sample_s=st.floats(0.001, 0.3),
        cpu_share=st.floats(0.01, 1.0),
        lock_share=st.floats(0.0, 1.0),
        cores=st.sampled_from([1.0, 2.0, 4.0, 16.0, 64.0]),
        turn_s=st.sampled_from([0.0, 0.0005, 0.005]),
        noise=st.sampled_from([0.005, 0.02]),
        bias=st.floats(0.5, 2.0),
    ),
    st.integers(0, 1000),
)
def test_whatever_the_loader_it_comes_near_the_best(simulated: Simulated, seed: int) -> None:
    answer, _ = simulated.search(simulated.problem(seconds=120), seed)
    assert simulated.share(answer) >= 0.9


@settings(max_examples=30, deadline=None)
@given(st.floats(1, 60), st.integers(0, 100))
def test_it_keeps_within_its_time(seconds: float, seed: int) -> None:
    simulated = Simulated(cpu_share=0.4)
    answer, results = simulated.search(simulated.problem(seconds=seconds), seed)
    assert results[-1].at_s <= seconds + 1 or len(results) == 1  # something is always tried
    assert answer.candidate is not None


def test_what_took_all_of_the_time_to_import_is_still_tried_with_workers_once() -> None:
    simulated, alone = Simulated(), Candidate(num_workers=0, batch_size=8)
    problem = simulated.problem(seconds=10)
    first = ProbeOutcome(candidate=alone, at_s=12.0, took_s=2.0, measured_s=1.0, samples_per_s=simulated.per_s(alone))
    step = next_step(problem, [first])
    assert isinstance(step, Probe)
    assert step.candidate.num_workers > 1
    second = replace(first, candidate=step.candidate, at_s=14.0, samples_per_s=simulated.per_s(step.candidate))
    assert next_step(problem, [first, second]) == replace(answer_of(problem, [first, second]), is_settled=False)


def test_of_those_that_noise_cannot_tell_apart_the_cheapest_is_told() -> None:
    problem = replace(Simulated().problem(), space=tuple(Candidate(num_workers=count) for count in (2, 3, 4)))
    rates = {2: 98.0, 3: 100.0, 4: 99.0}
    results = [
        ProbeOutcome(candidate=one, at_s=9.0, took_s=2.0, measured_s=1.0, samples_per_s=rates[one.num_workers])
        for one in problem.space
    ]
    assert answer_of(problem, results).candidate == Candidate(num_workers=2)
    results[0] = replace(results[0], samples_per_s=95.0)  # further off than 2.5 %, whatever the noise
    assert answer_of(problem, results).candidate == Candidate(num_workers=3)


@settings(max_examples=40, deadline=None)
@given(st.floats(20, 700), st.integers(0, 100))
def test_with_a_demand_it_wants_the_cheapest_that_meets_it(demand: float, seed: int) -> None:
    simulated = Simulated(cpu_share=0.05, noise=0.01)
    answer, _ = simulated.search(simulated.problem(demand_per_s=demand), seed)
    assert answer.candidate is not None
    most = max(map(simulated.per_s, SPACE))
    if demand > most:
        assert not answer.meets_demand
        assert simulated.share(answer) > 0.95
    elif 1.15 * demand < most:
        assert answer.meets_demand
        assert simulated.per_s(answer.candidate) >= 0.99 * demand
        cheaper = [one for one in SPACE if one.num_workers < answer.candidate.num_workers]
        assert all(simulated.per_s(one) < 1.2 * demand for one in cheaper)


def test_what_failed_is_not_tried_again_nor_what_needs_more_memory() -> None:
    simulated = Simulated(most_workers=7)
    answer, results = simulated.search(simulated.problem())
    assert answer.candidate is not None
    assert answer.candidate.num_workers == 6
    for place, one in enumerate(results):
        later = [each.candidate for each in results[place + 1 :]]
        if one.failure is not None:
            assert all(
                each.family != one.candidate.family or each.num_workers < one.candidate.num_workers for each in later
            )


def test_nothing_that_works_has_no_answer() -> None:
    simulated = Simulated(most_workers=-1)
    problem = replace(simulated.problem(), space=SPACE[:4])
    answer, results = simulated.search(problem)
    assert answer.candidate is None
    assert len(results) == len({one.candidate for one in results})


def test_it_says_whether_what_is_there_is_beaten() -> None:
    simulated = Simulated(cpu_share=1.0, lock_share=1.0)
    poor, good = Candidate(loader="torch", num_workers=1, batch_size=8), Candidate(num_workers=2, batch_size=8)
    answer, results = simulated.search(simulated.problem(baseline=poor))
    assert answer.is_better
    assert answer.gain == pytest.approx(simulated.per_s(good) / simulated.per_s(poor), rel=0.1)
    assert any(one.candidate == poor for one in results)
    answer, _ = simulated.search(simulated.problem(baseline=good))
    assert not answer.is_better


def test_what_was_measured_of_a_candidate_counts_however_like_another_it_is() -> None:
    space = tuple(Candidate(num_workers=4, batch_size=8, io_depth=depth) for depth in (None, 8, 16))
    problem = replace(Simulated().problem(), space=space)
    results = [
        ProbeOutcome(candidate=one, at_s=at_s, took_s=2.0, measured_s=1.0, samples_per_s=per_s)
        for at_s, (one, per_s) in enumerate(zip(space, (100.0, 150.0, 120.0), strict=True))
    ]
    assert answer_of(problem, results).candidate == space[1]


def test_torchs_loader_is_seen_beside_ours() -> None:
    answer, results = Simulated().search(Simulated().problem())
    assert results[-1].candidate == Candidate(loader="torch", num_workers=16, batch_size=8)
    assert answer.candidate is not None
    assert answer.candidate.loader == "headrace"


def test_what_may_help_for_nothing_is_tried_in_turn_where_it_could_matter() -> None:
    simulated = Simulated(faults_per_s=1e6, threads=9, keeps_gain=1.3)
    answer, results = simulated.search(simulated.problem(nodes=2))
    torchs = Candidate(loader="torch", num_workers=16, batch_size=8)
    kept, bound = replace(torchs, keeps_heap=True), replace(torchs, threads=1)
    placed = Candidate(num_workers=16, batch_size=8, cpus="numa")
    assert [one.candidate for one in results[-8:]] == [torchs, kept, bound, placed] * 2
    assert answer.candidate == replace(placed, cpus=None)  # what costs nothing is told of, not chosen
    ratio = answer.rates[kept][0] / answer.rates[torchs][0]
    assert ratio == pytest.approx(1.3, rel=0.1)


@pytest.mark.parametrize("gain", [1.0, 1.4])
def test_a_deeper_queue_is_tried_near_the_best_and_kept_where_it_helps(gain: float) -> None:
    simulated, num_deeper = Simulated(cpu_share=0.15, deeper_gain=gain), 0
    for seed in range(8):
        answer, results = simulated.search(simulated.problem(), seed)
        assert any(one.candidate.batches_ahead for one in results)
        assert answer.candidate is not None
        num_deeper += answer.candidate.batches_ahead is not None
    assert num_deeper == 8 if gain > 1 else num_deeper <= 1  # one of eight may be taken in by noise


def test_a_sweep_tries_each_in_turn() -> None:
    simulated = Simulated()
    space = tuple(Candidate(loader="torch", num_workers=count, batch_size=8) for count in (0, 4, 8))
    answer, results = simulated.search(replace(simulated.problem(is_sweep=True), space=space))
    assert [one.candidate.num_workers for one in results] == [0, 4, 8] * 3
    assert answer.is_settled
    assert answer.candidate == space[-1]
    _, few = simulated.search(replace(simulated.problem(seconds=1, is_sweep=True), space=space))
    assert [one.candidate.num_workers for one in few] == [0, 4, 8]  # each of them once, whatever the time
