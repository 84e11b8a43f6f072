"""Progress bars: tqdm's, and those of Lightning, transformers, accelerate and Ultralytics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .fields import NAN, read_rate_s

_AMOUNT = r"(?P<n>\d+(?:\.\d+)?[kMG]?)"
_BARS = (
    # 65%|██████▍   | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]
    re.compile(
        rf"{_AMOUNT}/(?P<of>\d+(?:\.\d+)?[kMG]?|\?)\s*\[(?P<elapsed>\d+:\d\d(?::\d\d)?)<(?P<left>[^,\]]*)"
        r"(?:,\s*(?P<rate>[\d.]+\s*\S+?/\S+?|\?[^,\]]*))?(?=[,\]]|$)"
    ),
    # 150it [00:09, 15.3it/s]
    re.compile(
        rf"(?<![\d.]){_AMOUNT}(?P<of>)it \[(?P<elapsed>\d+:\d\d(?::\d\d)?),\s*(?P<rate>[\d.]+\s*\S+?/\S+?)(?=[,\]]|$)"
    ),
    # 32: 27% ━━━╸──────── 41/150 13.2it/s 3.1s<8.3s
    re.compile(
        rf"%\s*[━─╸╺]+\s*{_AMOUNT}/(?P<of>\d+)\s+(?P<rate>[\d.]+(?:it/s|s/it))\s+(?P<elapsed>[\d.:]+)s?(?:<(?P<left>"
        rf"\S+))?"
    ),
    # Epoch 0/0  ━━━━━━━━ 150/150 0:00:09 • 0:00:00 15.68it/s
    re.compile(
        rf"[━╸╺─]\s*{_AMOUNT}/(?P<of>\d+)\s+(?P<elapsed>\d+:\d\d:\d\d)\s*•\s*(?P<left>\S+)\s+(?P<rate>[\d"
        rf".]+(?:it/s|s/it))"
    ),
)
_SIZES = {"k": 1e3, "M": 1e6, "G": 1e9}
# What a bar's title says when it does not count training steps. The last is the head of Ultralytics' validation.
_NOT_TRAIN = re.compile(
    r"\b(?:val(?:id(?:ation|ating)?)?|eval(?:uat\w+)?|test(?:ing)?|sanity|predict\w*|infer\w*)\b|验证|评估|测试|mAP50",
    re.IGNORECASE,
)
_OTHER_WORK = re.compile(
    r"download|tokeniz|\bmap\b|filter|loading|caching|scanning|resolving|extract|generating|unpack|copying"
    r"|下载|缓存|预处理",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"epoch\s*[:=#]?\s*\[?(\d+)|第\s*(\d+)\s*(?:轮|个?\s*epoch)|^\s*(\d+)/\d+\s", re.IGNORECASE)
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Bar:
    """One redraw of a bar."""

    title: str
    step: int
    of: int | None
    elapsed_s: float
    resolution_s: float
    rate_s: float  # seconds a step, as the bar says it: smoothed, or the mean since the start
    rate_text: str
    epoch: int | None
    kind: str  # "train", "evaluate" or "other"
    behind: str  # what stands behind the rate
    is_stamped: bool  # a time of day stands before it


def read_bar(line: str) -> Bar | None:
    """Return what a redraw of a progress bar says.

    >>> bar = read_bar("Epoch 2:  65%|██▍ | 2949/4570 [34:14<04:19,  6.25it/s, tb(ms)=160]")
    >>> bar.step, bar.of, bar.elapsed_s, bar.rate_s, bar.epoch, bar.kind, bar.behind
    (2949, 4570, 2054.0, 0.16, 2, 'train', ', tb(ms)=160]')
    """
    for shape in _BARS:
        match = shape.search(line)
        if match is not None:
            break
    else:
        return None
    title = line[: match.start()]
    cut = title.find("%|")
    if cut >= 0:
        title = title[:cut].rstrip("0123456789 ")
    elapsed = match["elapsed"]
    rate_text = (match["rate"] or "").strip()
    kind, epoch, is_stamped = _title(title)
    if kind != "other" and "B/s" in rate_text:
        kind = "other"  # a download
    return Bar(
        title=title.strip(" :"),
        step=_amount(match["n"]),
        of=_amount(match["of"]) if match["of"] not in ("", "?") else None,
        elapsed_s=_clock_s(elapsed),
        resolution_s=0.1 if "." in elapsed else 1.0,
        rate_s=_rate_s(rate_text),
        rate_text=rate_text,
        epoch=epoch,
        kind=kind,
        behind=line[match.end() :],
        is_stamped=is_stamped,
    )


@lru_cache(maxsize=4096)
def _title(title: str) -> tuple[str, int | None, bool]:
    """Return what a title says: the kind of bar, the epoch, and whether a time of day is in it."""
    kind = "other" if _OTHER_WORK.search(title) else "evaluate" if _NOT_TRAIN.search(title) else "train"
    found = _EPOCH.search(title)
    epoch = int(next(group for group in found.groups() if group)) if found else None
    return kind, epoch, _CLOCK.search(title) is not None


def _rate_s(text: str) -> float:
    if text.endswith("it/s") and text[:1] != "?":
        number = float(text[:-4])
        return 1 / number if number > 0 else NAN
    if text.endswith("s/it") and text[:1] != "?":
        return float(text[:-4])
    return read_rate_s(text) if text[:1] != "?" else NAN


def _amount(text: str) -> int:
    return int(float(text[:-1]) * _SIZES[text[-1]]) if text[-1] in _SIZES else int(float(text))


def _clock_s(text: str) -> float:
    seconds = 0.0
    for part in text.strip("s").split(":"):
        seconds = 60 * seconds + float(part or 0)
    return seconds
