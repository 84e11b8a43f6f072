"""Who does the work and where the result lies.

- `memory`: where batches lie: one memory file that the training process and its workers map.
- `worker`: what a worker does: take work, fetch samples, write them into their rows, answer.
- `pool`, `pipes`: the processes of a loader, and the pipes to them.
- `epoch`: which batch waits for which rows, and what the loop gets.
- `losses`: what becomes of samples that fail and of workers that are lost.
- `guard`: the watch over a loader's processes and memory.
- `feed`, `epoch_plan`, `issuing`, `answers`, `pacing`: epochs through a pool, sampler to batches.
- `local`, `guarded_local`: samples fetched in the training process.
- `device`: copies to the accelerator on a side stream.
- `processors`: how many processors there are to use.
"""

from .device import DeviceCopier, HostRegistration
from .epoch import FeedSettings, WaitLog
from .feed import Feed
from .guard import Guard
from .guarded_local import GuardedLocal
from .local import LocalFetcher
from .losses import Condemned
from .memory import Budget, find_budget, free_memory, lies_in_dev_shm
from .pool import Pool, PoolPlan
from .processors import usable_processors, workers_for
from .worker import Steps, mix_seed, named_samples, named_steps, say_doubt

__all__ = [
    "Budget",
    "Condemned",
    "DeviceCopier",
    "Feed",
    "FeedSettings",
    "Guard",
    "GuardedLocal",
    "HostRegistration",
    "LocalFetcher",
    "Pool",
    "PoolPlan",
    "Steps",
    "WaitLog",
    "find_budget",
    "free_memory",
    "lies_in_dev_shm",
    "mix_seed",
    "named_samples",
    "named_steps",
    "say_doubt",
    "usable_processors",
    "workers_for",
]
