"""Numbers with names and units in a line of any logger: step, epoch, step time, data time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isnan

NAN = float("nan")

_UNIT_S = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "秒": 1.0}
_UNIT_S |= {"ms": 1e-3, "msec": 1e-3, "毫秒": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "微秒": 1e-6}
_UNIT_S |= {"min": 60.0, "分钟": 60.0}
_UNIT = r"(?:seconds?|secs?|msec|ms|us|µs|μs|毫秒|微秒|秒|min|分钟|s)"
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"

# What loops call the time that they waited for a batch. Longer names first; the plain ones need `:` or `=` or a unit.
_WAIT = (
    r"data[_ -]?(?:loading|load|loader|fetch|wait|read)?[_ -]?(?:time|dur(?:ation)?|s|ms)|time[/_]data|t_data|dt_data|"
    r"dataload(?:er|ing)?(?:[_ ]time)?|(?:data[_ ]?)?(?:loading|load|loader|fetch|wait(?:ing)?|next)[_ ]time|"
    r"(?:batch|data|loader)[_ ](?:wait|fetch|load|loading)|batch[-_ ]generator|wait(?:ed|ing)?(?: for data)?|data|"
    r"数据(?:加载|读取|等待)?(?:时间|耗时|用时)?|(?:加载|取数|读取|等待)(?:数据)?(?:时间|耗时|用时)"
)
_TOOK = (
    r"elapsed time per (?:iteration|step)|(?:per[_ ])?(?:train(?:ing)?[_ ])?(?:step|iter(?:ation)?|batch|global_step)"
    r"[_ ]?(?:time|duration|dur|cost|s|ms|took)|time[/_ ](?:per[_ ])?(?:step|iter(?:ation)?|batch)|"
    r"(?:s|sec|secs|seconds|ms)/(?:step|iter(?:ation)?|it|batch)|train[_ ]time|time[_ ]?(?:taken|cost)|time|took|"
    r"(?:tb|step|iter|dt|duration|elapsed|cost)(?=\s*\((?:ms|s|sec)\))|dt|duration|cost|"
    r"(?:每步|单步|步|迭代|批次|本步)?(?:耗时|用时|时间)"
)
_PLAIN_WORDS = {"data", "wait", "waited", "waiting", "dt", "cost", "step", "iter"}  # that mean other things, too
_MEASURE = re.compile(
    rf"(?<![\w/.])(?:(?P<wait>{_WAIT})|(?P<took>{_TOOK}))['\"]?\s*(?:[(\[]\s*(?P<u1>{_UNIT})\s*[)\]])?"
    rf"['\"]?\s*(?P<sep>[:=：])?\s*['\"]?(?P<number>{_NUMBER})(?![\d:/x%*])\s*(?P<u2>{_UNIT}(?![\w/]))?",
    re.IGNORECASE,
)
_RATE = re.compile(
    rf"(?P<number>{_NUMBER})\s*(?P<unit>(?:it|iters?|iterations?|steps?|batch(?:es)?)/(?:s(?:ec(?:ond)?)?)\b|"
    rf"(?:s|sec|seconds|ms)/(?:it|iter|iteration|step|batch)\b|步/秒|秒/步)",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?P<word>epoch|iter(?:ation)?s?|(?:global[_ ])?step|batch|it|train(?:ing)?)\s*(?:\("
    r"(?P<phase>train|val|valid|test)\))?"
    r"['\"]?\s*[:=：#]?\s*['\"]?\[\s*(?P<a>\d+)\s*(?:/\s*(?P<a_of>\d+)\s*)?\](?:\s*\[\s*(?P<b>\d+)\s*/\s*(?P<b_of>\d"
    r"+)\s*\])?"
    r"|(?<![\w])(?:(?:global|train(?:ing)?|optim(?:izer)?)[_ ])?(?:step|iter(?:ation)?|batch|it|mini[_-]?batch)s?"
    r"['\"]?\s*[:=：#]?\s*#?\s*(?P<c>\d+)(?![\d.]*\s*(?:s\b|ms\b|%|/s))(?:\s*(?:/|of)\s*(?P<c_of>\d+))?(?![\w.]*=|:\d)"
    r"|(?:步数|迭代次数|迭代|批次|步)\s*[:=：]?\s*(?P<d>\d+)(?:\s*/\s*(?P<d_of>\d+))?"
    r"|第\s*(?P<e>\d+)\s*(?:/\s*(?P<e_of>\d+)\s*)?(?:步|个?批次|个?\s*batch|次迭代)"
    r"|\[\s*(?P<g>\d+)\s*/\s*(?P<g_of>\d+)\s*\]",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"(?:epoch['\"]?\s*[:=：#]?\s*['\"]?\[?\s*(\d+)(?![\d.]*\.\d)|第\s*(\d+)\s*(?:轮|个?\s*epoch))", re.IGNORECASE
)
_NOT_TRAIN = re.compile(
    r"\b(?:val(?:id(?:ation|ating)?)?|eval(?:uat\w+)?|test(?:ing)?|predict\w*)\b|验证|评估|测试", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Measures:
    """What a line says of durations; `unit_known` is false where a bare number may be milliseconds."""

    took_s: float
    wait_s: float
    unit_known: bool


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the training a line stands."""

    step: int
    of: int | None
    epoch: int | None
    is_training: bool


