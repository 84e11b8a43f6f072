"""Who does the work and where the result lies.

The training process:

- `answers`: what workers answer, taken into account.
- `budget`, `processors`: how much memory and how many processors there are to use.
- `delivery`: a settled batch becomes what the loop gets.
- `depth`, `pacing`: how many batches ahead, how many samples a chunk.
- `device`: copies to the accelerator on a side stream.
- `epoch_plan`: which samples each batch is to hold, until all are accounted for.
- `feed`, `feed_settings`: epochs through a pool, sampler to batches.
- `issuing`, `turns`: a batch goes out to the workers; for an iterable data set, to the one whose turn it is.
- `known_layouts`: the layouts that samples have.
- `figures`, `waits`: what the workers' records and the loop's waits say.
- `local`, `guarded_local`: samples fetched in the training process.
- `pool`, `pipes`, `arena_plan`: processes, the pipes to them, the plan of their memory.
- `scheduler`: which batch waits for which rows.
- `slots`: batch slots and their leases.
- `valve`: an end to waits for room where nothing else would end them.
- `staging`: named stages and named samples, in workers too.
- `thread_trial`: what a second thread would bring, asked of a worker.

Its guard:

- `guard`: the watch over processes and memory.
- `incidents`: what goes wrong, as events of a recording.
- `upkeep`: what a feed does for its workers while it waits.
- `recovery`, `allowance`: what lost workers owed is given out again, and how many losses are borne.
- `claims`, `rows_again`, `runs`: what each worker has in hand; rows that are given out once more.
- `apart`, `sweeping`: samples that are tried alone; work in nobody's hands.
- `streams`: how far iterable data sets have come, and their recovery.
- `judging`, `condemned`: samples that fail, and those that are left out.
- `moving_up`, `homecoming`: the later samples move up where one is left out.
- `row_moves`, `slot_rows`: rows change places between slots.
- `carrying`: rows that are done when their batch is planned anew.
- `memory_sample`, `memory_watch`, `memory_growth`: what the process tree holds, and what grows.
- `pressure`: whether memory gets short.
- `death_watch`, `kernel_log`, `sample_names`: facts about a death; `death_facts` holds them.
- `forensics`, `death_text`, `death_words`, `known_deaths`: a death in one sentence, and what is known of such.
- `stuck`: where a worker stands that does not come back.
- `diagnosis`, `stuck_words`: what holds it.

A worker:

- `chunks`, `whole_batches`: rows of a batch, and a batch in one piece.
- `entering`: its blocks enter the budget.
- `fetch`, `seeding`: samples from a map-style data set, seeded by position.
- `heap`: keeping its pages.
- `host`: its process.
- `measuring`: timing a second thread.
- `own_iterator`: its part of an iterable data set.
- `placing`, `rows`: samples into slots.
- `recording`: what it writes about itself.
- `telling`, `sharing`, `borrowing`: what it says of its rows, how samples leave it, and how a collation gets them.
- `worker`, `worker_plan`, `workbench`: its loop, what it is told, what its parts share.

Both:

- `arena`, `blocks`, `board`: the shared memory, blocks of any size in it, control words.
- `layout`: the fixed layout of a sample.
- `messages`: what goes through the pipes.
- `parcels`, `payload`: any object, and a batch's indices, in shared memory.
- `room`: whether a block fits the budget.
- `steps`: the samples of an iterable data set, without those that fail.
"""

from .arena import lies_in_dev_shm
from .budget import Budget, find_budget, free_memory
from .condemned import Condemned
from .device import DeviceCopier, HostRegistration
from .feed import Feed
from .feed_settings import FeedSettings
from .guard import Guard
from .guarded_local import GuardedLocal
from .local import LocalFetcher
from .pool import Pool, PoolPlan
from .processors import usable_processors, workers_for
from .seeding import mix_seed
from .staging import named_samples, named_steps
from .steps import Steps, say_doubt
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
