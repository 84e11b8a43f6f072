"""Who does the work and where the result lies.

The training process:

- `budget`, `processors`: how much memory and how many processors there are to use.
- `delivery`: a settled batch becomes what the loop gets.
- `depth`: how many batches ahead, how many samples a chunk.
- `device`: copies to the accelerator on a side stream.
- `feed`: epochs through a pool, sampler to chunks.
- `figures`, `waits`: what the workers' records and the loop's waits say.
- `local`, `guarded_local`: samples fetched in the training process.
- `pool`: processes and pipes.
- `scheduler`: which batch waits for which rows.
- `slots`: batch slots and their leases.
- `staging`: named stages and named samples, in workers too.

Its guard:

- `guard`: the watch over processes and memory.
- `recovery`: what lost workers owed is given out again.
- `streams`: the same for iterable data sets.
- `judging`, `condemned`: samples that fail, and those that are left out.
- `memory_sample`, `memory_watch`, `memory_growth`: what the process tree holds, and what grows.
- `pressure`: whether memory gets short.
- `death_watch`, `kernel_log`, `sample_names`: facts about a death; `death_facts` holds them.
- `forensics`, `death_text`, `death_words`: a death in one sentence.
- `stuck`: where a worker stands that does not come back.
- `diagnosis`, `stuck_words`: what holds it.

A worker:

- `fetch`, `seeding`: samples from a map-style data set, seeded by position.
- `heap`: keeping its pages.
- `host`: its process.
- `measuring`: what a second thread would bring.
- `placing`, `rows`: samples into slots.
- `recording`: what it writes about itself.
- `worker`: its loop.

Both:

- `arena`, `blocks`, `board`: the shared memory, blocks of any size in it, control words.
- `layout`: the fixed layout of a sample.
- `messages`: what goes through the pipes.
- `parcels`, `payload`: any object, and a batch's indices, in shared memory.
"""

from .arena import lies_in_dev_shm
from .budget import Budget, find_budget, free_memory
from .condemned import Condemned
from .device import DeviceCopier, HostRegistration
from .feed import Feed, FeedSettings
from .guard import Guard
from .guarded_local import GuardedLocal
from .local import LocalFetcher
from .pool import Pool, PoolPlan
from .processors import usable_processors, workers_for
from .seeding import mix_seed
from .staging import named_samples, named_steps
from .waits import WaitLog

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
    "WaitLog",
    "find_budget",
    "free_memory",
    "lies_in_dev_shm",
    "mix_seed",
    "named_samples",
    "named_steps",
    "usable_processors",
    "workers_for",
]
