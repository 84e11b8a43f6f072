"""A sample: what names it, in a form that can be compared and written, and what lies in it."""

import json
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any


class OpaqueKey(str):
    """The `repr` of a key that JSON cannot hold; it names the sample, as far as that `repr` is the same next time."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def plain_key(key: Any) -> Any:
    """Return a key in its plain form: whole numbers of any kind as `int`, sequences as tuples.

    What JSON cannot hold (an object, bytes, a NaN) comes back as it is.

    >>> plain_key([3, (1.5, "a")]), plain_key(True), plain_key("scan_0031")
    ((3, (1.5, 'a')), True, 'scan_0031')
    """
    if type(key) in (int, str):
        return key
    try:
        return _plain(key)
    except (TypeError, ValueError, RecursionError):
        return key


def key_text(key: Any) -> str:
    """Return the text under which a key is compared: the same for equal keys, another one for different keys.

    >>> key_text(7), key_text("7"), key_text([7, "a"]), key_text({"b": 1, "a": 2}), key_text(b"7")
    ('7', '"7"', '[7,"a"]', '{"a":2,"b":1}', "repr b'7'")
    """
    if isinstance(key, OpaqueKey):
        return f"repr {key}"
    if type(key) is int:
        return str(key)
    try:
        return json.dumps(_plain(key), sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return f"repr {key!r}"


def is_json_key(key: Any) -> bool:
    """Whether JSON can hold the key, so that it is read back as what it was."""
    return not key_text(key).startswith("repr ")


class SampleKeys(Set[Any]):
    """A set of sample keys of any kind, hashable or not: a list finds an equal tuple, a numpy integer an `int`.

    >>> bad = SampleKeys([3, "scan_0031", ("a", 7), 3])
    >>> len(bad), 3 in bad, ["a", 7] in bad, "3" in bad
    (3, True, True, False)
    """

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        plain = [plain_key(key) for key in keys]
        # most sets hold nothing else: one look-up, and arrays can be filtered with it
        self.indices: frozenset[int] = frozenset(key for key in plain if type(key) is int)
        self._others = {key_text(key): key for key in plain if type(key) is not int}

    def __contains__(self, key: object) -> bool:
        if type(key) is int:
            return key in self.indices
        plain = plain_key(key)
        return plain in self.indices if type(plain) is int else key_text(plain) in self._others

    def __iter__(self) -> Iterator[Any]:
        yield from sorted(self.indices)
        yield from self._others.values()

    def __len__(self) -> int:
        return len(self.indices) + len(self._others)

    def __repr__(self) -> str:
        return f"SampleKeys({len(self.indices)} indices, {len(self._others)} other keys)"


def _plain(key: Any) -> Any:
    """Return the plain form, or raise `TypeError` or `ValueError` where JSON has none."""
    if key is None or isinstance(key, bool):
        return key
    if isinstance(key, OpaqueKey):
        raise TypeError("an opaque key is known by its repr alone")
    if isinstance(key, str):
        return str.__str__(key)  # an enum's own `str` is not its value
    if isinstance(key, float):
        if not math.isfinite(key):
            raise ValueError("JSON has no such number")
        return float(key)
    if isinstance(key, (list, tuple)):
        return tuple(map(_plain, key))
    if isinstance(key, dict):
        if not all(isinstance(name, str) for name in key):
            raise TypeError("JSON objects have names, not keys of any kind")
        return {str.__str__(name): _plain(value) for name, value in key.items()}
    return operator.index(key)  # numpy integers, torch tensors of one whole number; TypeError for the rest


def leaves_of(batch: Any) -> Iterator[Any]:
    """Give what lies in a sample or a batch, whatever dicts, lists and tuples hold it."""
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
