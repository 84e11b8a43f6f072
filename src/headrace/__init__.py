"""Headrace keeps GPUs fed: a drop-in for torch's DataLoader that does not stall.

Names are loaded when they are first used, so that `import headrace` and `headrace --help` load neither
torch nor numpy.
"""

from typing import TYPE_CHECKING

from .lazy import lazy_names

if TYPE_CHECKING:
    from headrace import codecs, storage
    from headrace.codecs import decode
    from headrace.errors import DecodeError, HeadraceError
    from headrace.launch import monitor, phase
    from headrace.loader import DataLoader
    from headrace.model import RAISE, RETRY, SKIP, LoaderStats, SampleFailure, sample, stage

    from .storage import Shards, ShardWriter

__version__ = "0.1.0"

__all__ = [
    "RAISE",
    "RETRY",
    "SKIP",
    "DataLoader",
    "DecodeError",
    "HeadraceError",
    "LoaderStats",
    "SampleFailure",
    "ShardWriter",
    "Shards",
    "__version__",
    "codecs",
    "decode",
    "monitor",
    "phase",
    "sample",
    "stage",
    "storage",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "codecs": "decode",
        "errors": "DecodeError HeadraceError",
        "launch": "monitor phase",
        "loader": "DataLoader",
        "model": "LoaderStats RAISE RETRY SKIP SampleFailure sample stage",
        "storage": "ShardWriter Shards",
    },
)
