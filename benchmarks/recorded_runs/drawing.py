"""Which training, with which cause and how much of it: drawn at random, so that nothing is tuned to one case."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """One training to run: what it does, what limits it, and what must be found."""

    name: str
    spec: Spec
    expected: frozenset[str]  # any of these may come first; empty: there must be no finding
    bottleneck: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    files: tuple[int, int] = (0, 0)  # how many files of how many bytes it reads
    may_fail: bool = False
    needs_gpu: bool = False


def _base(rng: random.Random, seconds: float) -> Spec:
    workers = rng.choice([1, 2, 2, 3, 4])
    batch = rng.choice([4, 8, 8, 12])
    return {
        "seed": rng.randrange(1 << 30),
        "seconds": seconds,
        "num_workers": workers,
        "batch_size": batch,
        "prefetch_factor": rng.choice([2, 2, 3, 4]),
        "persistent": rng.random() < 0.5,
        "step": rng.choice(["waits", "computes"]),
        "step_s": rng.uniform(0.02, 0.06),
        "num_samples": 4000,
        "num_epochs": 50,
        "loader": "headrace" if rng.random() < 0.25 else "torch",
    }


def _supply_at(spec: Spec, ratio: float) -> float:
    """Return what a sample may cost for the workers to supply `ratio` times what the steps demand."""
    return float(spec["step_s"] * spec["num_workers"] / spec["batch_size"] / ratio)


def _fast(spec: Spec, rng: random.Random) -> Spec:
    return {**spec, "sleep_s": min(0.003, _supply_at(spec, rng.uniform(4, 8)))}


def healthy(rng: random.Random, spec: Spec) -> Drawn:
    return Drawn("healthy", _fast(spec, rng), frozenset())


def compute(rng: random.Random, spec: Spec) -> Drawn:
    return Drawn("compute", _fast({**spec, "step_s": rng.uniform(0.1, 0.25)}, rng), frozenset())


def cpu_decode(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([1, 2]), "step": "waits"}
    spec["burn_s"] = _supply_at(spec, rng.uniform(0.25, 0.5))
    return Drawn("cpu_decode", spec, frozenset({"loader_throughput", "batch_lockstep"}), "cpu_decode")


def gil(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([2, 3, 4]), "loader": "headrace", "backend": "thread", "step": "waits"}
    spec["python_s"] = spec["step_s"] / spec["batch_size"] / rng.uniform(0.3, 0.6)
    return Drawn("gil", spec, frozenset({"loader_throughput", "batch_lockstep"}), "gil")


def io_bandwidth(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([2, 4]), "is_cold": True, "step": "waits"}
    size = rng.choice([1, 2]) << 20
    demand_per_s = spec["batch_size"] / spec["step_s"] * size
    limit = demand_per_s * rng.uniform(0.2, 0.4)
    return Drawn(
        "io_bandwidth",
        spec,
        frozenset({"loader_throughput", "batch_lockstep"}),
        "io_bandwidth",
        limits={"read_bytes_per_s": limit},
        files=(64, size),
    )


def io_latency(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([2, 4]), "is_cold": True, "step": "waits"}
    limit = spec["batch_size"] / spec["step_s"] * rng.uniform(0.2, 0.4)
    return Drawn(
        "io_latency",
        spec,
        frozenset({"loader_throughput", "batch_lockstep"}),
        "io_latency",
        limits={"reads_per_s": max(20.0, limit)},
        files=(256, 16 << 10),
    )


def straggler_worker(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast({**spec, "num_workers": rng.choice([3, 4]), "loader": "torch", "step": "waits"}, rng)
    spec["slow_worker_s"] = spec["step_s"] * spec["num_workers"] / spec["batch_size"] * rng.uniform(2.5, 4)
    return Drawn("straggler_worker", spec, frozenset({"straggler_sample"}))


def rare_heavy(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast({**spec, "num_workers": rng.choice([2, 3]), "loader": "torch", "step": "waits"}, rng)
    spec["heavy_every"] = rng.randint(12, 25) * spec["batch_size"]
    spec["heavy_s"] = rng.uniform(0.8, 1.5)
    spec["prefetch_factor"] = 2
    return Drawn("rare_heavy", spec, frozenset({"straggler_sample"}))


def checkpoint(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast(spec, rng)
    spec["state_floats"] = rng.randint(40, 80) << 20 >> 2 << 1  # 80 to 160 MB
    spec["checkpoint_every"] = rng.randint(8, 16)
    return Drawn("checkpoint", spec, frozenset({"checkpoint"}))


def evaluation(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast(spec, rng)
    spec["evaluate_every"], spec["evaluation_s"] = rng.randint(15, 30), rng.uniform(0.6, 1.5)
    return Drawn("evaluation", spec, frozenset({"evaluation"}))


def chatty_logging(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast(spec, rng)
    spec["log_lines"] = rng.randint(2, 5)
    spec["log_line_s"] = spec["step_s"] * rng.uniform(0.2, 0.4)
    return Drawn("logging", spec, frozenset({"logging"}))


def garbage(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast(spec, rng)
    spec["objects"], spec["collect_every"] = rng.randint(1_000_000, 2_000_000), rng.choice([3, 5, 8])
    spec["num_workers"] = min(2, spec["num_workers"])
    return Drawn("gc", spec, frozenset({"gc"}))


def epoch_start(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast({**spec, "persistent": False, "loader": "torch", "start_method": "spawn", "num_workers": 2}, rng)
    spec["num_samples"] = spec["batch_size"] * rng.randint(6, 15)
    return Drawn("epoch_start", spec, frozenset({"epoch_start"}))


def cpu_quota(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": 2, "step": "computes"}
    spec["burn_s"] = _supply_at(spec, 3.0)
    return Drawn("cpu_quota", spec, frozenset({"cpu_throttled"}), limits={"cores": rng.uniform(0.4, 0.7)})


def memory_short(rng: random.Random, spec: Spec) -> Drawn:
    """The files that are read again and again do not fit beside the rest."""
    limit = 2 << 30
    spec = {**spec, "num_workers": 2, "step": "waits", "loader": "torch", "ballast_bytes": limit - (170 << 20)}
    return Drawn(
        "memory_short",
        spec,
        frozenset({"memory_pressure"}),
        limits={"memory_bytes": float(limit + rng.randint(0, 20 << 20)), "read_bytes_per_s": rng.uniform(80e6, 150e6)},
        files=(120, 2 << 20),
    )


def swapping(rng: random.Random, spec: Spec) -> Drawn:
    limit = 2 << 30
    spec = _fast({**spec, "num_workers": 1, "ballast_bytes": limit + (100 << 20), "touch_ballast": True}, rng)
    return Drawn("swap", spec, frozenset({"swap"}), limits={"memory_bytes": float(limit), "swap_bytes": float(4 << 30)})


def shm_small(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast({**spec, "loader": "torch", "num_workers": 2, "floats": 1 << 20}, rng)
    return Drawn("shm_small", spec, frozenset({"shm_full"}), limits={"shm_bytes": float(16 << 20)}, may_fail=True)


def fd_limit(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast({**spec, "leaks_files": True, "loader": "torch", "num_workers": 1}, rng)
    return Drawn("fd_limit", spec, frozenset({"fd_limit"}), limits={"open_files": 256.0}, may_fail=True)


def worker_dies(rng: random.Random, spec: Spec) -> Drawn:
    spec = _fast({**spec, "loader": "torch", "num_workers": 2, "dies_after": rng.randint(30, 200)}, rng)
    return Drawn("worker_lost", spec, frozenset({"worker_lost"}), may_fail=True)


def copies(rng: random.Random, spec: Spec) -> Drawn:
    """Large batches copied to the device from pageable memory, while the loop waits."""
    spec = {**spec, "device": "cuda", "num_workers": 4, "batch_size": 64, "step": "waits", "step_s": 0.005}
    spec["floats"] = rng.choice([1, 2]) << 20  # 256 or 512 MiB a batch: 14 to 28 ms at 18.7 GB/s
    return Drawn("copies", spec, frozenset({"h2d_copy"}), needs_gpu=True)


def mixture(rng: random.Random, spec: Spec) -> Drawn:
    """Two causes, one at least twice the other."""
    spec = _fast(spec, rng)
    first, second = rng.sample(["evaluation", "logging", "cpu_decode"], 2)
    for name, share in ((first, 0.45), (second, 0.15)):
        lost_s = spec["step_s"] * share / (1 - 0.6)  # a step
        if name == "evaluation":
            spec["evaluate_every"], spec["evaluation_s"] = 20, 20 * lost_s
        elif name == "logging":
            spec["log_lines"], spec["log_line_s"] = 2, lost_s / 2
        else:
            spec["num_workers"], spec["step"] = 1, "waits"
            spec["burn_s"] = (spec["step_s"] / 0.4 + lost_s) / spec["batch_size"]
    causes = {"evaluation": {"evaluation"}, "logging": {"logging"}}
    expected = causes.get(first, {"loader_throughput", "batch_lockstep"})
    return Drawn(f"{first}+{second}", spec, frozenset(expected))


KINDS: dict[str, Callable[[random.Random, Spec], Drawn]] = {
    one.__name__: one
    for one in (
        *(healthy, compute, cpu_decode, gil, io_bandwidth, io_latency, straggler_worker, rare_heavy, checkpoint),
        *(evaluation, chatty_logging, garbage, epoch_start, cpu_quota, memory_short, swapping, shm_small, fd_limit),
        *(worker_dies, copies, mixture),
    )
}


def draw(kind: str, seed: int, *, seconds: float) -> Drawn:
    """Return the training of a seed."""
    rng = random.Random(f"{kind}-{seed}")
    return KINDS[kind](rng, _base(rng, seconds))
