"""What can happen in a training, as numbers that a ring of fixed records can hold; what a loader was asked for."""

import json
from dataclasses import dataclass
from enum import IntEnum, StrEnum, unique
from typing import Self


@unique
class EventKind(IntEnum):
    """What a record in a ring is about. A number never changes its meaning: recordings outlive versions.

    Each record has a start, a duration, a `value` (a count, bytes or an index) and an `arg` (the number of a name
    of the same process, 0 for none). What both mean is said per kind. Numbers go up to 255.
    """

    NAME = 0  # none: memory that nobody wrote reads as zeros. Names lie beside the ring, where nothing overwrites them
    PROCESS = 1  # the process has begun to record; value: pid, arg: its role (a name: "trainer", "worker", "reader")
    THREAD = 2  # a thread other than the main one has begun to record; value: its native id, arg: its name

    RANK = 3  # which of the training processes of a run this one is; value: its rank, arg: how many there are

    # what a loader was asked for, with each of its epochs; value: the number of the loader's name, arg: its settings, a
    # name that is a JSON object (`LoaderSettings`)
    LOADER = 4

    # who makes the batches of a torch loader from now on, under `headrace run --feed`; value: the number of its name,
    # arg: a name that is a JSON object (`FeedNote`)
    FEED = 5

    # the training process
    EPOCH = 10  # `iter(loader)` until it returns; value: which epoch of this object, arg: the loader
    WAIT = 11  # `next(loader)`; value: which batch of the epoch, arg: the loader
    QUEUE_GET = 12  # inside WAIT, waiting for workers' results; value: batches that are ready, arg: the loader
    PIN = 13  # a batch copied to page-locked memory; value: bytes
    # host to device, the part the host waits for; value: bytes, arg: 1 + µs that the device copied, 0: not known
    H2D = 14
    FORWARD = 15  # the outermost module's call
    BACKWARD = 16
    OPTIMIZER = 17
    SYNC = 18  # the host waits for the device, `.item()` and the like; arg: which call
    CHECKPOINT = 19  # value: bytes where known, arg: which call
    EVALUATION = 20  # from `model.eval()` to `model.train()`, or a framework's; arg: which one
    LOGGING = 21  # arg: the writer ("logging", "tensorboard", "wandb", "tqdm", …)
    GC = 22  # value: objects collected, arg: generation + 1
    PHASE = 23  # the user's own mark; arg: its name
    RANKS = 24  # the host waits for other ranks, in a barrier and the like; arg: which call
    # `--replay`, a stretch of it; arg: the loader. value: from 0 on, cached batches were given, and the loader had so
    # many of its own ready or under way when that ended; -1: a batch was copied; -2: not done, arg: why
    REPLAY = 30
    CACHED = 31  # inside REPLAY: `next` gave a batch again; value: which of those that were kept, arg: the loader
    TUNED = (
        32  # `tune="online"`: a loader adjusted itself, or stays; value: four numbers, arg: what, why (`Adjustment`)
    )

    # workers and whoever reads for them
    FETCH = 40  # one task of a worker, whole; value: batch number (torch) or samples (ours), arg: the loader
    SAMPLE = 41  # one sample; value: its index where it is a number, -1: it is none, -n: n samples asked for at once
    READ = 42  # value: bytes
    DECODE = 43  # a stage whose name ends in " decode", as our codecs' do; value: bytes that came out, arg: its name
    TRANSFORM = 44
    COLLATE = 45
    SEND = 46  # a result handed over: pickling, copying into shared memory; value: bytes
    IDLE = 47  # a worker without work
    STAGE = 48  # a named stage, with what is inside it; value: bytes that came out, arg: its name
    WORKER_START = 49  # from the start of the process to its first task
    CPU = 51  # over one FETCH: value: CPU time of the process in ns, arg: µs that its thread had no core
    # of the SAMPLE with the same start: all of one part, without parts inside it; value: bytes, arg: its name, which
    # begins with what it is: "read …", "decode …", "transform …", "stage …"
    PART = 54
    OFF_CORE = 55  # how long the thread of that SAMPLE was not on a core; arg: in which PART, 0: in all of the sample
    SHARD_OPEN = 56  # a tar archive opened for reading; arg: its name, where it is one of the first

    # what went wrong
    WORKER_LOST = 60  # value: pid
    WORKER_HANG = 61  # value: pid
    BAD_SAMPLE = 62  # value: its index where it is a number
    EXCEPTION = 64  # nobody caught it, and the program ended with it; value: 1 from a `next`; arg: its traceback


