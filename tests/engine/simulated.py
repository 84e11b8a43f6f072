"""Loaders that are a formula: what `n` workers do, how long a step takes, who else is there, by the second."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.engine.controller import Controller, TuningWindow
from headrace.model import Adjustment, Lever

Supply = Callable[[int, float], float]  # workers, now: samples a second


@dataclass
class Simulated:
    """A loader under its controller. `supply` is what workers can do; `on_core`, `no_core` what they say of cores."""

    supply: Supply
    step_rate: Callable[[float], float]  # samples a second that the loop can take, now
    workers: int
    noise: float = 0.0
    seed: int = 0
    processors: int = 2
    most_workers: int = 128
    on_core: float = 0.02
    no_core: Callable[[int, float], float] = lambda n, now: 0.0
    is_short: Callable[[int, float], bool] = lambda n, now: False
    ahead: int = 8
    most_ahead: int = 64
    reach: Callable[[int, float], float] = lambda ahead, now: 1.0  # the share of the supply that so many ahead allow
    window_s: float = 0.5
    now_s: float = 0.0
    history: list[tuple[float, int, float]] = field(default_factory=list)  # when, workers, samples a second
    told: list[Adjustment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.controller, self._random = Controller(), random.Random(self.seed)

    def rate_of(self, workers: int, now_s: float) -> float:
        """What the loop gets, without noise."""
        return min(self.supply(workers, now_s) * self.reach(self.ahead, now_s), self.step_rate(now_s))

    def run(self, seconds: float) -> Simulated:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self._pass_window()
        return self

    def _pass_window(self) -> None:
        self.now_s += self.window_s
        wanted, supply = self.step_rate(self.now_s), self.supply(self.workers, self.now_s)
        supply *= max(0.2, self._random.gauss(1.0, self.noise))
        rate = min(wanted, supply * self.reach(self.ahead, self.now_s))
        no_core = self.no_core(self.workers, self.now_s)
        self.history.append((self.now_s, self.workers, self.rate_of(self.workers, self.now_s)))
        one = self.controller.observe(
            TuningWindow(
                elapsed_s=self.window_s,
                samples=rate * self.window_s,
                wait_s=self.window_s * max(0.0, 1 - rate / wanted),
                busy_s=self.window_s * self.workers * min(1.0, rate / supply),
                num_workers=self.workers,
                most_workers=self.most_workers,
                ahead=self.ahead,
                most_ahead=self.most_ahead,
                processors=self.processors,
                cpu_share=self.on_core * (1 - no_core),
                no_core_share=no_core,
                is_short=self.is_short(self.workers, self.now_s),
            )
        )
        if one is not None:
            self.told.append(one)
            if one.lever is Lever.WORKERS:
                self.workers = one.after
            else:
                self.ahead = one.after

    def best_rate(self, now_s: float) -> float:
        return max(self.rate_of(n, now_s) for n in range(1, self.most_workers + 1))

    def mean_rate(self, last_s: float) -> float:
        rates = [rate for at, _, rate in self.history if at > self.now_s - last_s]
        return sum(rates) / len(rates)

    def moves(self, last_s: float) -> int:
        return sum(one.before != one.after for one in self.told if one.at_s > self.now_s - last_s)


def knee(latency_s: float, most_per_s: float, *, fall: float = 0.0) -> Supply:
    """A disk: each worker waits for it, it gives no more than so much, and less where too many ask."""

    def supply(workers: int, now_s: float) -> float:
        excess = max(0.0, workers * 1.0 / latency_s / most_per_s - 1)
        return min(workers / latency_s, most_per_s) / (1 + fall * excess)

    return supply


def cores(sample_s: float, count: float, *, switching: float = 0.002) -> Supply:
    """Samples that are all computing, on so many cores."""
    return lambda workers, now_s: min(workers, count) / sample_s / (1 + switching * max(0.0, workers - count))


def by_turns(wait_s: float, compute_s: float, count: int) -> tuple[Supply, Supply]:
    """Samples that wait and then compute, on so many cores: samples a second, and the share of time without a core.

    Exact mean value analysis of a closed network: a delay, and one queue for all cores.
    """
    found, chances = [(0.0, 0.0)], [1.0]  # rate and share; that 0, 1, 2, … are at the cores, with one worker fewer
    for workers in range(1, 129):
        each = [n * compute_s / min(n, count) * chances[n - 1] for n in range(1, workers + 1)]
        rate = workers / (wait_s + sum(each))
        found.append((rate, (sum(each) - compute_s) * rate / workers))
        busy = [rate * one / n for n, one in enumerate(each, 1)]
        chances = [max(0.0, 1 - sum(busy)), *busy]
    return lambda workers, now: found[workers][0], lambda workers, now: found[workers][1]


def one_lock(sample_s: float, locked_share: float) -> Supply:
    """Workers that take turns for a part of each sample."""
    return lambda workers, now_s: min(workers, 1 / locked_share) / sample_s
