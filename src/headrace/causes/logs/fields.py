"""What one line of any logger tells, by the names, units and places of its numbers: step and epoch, step time and wait.

Beside that settings, reports of slow batches, and what the loop does besides training. A name is split into words, and
each word is looked up: `data_time`, `Data (t)`, `time/data`, `DataTime` and `loading time` all name the wait, whoever
wrote them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import isnan
from typing import NamedTuple

from .lines import NAN

# Chinese names are spelled in English first: 数据加载耗时 is "data load time".
_WORD_PAIRS = (
    "数据 data 加载 load 读取 read 取数 fetch 等待 wait 时间 time 耗时 time 用时 time 每步 step 单步 step "
    "本步 step 步数 step 步 step 轮 epoch 迭代次数 iter 次迭代 iter 迭代 iter "
    "批次 batch 毫秒 ms 微秒 us 分钟 min 秒 s 第 # 慢 slow 最近 recent 平均 avg 最大 max"
)
_CHINESE = dict(zip(_WORD_PAIRS.split()[::2], _WORD_PAIRS.split()[1::2], strict=True))
_IS_CHINESE = re.compile("|".join(sorted(_CHINESE, key=len, reverse=True)))
_UNIT_S = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "t": 1.0, "min": 60.0}
_UNIT_S |= {"ms": 1e-3, "msec": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6}


def _words(text: str) -> set[str]:
    return set(text.split())


# What the words of a name may be. One word that is none of these, and it names something else.
_DATA = _words("data dataload dataloader dataloading datatime load loader loading loaded fetch fetching wait waiting")
_DATA |= _words("waited read reader reading input io next generator iterator dl")
_TIME = {*_UNIT_S, *_words("time timing timer dur duration cost took taken dt elapsed")}
_COUNTED = _words("step steps iter iters iteration iterations it itr batch batches minibatch update updates up tick")
_STEP = _COUNTED | _words("updt train training global per cur current local acc num b d tb mini id idx")
_MEAN = {"avg", "mean", "average"}
_EPOCH = {"epoch", "ep"}
_KNOWN = _DATA | _TIME | _STEP | _MEAN | _EPOCH
# A word before a name that makes it another one: the time left, a step's forward time, the most steps.
_OTHER = _words("left remaining forward backward fwd bwd total max min every log save warmup eval val test last")
_OTHER |= _words("epoch start end running inference model loss optimizer sync gpu cpu for after of")
_ALONE = {"s", "t", "b", "d", "per", "num", "min", "ms", "sec"}  # no names by themselves
_VAGUE = _ALONE | {"acc", "cur", "train", "us", "id", "idx"}  # nor together
_TIMES = "|".join(sorted(_UNIT_S, key=len, reverse=True))
STEPS = r"(?:iterations?|iters?|itr|its?|steps?|batch(?:es)?|updates?|tick)"
_SAMPLES = r"(?:samples?|images?|imgs?|examples?|sentences?|sequences?|seqs?)"
_A_SECOND = r"s(?:ec(?:ond)?)?"
_NUMBER = re.compile(r"(\d+(?:(?:,\d{3})+(?!,?\d|\.\d)|\.\d+)?(?:[eE][-+]\d+)?)")
# Behind a number: what it is a part of, its unit, and its mean so far: `Time 1.8s (0.48s)`, `0.517s, 247.5/s  (0.530s`.
_TAIL = re.compile(
    r"(?P<no>(?=\s*%|[:x*×]\d|-\d|[KM]\b|\s?(?:minute|hour|day)s?\b|\s?[kmgt]i?b\b|\.\w|e\d))?"
    rf"(?:\s*\]?\s*(?:/|\bof\b)\s*\[?\s*(?P<of>\d++(?:,\d{{3}})*+)(?![.:/]\d| +\d+:\d\d|\s?[kmgt]i?b\b))?"
    rf"(?:\s*(?:\([^()]*\)\s*)?(?:(?P<per>(?:{_TIMES}) ?/ ?{STEPS})|(?P<rate>{STEPS} ?/ ?{_A_SECOND})"
    rf"|(?P<samples>{_SAMPLES} ?/ ?{_A_SECOND}))\b(?!\s*[:=]))?"
    rf"(?:\s*(?P<unit>{_TIMES})(?![\w/])(?: (?:for|per) (?P<many>\d+) {STEPS}\b)?"
    rf"|(?=\s*(?P<counts>{STEPS}|epoch)(?![\w/]))(?!\s+\w+\s*[:=]))?"
    rf"(?:(?:,\s*[\d.,]+\s*/s)?\s*\(\s*(?P<mean>\d[\d.]*+(?:e[-+]\d+)?)\s*(?:{_TIMES})?\s*[,)])?(?P<elapsed>\s+elapsed\b)?",
    re.IGNORECASE,
)
_NAME = re.compile(
    rf"(?P<name>[^,;|\[\]{{}}<>()\"'\t:=：]*+)['\"]?\s*(?:[(\[]\s*(?P<unit>{_TIMES})\s*[)\]])?['\"]?"
    r"\s*(?P<sep>[:=：|])?\s*['\"]?(?P<open>[\[(])?[\[(#'\"\s]*$",
    re.IGNORECASE,
)
_IN = re.compile(rf" in (?P<unit>{_TIMES})\s*$")
_A_SECOND_NAME = re.compile(
    rf"(?:.*[_ /])?(?:(?P<rate>{STEPS}(?:/|_per_){_A_SECOND}|ups)|(?P<samples>{_SAMPLES}(?:/|_per_){_A_SECOND}))$"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
NOT_TRAIN = re.compile(
    r"\b(?:val(?:id(?:ation|ating)?)?|eval(?:uat\w+)?|test(?:ing)?|predict\w*|infer\w*|sanity)\b|(?-i:\bCV\b)"
    r"|mAP(?:50|@)|验证|评估|测试",  # mAP50: the head of Ultralytics' validation
    re.IGNORECASE,
)
_BESIDE = re.compile(r"\s*\]?,?\s*\[\s*$")  # [3][ 10/5005], [3/200], [10/604], Train: 2 [ 100/1251
# the time since the start: 1:32:15, 1h 32min 15s
_HOURS = re.compile(r"\d+(?::\d\d:\d\d(?![:\d])|\s?h(?:ours?)? +\d+\s?m(?:in\w*)? +\d+(?:\.\d+)?\s?s\w*( +\d+\s?ms)?)")
_IN_A_PAIR = re.compile(r",\s*\d+(?:/\s*\d+)?\]:?[\s-]*[A-Za-z]")  # [1, 100] loss, [1, 100/ 4558] - loss
_NAME_AT_MOST = 64  # characters before a number
_LATEST_S = 1e9  # more is a date, as seconds since 1970
_NAMES = {
    "num_workers": r"(?:dataloader_|train_)?num[_ ]workers|workers_per_gpu|\bworkers\b|n_workers|nworkers|-j"
    r"|This DataLoader will create",  # torch's own warning
    "all_batch": r"(?:total|global|effective)[_ ](?:train[_ ])?batch[_ ]size(?: is set to)?",
    "batch_size": r"(?:train_|per_device_train_|micro_)?batch[_ ]size|samples_per_gpu",
    "devices": r"num[_-](?:gpus|devices)",
    "accumulate": r"gradient[_ ]accumulation[_ ]steps|accumulate_grad_batches|accum(?:ulation)?_steps|grad_accum\w*",
    "checkpoint": r"save_steps|(?:checkpoint|ckpt|save)_?(?:interval|every(?:_n_(?:train_)?steps)?|freq(?:uency)?)"
    r"|checkpoint_config\s*=\s*dict\([^)]*?interval",
    "evaluation": r"eval_steps|(?:eval(?:uation)?|val(?:idation)?)_?(?:interval|every(?:_n_steps)?|freq(?:uency)?)"
    r"|val_check_interval|evaluation\s*=\s*dict\([^)]*?interval",
    "num_epochs": r"num[_ ](?:train[_ ])?epochs|max_epochs",
    "num_steps": r"total optimization steps|max_steps|max_iters",
    "logging": r"logging_steps|log_?(?:interval|every(?:_n_steps)?|freq(?:uency)?|steps)",
}
_SETTINGS = re.compile("|".join(rf"(?P<{name}>{pattern})" for name, pattern in _NAMES.items()), re.IGNORECASE)
_VALUE = re.compile(r"['\"]?\s*(?:[:=：]|\s)\s*(?:\{\"value\": )?(\d+)(?![\d.]|\s*(?:-|~|→|->|到)\s*\d)")
_WAIT = r"(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds)\b"
# [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted (after 31 fast batches)
_SLOW = re.compile(
    r"\b(?:slow|late|stalled)[ _-]*(?:data[ _-]?)?(?:batch|step|iter(?:ation)?|load)\b[\s#:：=\[\]【】]{0,8}(\d+)"
    rf"(?!\d|[-~]\d)[^\d×*/~%]{{1,16}}?{_WAIT}",
    re.IGNORECASE,
)
# Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms
_RECENT = re.compile(
    r"(?:recent|last)\s*(\d+)\s*个?\s*(?:batch(?:es)?|steps?|iters?)\W{0,4}"
    rf"(?:avg|mean|average)\s*[=:：]?\s*{_WAIT}.{{0,40}}?(?:max|worst)\s*[=:：]?\s*{_WAIT}",
    re.IGNORECASE,
)
# Lines that say what the loop does besides training.
_SAVES, _WRITES = r"(?:sav(?:ed|e|ing)\b|保存|存储)", r"(?:(?:writ(?:e|ing|ten)|dump(?:ed|ing)?)\b|写入)"
_COPY = r"checkpoint|ckpt|snapshot|检查点|模型|权重|快照"  # other things are written, too, to a model's folder
_STATE = rf"(?:{_COPY}|model|weights?|state|optimizer|configuration|\.(?:pth?|safetensors|bin|tar)\b)"
_MARKS = re.compile(
    rf"(?P<checkpoint>{_SAVES}.{{0,120}}?{_STATE}|{_WRITES}.{{0,40}}?(?:{_COPY})"
    rf"|{_STATE}s?(?![a-z\d_]).{{0,60}}?(?:{_SAVES}|{_WRITES})|save_checkpoint)"
    r"|(?P<evaluation>\b(?:running|start(?:ing|ed)?|begin(?:ning)?|end(?:ing)? of|finished|performing)\b.{0,20}?\b"
    r"(?:validation|evaluation|eval|test(?:ing)?)\b"
    r"|\b(?:Iter|Epoch)\((?:val|test)\)|\beval(?:uation)?_(?:loss|runtime|acc\w*|samples_per_second)\b|['\"]eval_"
    r"|\btesting net\b|\beval_start\b|\bevaluat(?:ing|ed)\b|\bvalidating\b|\bvalidat(?:ion|e)\b|^\s*Test:\s*\["
    r"|(?:\b|_)(?:val|valid|test)[_.][a-z]\w*\W{1,3}\d|(?:验证|评估|评测)(?!集))"
    r"|(?P<logging>\bupload(?:ing|ed)?\b|\bsync(?:ing|ed)\b.{0,30}?(?:wandb|run|metrics|logs?)"
    r"|\bwandb:.{0,20}?(?:sync|upload|wait)|\b(?:writing|flushing|logging|log)\b.{0,20}?"
    r"(?:images?|histograms?|tensorboard|summar(?:y|ies)|event files?|metrics|figures?|videos?)"
    r"|(?:上传|写入|同步|记录).{0,10}?(?:日志|指标|图像|图片|可视化|tensorboard))"
    r"|(?P<restart>\bresum(?:ed?|ing)\b.{0,40}?(?:checkpoint|from|epoch|step|training)|\brestart(?:ed|ing)\b|从.{0,20}恢复)",
    re.IGNORECASE,
)
# Lines that speak of these things without doing them.
_NOT_NOW = re.compile(
    r"\b(?:will|would|num_|every|interval|frequency|steps\s"
    r"*[:=]|strategy|config|args?|deprecat|warn|best_model|load(?:ed|ing)?\b.{0,20}checkpoint"
    r"|no (?:validation|eval))|每\s*\d+|间隔|加载.{0,10}(?:检查点|权重|模型)",
    re.IGNORECASE,
)
_MARKED_STEP = re.compile(
    r"(?:step|iter(?:ation)?s?|checkpoint|ckpt|iters?)\D{0,3}(\d{1,9})(?!\d*\.\d)|at (\d+) (?:iterations|steps|iters)"
    r"|[/_-](\d{2,9})\.(?:pth?|ckpt|safetensors)",
    re.IGNORECASE,
)
_MARKED_TOOK = re.compile(
    r"(?:took|in|time|耗时|用时|eval_runtime['\"]?\s*[:=])\s*[:=]?\s*['\"]?(\d+(?:\.\d+)?)\s*(ms|毫秒|s\b"
    r"|sec|seconds|秒|(?=['\",}]))",
    re.IGNORECASE,
)


def split_numbers(line: str) -> tuple[str, list[str]]:
    """Return the shape of a line (its numbers blanked out), and its numbers in their order.

    >>> split_numbers("step 1,200 time 0.203s lr 1e-05")
    ('step 0 time 0s lr 0', ['1,200', '0.203', '1e-05'])
    """
    parts = _NUMBER.split(line)
    return "0".join(parts[::2]), parts[1::2]


def _in_english(line: str) -> str:
    return line if line.isascii() else _IS_CHINESE.sub(lambda match: f" {_CHINESE[match[0]]} ", line)


class Field(NamedTuple):
    """A number of a line: which of its numbers it is, what its name says, and the numbers that belong to it."""

    at: int
    start: int
    kind: str  # what `_kind` says of its name
    gap: str  # the text before it
    name: re.Match[str]
    tail: re.Match[str]
    is_whole: bool
    of: int | None
    mean: int | None
    unit_s: float | None  # what it is in seconds; negative: a rate


@lru_cache(maxsize=4096)
def _kind(name: str) -> tuple[str, float | None]:
    """Return what a name says of its number, and the unit that is part of it.

    "other" is none of our business, "refused" neither, whatever its unit is. With a question mark the name may mean
    something else, too: the number must look like a time.

    >>> [_kind(name)[0] for name in ("INFO data_time", "Iteration", "elapsed time per iteration", "forward time", "lr")]
    ['wait', 'step', 'took', 'refused', 'other']
    """
    if inside := _IN.search(name):
        return _kind(name[: inside.start()])[0], _UNIT_S[inside["unit"].lower()]
    tokens = name.replace(" / ", "/").replace("num of ", "").split()
    last = tokens[-1].lower() if tokens else ""
    if not any(map(str.isalpha, last)):
        return "", None
    if a_second := _A_SECOND_NAME.match(last):
        return a_second.lastgroup or "", -1.0
    words: list[str] = []
    for token in reversed(tokens):
        some = [word.lower() for word in _WORDS.findall(token)]
        if not some or not _KNOWN.issuperset(some):
            if some and some[-1] in _OTHER:
                return "refused", None
            break
        words = some + words
    found = set(words)
    if not found or found <= _ALONE:
        return ("elapsed" if last in ("wall", "wall_time") else "other"), None
    unit_s = next((_UNIT_S[word] for word in words if word in _UNIT_S and word not in ("t", "min")), None)
    if found <= {"elapsed", "time"} and "elapsed" in found:
        return "elapsed", unit_s
    if found & _EPOCH:
        return ("refused" if found & (_TIME | _DATA) else "epoch"), None
    if found & _DATA or found == {"d", "time"}:
        return ("wait" if found & _TIME else "wait?"), unit_s
    if found & _TIME and not found <= _VAGUE:
        return ("cost?" if found == {"cost"} else "took?" if found == {"dt"} else "took"), unit_s
    return ("step" if found & _COUNTED and "/" not in last else "other"), None


def _fields(line: str) -> list[Field]:
    """Return the numbers of a line that stand by themselves: not those within names, dates, sizes."""
    numbers = list(_NUMBER.finditer(line))
    places = {match.start(): index for index, match in enumerate(numbers)}
    fields: list[Field] = []
    end = 0
    for index, match in enumerate(numbers):
        start = match.start()
        before = line[start - 1 : start]
        if start < end or (before.isascii() and before.isalpha()) or before in ("_", "@", "."):
            continue
        gap, tail = line[max(end, start - _NAME_AT_MOST) : start], _TAIL.match(line, match.end())
        name = _NAME.search(gap)
        if name is None or tail is None:
            continue
        hours = _HOURS.match(line, start)
        end = max(tail.end(), hours.end() if hours else 0)
        kind, unit_s = _kind(name["name"])
        if gap.rstrip(" :=").lower().endswith("time (data)"):
            kind = "both"
        elif gap == "-" and fields and fields[-1].kind == "step":  # Batch [0-20]
            kind = "step"
        elif kind == "took" and "train_time" in line and name["name"].strip() == "iter_time":
            kind = "wait"  # ESPnet's: the time of its iterator
        if unit := tail["per"] or tail["unit"] or name["unit"]:
            unit_s = _UNIT_S[unit.partition("/")[0].strip().lower()] / int(tail["many"] or 1)
        elif tail["rate"] or tail["samples"]:
            unit_s = -1.0
        of, mean = (places.get(tail.start(group)) if tail[group] else None for group in ("of", "mean"))
        is_whole = match[0].replace(",", "").isdigit() and tail["no"] is None and tail["unit"] is None
        fields.append(Field(index, start, kind, gap, name, tail, is_whole, of, mean, unit_s))
    return fields


Place = tuple[int, float]  # which number of a line, and what to multiply it by; negative: a rate, so it goes below


class StepLine(NamedTuple):
    """What a line, or a redraw of a bar, tells of a step: where in the training, and seconds (NaN: not told)."""

    step: int
    of: int = 0  # 0: not told
    epoch: float = NAN
    took_s: float = NAN
    wait_s: float = NAN
    took_mean_s: float = NAN  # the mean so far
    wait_mean_s: float = NAN
    at_s: float = NAN  # its time stamp, else the time since the start
    elapsed_s: float = NAN  # by a bar's own clock
    rate_s: float = NAN  # a step, by a bar: smoothed, or the mean since the start
    has_unit: float = NAN  # whether its times have one, 1 or 0: else they may be milliseconds


@dataclass(frozen=True, slots=True)
class LinePlan:
    """Where in lines of one shape the numbers stand that tell of a step."""

    places: dict[str, Place]  # by the field of `StepLine`, or `rate` of steps, or `samples` a second
    elapsed: tuple[Place, ...]  # the time since the start: seconds, or hours, minutes and seconds
    is_training: bool
    unit_known: bool

    @property
    def has_times(self) -> bool:
        """Whether it tells a step time or a wait."""
        return not self.places.keys().isdisjoint(("took_s", "wait_s", "rate"))

    def read(self, numbers: Sequence[str], *, at_s: float = NAN, batch_size: int = 0) -> StepLine:
        """Return what a line's numbers tell; samples a second tell it with a batch size only."""
        if self.elapsed and isnan(at_s):
            at_s = sum(_seconds_at(numbers[at], unit_s) for at, unit_s in self.elapsed)
        told = {name: _seconds_at(numbers[at], unit_s) for name, (at, unit_s) in self.places.items()}
        rate_s, samples_s = told.pop("rate", NAN), told.pop("samples", NAN)
        took_s = told.get("took_s") or NAN  # 0.00: not measured yet
        # beside a rate of steps a time that is many times as long is that of all steps since the line before
        if rate_s > 0 and not took_s <= 5 * rate_s:
            took_s = rate_s
        if isnan(took_s) and batch_size:
            took_s = batch_size * samples_s
        told["took_s"] = took_s
        if not isnan(took_s) or "wait_s" in told:
            told["has_unit"] = float(self.unit_known)
        step, of = int(told.pop("step", -1)), int(told.pop("of", 0))
        return StepLine(step, of, at_s=at_s, **told)


