"""What is in a sample or a batch: its form in rows, its content as one number."""

import zlib
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import torch

from headrace.model import nbytes_of

_MOST_ROWS = 64


FormRow = tuple[str, str, tuple[int, ...], str, int]  # where it is, what, its shape, its dtype, its bytes


def form_of(value: Any, name: str = "") -> list[FormRow]:
    """Return what is in a sample or a batch, a row for each array, tensor, picture, number, text or list of texts.

    >>> form_of({"x": np.zeros((3, 4), np.float32), "y": [1, "text"], "z": ["some", "texts"]})[1:]
    [('y[0]', 'int', (), '', 0), ('y[1]', 'str', (), '', 0), ('z', 'list of str', (2,), '', 0)]
    """
    if isinstance(value, dict):
        return [row for key, inner in value.items() for row in form_of(inner, f"{name}.{key}" if name else str(key))]
    kinds = {type(one).__name__ for one in value} if isinstance(value, (list, tuple)) else set()
    if kinds == {"str"}:
        return [(name, f"{type(value).__name__} of str", (len(value),), "", 0)]
    if kinds and len(value) <= _MOST_ROWS:
        return [row for at, inner in enumerate(value) for row in form_of(inner, f"{name}[{at}]")]
    shape = value.shape if isinstance(value, (torch.Tensor, np.ndarray)) else ()
    if not shape and isinstance(size := getattr(value, "size", None), tuple):  # a picture
        shape = (*size, len(value.getbands()) if hasattr(value, "getbands") else 1)
    dtype = str(getattr(value, "dtype", None) or getattr(value, "mode", "") or "").removeprefix("torch.")
    return [(name, type(value).__name__, tuple(int(size) for size in shape), dtype, nbytes_of(value))]


def digest_of(value: Any, row: int | None = None) -> int:
    """Return a digest of all arrays, numbers and texts in it; of one row, where it is a batch by the default collation.

    >>> digest_of({"x": torch.tensor([1, 2])}, row=1) == digest_of({"x": torch.tensor([2])}, row=0)
    True
    """
    leaves = (leaf if row is None else leaf[row] for leaf in _leaves(value))
    return reduce(lambda digest, leaf: zlib.crc32(_bytes_of(leaf), digest), leaves, 0)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name in value:
            yield from _leaves(value[name])
    elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (str, bytes)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_nested:
            return b"?"
        plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(value, (str, bytes, int, float, bool, type(None), list, tuple)):
        return value if isinstance(value, bytes) else repr(value).encode()
    if hasattr(value, "tobytes") and getattr(value, "dtype", None) != np.dtype(object):  # an array, a picture
        return bytes(value.tobytes())
    return b"?"  # an object of the user's own: nothing is known of its content
