"""Trainings that the system does not give enough, and trainings that end for it."""

from __future__ import annotations

import random

from .drawing import Drawn, Spec, fast, supply_at

_MISSED = 0.6  # at least so much of what is read does not fit in memory


def cpu_quota(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": 2, "step": "computes"}
    spec["burn_s"] = supply_at(spec, 3.0)
    return Drawn("cpu_quota", spec, frozenset({"cpu_throttled"}), limits={"cores": rng.uniform(0.4, 0.7)})


def memory_short(rng: random.Random, spec: Spec) -> Drawn:
    """The files that are read again and again do not fit beside the rest, and the disk is slower than the steps.

    The training itself fills what is left of its control group, whatever torch takes, and then reads all files once:
    what it reads from then on it has read before.
    """
    spec = {**spec, "num_workers": 2, "step": "waits", "loader": "torch", "persistent": True}
    count, size = 96, 2 << 20
    spec["reads_first"] = True
    spec["memory_bytes"], spec["leave_bytes"] = 2 << 30, rng.randint(112 << 20, 144 << 20)
    demand = spec["batch_size"] / spec["step_s"] * size  # bytes a second
    limits = {
        "memory_bytes": float(spec["memory_bytes"]),
        "read_bytes_per_s": demand * _MISSED * rng.uniform(0.25, 0.5),
    }
    cause = frozenset({"memory_pressure"})
    return Drawn("memory_short", spec, cause, limits=limits, files=(count, size), needs_all=True)


def swapping(rng: random.Random, spec: Spec) -> Drawn:
    limit = 2 << 30
    spec = fast({**spec, "num_workers": 1, "ballast_bytes": limit + (100 << 20), "touch_ballast": True}, rng)
    limits = {"memory_bytes": float(limit), "swap_bytes": float(4 << 30)}
    return Drawn("swap", spec, frozenset({"swap"}), limits=limits, needs_all=True)


def shm_small(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast({**spec, "loader": "torch", "num_workers": 2, "floats": 1 << 20}, rng)
    return Drawn("shm_small", spec, frozenset({"shm_full"}), limits={"shm_bytes": float(16 << 20)}, may_fail=True)


def fd_limit(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast({**spec, "leaks_files": True, "loader": "torch", "num_workers": 1}, rng)
    return Drawn("fd_limit", spec, frozenset({"fd_limit"}), limits={"open_files": 256.0}, may_fail=True)


def worker_dies(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast(
        {**spec, "loader": "torch", "num_workers": 2, "dies_after": rng.randint(4, 20) * spec["batch_size"]}, rng
    )
    return Drawn("worker_lost", spec, frozenset({"worker_lost"}), may_fail=True)


def worker_hang(rng: random.Random, spec: Spec) -> Drawn:
    """A worker that stands still for good: until torch's `timeout`, or until somebody ends the run."""
    spec = fast({**spec, "num_workers": rng.choice([2, 3]), "loader": "torch"}, rng)
    spec["hangs_after"] = rng.randint(3, 12) * spec["batch_size"]
    ended_by = rng.choice(["timeout", "SIGINT", "SIGTERM"])
    if ended_by == "timeout":
        spec["timeout"] = rng.choice([3, 5])
    return Drawn(
        f"worker_hang, {ended_by}",
        spec,
        frozenset({"worker_hang"}),
        ended_by="" if ended_by == "timeout" else ended_by,
        may_fail=True,
    )


def corrupt_sample(rng: random.Random, spec: Spec) -> Drawn:
    """One of many arrays on disk is damaged."""
    spec = {**fast(spec, rng), "num_workers": rng.choice([1, 2])}
    damage = rng.choice(["cut", "flipped"])
    cause = frozenset({"corrupt_sample"})
    return Drawn(f"corrupt_sample, {damage}", spec, cause, files=(200, 4 << 10), damage=damage, may_fail=True)