def _float(text: str) -> float:
    return float(text.replace(",", "")) if "," in text else float(text)


def _seconds_at(text: str, unit_s: float) -> float:
    number = _float(text)
    if unit_s > 0:
        return number * unit_s
    return 1 / number if number > 0 else NAN


def read_plan(line: str) -> LinePlan:
    """Return where the numbers of this line stand, and of all lines that differ from it in their numbers only."""
    line = _in_english(line)
    fields, numbers = _fields(line), split_numbers(line)[1]
    times: dict[str, Field] = {}
    for field in fields:
        kind = _time_kind(field, numbers[field.at])
        if kind == "took" and field.tail["no"] is None and _HOURS.match(line, field.start):
            kind = "elapsed"
        known = times.get(kind)
        is_better = known is not None and (
            (known.mean is None and field.mean is not None) or (known.unit_s is None and field.unit_s is not None)
        )
        if kind and (known is None or is_better):
            times[kind] = field
    if (both := times.get("both")) is not None:  # time (data): 0.45 (0.012)
        times |= {"took": both._replace(mean=None), "wait": both._replace(at=both.mean or 0, mean=None)}
    told = {name: times[name] for name in ("took", "wait") if name in times}
    # One has a unit, so the others share it: time (ms) | batch-generator: 1.2
    before = line[: min((one.start for one in told.values()), default=0)]
    shared = next((one.unit_s for one in told.values() if one.unit_s), 1e-3 if "(ms)" in before else None)
    unit_known = shared is not None or not told
    if "bare" in times and "rate" not in times:
        told.setdefault("took", times["bare"])
    places = {name: (one.at, one.unit_s or 1.0) for name, one in times.items() if name in ("rate", "samples")}
    for name, one in told.items():
        unit_s = one.unit_s or shared or 1.0
        places[f"{name}_s"] = one.at, unit_s
        if one.mean is not None:
            places[f"{name}_mean_s"] = one.mean, unit_s
    step, epoch = _position(line, fields)
    if epoch is not None:
        places["epoch"] = epoch, 1.0
    if step is not None:
        places["step"] = step.at, 1.0
        if step.of is not None:
            places["of"] = step.of, 1.0
    elapsed = times.get("elapsed")
    units = [elapsed.unit_s or 1.0] if elapsed else []
    if elapsed and (hours := _HOURS.match(line, elapsed.start)):
        units = [3600.0, 60.0, 1.0, 1e-3][: 4 if hours[1] else 3]
    return LinePlan(
        places=places,
        elapsed=tuple(enumerate(units, start=elapsed.at)) if elapsed else (),
        is_training=step is None or not NOT_TRAIN.search(line[: step.start + 24]),
        unit_known=unit_known,
    )


