"""Trainings that wait for data: what a sample, a batch or a shard costs is drawn so that the workers cannot keep up."""

from __future__ import annotations

import random

from .drawing import DATA, Drawn, Spec, fast, supply_at


def cpu_decode(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([1, 2]), "step": "waits"}
    spec["burn_s"] = supply_at(spec, rng.uniform(0.25, 0.5))
    return Drawn("cpu_decode", spec, DATA, "cpu_decode")


def oversubscribed(rng: random.Random, spec: Spec) -> Drawn:
    """Each worker decodes with many threads, more than there are cores."""
    spec = {**spec, "num_workers": 2, "step": "waits", "burn_threads": rng.choice([8, 16])}
    spec["burn_s"] = supply_at(spec, rng.uniform(0.1, 0.2))  # of each core of two; more of them get more
    return Drawn("oversubscribed", spec, DATA, "threads", needs_all=True)


def slow_collate(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([1, 2]), "step": "waits"}
    spec["collate_s"] = spec["step_s"] * spec["num_workers"] / rng.uniform(0.25, 0.5)
    return Drawn("slow_collate", spec, DATA, "collate")


def gil(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([2, 3, 4]), "loader": "headrace", "backend": "thread", "step": "waits"}
    spec["python_s"] = spec["step_s"] / spec["batch_size"] / rng.uniform(0.3, 0.6)
    return Drawn("gil", spec, DATA, "gil")


def ipc_copy(rng: random.Random, spec: Spec) -> Drawn:
    """Samples hold long lists of numbers: pickled in the worker, unpickled by the loop, one by one."""
    spec = {**spec, "num_workers": rng.choice([2, 3]), "loader": "torch", "step": "waits"}
    spec["step_s"] = rng.uniform(0.01, 0.02)
    spec["numbers"] = int(spec["step_s"] * rng.uniform(1.5, 3.0) / spec["batch_size"] / 30e-9)
    return Drawn("ipc_copy", spec, DATA, "ipc_copy")


def io_bandwidth(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([2, 4]), "is_cold": True, "step": "waits"}
    size = rng.choice([1, 2]) << 20
    limit = spec["batch_size"] / spec["step_s"] * size * rng.uniform(0.2, 0.4)
    limits = {"read_bytes_per_s": limit}
    return Drawn("io_bandwidth", spec, DATA, "io_bandwidth", limits=limits, files=(64, size), needs_all=True)


def io_latency(rng: random.Random, spec: Spec) -> Drawn:
    spec = {**spec, "num_workers": rng.choice([2, 4]), "is_cold": True, "step": "waits"}
    limits = {"reads_per_s": max(20.0, spec["batch_size"] / spec["step_s"] * rng.uniform(0.2, 0.4))}
    return Drawn("io_latency", spec, DATA, "io_latency", limits=limits, files=(256, 16 << 10), needs_all=True)


def straggler_worker(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast({**spec, "num_workers": rng.choice([3, 4]), "loader": "torch", "step": "waits"}, rng)
    spec["slow_worker_s"] = spec["step_s"] * spec["num_workers"] / spec["batch_size"] * rng.uniform(2.5, 4)
    return Drawn("straggler_worker", spec, frozenset({"straggler_sample"}))


def rare_heavy(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast({**spec, "num_workers": rng.choice([2, 3]), "loader": "torch", "step": "waits"}, rng)
    spec["heavy_every"] = rng.randint(12, 25) * spec["batch_size"]
    spec["heavy_s"] = rng.uniform(0.8, 1.5)
    spec["prefetch_factor"] = 2
    return Drawn("rare_heavy", spec, frozenset({"straggler_sample"}))


def shard_boundary(rng: random.Random, spec: Spec) -> Drawn:
    """Tar shards whose start takes long: fetched whole from a slow disk, or a store that answers late."""
    spec = {**spec, "num_workers": rng.choice([1, 2, 3]), "step": "waits", "prefetch_factor": 2}
    num_batches = rng.randint(5, 10)  # of a shard
    num_samples, size = num_batches * spec["batch_size"], 32 << 10
    ahead_s = 2 * spec["num_workers"] * spec["step_s"]  # what the batches that are ready bridge
    start_s = ahead_s + rng.uniform(0.5, 1.0) * num_batches * spec["num_workers"] * spec["step_s"]
    spec["shard_start"] = rng.choice(["fetched", "answers late"])
    limits = {}
    if spec["shard_start"] == "fetched":
        limits = {"read_bytes_per_s": spec["num_workers"] * num_samples * size / start_s}
    else:
        spec["shard_start_s"] = start_s
    cause = frozenset({"shard_boundary"})
    shards = (24, num_samples, size)
    return Drawn("shard_boundary", spec, cause, limits=limits, shards=shards, needs_all=bool(limits))


def epoch_start(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast({**spec, "persistent": False, "loader": "torch", "start_method": "spawn", "num_workers": 2}, rng)
    spec["num_samples"] = spec["batch_size"] * rng.randint(6, 15)
    return Drawn("epoch_start", spec, frozenset({"epoch_start"}))


def copies(rng: random.Random, spec: Spec) -> Drawn:
    """Large batches copied to the device from pageable memory, while the loop waits."""
    spec = {**spec, "device": "cuda", "num_workers": 4, "batch_size": 64, "step": "waits", "step_s": 0.005}
    spec["floats"] = rng.choice([1, 2]) << 20  # 256 or 512 MiB a batch: 14 to 28 ms at 18.7 GB/s
    return Drawn("copies", spec, frozenset({"h2d_copy"}), needs_gpu=True)
