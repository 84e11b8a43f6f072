"""What is happening: written by whoever feeds, read by whoever wants to know why.

- `appending`: lines added to a file that several processes and hosts share.
- `descriptor`: a file descriptor that child processes get too.
- `open_files`: the files that another process has open.
- `quarantine`: the samples that runs over a data set have condemned, in a file.
- `quarantine_lines`: the format of that file, one JSON line a sample.
- `stacks`: Python stacks of another process.
- `system_calls`: names of the calls in which a thread may wait.
- `thread_state`: what the kernel says of the threads of another process.
"""

from .descriptor import Fd
from .open_files import NETWORK_KINDS, OpenFile, read_open_files
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
from .system_calls import call_name
from .thread_state import (
    Call,
    ProcessState,
    ThreadState,
    libraries_of,
    polled_descriptors,
    read_process,
    read_status,
    read_threads,
)

__all__ = [
    "NETWORK_KINDS",
    "QUARANTINE_SCHEMA",
    "Call",
    "Condemned",
    "Damage",
    "Fd",
    "Frame",
    "OpenFile",
    "ProcessState",
    "Quarantine",
    "QuarantineFile",
    "StackFile",
    "Stacks",
    "ThreadStack",
    "ThreadState",
    "call_name",
    "dump_with_py_spy",
    "find_py_spy",
    "format_stacks",
    "libraries_of",
    "merge_failures",
    "parse_dump",
    "polled_descriptors",
    "read_open_files",
    "read_process",
    "read_stacks",
    "read_status",
    "read_threads",
    "register_stack_dump",
    "skip_set",
]
