"""What must be known of collated batches: how torch makes them, how long they are, where they lie."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import pin_memory as torch_pinning

pin_batch: Callable[[Any, Any], Any] = torch_pinning.pin_memory

_ORIGINAL_COLLATIONS = dict(torch_collate.default_collate_fn_map)


def is_default_collation(collate: Any) -> bool:
    """Whether batches are what `default_collate` makes, and nobody changed how it treats tensors and numbers."""
    return collate is torch_collate.default_collate and torch_collate.default_collate_fn_map == _ORIGINAL_COLLATIONS


def collate_as_workers_do(samples: Any) -> Any:
    """The default collation as torch's workers run it: a batch of several dtypes takes that of its first sample."""
    collations = {**torch_collate.default_collate_fn_map, torch.Tensor: _stack}
    return torch_collate.collate(samples, collate_fn_map=collations)


def _stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        return torch_collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return torch.stack(list(batch), 0, out=first.new_empty((len(batch), *first.shape)))


def count_rows(batch: Any, *, otherwise: int) -> int:
    """The length of a collated batch, from its first tensor."""
    first = _first_leaf(batch)
    return first.size(0) if isinstance(first, torch.Tensor) and first.dim() else otherwise


def is_pinned(batch: Any) -> bool:
    first = _first_leaf(batch)
    return isinstance(first, torch.Tensor) and first.is_pinned()


def _first_leaf(batch: Any) -> Any:
    while isinstance(batch, (list, tuple, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return batch
