"""What the start of epochs cost: ending the one before, `iter(loader)`, the first batch beyond a usual wait. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.model import EventKind

from .trainer import LoaderWaits, Trainer


@dataclass(frozen=True, kw_only=True)
class EpochStarts:
    """The starts of a loader's epochs but the first: that one belongs to the start of the run."""

    count: int
    lost_s: float
    typical_s: float
    worst_s: float
    iter_s: float  # of it, in `iter(loader)` itself and in ending the epoch before: starting and stopping workers
    is_persistent: bool


def find_epoch_starts(trainer: Trainer, loader: LoaderWaits) -> EpochStarts | None:
    """Return what the starts cost; None where there is one epoch."""
    epochs = trainer.process.of(EventKind.EPOCH)
    epochs = epochs[[trainer.process.names.get(int(arg), "loader") == loader.name for arg in epochs["arg"]]]
    first = np.flatnonzero(loader.batch == 0)[1:]
    if not len(first):
        return None
    usual_s = float(np.median(loader.wait_s[loader.batch > 0])) if (loader.batch > 0).any() else 0.0
    wait_s = np.maximum(0.0, loader.wait_s[first] - usual_s)
    places = np.searchsorted(epochs["start_ns"], loader.start_ns[first], side="right") - 1
    iter_s = np.where(places >= 0, epochs["duration_ns"][places.clip(0)] / 1e9, 0.0) if len(epochs) else 0 * wait_s
    if len(loader.end_s) >= len(iter_s):
        iter_s = iter_s + loader.end_s[: len(iter_s)]
    cost = wait_s + iter_s
    return EpochStarts(
        count=len(cost),
        lost_s=float(cost.sum()),
        typical_s=float(np.median(cost)),
        worst_s=float(cost.max()),
        iter_s=float(iter_s.sum()),
        is_persistent=loader.settings.persistent_workers,
    )
