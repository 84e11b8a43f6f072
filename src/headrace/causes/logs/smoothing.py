"""Step times that a logger has averaged over its last ten steps, taken apart again.

mmengine prints at every interval the mean of the last ten steps. Printed every step, one long step becomes ten
middling ones. The rule is known, so it can be undone, and whether it holds can be seen: undone where it does not hold,
it gives step times below nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_WINDOW = 10


def undo_smoothing(
    took_s: Floats, wait_s: Floats, is_hole: NDArray[np.bool_], *, window: int = _WINDOW
) -> tuple[Floats, Floats]:
    """Return step times and waits with the smoothing undone, or as they are where there was none.

    >>> plain = np.array([0.1] * 20 + [2.1] + [0.1] * 19)
    >>> smoothed = np.array([plain[max(0, k - 9) : k + 1].mean() for k in range(40)])
    >>> undone, _ = undo_smoothing(smoothed, smoothed * np.nan, np.zeros(40, bool))
    >>> bool(np.allclose(undone, plain)), undo_smoothing(plain, plain, np.zeros(40, bool))[0] is plain
    (True, True)
    """
    if len(took_s) < 2 * window or is_hole.any():
        return took_s, wait_s
    own = _undone(took_s, window)
    # Undone where there was no smoothing, it gives negative steps: ten times the difference of two neighbours.
    if float(own.min()) < -0.25 * float(np.median(took_s)):
        return took_s, wait_s
    own = np.maximum(own, 0.0)
    return own, np.clip(_undone(wait_s, window), 0.0, own) if not np.isnan(wait_s).any() else wait_s


def _undone(means: Floats, window: int) -> Floats:
    own = np.empty(len(means))
    own[0] = means[0]
    for index in range(1, len(means)):
        if index < window:
            own[index] = (index + 1) * means[index] - index * means[index - 1]
        else:
            own[index] = window * (means[index] - means[index - 1]) + own[index - window]
    return own
