"""Two values are the same when type, structure, dtype, shape and every bit agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def assert_same(ours: Any, theirs: Any, where: str = "value") -> None:
    """Fail where `ours` differs from `theirs` in any way that a training loop could see."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} is not {type(theirs)}"
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype, f"{where}: {ours.dtype} is not {theirs.dtype}"
        assert ours.layout == theirs.layout, where
        assert ours.shape == theirs.shape, f"{where}: {ours.shape} is not {theirs.shape}"
        assert ours.requires_grad == theirs.requires_grad, where
        assert _bits(ours) == _bits(theirs), f"{where}: {ours} is not {theirs}"
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype, where
        assert ours.shape == theirs.shape, where
        assert ours.dtype.hasobject or ours.tobytes() == theirs.tobytes(), where
        assert not ours.dtype.hasobject or ours.tolist() == theirs.tolist(), where
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{where}: keys {list(ours)} are not {list(theirs)}"
        assert list(map(type, ours)) == list(map(type, theirs)), f"{where}: types of keys"
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), f"{where}: {len(ours)} items, not {len(theirs)}"
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(one, other, f"{where}[{number}]")
    elif isinstance(theirs, (float, np.generic)):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), f"{where}: {ours} is not {theirs}"
    else:
        assert ours == theirs, f"{where}: {ours!r} is not {theirs!r}"


def _bits(tensor: torch.Tensor) -> bytes:
    if tensor.layout is not torch.strided:
        return _bits(tensor.to_dense())
    if not tensor.numel():
        return b""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()
