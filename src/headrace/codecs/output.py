"""Results into the caller's own buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .source import Source

Array = npt.NDArray[Any]


def check_out(source: Source, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless `out` can take a result of this shape and dtype."""
    if out is None:
        return
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a numpy array, not {type(out).__name__}; a tensor's is tensor.numpy()")
    if out.shape != shape:
        raise ValueError(f"{source.name}: out has shape {out.shape}, the result {shape}")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise ValueError(f"{source.name}: out has dtype {out.dtype}, which does not take {dtype}")


def hand_out(source: Source, result: Array, out: Array | None) -> Array:
    """Return the result, in `out` if there is one."""
    if out is None or out is result:
        return result
    check_out(source, out, result.shape, result.dtype)
    np.copyto(out, result, casting="same_kind")
    return out
