"""Who does the work and where the result lies.

- `memory`: where batches lie: one memory file that the training process and its workers map.
- `worker`: what a worker does: take work, fetch samples, write them into their rows, answer.
- `pool`, `pipes`: the processes of a loader, and the pipes to them.
- `uninterrupted`: what comes to its end whatever signal handlers raise.
- `epoch`: which batch waits for which rows, and what the loop gets.
- `losses`: what becomes of samples that fail and of workers that are lost.
- `guard`: the watch over a loader's processes and memory.
- `controller`, `online`: how many workers and batches ahead, adjusted while it runs; the first decides, and is pure.
- `feed`: one epoch after another through a pool: plan, issue, collect, deliver.
- `local`: samples fetched in the training process.
- `device`: copies to the accelerator on a side stream.
- `limits`: how much memory and how many processors there are to use.
"""

from .controller import Controller
from .device import DeviceCopier, HostRegistration
from .epoch import FeedSettings, Pace, WaitLog, batches_ahead, with_rows
from .feed import Feed
from .limits import (
    DEFAULT_SHARE,
    Budget,
    check_cpus,
    find_budget,
    free_memory,
    place_workers,
    usable_processors,
    workers_for,
)
from .local import GuardedLocal, LocalFetcher
from .losses import Condemned
from .memory import lies_in_dev_shm
from .online import OnlineTuner
from .pool import Pool
from .uninterrupted import Ending, signals_later
from .worker import PoolPlan, SampleSeeds, Steps, mix_seed, named_samples, named_steps, say_doubt

__all__ = [
    "DEFAULT_SHARE",
    "Budget",
    "Condemned",
    "Controller",
    "DeviceCopier",
    "Ending",
    "Feed",
    "FeedSettings",
    "GuardedLocal",
    "HostRegistration",
    "LocalFetcher",
    "OnlineTuner",
    "Pace",
    "Pool",
    "PoolPlan",
    "SampleSeeds",
    "Steps",
    "WaitLog",
    "batches_ahead",
    "check_cpus",
    "find_budget",
    "free_memory",
    "lies_in_dev_shm",
    "mix_seed",
    "named_samples",
    "named_steps",
    "place_workers",
    "say_doubt",
    "signals_later",
    "usable_processors",
    "with_rows",
    "workers_for",
]
