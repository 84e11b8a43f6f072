"""Byte counts as people write them."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(value: int | str, *, name: str = "memory") -> int:
    """Return a positive number of bytes from `8589934592`, `"8GiB"`, `"512 MB"` or `"1.5g"`.

    >>> parse_bytes("8GiB") == 8 * 2**30
    True
    >>> parse_bytes("1.5 MB")
    1500000
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{name} takes a number of bytes or a text such as '8GiB', not {value!r}")
    if isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        unit = match.group(2).lower() if match else None
        if match is None or unit not in _UNITS:
            raise ValueError(f"{name}={value!r} is not a size; write a number of bytes, or one with KiB, MiB, GiB, TiB")
        value = int(float(match.group(1)) * _UNITS[unit])
    if value <= 0:
        raise ValueError(f"{name} must be more than 0 bytes, got {value}")
    return value


def format_bytes(value: float) -> str:
    """Return a size with three digits and its binary unit.

    >>> format_bytes(5 * 2**20)
    '5.00 MiB'
    >>> format_bytes(900)
    '900 B'
    """
    if abs(value) < 1000:
        return f"{value:.0f} B"
    units = ["KiB", "MiB", "GiB", "TiB"]
    value /= 1024
    while abs(value) >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f} {units[0]}"
