"""What the kernel says: processes, threads, control groups, the machine. The one reader of /proc.

- `cgroups`: the memory control groups of a process, v1 and v2: limits, use, and how often the kernel killed there.
- `cpu_groups`: the CPU control groups of a process, v1 and v2: quotas, and how long they held it up.
- `gpus`: what the driver says of NVIDIA GPUs, through nvidia-ml-py where it is installed.
- `kernel_files`: reading the small files of /proc and /sys: many of them, several times a second, and any may be g…
- `machine`: processors, memory, swap, /dev/shm and disks of the whole machine.
- `open_files`: the files that another process has open: how far it has read them, and on what kind of file system …
- `process_tree`: the processes below a training, and what /proc says of each.
- `psi`: how long tasks wait for memory and processors (PSI), and how fast pages come back from swap.
- `system_calls`: names of the system calls in which a data set may wait, by processor.
- `system_sample`: what the system around a training looks like at one moment: plain values. Counters grow; rates a…
- `thread_state`: what the kernel says of the threads of another process: state, where it waits, what it used.
"""

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
from .cpu_groups import cpu_groups, read_cpu_groups, read_quotas
from .gpus import GpuReader
from .kernel_files import read_int, read_start, read_table, read_text
from .machine import find_disks, read_disks, read_machine
from .open_files import NETWORK_KINDS, OpenFile, read_open_files
from .process_tree import ProcessTree
from .psi import Psi, SwapCounts, read_cpu_psi, read_io_psi, read_memory_psi, read_psi, read_swap_counts
from .system_calls import call_name
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
from .thread_state import (
    Call,
    ProcessState,
    ThreadState,
    catches,
    libraries_of,
    polled_descriptors,
    read_moment,
    read_process,
    read_status,
    read_threads,
)

__all__ = [
    "NETWORK_KINDS",
    "Call",
    "CpuGroupSample",
    "DiskSample",
    "GpuReader",
    "GpuSample",
    "GroupKills",
    "GroupMemory",
    "MachineSample",
    "MemoryGroup",
    "MemoryGroupSample",
    "OomCounts",
    "OpenFile",
    "PressureSample",
    "ProcessSample",
    "ProcessState",
    "ProcessTree",
    "Psi",
    "SwapCounts",
    "SystemSample",
    "ThreadState",
    "call_name",
    "catches",
    "cpu_groups",
    "find_disks",
    "libraries_of",
    "memory_groups",
    "polled_descriptors",
    "read_cpu_groups",
    "read_cpu_psi",
    "read_disks",
    "read_group",
    "read_int",
    "read_io_psi",
    "read_limits",
    "read_machine",
    "read_memory_psi",
    "read_moment",
    "read_oom_counts",
    "read_open_files",
    "read_process",
    "read_psi",
    "read_quotas",
    "read_start",
    "read_status",
    "read_swap_counts",
    "read_table",
    "read_text",
    "read_threads",
]
