"""What is happening: written by whoever feeds, read by whoever wants to know why.

- `recording`: a recorded run: events in shared memory, drained into a run directory, and read back.
- `system`: what the kernel says of processes, threads, control groups and the machine.
- `timing`: timing what a loader does: samples and their parts, tasks, every `next`.
- `stacks`: Python stacks of another process.
- `descriptor`: a file descriptor that child processes get too.
- `quarantine`: the samples that runs over a data set have condemned, in a file.
- `quarantine_lines`: the format of that file, one JSON line a sample.
- `appending`: lines added to a file that several processes and hosts share.
"""

from .descriptor import Fd
from .quarantine import Condemned, Quarantine, QuarantineFile, merge_failures, skip_set
from .quarantine_lines import QUARANTINE_SCHEMA, Damage
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

__all__ = [
    "QUARANTINE_SCHEMA",
    "Condemned",
    "Damage",
    "Fd",
    "Frame",
    "Quarantine",
    "QuarantineFile",
    "StackFile",
    "Stacks",
    "ThreadStack",
    "dump_with_py_spy",
    "find_py_spy",
    "format_stacks",
    "merge_failures",
    "parse_dump",
    "read_stacks",
    "register_stack_dump",
    "skip_set",
]
