"""Headrace keeps GPUs fed: a drop-in for torch's DataLoader that does not stall.

Names are loaded when they are first used, so that `import headrace` and `headrace --help` load neither
torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import codecs
    from .codecs import decode
    from .errors import DecodeError, HeadraceError
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
]

_HOME_OF = {
    "DataLoader": ".loader",
    "DecodeError": ".errors",
    "HeadraceError": ".errors",
    "LoaderStats": ".model",
    "RAISE": ".model",
    "RETRY": ".model",
    "SKIP": ".model",
    "SampleFailure": ".model",
    "ShardWriter": ".storage",
    "Shards": ".storage",
    "decode": ".codecs",
    "monitor": ".launch",
    "phase": ".launch",
    "sample": ".model",
    "stage": ".model",
}
_ROOMS = ("codecs",)


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value  # the next access does not come here again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
