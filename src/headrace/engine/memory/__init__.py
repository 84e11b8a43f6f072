"""Where batches lie: one memory file that the training process and its workers map.

- `arena`: one anonymous memory file that every process of a loader maps once.
- `blocks`: blocks of any size in one process's own region of the arena: the owner allocates, anybody frees.
- `board`: the control words that all processes of one loader share, and who may write which.
- `ledger`: the batches in flight: their indices, and what became of their rows; the one writer of both.
- `layout`: the fixed layout of a sample: learnt from one, and the shape of the batches it makes.
- `messages`: what goes through the two pipes: 24 bytes of work to whichever worker is free, 32 bytes back for each…
- `parcels`: any Python object in one block of shared memory: large buffers lie there as they are, only the rest is…
- `room`: whether one more block fits the budget, and how many batches may be on their way to it. Pure.
- `slots`: the training process's side of batch slots: how many there are, which are out on lease, what comes back.
"""

from .arena import Arena, ArenaPlan, lies_in_dev_shm
from .blocks import NoRoom, Region, free_block, mark_told, release_block
from .board import (
    BUSY,
    COLLATING,
    ENDED,
    GENERAL,
    HISTOGRAM_BUCKETS,
    IDLE,
    MAX_ENTRIES,
    MAX_LAYOUTS,
    MAX_WORKERS,
    NO_SAMPLE,
    QUIET,
    STARTING,
    TOLD,
    UNBOUND,
    WORKER_STATES,
    Board,
    BoardLock,
    Entry,
    Head,
    Record,
    Slot,
    join_place,
    split_place,
)
from .layout import Layout, Leaf, Misfit, Node, TensorPlan, slot_tensors
from .ledger import IndexReader, Ledger, read_index, write_indices
from .messages import RESULT_BYTES, WORK_BYTES, Answer, CaughtError, Result, Task, Work, join_tries, pickle_error
from .parcels import block_bytes, dump, load, peek, read_block
from .room import Holding, Turn, batches_that_fit
from .slots import Slots

__all__ = [
    "BUSY",
    "COLLATING",
    "ENDED",
    "GENERAL",
    "HISTOGRAM_BUCKETS",
    "IDLE",
    "MAX_ENTRIES",
    "MAX_LAYOUTS",
    "MAX_WORKERS",
    "NO_SAMPLE",
    "QUIET",
    "RESULT_BYTES",
    "STARTING",
    "TOLD",
    "UNBOUND",
    "WORKER_STATES",
    "WORK_BYTES",
    "Answer",
    "Arena",
    "ArenaPlan",
    "Board",
    "BoardLock",
    "CaughtError",
    "Entry",
    "Head",
    "Holding",
    "IndexReader",
    "Layout",
    "Leaf",
    "Ledger",
    "Misfit",
    "NoRoom",
    "Node",
    "Record",
    "Region",
    "Result",
    "Slot",
    "Slots",
    "Task",
    "TensorPlan",
    "Turn",
    "Work",
    "batches_that_fit",
    "block_bytes",
    "dump",
    "free_block",
    "join_place",
    "join_tries",
    "lies_in_dev_shm",
    "load",
    "mark_told",
    "peek",
    "pickle_error",
    "read_block",
    "read_index",
    "release_block",
    "slot_tensors",
    "split_place",
    "write_indices",
]
