"""Progress bars (tqdm's, Lightning's, transformers', accelerate's, Ultralytics'), and when each redraw happened.

tqdm shows the elapsed time in whole seconds, but its rate tells more. Where a loop calls `update()`, the rate is a
moving average whose rule is known (0.3 of the newest, 0.7 of before, of steps and of seconds alike), so each redraw's
own seconds can be worked out from two rates. Where a framework sets `n` itself (Lightning), the rate is the mean since
the start, and steps times rate is the elapsed time. Which one holds is tested against the whole seconds; if neither
does, they are all that is used.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .fields import NOT_TRAIN, StepLine, read_plan, split_numbers
from .lines import NAN

_N = r"(?P<n>\d+(?:\.\d+)?[kMG]?)"
_ELAPSED = r"(?P<elapsed>\d+:\d\d(?::\d\d)?)"
_RATE, _ANY_RATE = r"(?P<rate>[\d.]+(?:it/s|s/it))", r"(?P<rate>[\d.]+\s*\S+?/\S+?|\?[^,\]]*)(?=[,\]]|$)"
_BARS = [
    re.compile(shape)
    for shape in (
        # 65%|██████▍   | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]; 150it [00:09, 15.3it/s]
        rf"(?<![\d.]){_N}(?:/(?P<of>\d+(?:\.\d+)?[kMG]?|\?)\s*|it )\[{_ELAPSED}(?=[<,])(?:<[^,\]]*)?"
        rf"(?:,\s*{_ANY_RATE}|(?=[,\]]|$))",
        # 32: 27% ━━━╸──────── 41/150 13.2it/s 3.1s<8.3s
        rf"%\s*[━─╸╺]+\s*{_N}/(?P<of>\d+)\s+{_RATE}\s+(?P<elapsed>[\d.:]+)s?(?:<\S+)?",
        # Epoch 0/0  ━━━━━━━━ 150/150 0:00:09 • 0:00:00 15.68it/s
        rf"[━╸╺─]\s*{_N}/(?P<of>\d+)\s+{_ELAPSED}\s*•\s*\S+\s+{_RATE}",
    )
]
_SIZES = {"k": 1e3, "M": 1e6, "G": 1e9}
_OTHER_WORK = re.compile(
    r"download|fetching|tokeniz|\bmap\b(?!@)|filter|loading|reading|processing|caching|scanning|resolving|extract"
    r"|generating|unpack|copying|capturing"
    r"|下载|缓存|预处理",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"epoch\s*[:=#]?\s*\[?(\d+)|第\s*(\d+)\s*(?:轮|个?\s*epoch)|^\s*(\d+)/\d+\s", re.IGNORECASE)
Floats = NDArray[np.float64]
_SMOOTHING = 0.3  # tqdm's default
_TOLERATED_MISFIT = 0.1  # of the elapsed time
_WORKED_OUT_S = 0.05  # how finely two decimals of a rate tell the time of a redraw, about


@dataclass(frozen=True, slots=True)
class Bar:
    """One redraw of a bar: what it tells of a step, and what stands around it."""

    told: StepLine
    resolution_s: float
    kind: str  # "train", "evaluate" or "other"
    behind: str  # what stands behind the rate


def read_bar(line: str) -> Bar | None:
    """Return what a redraw of a progress bar says.

    >>> bar = read_bar("Epoch 2:  65%|██▍ | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]")
    >>> bar.told.step, bar.told.of, bar.told.epoch, bar.told.elapsed_s, bar.told.rate_s, bar.kind, bar.behind
    (2949, 4570, 2.0, 2054.0, 0.16, 'train', ', tb(ms)=160]')
    """
    match = next((match for shape in _BARS if (match := shape.search(line))), None)
    if match is None:
        return None
    title, drawn, _ = line[: match.start()].partition("%|")
    title = title.rstrip("0123456789 ") if drawn else title
    elapsed = match["elapsed"]
    rate_text = (match["rate"] or "").strip()
    kind, epoch = _title(title)
    step, of = (int(_amount(text)) if text not in (None, "?") else 0 for text in match.group("n", "of"))
    return Bar(
        StepLine(step, of, epoch, elapsed_s=clock_s(elapsed), rate_s=_rate_s(rate_text)),
        resolution_s=0.1 if "." in elapsed else 1.0,
        kind="other" if "B/s" in rate_text else kind,  # a download
        behind=line[match.end() :],
    )


@lru_cache(maxsize=4096)
def _title(title: str) -> tuple[str, float]:
    """Return what a title says: the kind of bar, and the epoch."""
    kind = "other" if _OTHER_WORK.search(title) else "evaluate" if NOT_TRAIN.search(title) else "train"
    found = _EPOCH.search(title)
    epoch = float(next(group for group in found.groups() if group)) if found else NAN
    return kind, epoch


def _rate_s(text: str) -> float:
    if text[:1] == "?":
        return NAN
    number = text[:-4].strip()
    if not text.endswith(("s/it", "it/s")) or number[-1:] not in {*_SIZES, *"0123456789"}:
        return read_plan(text).read(split_numbers(text)[1]).took_s
    value = _amount(number)
    return value if text.endswith("s/it") else 1 / value if value > 0 else NAN


def _amount(text: str) -> float:
    return float(text[:-1]) * _SIZES[text[-1]] if text[-1] in _SIZES else float(text)


def clock_s(text: str) -> float:
    """Return the seconds of a clock or a number: 1:02:03, 02:03, 12.5s."""
    seconds = 0.0
    for part in text.strip("s").split(":"):
        seconds = 60 * seconds + float(part or 0)
    return seconds


def bar_times(n: Floats, shown: Floats, rates: Floats, resolution_s: float) -> tuple[Floats, float]:
    """Return the times of the redraws of one bar from its start, and how finely they are known.

    They come from its steps, the elapsed seconds that it shows, and its seconds a step.

    >>> steps = np.array([10.0, 20, 30, 40])
    >>> bar_times(steps, steps // 10, np.full(4, 0.1), 1.0)[0].round(3).tolist()
    [1.5, 2.5, 3.5, 4.5]
    """
    if resolution_s < 1.0 or len(n) < 4 or np.isnan(rates[1:]).mean() > 0.1:
        return shown, resolution_s
    moving, since_start = _undo_moving(n, rates), np.diff(np.nan_to_num(n * rates), prepend=0.0)
    held = (_held_to(shown, seconds, resolution_s) for seconds in (moving, since_start))
    at_s, misfit_s = min(held, key=lambda one: one[1])
    is_fit = misfit_s < _TOLERATED_MISFIT * max(float(shown[-1] - shown[0]), 1.0)
    return (at_s, _WORKED_OUT_S) if is_fit else (shown, resolution_s)


def _undo_moving(n: Floats, rates: Floats) -> Floats:
    new, begun = np.diff(n, prepend=0.0), 0.0
    if n[0] > 16 and not np.isnan(rates[0]):  # seen from the middle on: as if it had been steady so far
        new[0] = begun = float(n[1] - n[0])
    told = np.flatnonzero((new > 0) & ~np.isnan(rates))
    steps_avg = [begun]
    for now in new[told].tolist():
        steps_avg.append(_SMOOTHING * now + (1 - _SMOOTHING) * steps_avg[-1])
    time_avg = np.array(steps_avg) * np.append(np.nan_to_num(rates[0]), rates[told])
    seconds = np.zeros(len(n))
    seconds[told] = np.maximum(0.0, (time_avg[1:] - (1 - _SMOOTHING) * time_avg[:-1]) / _SMOOTHING)
    return seconds


def _held_to(shown: Floats, seconds: Floats, resolution_s: float) -> tuple[Floats, float]:
    """Add up seconds, bending each time into the second that the bar showed; return the times and how much was bent."""
    at_s = np.empty(len(shown))
    bent_s = 0.0
    now = float(shown[0]) + 0.5 * resolution_s
    slack = 0.02 * resolution_s
    for index, low in enumerate(shown.tolist()):
        due = now + float(seconds[index]) if index else now
        high = low + resolution_s
        now = low if due < low - slack else high if due > high + slack else due
        bent_s += abs(now - due) if index else 0.0
        at_s[index] = now
    return at_s, bent_s
