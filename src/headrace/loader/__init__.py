"""What a torch user sees: `DataLoader`, torch's own with an engine that does not stall.

- `batches`: what must be known of collated batches.
- `dataloader`: the class itself.
- `local`: its iterators in the training process.
- `profiles`: settings by name: from `headrace.toml`, the environment, or computed for the machine.
- `reading`: reading ahead for a loader, where its data set says that samples lie.
- `snapshot`: a loader's figures before it has an iterator, and what iterators say of it.
- `standing_in`: a script's own torch loader with our workers in the place of torch's.
- `target`: what a command works on, as people name it: `file.py:name`, or shards.
- `target_process`: a process of its own for it.
- `workers`: its iterator over a pool of workers.

Names are loaded when they are first used: a loader needs no codecs.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.engine import DEFAULT_SHARE, free_memory, usable_processors

    from .batches import count_rows
    from .dataloader import DataLoader
    from .profiles import BUILT_IN, Origin, Setting, find_file, read_profiles, resolve_settings, write_profile
    from .reading import most_read_ahead
    from .snapshot import expected_ahead
    from .standing_in import FedIterator, Feeding, probe_samples
    from .target import Target, load_target
    from .target_process import Orders, TargetProcess, end_with_parent

__all__ = [
    "BUILT_IN",
    "DEFAULT_SHARE",
    "DataLoader",
    "FedIterator",
    "Feeding",
    "Orders",
    "Origin",
    "Setting",
    "Target",
    "TargetProcess",
    "count_rows",
    "end_with_parent",
    "expected_ahead",
    "find_file",
    "free_memory",
    "load_target",
    "most_read_ahead",
    "probe_samples",
    "read_profiles",
    "resolve_settings",
    "usable_processors",
    "write_profile",
]

_OF_PROFILES = (
    "BUILT_IN DEFAULT_SHARE Origin Setting find_file free_memory read_profiles resolve_settings usable_processors "
    "write_profile"
)
__getattr__, __dir__ = lazy_names(
    __name__,
    batches="count_rows",
    dataloader="DataLoader",
    profiles=_OF_PROFILES,
    reading="most_read_ahead",
    snapshot="expected_ahead",
    standing_in="FedIterator Feeding probe_samples",
    target="Target load_target",
    target_process="Orders TargetProcess end_with_parent",
)
