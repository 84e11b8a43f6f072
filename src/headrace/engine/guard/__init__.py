"""The watch over a loader's processes and memory.

- `guard`: watches a loader's processes while it runs: why one died, whether one stands still, whether memory gets …
- `upkeep`: keeps a feed's workers going: who is lost is replaced, who stands still is ended, fewer run while memor…
- `valve`: lets workers go on that wait for room in the budget, where nothing else would ever make any.
"""

from .guard import Guard
from .upkeep import Upkeep
from .valve import LOOK_EVERY_S, Valve

__all__ = [
    "LOOK_EVERY_S",
    "Guard",
    "Upkeep",
    "Valve",
]
