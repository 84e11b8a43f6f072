"""Trainings without a cause, and those that lose time in their own loop: saving, evaluating, logging, collecting."""

from __future__ import annotations

import random

from .drawing import Drawn, Spec, fast


def healthy(rng: random.Random, spec: Spec) -> Drawn:
    return Drawn("healthy", fast(spec, rng), frozenset())


def compute(rng: random.Random, spec: Spec) -> Drawn:
    return Drawn("compute", fast({**spec, "step_s": rng.uniform(0.1, 0.25)}, rng), frozenset())


def checkpoint(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast(spec, rng)
    spec["state_floats"] = rng.randint(40, 80) << 20 >> 2 << 1  # 80 to 160 MB
    spec["checkpoint_every"] = rng.randint(8, 16)
    return Drawn("checkpoint", spec, frozenset({"checkpoint"}), needs_all=True)


def evaluation(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast(spec, rng)
    spec["evaluate_every"], spec["evaluation_s"] = rng.randint(15, 30), rng.uniform(0.6, 1.5)
    return Drawn("evaluation", spec, frozenset({"evaluation"}))


def chatty_logging(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast(spec, rng)
    spec["log_lines"] = rng.randint(2, 5)
    spec["log_line_s"] = spec["step_s"] * rng.uniform(0.2, 0.4)
    return Drawn("logging", spec, frozenset({"logging"}))


def garbage(rng: random.Random, spec: Spec) -> Drawn:
    spec = fast(spec, rng)
    spec["objects"], spec["collect_every"] = rng.randint(1_000_000, 2_000_000), rng.choice([3, 5, 8])
    spec["num_workers"] = min(2, spec["num_workers"])
    return Drawn("gc", spec, frozenset({"gc"}))


def hidden(rng: random.Random, spec: Spec) -> Drawn:
    """The loop stands still for something that nobody times: the honest answer is that it is not known."""
    spec = fast(spec, rng)
    spec["hidden_every"], spec["hidden_s"] = rng.randint(12, 25), spec["step_s"] * rng.uniform(8, 16)
    return Drawn("hidden", spec, frozenset({"unknown"}))
