"""What one line of any logger tells: its time, step and epoch, step time and wait, settings, slow batches."""

import re
from dataclasses import dataclass
from datetime import date
from math import isnan

NAN = float("nan")
_UNIT_S = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "秒": 1.0}
_UNIT_S |= {"ms": 1e-3, "msec": 1e-3, "毫秒": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "微秒": 1e-6}
_UNIT_S |= {"min": 60.0, "分钟": 60.0, "t": 1.0}
_UNIT = r"(?:seconds?|secs?|msec|ms|us|µs|μs|毫秒|微秒|秒|min|分钟|s)"
_NUMBER = r"(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+"  # all of it, or nothing: of 64.5% no 64
# What loops call the time that they waited for a batch. Longer names first; the plain ones need `:` or `=` or a unit.
_WAIT = (
    r"data[_ -]?(?:loading|load|loader|fetch|wait|read)?[_ -]?(?:time|dur(?:ation)?|cost|s|ms)|time[/_]data|t_data|"
    r"dt_data|d_time|reader_cost|load_data_time|loaded(?=: [\d.]+ seconds)|dataload(?:er|ing)?(?:[_ ]time)?|"
    r"(?:data[_ ]?)?(?:loading|load|loader|fetch|wait(?:ing)?|next)[_ ]time|"
    r"(?:batch|data|loader)[_ ](?:wait|fetch|load|loading)|batch[-_ ]generator|wait(?:ed|ing)?(?: for data)?|data|"
    r"数据(?:加载|读取|等待)?(?:时间|耗时|用时)?|(?:加载|取数|读取|等待)(?:数据)?(?:时间|耗时|用时)"
)
_TOOK = (
    r"elapsed time per (?:iteration|step)|(?:per[_ ])?(?:train(?:ing)?[_ ])?(?:step|iter(?:ation)?|batch|global_step)"
    r"(?:[_ ]?(?:time|timing|duration|dur|cost|took)|[_ ](?:s|ms))|time[/_ ](?:per[_ ])?(?:step|iter(?:ation)?|batch)|"
    r"(?:s|sec|secs|seconds|ms)/(?:step|iter(?:ation)?|it|batch)|train[_ ]time|b_time|updt_s|update_s|timer(?=:)|"
    r"rate,(?= [\d.]+ seconds)|time[_ ]?(?:taken|cost)|time|took|"
    r"(?:tb|step|iter|dt|duration|elapsed|cost)(?=\s*\((?:ms|s|sec)\))|dt|duration|cost|batch(?=\s*\(t\))|"
    r"seconds(?=:)|"
    r"batch(?=\s+\d+\.\d+ \(\d)|"
    r"(?:每步|单步|步|迭代|批次|本步)?(?:耗时|用时|时间)"
)
_PLAIN_WORDS = {"data", "wait", "waited", "waiting", "dt", "cost", "step", "iter"}  # that mean other things, too
# Behind the number may stand its mean so far: `Time 1.8 (0.48)`, `Time: 0.517s, 247.5/s  (0.530s, 241.4/s)`.
_MEASURE = re.compile(
    rf"(?<![\w/.])(?<!left )(?<!remaining )(?:(?P<both>time \(data\))|"
    rf"(?:avg_|mean_|average_)?(?:(?P<wait>{_WAIT})|(?P<took>{_TOOK})))['\"]?"
    rf"\s*(?:(?:[(\[]\s*|in (?=s))(?P<u1>{_UNIT}|t)(?:\s*[)\]]|(?=:)))?['\"]?\s*(?P<sep>[:=：])?\s*['\"]?"
    rf"(?P<number>{_NUMBER})(?![\d:/x%*-]| ?(?:minute|hour|day)s?\b)\s*(?P<u2>{_UNIT}(?![\w/]))?"
    rf"(?:(?:,\s*[\d.,]+\s*/s)?\s*\(\s*(?P<mean>{_NUMBER})\s*(?:{_UNIT})?\s*[,)])?",
    re.IGNORECASE,
)
_RATE = re.compile(
    rf"(?P<number>{_NUMBER})\s*(?P<unit>(?:it|iters?|iterations?|steps?|batch(?:es)?)/(?:s(?:ec(?:ond)?)?)\b|"
    rf"(?:s|sec|seconds|ms) ?/ ?(?:it|iter|iteration|step|batch)\b|步/秒|秒/步)"
    rf"|\b(?:ups|(?:train_)?(?:global_)?(?:steps?|it|iter(?:ation)?s?|batch(?:es)?)(?:/s(?:ec(?:ond)?)?|_per_sec(?:ond)?))"
    rf"['\"]?\s*[:=]\s*['\"]?(?P<rate>{_NUMBER})|(?<=\| )(?P<alone>{_NUMBER}) ms(?= *\|)"
    rf"|\((?P<last>{_NUMBER}) ?(?P<last_unit>ms|s)\)\s*$",
    re.IGNORECASE,
)
_COUNT = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_PARTS = re.compile(
    rf"\b(?:forward|fwd)[\w-]*: ?({_NUMBER}).*?\b(?:backward|bwd)[\w-]*: ?({_NUMBER})"
    rf".*?\b(?:step|optimizer)[\w-]*: ?({_NUMBER})"
)
_ELAPSED = re.compile(
    rf"\b(?:wall|time_elapsed)['\"]?\s*[=:|]\s*['\"]?({_NUMBER})|({_NUMBER})\s*s(?:ec(?:onds)?)? elapsed", re.IGNORECASE
)
_SAMPLES = re.compile(
    rf"(?P<number>{_NUMBER})\s*(?:samples?|images?|imgs?|examples?|sentences?|sequences?|seqs?)\s*/\s*s(?:ec(?:ond)?)?\b"
    rf"|(?:samples?|images?|imgs?|examples?|sentences?)\s*(?:/|_per_)\s*s(?:ec(?:ond)?)?['\"]?\s*[:=]\s*(?P<rate>{_NUMBER})",
    re.IGNORECASE,
)
_WORDS = re.compile(rf"\bwps['\"]?[=:] ?['\"]?({_NUMBER}).*?\bwpb['\"]?[=:] ?['\"]?({_NUMBER})")
_STEP = re.compile(
    r"(?P<word>epoch|iter(?:ation)?s?|(?:global[_ ])?step|batch|it|train(?:ing)?)\s*(?:\("
    r"(?P<phase>train|val|valid|test)\))?"
    r"['\"]?\s*[:=：#]?\s*['\"]?\[\s*(?P<a>\d+)\s*(?:/\s*(?P<a_of>\d+)\s*)?\](?:\s*\[\s*(?P<b>\d+)\s*/\s*(?P<b_of>\d"
    r"+)\s*\])?"
    r"|(?<![\w/])(?:(?:global|train(?:ing)?|optim(?:izer)?|cur(?:rent)?|acc|local|num)[_ ])?"
    r"(?:step|iter(?:ation)?|batch|it|mini[_-]?batch|update|up\.)s?"
    rf"['\"]?\s*[:=：#]?\s*[#'\"]?\s*(?P<c>{_COUNT})(?!\.\d|[\d.]*\s*(?:s\b|ms\b|%|/s))(?:\s*(?:/|of)\s*(?P<c_of>{_COUNT}))?"
    r"(?![\w.]*=|:\d)"
    r"|(?:步数|迭代次数|迭代|批次|步)\s*[:=：]?\s*(?P<d>\d+)(?:\s*/\s*(?P<d_of>\d+))?"
    r"|第\s*(?P<e>\d+)\s*(?:/\s*(?P<e_of>\d+)\s*)?(?:步|个?批次|个?\s*batch|次迭代)"
    rf"|\[\s*(?P<g>{_COUNT})\s*/\s*(?P<g_of>{_COUNT})\s*(?:\(\s*[\d.]+\s*%\s*\)\s*)?\]"
    rf"|epoch \d+(?::\s+|,\s*|\s\s+)(?P<h>{_COUNT})\s*/\s*(?P<h_of>{_COUNT})"
    rf"|(?P<i>{_COUNT})\s*/\s*(?P<i_of>{_COUNT}) batches"
    r"|\d+epoch:train:\d+-(?P<j>\d+)(?P<j_of>)batch|batch \[\d+-(?P<k>\d+)(?P<k_of>)\]"
    r"|\|\s*(?P<l>\d+)/(?P<l_of>\d+)\s*\||^\s*(?P<m>\d+):(?P<m_of>)(?= -?[\d.]+, -?[\d.]+ avg)"
    r"|\[\s*\d+,\s*(?P<n>\d+)(?:\s*/\s*(?P<n_of>\d+))?\s*\]",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"(?:epoch['\"]?\s*[:=：#]?\s*['\"]?\[?\s*(\d+)(?![\d.]*\.\d)|第\s*(\d+)\s*(?:轮|个?\s*epoch)|\b(\d+)epoch:train"
    r"|^train:\s*(\d+)\s*\[)",
    re.IGNORECASE,
)
_NOT_TRAIN = re.compile(
    r"\b(?:val(?:id(?:ation|ating)?)?|eval(?:uat\w+)?|test(?:ing)?|predict\w*)\b|(?-i:\bCV\b)|验证|评估|测试",
    re.IGNORECASE,
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_CLOCK = r"(?P<h>\d{1,2}):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?(?!\d|:\d)"
_SHAPES = (
    re.compile(rf"(?<!\d)(?P<Y>\d{{4}})[-/.](?P<M>\d{{1,2}})[-/.](?P<D>\d{{1,2}})[ T_]+{_CLOCK}"),
    re.compile(rf"(?<!\d)(?P<Y>\d{{4}})年(?P<M>\d{{1,2}})月(?P<D>\d{{1,2}})日\s*{_CLOCK}"),
    re.compile(rf"(?<![\d/.-])(?P<M>\d\d)[-/](?P<D>\d\d)[-/](?P<Y>\d{{4}})[ T]+{_CLOCK}"),  # 11/15/2025, accelerate
    re.compile(rf"(?<![\d/.-])(?P<Y>\d\d)[-/](?P<M>\d\d)[-/](?P<D>\d\d)[ T]+{_CLOCK}"),  # 25-11-15, BasicSR
    re.compile(rf"(?<![\d/.-])(?P<M>\d\d)[-/](?P<D>\d\d)[ T]+{_CLOCK}"),  # 11/15, mmengine
    re.compile(rf"^[IWEF](?P<M>\d\d)(?P<D>\d\d)\s+{_CLOCK}"),  # glog, absl
    re.compile(rf"\b(?P<N>[A-Z][a-z]{{2}})\s+(?P<D>\d{{1,2}})\s+{_CLOCK}(?:\s+(?P<Y>\d{{4}}))?"),  # syslog, ctime
    re.compile(rf"^\s*(?:[A-Z]+\s+)?[\[(]?{_CLOCK}[\])]?(?=[\s:|,-]|$)"),  # the time of day alone
    # seconds, or milliseconds, since 1970
    re.compile(r"^\s*[\[(]?(?P<E>1[4-9]\d{8}(?:\.\d{1,9}|\d{3})?)[\])]?(?=[\s:|,-]|$)"),
    re.compile(r"(?:^:::MLL |time_ms['\"]: )(?P<E>1[4-9]\d{8}(?:\.\d+|\d{3})?)\b"),  # MLPerf's
)
_LOOK_AT = 96  # characters of a line; a time further to the right belongs to the message
_DAY_S = 86400.0
_NAMES = {
    "num_workers": r"(?:dataloader_|train_)?num[_ ]workers|workers_per_gpu|\bworkers\b|n_workers|nworkers|-j",
    "prefetch_factor": r"(?:dataloader_)?prefetch_factor",
    "all_batch": r"(?:total|global|effective)[_ ](?:train[_ ])?batch[_ ]size(?: is set to)?",
    "batch_size": r"(?:train_|per_device_train_|micro_)?batch[_ ]size|samples_per_gpu",
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
_CREATED = re.compile(r"This DataLoader will create (\d+) worker processes")  # torch's own warning
_WAIT_UNIT = r"(ms|毫秒|s|sec|seconds|秒)\b"
# [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted (after 31 fast batches)
_SLOW = re.compile(
    r"\b(?:slow|late|stalled)[ _-]?(?:data[ _-]?)?(?:batch|step|iter(?:ation)?|load)\b[\s#:=\[\]]{0,4}(\d+)(?!\d"
    r"|[-~]\d)[^\d×*/~%\n]{1,12}?(\d+(?:\.\d+)?)\s*"
    + _WAIT_UNIT
    + r"|慢\s*(?:batch|批次|步|迭代)[\s#:：=\[\]【】第]{0,4}(\d+)(?!\d|[-~]\d)[^\d×*/~%\n]{1,12}?(\d+(?:\.\d+)?)\s*"
    + _WAIT_UNIT,
    re.IGNORECASE,
)
# Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms
_RECENT = re.compile(
    r"(?:recent|last|最近)\s*(\d+)\s*(?:batches|steps|iters?|个?\s*(?:batch|批次|步))\W{0,4}"
    r"(?:avg|mean|average|平均)\s*[=:：]?\s*([\d.]+)\s*"
    + _WAIT_UNIT
    + r".{0,40}?(?:max|worst|最大)\s*[=:：]?\s*([\d.]+)\s*"
    + _WAIT_UNIT,
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Measures:
    """What a line says of durations, and of their means so far; without `unit_known` they may be milliseconds."""

    took_s: float
    wait_s: float
    unit_known: bool
    took_mean_s: float = NAN
    wait_mean_s: float = NAN

    @property
    def times(self) -> tuple[float, float, float, float]:
        return self.took_s, self.wait_s, self.took_mean_s, self.wait_mean_s


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
    Measures(took_s=0.0629, wait_s=0.0019, unit_known=False, took_mean_s=nan, wait_mean_s=nan)
    >>> read_measures("Time 1800ms (480ms) Data 1700 (360)")
    Measures(took_s=1.8, wait_s=1.7, unit_known=True, took_mean_s=0.48, wait_mean_s=0.36)
    """
    found: dict[str, tuple[float, float, float | None]] = {}  # kind: value, mean so far, what its unit is in seconds
    for match in _MEASURE.finditer(text):
        kind, mean = "wait" if match["wait"] else "took", float(match["mean"] or NAN)
        name = (match["both"] or match["wait"] or match["took"]).lower()
        unit = match["u1"] or match["u2"]
        if unit is None:
            is_averaged = match["mean"] is not None  # "Data 0.012 (0.020)" is a time, "data 4" is not
            if match["sep"] is None and not is_averaged and name in _PLAIN_WORDS and "." not in match["number"]:
                continue
            if name == "cost":
                continue  # as likely a loss
            if name.endswith("ms") or name.startswith("ms"):
                unit = "ms"
        if float(match["number"]) > 1e9:
            continue  # a date, as seconds since 1970
        factor = None if unit is None else _UNIT_S[unit.lower()]
        if match["both"]:
            found["wait"], mean = (mean, NAN, factor), NAN
        if name == "iter_time" and "train_time" in text:  # ESPnet's: the time of its iterator
            kind = "wait"
        better = kind in found and ((isnan(found[kind][1]) and not isnan(mean)) or (found[kind][2] is None and unit))
        if kind not in found or better:
            found[kind] = float(match["number"]), mean, factor
    if not found:
        return None
    units = [factor for _, _, factor in found.values() if factor is not None]
    told = {"took": (NAN, NAN), "wait": (NAN, NAN)}
    for kind, (value, mean, factor) in found.items():  # one of them has a unit, so the others share it
        in_s = factor or (units[0] if units else 1.0)
        told[kind] = value * in_s, mean * in_s
    return Measures(told["took"][0], told["wait"][0], bool(units), told["took"][1], told["wait"][1])


def read_rate_s(text: str) -> float:
    """Return the seconds of a step from a rate, or NaN.

    >>> read_rate_s("6.25it/s"), read_rate_s("1.03s/it"), read_rate_s("speed: 4 steps/s"), read_rate_s("ups=2.5")
    (0.16, 1.03, 0.25, 0.4)
    """
    match = _RATE.search(text)
    if match is None:
        return NAN
    if bare := match["alone"] or match["last"]:
        return float(bare) * (1.0 if match["last_unit"] == "s" else 1e-3)
    number, unit = float(match["number"] or match["rate"]), (match["unit"] or "/s").lower()
    if unit.endswith(("/s", "/sec", "/second", "步/秒")):
        return 1 / number if number > 0 else NAN
    return number * (1e-3 if unit.startswith("ms") else 1.0)


def read_elapsed_s(text: str) -> float:
    """Return the seconds since the start that a line tells, or NaN."""
    match = _ELAPSED.search(text)
    return float(match[1] or match[2]) if match else NAN


def read_epoch(text: str) -> int | None:
    """Return the epoch that a line is about."""
    found = _EPOCH.search(text)
    return int(next(number for number in found.groups() if number)) if found else None


def read_parts_s(text: str) -> float:
    """Return the seconds of a step whose parts a line tells, or NaN."""
    match = _PARTS.search(text)
    return sum(map(float, match.groups())) * (1e-3 if "(ms)" in text else 1.0) if match else NAN


def read_samples_rate(text: str) -> float:
    """Return the samples a second that a line tells, or NaN."""
    match = _SAMPLES.search(text)
    return float(match["number"] or match["rate"]) if match else NAN


def read_words_s(text: str) -> float:
    """Return the seconds of a step from the words of a batch and the words a second, as fairseq tells them, or NaN."""
    match = _WORDS.search(text)
    return float(match[2]) / float(match[1]) if match and float(match[1]) > 0 else NAN


def read_position(text: str) -> Position | None:
    """Return the step that a line is about.

    >>> read_position("Iter(train) [ 50/1000]  lr: 0.1"), read_position("Epoch(val) [2][5/9]").is_training
    (Position(step=50, of=1000, epoch=None, is_training=True), False)
    >>> read_position("Epoch: [3][ 10/5005] Time 0.3"), read_position("第 12 步 耗时 0.2 秒").step
    (Position(step=10, of=5005, epoch=3, is_training=True), 12)
    """
    epoch: int | None = None
    first: Position | None = None
    for match in _STEP.finditer(text):
        is_training = match["phase"] in (None, "train", "Train") and not _NOT_TRAIN.search(text[: match.start() + 24])
        group = "a" if match["word"] else next(one for one in "cdeghijklmn" if match[one])
        if match["b"]:
            return Position(int(match["b"]), int(match["b_of"]), int(match["a"]), is_training)
        if match["word"] and match["word"].lower() == "epoch":
            if match["a_of"] is None or epoch is None:
                epoch = int(match["a"])
            continue  # "Epoch: [0]  [ 10/5005]": the step comes behind
        found = _position(match, group, epoch, is_training, text)
        if found.of is not None:
            return found
        first = first or found
    return first


def _position(match: re.Match[str], group: str, epoch: int | None, is_training: bool, text: str) -> Position:
    of = match[f"{group}_of"]
    epoch = read_epoch(text) if epoch is None else epoch
    return Position(_count(match[group]), _count(of) if of else None, epoch, is_training)


def _count(text: str) -> int:
    return int(text.replace(",", ""))


class Stamps:
    """Reads the time stamp of each line; keeps the shape that this log uses, and counts midnights.

    >>> stamps = Stamps()
    >>> a = stamps.read("2025-11-15 19:26:27,537 WARNING: slow"); b = stamps.read("2025-11-15 19:26:50,852 INFO: x")
    >>> round(b - a, 3), stamps.resolution_s
    (23.315, 0.001)
    >>> stamps.read("no time here") is None
    True
    """

    def __init__(self) -> None:
        self.resolution_s = 1.0
        self._shapes = list(_SHAPES)
        self._days: dict[tuple[str | None, ...], float] = {}
        self._last_clock_s = -1.0
        self._midnights = 0

    def read(self, line: str) -> float | None:
        """Return the line's time in seconds, on a scale that only differences of have a meaning."""
        head = line[:_LOOK_AT]
        if ":" not in head and head.lstrip("[( ")[:1] != "1":
            return None
        for index, shape in enumerate(self._shapes):
            match = shape.search(head)
            if match is not None and (seconds := self._seconds(match)) is not None:
                if index:  # a log keeps to its shape: look for this one first from now on
                    self._shapes.insert(0, self._shapes.pop(index))
                return seconds
        return None

    def _seconds(self, match: re.Match[str]) -> float | None:
        groups = match.re.groupindex
        if "E" in groups:
            epoch = match["E"]
            self.resolution_s = 0.001 if len(epoch) > 10 else self.resolution_s
            return float(epoch) if len(epoch.partition(".")[0]) == 10 else float(epoch) / 1000
        h, m, s, fraction = match.group("h", "m", "s", "f")
        hour, minute, second = int(h), int(m), int(s)
        if hour > 23 or minute > 59 or second > 60:
            return None
        clock_s = 3600.0 * hour + 60 * minute + second
        if fraction:
            clock_s += int(fraction) / 10 ** len(fraction)
            self.resolution_s = min(self.resolution_s, 10.0 ** -min(3, len(fraction)))
        if "D" not in groups:
            if clock_s < self._last_clock_s - _DAY_S / 2:
                self._midnights += 1
            self._last_clock_s = clock_s
            return self._midnights * _DAY_S + clock_s
        day_s = self._day(match["Y"] if "Y" in groups else None, match["M" if "M" in groups else "N"], match["D"])
        return None if day_s is None else day_s + clock_s

    def _day(self, year: str | None, month: str, day: str) -> float | None:
        key = (year, month, day)
        if key not in self._days:
            try:
                number = _MONTHS.index(month.lower()) + 1 if month.isalpha() else int(month)
                # Without a year 2024 serves: it has a 29 February, and only differences matter.
                self._days[key] = _DAY_S * date(int(year or 2024) % 2000 + 2000, number, int(day)).toordinal()
            except ValueError:
                return None
        return self._days[key]


def read_settings(text: str) -> dict[str, int]:
    """Return the settings that a line tells; a range such as `16-20` is advice, not a setting.

    >>> read_settings("- num_workers: 32, prefetch_factor=12"), read_settings("num_workers: 16-20")
    ({'num_workers': 32, 'prefetch_factor': 12}, {})
    """
    found: dict[str, int] = {}
    if created := _CREATED.search(text):
        found["num_workers"] = int(created[1])
    for match in _SETTINGS.finditer(text):
        value = _VALUE.match(text, match.end())
        if value is not None and match.lastgroup is not None:
            found.setdefault(match.lastgroup, int(value[1]))
    return found


@dataclass(frozen=True, slots=True)
class Recent:
    """A watcher's figures of the last `count` waits."""

    count: int
    mean_s: float
    worst_s: float


def read_slow_batch(text: str) -> tuple[int, float] | None:
    """Return (batch, wait in seconds) from a report of one slow batch.

    >>> read_slow_batch("WARNING: [SLOW BATCH #2950] 20.69s - prefetch_buffer_exhausted")
    (2950, 20.69)
    """
    match = _SLOW.search(text)
    if match is None:
        return None
    step, value, unit = match.groups()[:3] if match[1] else match.groups()[3:]
    return int(step), _seconds(value, unit)


def read_recent(text: str) -> Recent | None:
    """Return a watcher's figures of its last batches.

    >>> read_recent("[DATA LOAD] Recent 50 batches: avg=449.1ms, min=0.4ms, max=22409.4ms, std=3137.2ms")
    Recent(count=50, mean_s=0.4491, worst_s=22.4094)
    """
    match = _RECENT.search(text)
    if match is None:
        return None
    count, mean, mean_unit, worst, worst_unit = match.groups()
    return Recent(int(count), _seconds(mean, mean_unit), _seconds(worst, worst_unit))


def _seconds(value: str, unit: str) -> float:
    try:
        return round(float(value) * (1e-3 if unit.lower() in ("ms", "毫秒") else 1.0), 9)
    except ValueError:
        return NAN
