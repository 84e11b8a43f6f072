"""What a thing costs: switched on and off in short windows of one run, each window compared with those beside it.

Two processes with the same code differ by up to 10 % here (where their memory lies, what else the machine does), which
hides a cost of 1 %. Neighbouring windows of one process differ by chance alone, and there are hundreds of them. The
same run without switching shows the error of the method.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tables import Result


class Window(NamedTuple):
    """What happened in a window: steps, seconds, and processor seconds by who used them."""

    is_on: bool
    start_ns: int
    end_ns: int
    steps: int
    cpu_s: Mapping[str, float]

    @property
    def step_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9 / self.steps

    def cpu_step_s(self, who: Sequence[str]) -> float:
        return sum(self.cpu_s[one] for one in who) / self.steps


def cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, all its threads together, to the nanosecond: Linux's `clock_getcpuclockid`."""
    return (~pid << 3) | 2


def measure(
    step: Callable[[], object],
    switch: Callable[[bool], None],
    *,
    seconds: float,
    window_s: float,
    settle_s: float = 0.0,
    pids: Mapping[str, Sequence[int]] | None = None,
) -> list[Window]:
    """Step for some time and switch at every window; the first and the last are off.

    `settle_s` passes after each switch before anything is counted: what is under way was begun before it.
    """
    clocks = {who: [cpu_clock(pid) for pid in these] for who, these in (pids or {}).items()}
    windows = []
    for number in range(2 * max(1, int(seconds / (window_s + settle_s) / 2)) + 1):
        is_on = bool(number % 2)
        switch(is_on)
        settled = time.monotonic_ns() + int(settle_s * 1e9)
        while time.monotonic_ns() < settled:
            step()
        before = _used(clocks)
        start = now = time.monotonic_ns()
        end, steps = start + int(window_s * 1e9), 0
        while now < end:
            step()
            steps += 1
            now = time.monotonic_ns()
        used = {who: after - before[who] for who, after in _used(clocks).items()}
        windows.append(Window(is_on, start, now, steps, used))
    return windows


def _used(clocks: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {who: sum(map(time.clock_gettime, these)) for who, these in clocks.items()}


def compare(values: Sequence[float]) -> Result:
    """Compare each odd value, where the thing is on, with each of the two beside it.

    The median ratio with its 95 % interval (of ranks: nothing is assumed of the noise), and the ratio of the sums, in
    which what happens in few windows counts too. One by one, not with the mean of the two: where few windows are slow
    and most are not, a mean of two lies above the median of one, and a cost would read a point too low.
    """
    ratios = sorted(on / off for on, off in _pairs(values))
    reach = int(1.96 * (len(ratios) / 2) ** 0.5)  # ranks of a median lie binomially; two ratios share a value
    middle = len(ratios) // 2
    return {
        "ratio": statistics.median(ratios),
        "low": ratios[max(0, middle - reach)],
        "high": ratios[min(len(ratios) - 1, middle + reach)],
        "ratio_of_means": statistics.fmean(values[1::2]) / statistics.fmean(values[::2]),
        "num_windows": len(values),
    }


def cost(values: Sequence[float], prefix: str = "") -> Result:
    """The same as what it adds, in percent."""
    found = compare(values)
    return {
        f"{prefix}cost_percent": 100 * (found["ratio"] - 1),
        f"{prefix}cost_low_percent": 100 * (found["low"] - 1),
        f"{prefix}cost_high_percent": 100 * (found["high"] - 1),
        f"{prefix}cost_of_means_percent": 100 * (found["ratio_of_means"] - 1),
    }


def added(values: Sequence[float]) -> float:
    """The median of what an odd value is above one beside it."""
    return statistics.median(on - off for on, off in _pairs(values))


def _pairs(values: Sequence[float]) -> list[tuple[float, float]]:
    return [(values[i], values[j]) for i in range(1, len(values) - 1, 2) for j in (i - 1, i + 1)]
