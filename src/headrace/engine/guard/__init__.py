"""The watch over a loader's processes and memory.

- `guard`: why a worker died, whether one stands still, whether memory gets short.
- `upkeep`: who is lost is replaced, who stands still is ended, fewer run while memory is short.
"""

from .guard import Guard
from .upkeep import LOOK_EVERY_S, Upkeep, Valve

__all__ = ["LOOK_EVERY_S", "Guard", "Upkeep", "Valve"]
