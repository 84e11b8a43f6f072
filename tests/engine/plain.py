"""A data set of a user who needs no torch in workers: a plain class over NumPy. Nothing here may import torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


class Plain:
    """Says of each sample whether torch was loaded where it was made."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full((2, 3), index, "f4"), "i": index, "has_torch": "torch" in sys.modules}
