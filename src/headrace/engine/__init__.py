"""Who does the work and where the result lies.

- `arena`: one anonymous memory file, mapped by every process.
- `blocks`: memory blocks of any size in a process's own region.
- `board`: the control words that all processes share.
- `budget`: how much memory queued batches may take.
- `depth`: how many batches ahead, how many samples a chunk.
- `device`: copies to the accelerator on a side stream.
- `feed`: epochs through a pool, results to batches.
- `fetch`: samples from a map-style data set, seeded.
- `heap`: keeping a worker's pages.
- `host`: a process of the loader.
- `layout`: the fixed layout of a sample.
- `local`: samples fetched in the training process.
- `messages`: what goes through the pipes.
- `parcels`: any object in shared memory.
- `pool`: processes and pipes.
- `processors`: how many processors there are to use.
- `scheduler`: which batch waits for which rows.
- `seeding`: random numbers by sample position.
- `slots`: batch slots and their leases.
- `worker`: one worker's loop.
"""

from .arena import lies_in_dev_shm
from .budget import Budget, find_budget, free_memory
from .device import DeviceCopier, HostRegistration
from .feed import Feed, FeedSettings
from .local import LocalFetcher
from .pool import Pool, PoolPlan
from .processors import usable_processors, workers_for
from .seeding import mix_seed

__all__ = [
    "Budget",
    "DeviceCopier",
    "Feed",
    "FeedSettings",
    "HostRegistration",
    "LocalFetcher",
    "Pool",
    "PoolPlan",
    "find_budget",
    "free_memory",
    "lies_in_dev_shm",
    "mix_seed",
    "usable_processors",
    "workers_for",
]
