"""The bytes of a batch, whatever holds its tensors."""

import numpy as np
import torch

from headrace.model import leaves_of, nbytes_of


def test_bytes_of_a_batch() -> None:
    batch = {"x": torch.zeros(10), "y": [np.zeros(3, np.uint8), ("name", 4)], "z": b"1234"}
    assert nbytes_of(batch) == 43
    assert len(list(leaves_of(batch))) == 5
    assert nbytes_of([torch.eye(3).to_sparse(), torch.zeros(2)]) == 8  # who does not say how many it has counts nothing
