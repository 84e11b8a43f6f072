"""How many processors this process may really use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from headrace.model import num_local_ranks
from headrace.signals.system import read_cpu_groups


def usable_processors(root: Path = Path("/")) -> int:
    """Processors by affinity, bounded by the control group's quota (v1 and v2) and shared between local ranks."""
    count = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    for group in read_cpu_groups(root):
        if group.quota_cores is not None:
            count = min(count, group.quota_cores)
    return max(1, math.floor(count / num_local_ranks() + 1e-9))


def workers_for(sample_s: float, cpu_share: float, processors: int) -> tuple[int, str]:
    """How many workers `num_workers="auto"` starts, and why. 0: in the training process.

    `cpu_share` is the processor time of a sample over its duration: the rest is waiting, for a disk or a network,
    and more workers can wait at once than there are processors.
    """
    if sample_s < 20e-6:
        return 0, f"in-process: a sample takes {sample_s * 1e6:.1f} µs, less than handing it over"
    base = processors if processors <= 2 else processors - 1
    if cpu_share >= 0.5:
        spent = f"a sample takes {sample_s * 1e3:.3g} ms, {cpu_share:.0%} of it processor time"
        return base, f"{base} for {processors} usable processors: {spent}"
    count = max(base, min(4 * processors, 32, math.ceil(base / max(cpu_share, 0.05))))
    spent = f"{1 - cpu_share:.0%} of a sample's {sample_s * 1e3:.3g} ms is waiting"
    return count, f"{count} for {processors} usable processors: {spent}"