def _time_kind(field: Field, number: str) -> str:
    """Return which time of a step a field tells: took, wait, both, or a spare one; "" for none."""
    kind, tail = field.kind, field.tail
    if (tail["no"] is not None and kind != "elapsed") or _float(number) > _LATEST_S:
        return ""
    if tail["samples"]:
        return "samples"
    if tail["elapsed"]:
        return "elapsed"
    if kind in ("wait", "took", "both", "elapsed", "samples", "rate"):
        return "took" if kind == "elapsed" and field.name["unit"] else kind
    has_unit = field.unit_s is not None
    if kind.endswith("?"):
        looks_timed = has_unit or field.mean is not None or (kind != "cost?" and (field.name["sep"] or "." in number))
        return kind[:-1].replace("cost", "took") if looks_timed else ""
    if tail["per"] or tail["rate"]:
        return "" if kind == "refused" else "rate"
    if kind == "step" and (has_unit or (field.mean is not None and "." in number)):
        return "took"  # Batch 0.474 (1.756)
    return "bare" if kind == "" and tail["unit"] and field.name["sep"] in (None, "|") else ""


def _position(line: str, fields: Sequence[Field]) -> tuple[Field | None, int | None]:
    """Return the number that counts steps, and which one is the epoch."""
    found: list[tuple[int, Field]] = []
    epoch: int | None = None
    for before, field in zip([None, *fields], fields, strict=False):
        is_opened, counts = field.name["open"] == "[", field.tail["counts"]
        if not field.is_whole or (field.kind == "refused" and not is_opened):
            continue
        if field.kind == "epoch" or counts == "epoch":
            epoch = field.at if epoch is None else epoch
            continue
        is_next = is_paired = False
        if before is not None:
            is_beside = before.is_whole and before.kind in ("", "other", "step") and _BESIDE.match(field.gap)
            if is_beside and field.of is not None:
                epoch = before.at if epoch is None else epoch
                found = [one for one in found if one[1] is not before]
            is_next = before.at == epoch and before.of in (None, field.at - 1)
            is_paired = before.name["open"] == "[" and bool(_IN_A_PAIR.match(line, field.start - len(field.gap)))
            epoch = before.at if is_paired else epoch
        if field.of is not None:
            is_cell = field.kind == "" and (is_next or "|" in field.gap)
            if field.kind == "step" or is_opened or counts or is_paired or is_cell:
                found.append((3 if is_next else 2, field))
        else:
            is_hyphened = counts and field.gap.rstrip().endswith(("#", "-"))  # 第 12 步, 1epoch:train:1-100batch
            if is_paired or is_hyphened or (field.kind == "step" and not field.unit_s):
                found.append((1, field))
    best = max(found, key=lambda one: one[0], default=None)
    return (best[1] if best else None), epoch


