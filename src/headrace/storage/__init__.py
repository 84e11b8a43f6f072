"""Where the bytes are, and how to get them.

- `mounts`: which mount a path lies on.
- `block_devices`: the disks beneath a block device.
- `file_systems`: what a file system's type and options tell.
- `media`: the kinds of storage, and a depth to begin with for each.
- `kinds`: what is under a path.
"""

from .kinds import StorageKind, kind_of
from .media import Medium

__all__ = ["Medium", "StorageKind", "kind_of"]
