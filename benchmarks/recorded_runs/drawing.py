"""Which training, with which cause and how much of it: drawn at random, so that nothing is tuned to one case."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]
Kind = Callable[[random.Random, Spec], "Drawn"]
DATA = frozenset({"loader_throughput", "batch_lockstep"})  # one cause in two shapes: the pool is too slow


@dataclass(frozen=True)
class Drawn:
    """One training to run: what it does, what limits it, and what must be found."""

    name: str
    spec: Spec
    expected: frozenset[str]  # any of these may come first; empty: there must be no finding
    bottleneck: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    files: tuple[int, int] = (0, 0)  # how many files of how many bytes it reads
    damage: str = ""  # what is done to one of the files, which are arrays then
    shards: tuple[int, int, int] = (0, 0, 0)  # how many tar archives of how many samples of how many bytes
    pair: tuple[tuple[str, frozenset[str]], ...] = ()  # of a mixture: what the training measures, and its causes
    ended_by: str = ""  # the signal that ends it once a worker hangs
    may_fail: bool = False
    needs_gpu: bool = False
    needs_all: bool = False  # it loads what all processes share (disk, memory): nothing else may run beside it


def base_spec(rng: random.Random, seconds: float) -> Spec:
    """A training as it may be without any cause."""
    return {
        "seed": rng.randrange(1 << 30),
        "seconds": seconds,
        "num_workers": rng.choice([1, 2, 2, 3, 4]),
        "batch_size": rng.choice([4, 8, 8, 12]),
        "prefetch_factor": rng.choice([2, 2, 3, 4]),
        "persistent": rng.random() < 0.5,
        "step": rng.choice(["waits", "computes"]),
        "step_s": rng.uniform(0.02, 0.06),
        "num_samples": 4000,
        "num_epochs": 50,
        "loader": "headrace" if rng.random() < 0.3 else "torch",
    }


def supply_at(spec: Spec, ratio: float) -> float:
    """Return what a sample may cost for the workers to supply `ratio` times what the steps demand."""
    return float(spec["step_s"] * spec["num_workers"] / spec["batch_size"] / ratio)


def fast(spec: Spec, rng: random.Random) -> Spec:
    """A training whose samples are no trouble."""
    return {**spec, "sleep_s": min(0.003, supply_at(spec, rng.uniform(4, 8)))}


def draw(kinds: dict[str, Kind], kind: str, seed: int, *, seconds: float, attempt: int = 0) -> Drawn:
    """Return the training of a seed; `attempt` counts those before it whose cause did not come about."""
    rng = random.Random(f"{kind}-{seed}" + (f"-{attempt}" if attempt else ""))
    return kinds[kind](rng, base_spec(rng, seconds))
