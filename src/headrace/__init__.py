"""Headrace keeps GPUs fed: a drop-in for torch's DataLoader that does not stall.

Names are loaded when they are first used, so that `import headrace` and `headrace --help` load neither
torch nor numpy.
"""

from typing import TYPE_CHECKING

from . import errors
from .errors import *  # noqa: F403
from .lazy import lazy_names

if TYPE_CHECKING:
    from . import codecs, storage
    from .codecs import decode
    from .launch import monitor, phase
    from .loader import DataLoader
    from .model import RAISE, RETRY, SKIP, LoaderStats, SampleFailure, sample, stage
    from .storage import Shards, ShardWriter

__version__ = "0.1.0"

__all__ = [
    "RAISE",
    "RETRY",
    "SKIP",
    "DataLoader",
    "LoaderStats",
    "SampleFailure",
    "ShardWriter",
    "Shards",
    "__version__",
    "codecs",
    "decode",
    "errors",
    "monitor",
    "phase",
    "sample",
    "stage",
    "storage",
]
__all__ += errors.__all__

__getattr__, __dir__ = lazy_names(
    __name__,
    codecs="decode",
    launch="monitor phase",
    loader="DataLoader",
    model="LoaderStats RAISE RETRY SKIP SampleFailure sample stage",
    storage="ShardWriter Shards",
)
