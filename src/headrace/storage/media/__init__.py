"""What is under a path, and how fast it reads.

- `kinds`: what is under a path: its file system, the disk or the server, and how many reads at a time to begin with.
- `knee`: what a probe found, and what follows from it: the knee, and a depth to read with. Pure.
- `probe`: measures how fast it can be read: in order, again from memory, and at random up to the knee.
"""

from .kinds import Medium, StorageKind, kind_of, starting_depth
from .knee import ProbeResult
from .probe import probe

__all__ = ["Medium", "ProbeResult", "StorageKind", "kind_of", "probe", "starting_depth"]