# How much of the host's time in a copy to the device was the copy. One that blocks waits for all that the device has
# yet to do, and copies then; the host's clock sees one call, so the event carries the device's time in its `arg`.

# A call this short waited for nothing worth the name: it is what starting a copy costs the host.
LAUNCH_NS = 50_000
_MOST_US = (1 << 32) - 2


def copy_arg(device_ns: int) -> int:
    """Return the `arg` of an H2D event whose copy took the device so long: microseconds and one, for 0 is not known."""
    return 1 + min(max(0, device_ns) // 1000, _MOST_US)


def is_copy_timed(duration_ns: int, arg: int) -> bool:
    """Whether it is known how much of a copy's time on the host was the copy."""
    return arg > 0 or duration_ns < LAUNCH_NS


def copied_ns(duration_ns: int, arg: int) -> int:
    """Return how much of the host's time in a copy was the copy itself: all of it where nothing else is known.

    >>> copied_ns(17_000_000, copy_arg(4_000_000)), copied_ns(17_000_000, 0)
    (4000000, 17000000)
    >>> copied_ns(60_000, copy_arg(900_000)), copied_ns(60_000, copy_arg(30_000))  # not blocking; a launch
    (60000, 60000)
    """
    device_ns = 1000 * (arg - 1)
    return device_ns if arg and duration_ns - device_ns >= LAUNCH_NS else duration_ns


class _Told:
    """A dataclass that travels as a text: a JSON object."""

    def as_text(self) -> str:
        """Return it as a JSON object.

        >>> LoaderSettings.from_text(LoaderSettings(by="torch", num_workers=2).as_text()).num_workers
        2
        """
        return json.dumps(vars(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `as_text` wrote; fields that are not known here are left out, and any other text tells nothing."""
        try:
            values = dict(json.loads(text))
        except (ValueError, TypeError):
            return cls()
        return cls(**{name: value for name, value in values.items() if name in cls.__annotations__})


class FeedReason(StrEnum):
    """Why a loader's batches are made by whom, under `headrace run --feed`."""

    FED = "fed"  # by ours: nothing speaks against it
    MEASURED = "measured"  # by torch's, to be measured; and then by ours
    PIPE = "data_pipe"
    IN_PROCESS = "in_process"
    OWN_ITERATOR = "own_iterator"  # of a class that makes its iterators itself
    DRAWS = "draws"  # random numbers
    DREW = "drew_after_all"  # though the first samples did not
    ASKS_WORKER = "asks_worker"  # which worker it is, or for its seed
    PROBE_FAILED = "probe_failed"
    PROBE_LATE = "probe_late"
    FAILED = "failed"  # our own failure


@dataclass(frozen=True, kw_only=True)
class FeedNote(_Told):
    """Who makes a loader's batches from now on, and why."""

    by: str = "torch"  # or "headrace"
    reason: str = ""  # a `FeedReason`
    detail: str = ""  # what failed, or the class that has its own way
    profile: str = ""  # whose settings it got
    num_workers: int = 0  # of ours
    is_tuned: bool | None = None  # while it runs; None: nobody asked for it


@dataclass(frozen=True, kw_only=True)
class LoaderSettings(_Told):
    """The settings of a DataLoader that matter for its speed, and whose it is. None: not known, or not given."""

    by: str = ""  # the package that it is from: "torch", "headrace", …
    place: str = ""  # file and line of the script that made it
    batch_size: int | None = None
    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    in_order: bool = True
    tunes_itself: bool = False  # the number of its workers

    @property
    def is_ours(self) -> bool:
        return self.by == "headrace"
