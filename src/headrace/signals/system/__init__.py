"""What the kernel says: processes, threads, control groups, the machine. The one reader of /proc.

- `processes`: what /proc says of a process: `stat`, status, memory, open files, and the tree below it.
- `threads`: the threads of another process: state, system call, where each waits.
- `cgroups`: the control groups of a process, v1 and v2: memory, processors.
- `machine`: processors, memory, swap and disks of the machine, how long tasks wait for them (PSI), and its GPUs.
- `heap`: this process's own heap, whose freed pages stay or go back; its page faults, its threads.
- `samples`: what all of them bring for a recording: plain values. Counters grow.
- `kernel_files`: reading the small files of /proc and /sys, any of which may be gone; why a file cannot be written.
"""

from .cgroups import (
    GroupMemory,
    MemoryGroup,
    OomCounts,
    cpu_groups,
    memory_groups,
    read_limits,
    read_oom_counts,
    read_quotas,
    read_task_limit,
    sample_groups,
)
from .heap import keep_heap_pages, minor_faults, name_thread, set_worker_gains, trim_heap
from .kernel_files import LOCK_IS_HELD, Fd, anonymous_file, find_number, lock_file, read_text, why_unwritable
from .machine import (
    GpuReader,
    find_disks,
    parse_cpu_list,
    read_available,
    read_disk_node,
    read_disks,
    read_machine,
    read_map_limit,
    read_numa_nodes,
    read_pci_node,
    read_pressures,
    read_swapped_in,
)
from .processes import (
    OpenFile,
    ProcessStat,
    ProcessTree,
    catches,
    count_tasks,
    read_all_stats,
    read_open_files,
    read_resident,
    read_rollup,
    read_schedule,
    read_stat,
    read_status,
    read_tree_memory,
    walk_tree,
)
from .samples import (
    CpuGroupSample,
    DiskSample,
    GpuSample,
    MachineSample,
    MemoryGroupSample,
    PressureSample,
    ProcessSample,
    SystemSample,
)
from .threads import Call, ThreadState, read_moment, read_threads

__all__ = [
    "LOCK_IS_HELD",
    "Call",
    "CpuGroupSample",
    "DiskSample",
    "Fd",
    "GpuReader",
    "GpuSample",
    "GroupMemory",
    "MachineSample",
    "MemoryGroup",
    "MemoryGroupSample",
    "OomCounts",
    "OpenFile",
    "PressureSample",
    "ProcessSample",
    "ProcessStat",
    "ProcessTree",
    "SystemSample",
    "ThreadState",
    "anonymous_file",
    "catches",
    "count_tasks",
    "cpu_groups",
    "find_disks",
    "find_number",
    "keep_heap_pages",
    "lock_file",
    "memory_groups",
    "minor_faults",
    "name_thread",
    "parse_cpu_list",
    "read_all_stats",
    "read_available",
    "read_disk_node",
    "read_disks",
    "read_limits",
    "read_machine",
    "read_map_limit",
    "read_moment",
    "read_numa_nodes",
    "read_oom_counts",
    "read_open_files",
    "read_pci_node",
    "read_pressures",
    "read_quotas",
    "read_resident",
    "read_rollup",
    "read_schedule",
    "read_stat",
    "read_status",
    "read_swapped_in",
    "read_task_limit",
    "read_text",
    "read_threads",
    "read_tree_memory",
    "sample_groups",
    "set_worker_gains",
    "trim_heap",
    "walk_tree",
    "why_unwritable",
]
