"""Is this machine fit for a training that loads data.

- `facts`: all that is read of it, as one value: cores, memory, limits, storage, GPUs, what libraries make of it.
- `judging`: what is wrong with it, if anything: facts in, checks out. Pure; its sentences are in `problems.toml`.
"""

from pathlib import Path

from headrace.signals.system import read_disk_node
from headrace.storage import kind_of

from ..checks import Check
from .facts import GpuFacts, Libraries, MachineFacts
from .judging import judge

__all__ = ["GpuFacts", "Libraries", "MachineFacts", "check_machine", "judge"]


def check_machine(data: Path | None = None) -> tuple[Check, ...]:
    """Look at the machine, and at what the data lies on; it takes about as long as importing torch."""
    kind = kind_of(data) if data is not None else None
    return judge(MachineFacts(data=data, storage=kind, disk_node=read_disk_node(kind.device) if kind else None))
