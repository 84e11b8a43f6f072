"""What is happening: written by whoever feeds, read by whoever wants to know why.

A recording, from the writer to the reader:

- `records`: the record of an event, 32 bytes.
- `area`: the shared memory of a recording, a lane for each process.
- `lanes`: where a process writes its events.
- `ring_reader`: reading a lane while it is written.
- `lane_drain`: draining all lanes: who writes, what is new, who is gone.
- `thinning`: which events a long recording keeps.
- `frames`: the format of the file of events.
- `event_file`: writing that file.
- `run_facts`: what was run, where, and how it ended.
- `recorder`: whoever owns a recording.
- `recording`: a recorded run, read back.

The system around it:

- `system_sample`: what the system looks like at one moment: plain values.
- `system_file`: those values, a line each.
- `system_sampler`: one look at everything.
- `process_tree`: the processes below a training.
- `machine`: processors, memory, swap, /dev/shm and disks.
- `cgroups`, `cpu_groups`: control groups, v1 and v2.
- `psi`: pressure, and swapped pages.
- `gpus`: NVIDIA GPUs.
- `kernel_files`: reading small files of /proc and /sys.

Samples that failed:

- `appending`: lines added to a file that several processes and hosts share.
- `quarantine`: the samples that runs over a data set have condemned, in a file.
- `quarantine_lines`: the format of that file, one JSON line a sample.
"""

from .area import Area, attach_from_environment
from .cgroups import (
    GroupKills,
    GroupMemory,
    MemoryGroup,
    OomCounts,
    memory_groups,
    read_group,
    read_limits,
    read_oom_counts,
)
from .cpu_groups import read_cpu_groups
from .gpus import GpuReader
from .lanes import Lane, close_lane, open_lane
from .machine import read_disks, read_machine
from .process_tree import ProcessTree
from .psi import Psi, SwapCounts, read_cpu_psi, read_io_psi, read_memory_psi, read_psi, read_swap_counts
from .quarantine import Condemned, Quarantine, QuarantineFile, merge_failures, skip_set
from .quarantine_lines import QUARANTINE_SCHEMA, Damage
from .recorder import Recorder
from .recording import RecordedProcess, Recording, event_dtype, read_run
from .records import record_dtype
from .run_facts import RUN_SCHEMA, RunFacts
from .system_file import SYSTEM_SCHEMA
from .system_sample import (
    CpuGroupSample,
    DiskSample,
    GpuSample,
    MachineSample,
    MemoryGroupSample,
    PressureSample,
    ProcessSample,
    SystemSample,
)
from .system_sampler import SystemSampler

__all__ = [
    "QUARANTINE_SCHEMA",
    "RUN_SCHEMA",
    "SYSTEM_SCHEMA",
    "Area",
    "Condemned",
    "CpuGroupSample",
    "Damage",
    "DiskSample",
    "GpuReader",
    "GpuSample",
    "GroupKills",
    "GroupMemory",
    "Lane",
    "MachineSample",
    "MemoryGroup",
    "MemoryGroupSample",
    "OomCounts",
    "PressureSample",
    "ProcessSample",
    "ProcessTree",
    "Psi",
    "Quarantine",
    "QuarantineFile",
    "RecordedProcess",
    "Recorder",
    "Recording",
    "RunFacts",
    "SwapCounts",
    "SystemSample",
    "SystemSampler",
    "attach_from_environment",
    "close_lane",
    "event_dtype",
    "memory_groups",
    "merge_failures",
    "open_lane",
    "read_cpu_groups",
    "read_cpu_psi",
    "read_disks",
    "read_group",
    "read_io_psi",
    "read_limits",
    "read_machine",
    "read_memory_psi",
    "read_oom_counts",
    "read_psi",
    "read_run",
    "read_swap_counts",
    "record_dtype",
    "skip_set",
]
