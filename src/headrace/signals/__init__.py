"""What is happening: written by whoever feeds, read by whoever wants to know why.

A recording, from the writer to the reader:

- `records`: the record of an event, 32 bytes.
- `area`: the shared memory of a recording, a lane for each process.
- `lanes`: where a process writes its events.
- `kept_events`: short events of one thread, written together.
- `sample_clock`: what a sample took, and of that each part.
- `task_pace`, `task_resources`: which tasks of a worker are looked into, and what those used.
- `next_watch`: who is there when a loop asks our loader for a batch.
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

Another process, seen from outside:

- `thread_state`: what the kernel says of its threads.
- `open_files`: the files that it has open.
- `stacks`: its Python stacks.
- `system_calls`: names of the calls in which a thread may wait.
- `descriptor`: a file descriptor that child processes get too.

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
from .descriptor import Fd
from .gpus import GpuReader
from .kept_events import KeptEvents
from .kernel_files import read_text
from .lanes import Lane, close_lane, open_lane
from .machine import read_disks, read_machine
from .next_watch import watch_next, watched_next
from .open_files import NETWORK_KINDS, OpenFile, read_open_files
from .process_tree import ProcessTree
from .psi import Psi, SwapCounts, read_cpu_psi, read_io_psi, read_memory_psi, read_psi, read_swap_counts
from .quarantine import Condemned, Quarantine, QuarantineFile, merge_failures, skip_set
from .quarantine_lines import QUARANTINE_SCHEMA, Damage
from .recorder import Recorder
from .recording import RecordedProcess, Recording, event_dtype, read_run
from .records import record_dtype
from .run_facts import RUN_SCHEMA, RunFacts
from .sample_clock import EventSink, PartFrame, SampleClock, begin_sample, current_sample, end_sample
from .stacks import (
    Frame,
    StackFile,
    Stacks,
    ThreadStack,
    dump_with_py_spy,
    find_py_spy,
    format_stacks,
    parse_dump,
    read_stacks,
    register_stack_dump,
)
from .system_calls import call_name
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
from .task_pace import SHORT_TASK_NS, TaskPace
from .task_resources import TaskResources, born_ns
from .thread_state import (
    Call,
    ProcessState,
    ThreadState,
    libraries_of,
    polled_descriptors,
    read_moment,
    read_process,
    read_status,
    read_threads,
)

__all__ = [
    "NETWORK_KINDS",
    "QUARANTINE_SCHEMA",
    "RUN_SCHEMA",
    "SHORT_TASK_NS",
    "SYSTEM_SCHEMA",
    "Area",
    "Call",
    "Condemned",
    "CpuGroupSample",
    "Damage",
    "DiskSample",
    "EventSink",
    "Fd",
    "Frame",
    "GpuReader",
    "GpuSample",
    "GroupKills",
    "GroupMemory",
    "KeptEvents",
    "Lane",
    "MachineSample",
    "MemoryGroup",
    "MemoryGroupSample",
    "OomCounts",
    "OpenFile",
    "PartFrame",
    "PressureSample",
    "ProcessSample",
    "ProcessState",
    "ProcessTree",
    "Psi",
    "Quarantine",
    "QuarantineFile",
    "RecordedProcess",
    "Recorder",
    "Recording",
    "RunFacts",
    "SampleClock",
    "StackFile",
    "Stacks",
    "SwapCounts",
    "SystemSample",
    "SystemSampler",
    "TaskPace",
    "TaskResources",
    "ThreadStack",
    "ThreadState",
    "attach_from_environment",
    "begin_sample",
    "born_ns",
    "call_name",
    "close_lane",
    "current_sample",
    "dump_with_py_spy",
    "end_sample",
    "event_dtype",
    "find_py_spy",
    "format_stacks",
    "libraries_of",
    "memory_groups",
    "merge_failures",
    "open_lane",
    "parse_dump",
    "polled_descriptors",
    "read_cpu_groups",
    "read_cpu_psi",
    "read_disks",
    "read_group",
    "read_io_psi",
    "read_limits",
    "read_machine",
    "read_memory_psi",
    "read_moment",
    "read_oom_counts",
    "read_open_files",
    "read_process",
    "read_psi",
    "read_run",
    "read_stacks",
    "read_status",
    "read_swap_counts",
    "read_text",
    "read_threads",
    "record_dtype",
    "register_stack_dump",
    "skip_set",
    "watch_next",
    "watched_next",
]
