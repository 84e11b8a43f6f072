"""What lies in a sample or a batch, whatever dicts, lists and tuples hold it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def leaves_of(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from leaves_of(value)
    elif isinstance(batch, Sequence) and not isinstance(batch, (str, bytes, bytearray, memoryview)):
        for value in batch:
            yield from leaves_of(value)
    else:
        yield batch


def nbytes_of(batch: Any) -> int:
    """Return the bytes of its arrays and tensors.

    >>> nbytes_of({"x": memoryview(bytes(12)), "parts": [memoryview(b"abc"), ("text", 7)]})
    15
    """
    return sum(map(_nbytes_of_one, leaves_of(batch)))


def _nbytes_of_one(leaf: Any) -> int:
    try:
        size = getattr(leaf, "nbytes", 0)
    except (RuntimeError, AttributeError):  # sparse tensors say so of themselves
        return 0
    return size if isinstance(size, int) else 0