def read_settings(text: str) -> dict[str, int]:
    """Return the settings that a line tells; a range such as `16-20` is advice, not a setting.

    >>> read_settings("- num_workers: 32, batch_size=12"), read_settings("num_workers: 16-20")
    ({'num_workers': 32, 'batch_size': 12}, {})
    """
    found: dict[str, int] = {}
    for match in _SETTINGS.finditer(text):
        value = _VALUE.match(text, match.end())
        if value is not None and match.lastgroup is not None:
            found.setdefault(match.lastgroup, int(value[1]))
    return found


def read_watcher(text: str) -> StepLine | None:
    """Return what a watcher reports: one slow batch, or so many of the last ones, their mean and the worst wait.

    >>> read_watcher("WARNING: [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted").wait_s
    20.69
    >>> read_watcher("[DATA LOAD] Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms")[:5:4]
    (50, 22.4094)
    """
    text = _in_english(text)
    match = _SLOW.search(text) or _RECENT.search(text)
    if match is None:
        return None
    number, *told = match.groups()
    waits_s = [round(float(wait) * _UNIT_S[unit.lower()], 9) for wait, unit in zip(told[::2], told[1::2], strict=True)]
    return StepLine(int(number), wait_s=waits_s[-1], wait_mean_s=waits_s[0] if len(waits_s) > 1 else NAN)


class Doing(Enum):
    """What a line says the loop is doing."""

    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    LOGGING = "logging"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Marker:
    """One such line: where it stands, and what step and duration it names itself (NaN: none)."""

    doing: Doing
    line: float
    at_s: float = NAN
    step: float = NAN
    took_s: float = NAN
    since_s: float = NAN  # the stamped line before it


def read_marker(text: str, *, line: float) -> Marker | None:
    """Return what a line says the loop is doing, if it says so.

    >>> read_marker("Saving checkpoint at 30 iterations", line=7)
    Marker(doing=<Doing.CHECKPOINT: 'checkpoint'>, line=7, at_s=nan, step=30.0, took_s=nan, since_s=nan)
    >>> read_marker("will save a checkpoint every 500 steps", line=1) is None
    True
    """
    match = _MARKS.search(text)
    if match is None or match.lastgroup is None or _NOT_NOW.search(text):
        return None
    step, took = _MARKED_STEP.search(text), _MARKED_TOOK.search(text)
    number = float(next(group for group in step.groups() if group)) if step else NAN
    took_s = float(took[1]) * (1e-3 if took[2] in ("ms", "毫秒") else 1.0) if took else NAN
    return Marker(Doing(match.lastgroup), line, step=number, took_s=took_s)
