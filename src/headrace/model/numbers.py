"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

import math


def three_digits(value: float) -> str:
    """Return a number with three digits that mean something, and no exponent.

    >>> three_digits(0.01234), three_digits(0.9999), three_digits(12345.6), three_digits(0)
    ('0.0123', '1.00', '12346', '0')
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")  # first, or 0.9999 becomes 1.000
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def format_seconds(seconds: float) -> str:
    """Return a length of time with the unit that suits it.

    >>> format_seconds(0.00042), format_seconds(0.16), format_seconds(20.69), format_seconds(3630)
    ('0.420 ms', '160 ms', '20.7 s', '60.5 min')
    """
    if seconds < 0.9995:
        return f"{three_digits(1000 * seconds)} ms"
    if seconds < 600:
        return f"{three_digits(seconds)} s"
    if seconds < 36000:
        return f"{three_digits(seconds / 60)} min"
    return f"{three_digits(seconds / 3600)} h"


def format_share(share: float) -> str:
    """Return a share as a percentage.

    >>> format_share(0.123), format_share(0.004), format_share(0.0004)
    ('12 %', '0.4 %', 'under 0.1 %')
    """
    if 0 < share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"
