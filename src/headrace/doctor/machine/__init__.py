"""Is this machine fit for a training that loads data.

- `facts`: all that is read of it, as one value: cores, memory, limits, storage, GPUs, what libraries make of it.
- `judging`: what is wrong with it, if anything: facts in, checks out. Pure; its sentences are in `problems.toml`.
"""

from pathlib import Path

from ..checks import Check
from .facts import GpuFacts, Libraries, MachineFacts, PlaceFacts
from .judging import judge

__all__ = ["GpuFacts", "Libraries", "MachineFacts", "PlaceFacts", "check_machine", "judge"]


def check_machine(data: Path | None = None) -> tuple[Check, ...]:
    """Look at the machine, and at what the data lies on; it takes about as long as importing torch."""
    return judge(MachineFacts(place=PlaceFacts.of(data) if data is not None else None))
