"""Where the bytes are, and how to get them.

- `mounts`: which mount a path lies on.
- `block_devices`: the disks beneath a block device.
- `file_systems`: what a file system's type and options tell.
- `media`: the kinds of storage, and a depth to begin with for each.
- `kinds`: what is under a path.
- `cold`: bringing a file's pages out of the page cache, and knowing whether they are.
- `coldness`: whether what was read came from the storage.
- `knee`: the depth after which more readers bring no more bytes.
- `advice`: which depth to read with, from what was measured.
- `probe_files`: which files a probe reads.
- `probe_order`: which parts of them, in which order.
- `probe_reads`: readers that keep a number of reads in flight, each timed.
- `probe_phases`: the parts of a probe, within one budget.
- `probe_result`: what a probe found, as values.
- `probing`: a probe, from a path to its result.
- `remembered`: the depth that a probe found, kept for later loaders.
- `written_file`: a file to test with, written and removed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .kinds import StorageKind, kind_of
    from .knee import DepthRate, Knee, KneeState, find_knee
    from .media import Medium
    from .probe_result import Coldness, FilesUsed, Latency, ProbeResult, Reading, Suggestion
    from .probing import probe
    from .remembered import RememberedDepth, recall, remember

__all__ = [
    "Coldness",
    "DepthRate",
    "FilesUsed",
    "Knee",
    "KneeState",
    "Latency",
    "Medium",
    "ProbeResult",
    "Reading",
    "RememberedDepth",
    "StorageKind",
    "Suggestion",
    "find_knee",
    "kind_of",
    "probe",
    "recall",
    "remember",
]

_HOME_OF = {
    "Coldness": ".probe_result",
    "DepthRate": ".knee",
    "FilesUsed": ".probe_result",
    "Knee": ".knee",
    "KneeState": ".knee",
    "Latency": ".probe_result",
    "Medium": ".media",
    "ProbeResult": ".probe_result",
    "Reading": ".probe_result",
    "RememberedDepth": ".remembered",
    "StorageKind": ".kinds",
    "Suggestion": ".probe_result",
    "find_knee": ".knee",
    "kind_of": ".kinds",
    "probe": ".probing",
    "recall": ".remembered",
    "remember": ".remembered",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value  # the next access does not come here again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
