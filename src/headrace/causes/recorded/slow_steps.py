"""Steps that took much longer than usual although nothing that is timed explains it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .trainer import LoaderWaits

_WARM_UP = 3  # steps: compilation, autotuning, caches
_LEAST_S = 0.05


@dataclass(frozen=True, kw_only=True)
class SlowSteps:
    """Slow steps without a cause."""

    count: int
    lost_s: float
    typical_s: float
    worst_s: float
    steps: tuple[int, ...]


def find_slow_steps(loader: LoaderWaits) -> SlowSteps | None:
    """Return the steps that took more than three times the usual, their waits and interruptions left out."""
    known = np.isfinite(loader.step_s)
    known[:_WARM_UP] = False
    if known.sum() < 8:
        return None
    usual_s = float(np.median(loader.step_s[known]))
    excess = np.where(known, loader.step_s - usual_s, 0.0)
    chosen = np.flatnonzero(excess >= max(2 * usual_s, _LEAST_S))
    if not len(chosen):
        return None
    return SlowSteps(
        count=len(chosen),
        lost_s=float(excess[chosen].sum()),
        typical_s=float(np.median(excess[chosen])),
        worst_s=float(excess[chosen].max()),
        steps=tuple(int(step) for step in loader.batch[chosen[:5]]),
    )
