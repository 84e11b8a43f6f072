"""What is recorded of a worker's death, and what can be said about it: plain values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.signals.system import GroupMemory, OomCounts

from .kernel_log import KernelWord
from .memory_sample import MemorySample

# fewer free bytes than a page of each tensor of a batch: the next write into a new segment fails
_SHM_FULL_BYTES = 1 << 20
_SHM_FULL_SHARE = 0.02
_NOT_COUNTED = OomCounts()


class DeathCause(enum.Enum):
    """What ended a worker. The value is stable: it is written into logs and JSON."""

    MEMORY_LIMIT = "memory_limit"  # the kernel, for a control group's limit
    MACHINE_MEMORY = "machine_memory"  # the kernel, for the whole machine
    MEMORY_UNSEEN = "memory_unseen"  # the kernel, for memory; whose limit it was cannot be seen from here
    MAYBE_MEMORY = "maybe_memory"
    GUARD = "guard"  # Headrace itself
    KILLED = "killed"  # SIGKILL, from somebody
    KILLED_UNKNOWN = "killed_unknown"  # SIGKILL, and no counter can be read
    TERMINATED = "terminated"  # another signal that somebody sent
    SEGFAULT = "segfault"
    SHM_FULL = "shm_full"
    MAPPED_FILE = "mapped_file"  # SIGBUS, /dev/shm has room
    BUS_UNKNOWN = "bus_unknown"
    ABORTED = "aborted"
    ILLEGAL = "illegal_instruction"
    ARITHMETIC = "arithmetic"
    CPU_LIMIT = "cpu_limit"
    FORBIDDEN_CALL = "forbidden_call"
    EXITED = "exited"
    OTHER_SIGNAL = "other_signal"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class SampleInHand:
    """What a worker was at: any part may be unknown."""

    position: int | None = None  # in the epoch
    index: object | None = None  # what the data set was asked for
    age_s: float | None = None
    file: str | None = None
    is_collation: bool = False  # no sample: it was collating a batch


@dataclass(frozen=True, kw_only=True)
class ShmRoom:
    """/dev/shm at the moment of a death."""

    free_bytes: int
    total_bytes: int

    @property
    def is_full(self) -> bool:
        return self.free_bytes < max(_SHM_FULL_BYTES, _SHM_FULL_SHARE * self.total_bytes)


@dataclass(frozen=True, kw_only=True)
class DeathFacts:
    """All that is known of a death; only `workers`, `pid` and `exit_code` must be."""

    workers: tuple[int, ...]  # several where they are threads of one process
    pid: int
    exit_code: int | None  # as multiprocessing has it: negative is a signal
    oom_before: OomCounts = _NOT_COUNTED
    oom_after: OomCounts = _NOT_COUNTED
    num_killed: int = 1  # processes of this loader that died by SIGKILL between the two counts
    memory: tuple[MemorySample, ...] = ()  # oldest first
    limits: tuple[GroupMemory, ...] = ()  # control groups with a limit, read after the death
    died_at_s: float | None = None  # on the clock of `memory`
    samples: tuple[SampleInHand, ...] = ()
    has_begun: bool = True  # False: it never came to its first sample
    shm: ShmRoom | None = None
    kernel: KernelWord | None = None
    stack: tuple[str, ...] = ()  # Python frames at the crash, innermost first: "decode.py:12 in __getitem__"
    sent_by_guard: str | None = None  # why Headrace itself ended it
    cpu_limit_s: float | None = None  # RLIMIT_CPU's hard end, where there is one: it ends in SIGKILL too


@dataclass(frozen=True, kw_only=True)
class Death:
    """What happened, in words. `is_certain` is False where the facts allow another reading."""

    cause: DeathCause
    is_certain: bool
    sentence: str
    evidence: Mapping[str, str]
    next_step: str
