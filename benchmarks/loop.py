"""Drive a loader as a training loop does, and note each wait."""

from __future__ import annotations

import dataclasses
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from probes import Usage, tree_usage

SERIES_KEPT = 2_000  # waits stored in a result: enough to see a pattern, small enough for a repository


@dataclass(frozen=True)
class Plan:
    """How long a loader is driven, and how fast the loop asks for batches.

    The warm-up lasts for `warmup_batches` and at least `warmup_s`, what is measured for `batches` and at least
    `seconds`. The number of measured batches is a multiple of `align`: torch's workers finish batches in groups of
    `num_workers`, and a window that cuts a group in two would favour whoever is caught on the right side of it.
    """

    warmup_s: float = 0.0
    warmup_batches: int = 0
    seconds: float = 0.0
    batches: int = 0
    step_s: float = 0.0
    align: int = 1

    @property
    def is_first_batch_only(self) -> bool:
        return not (self.warmup_s or self.warmup_batches or self.seconds or self.batches)


def batch_len(batch: Any) -> int:
    """Return how many samples a batch holds, whatever its nesting."""
    while True:
        if isinstance(batch, dict):
            batch = next(iter(batch.values()))
        elif isinstance(batch, list | tuple):
            batch = batch[0]
        else:
            return int(batch.shape[0])


def drive(
    make_loader: Callable[[], Iterable[Any]], plan: Plan, *, use: Callable[[Any], object] | None = None
) -> dict[str, Any]:
    """Make a loader, iterate it as the plan says, and return what was measured.

    The clock of the first batch starts before the loader is made, and so does that of the whole; imports are the
    caller's. `use` is what the loop
    does with a batch; its time is part of the step, not of the wait. A batch is held until the next one has come, as
    in `for batch in loader`.
    """
    gc.collect()
    start = time.perf_counter()
    loader = make_loader()
    loop = _Loop(iter(loader), plan.step_s, use)
    result: dict[str, Any] = {"first_batch_s": time.perf_counter() - start, "batch_size": batch_len(loop.batch)}
    if not plan.is_first_batch_only:
        warm_from, num_warm = time.perf_counter(), 0
        while num_warm < plan.warmup_batches or time.perf_counter() - warm_from < plan.warmup_s:
            loop.ask()
            num_warm += 1
        result |= _measure(loop, plan)
        result["whole_s"] = time.perf_counter() - start

    result["settled"] = loader_account(loader)
    closing = time.perf_counter()
    del loop
    if callable(close := getattr(loader, "close", None)):
        close()
    del loader
    gc.collect()
    result["close_s"] = time.perf_counter() - closing
    return result


class _Loop:
    """A training loop that holds one batch at a time."""

    def __init__(self, batches: Iterator[Any], step_s: float, use: Callable[[Any], object] | None) -> None:
        self._batches, self._step_s, self._use = batches, step_s, use
        self.batch = next(batches)

    def ask(self) -> float:
        """Let a step pass, then take the next batch; return how long that took."""
        if self._use is not None:
            self._use(self.batch)
        if self._step_s:
            time.sleep(self._step_s)
        asked = time.perf_counter()
        try:
            self.batch = next(self._batches)
        except StopIteration:
            raise RuntimeError("the data set ended before the measurement did: give it a greater length") from None
        return time.perf_counter() - asked


def _measure(loop: _Loop, plan: Plan) -> dict[str, Any]:
    before, begin = tree_usage(os.getpid()), time.perf_counter()
    waits_s: list[float] = []
    num_samples, elapsed_s = 0, 0.0
    while len(waits_s) < plan.batches or elapsed_s < plan.seconds or len(waits_s) % plan.align != 0:
        waits_s.append(loop.ask())
        num_samples += batch_len(loop.batch)
        elapsed_s = time.perf_counter() - begin
    used = tree_usage(os.getpid()) - before
    figures = rates(num_samples, len(waits_s), elapsed_s, used) | wait_figures(waits_s)
    return figures | {"wait_share": sum(waits_s) / elapsed_s}


def rates(num_samples: int, num_batches: int, elapsed_s: float, used: Usage) -> dict[str, Any]:
    return {
        "samples_per_s": num_samples / elapsed_s,
        "batches_per_s": num_batches / elapsed_s,
        "num_samples": num_samples,
        "num_batches": num_batches,
        "elapsed_s": elapsed_s,
        "user_ms_per_sample": 1e3 * used.user_s / num_samples,
        "system_ms_per_sample": 1e3 * used.system_s / num_samples,
        "cpu_ms_per_sample": 1e3 * (used.user_s + used.system_s) / num_samples,
        "cores_used": (used.user_s + used.system_s) / elapsed_s,
        "faults_per_sample": used.minor_faults / num_samples,
        "num_processes": used.num_processes,
    }


def wait_figures(waits_s: list[float]) -> dict[str, Any]:
    waits_ms = 1e3 * np.asarray(waits_s)
    median, p95, p99 = np.percentile(waits_ms, (50, 95, 99))
    worst = waits_ms.max()
    return {
        "wait_median_ms": float(median),
        "wait_p95_ms": float(p95),
        "wait_p99_ms": float(p99),
        "wait_worst_ms": float(worst),
        "wait_worst_over_median": float(worst / median) if median > 0 else float("inf"),
        "waits_ms": [round(float(wait), 3) for wait in waits_ms[:SERIES_KEPT]],
    }


def loader_account(loader: Any) -> dict[str, Any]:
    """Return what a loader says about itself: what it chose, if it chose."""
    account: dict[str, Any] = {}
    for name in ("num_workers", "prefetch_factor"):
        value = getattr(loader, name, None)
        if isinstance(value, int):
            account[name] = value
    stats = getattr(loader, "stats", None)
    if callable(stats):
        try:
            snapshot: Any = stats()
            has_fields: bool = dataclasses.is_dataclass(snapshot)
            account["stats"] = dataclasses.asdict(snapshot) if has_fields else str(snapshot)
        except Exception as error:  # an account is welcome, not needed: the figures stand without it
            account["stats_error"] = repr(error)
    return account
