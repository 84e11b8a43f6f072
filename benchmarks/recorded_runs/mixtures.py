"""Mixtures of two causes, drawn from those that can act together.

Which one must come first is not drawn: the training measures on its own clock what each has cost, and the larger one is
right. Both must be among the findings.
"""

from __future__ import annotations

import random

from .drawing import DATA, Drawn, Spec, fast

# what the training measures for each, and the causes that name it
_LOOP = {
    "evaluation": ("evaluation_s", frozenset({"evaluation"})),
    "logging": ("logging_s", frozenset({"logging"})),
    "gc": ("gc_s", frozenset({"gc"})),
    "checkpoint": ("checkpoint_s", frozenset({"checkpoint"})),
    "hidden": ("hidden_s", frozenset({"unknown"})),
}
_WAITS = {
    "cpu_decode": ("waited_s", DATA),
    "slow_collate": ("waited_s", DATA),
    "rare_heavy": ("waited_s", frozenset({"straggler_sample"})),
}


def mixture(rng: random.Random, spec: Spec) -> Drawn:
    """Two causes, one about twice the other."""
    names = rng.sample([*_LOOP], 2) if rng.random() < 0.4 else [rng.choice([*_LOOP]), rng.choice([*_WAITS])]
    rng.shuffle(names)
    shares = dict(zip(names, (rng.uniform(0.38, 0.45), rng.uniform(0.17, 0.22)), strict=True))
    spec = {**fast(spec, rng), "step": "waits"}
    step_s = spec["step_s"]
    whole_s = step_s / (1 - sum(shares.values()))  # a step with all that it loses
    # each comes five times or more, not only at the end: what happened once is no pattern
    every = max(4, min(rng.randint(12, 20), int(spec["seconds"] / 6 / whole_s)))
    for name in names:
        lost_s = shares[name] * whole_s  # a step
        if name == "evaluation":
            spec["evaluate_every"], spec["evaluation_s"] = every, every * lost_s
        elif name == "logging":
            spec["log_lines"], spec["log_line_s"] = 2, lost_s / 2
        elif name == "gc":
            spec["objects"] = 1_000_000
            spec["collect_every"] = max(1, round(0.25 / lost_s))  # a quarter of a second each, as measured on one core
        elif name == "checkpoint":
            spec["state_floats"] = 15 << 20  # 60 MB
            spec["checkpoint_every"] = max(1, round(0.06 / lost_s))
            spec["syncs_checkpoints"] = False
        elif name == "hidden":
            spec["hidden_every"], spec["hidden_s"] = every, every * lost_s
        elif name == "rare_heavy":
            spec |= {"num_workers": 2, "loader": "torch", "prefetch_factor": 2}
            spec["heavy_every"] = every * spec["batch_size"]
            spec["heavy_s"] = every * lost_s + 4 * step_s  # four batches that are ready bridge their steps
        else:
            spec["num_workers"] = 1
            per_batch_s = whole_s
            spec |= (
                {"sleep_s": 0.0, "collate_s": per_batch_s}
                if name == "slow_collate"
                else {
                    "sleep_s": 0.0,
                    "burn_s": per_batch_s / spec["batch_size"],
                }
            )
    pair = tuple({**_LOOP, **_WAITS}[name] for name in names)
    expected = frozenset().union(*(causes for _, causes in pair))
    return Drawn("+".join(names), spec, expected, pair=pair, needs_all="checkpoint" in names)