def read_measures(text: str) -> Measures | None:
    """Return the step time and the data time that a line tells, in seconds.

    >>> read_measures("time: 0.0629  data_time: 0.0019  loss: 0.7")
    Measures(took_s=0.0629, wait_s=0.0019, unit_known=False)
    >>> read_measures("loss=0.4, tb(ms)=160, data=500")
    Measures(took_s=0.16, wait_s=0.5, unit_known=True)
    """
    took = wait = NAN
    unit_known = False
    line_unit: float | None = None
    bare: list[str] = []
    for match in _MEASURE.finditer(text):
        kind = "wait" if match["wait"] else "took"
        unit = match["u1"] or match["u2"]
        name = (match["wait"] or match["took"]).lower()
        if unit is None:
            is_averaged = "(" in text[match.end() : match.end() + 3]  # "Data 0.012 (0.020)" is a time, "data 4" is not
            if match["sep"] is None and not is_averaged and name in _PLAIN_WORDS and "." not in match["number"]:
                continue
            if name.endswith("ms") or name.startswith("ms"):
                unit = "ms"
        value = float(match["number"])
        if unit is not None:
            factor = _UNIT_S[unit.lower()]
            line_unit, unit_known = factor, True
            value *= factor
        else:
            bare.append(kind)
        if kind == "wait":
            wait = value if isnan(wait) else wait
        else:
            took = value if isnan(took) else took
    if isnan(took) and isnan(wait):
        return None
    if line_unit is not None and bare:  # one of them has a unit, so the others share it
        took = took * line_unit if "took" in bare else took
        wait = wait * line_unit if "wait" in bare else wait
    return Measures(took, wait, unit_known)


def read_rate_s(text: str) -> float:
    """Return the seconds of a step from a rate, or NaN.

    >>> read_rate_s("6.25it/s"), read_rate_s("1.03s/it"), read_rate_s("speed: 4 steps/s")
    (0.16, 1.03, 0.25)
    """
    match = _RATE.search(text)
    if match is None:
        return NAN
    number, unit = float(match["number"]), match["unit"].lower()
    if unit.endswith(("/s", "/sec", "/second", "步/秒")):
        return 1 / number if number > 0 else NAN
    return number * (1e-3 if unit.startswith("ms") else 1.0)


def read_position(text: str) -> Position | None:
    """Return the step that a line is about.

    >>> read_position("Iter(train) [ 50/1000]  lr: 0.1"), read_position("Epoch(val) [2][5/9]").is_training
    (Position(step=50, of=1000, epoch=None, is_training=True), False)
    >>> read_position("Epoch: [3][ 10/5005] Time 0.3"), read_position("第 12 步 耗时 0.2 秒").step
    (Position(step=10, of=5005, epoch=3, is_training=True), 12)
    """
    epoch: int | None = None
    for match in _STEP.finditer(text):
        is_training = match["phase"] in (None, "train", "Train") and not _NOT_TRAIN.search(text[: match.start() + 24])
        if match["word"]:
            if match["b"]:
                return Position(int(match["b"]), int(match["b_of"]), int(match["a"]), is_training)
            if match["word"].lower() == "epoch":
                if match["a_of"] is None:
                    epoch = int(match["a"])
                    continue  # "Epoch: [0]  [ 10/5005]": the step comes behind
                if epoch is None:
                    epoch = int(match["a"])
                continue
            return _position(match, "a", epoch, is_training, text)
        for group in "cdeg":
            if match[group]:
                return _position(match, group, epoch, is_training, text)
    return None


def _position(match: re.Match[str], group: str, epoch: int | None, is_training: bool, text: str) -> Position:
    of = match[f"{group}_of"]
    if epoch is None:
        found = _EPOCH.search(text)
        epoch = int(found[1] or found[2]) if found else None
    return Position(int(match[group]), int(of) if of else None, epoch, is_training)
