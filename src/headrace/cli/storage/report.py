"""What `headrace storage` found, as text and as JSON from the same object."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text as Line

from headrace import __version__
from headrace.model import Text, format_bytes, format_seconds, format_share, three_digits
from headrace.storage.media import Coldness, Knee, KneeState, MeasuredReading, ProbeResult, StorageKind

_LONGEST_EXAMPLE = 60

_TITLE = Text("{path}: {label}", "{path}：{label}")
_EVIDENCE = Text("  evidence: {fact}", "  依据：{fact}")
_START_DEPTH = Text(
    "  a depth to begin with: {depth} ({reason}); not measured", "  建议的起始深度：{depth}（{reason}）；未经测量"
)
_MEASURED_DEPTH = Text("  the depth that a probe found: {depth} ({reason})", "  此前测得的深度：{depth}（{reason}）")
_UNKNOWN = Text("What could not be learnt:", "未能查明：")

_LARGE_FILES = Text("{count} of its files, {size}: {examples}", "读取了其中 {count} 个文件，共 {size}：{examples}")
_SMALL_FILES = Text(
    "{count} of its small files, {size}, read whole: {examples}", "整读了其中 {count} 个小文件，共 {size}：{examples}"
)
_TEST_FILE = Text("a test file of {size}, written and removed", "临时写入 {size} 的测试文件，测完已删除")
_NOT_ALL_SEEN = Text(
    "the folder holds more than the {seen} entries that were looked at", "目录很大，只查看了前 {seen} 个条目"
)
_PASSED_OVER = Text("passed over: {what}", "跳过：{what}")
_PASSED_REASONS = {
    "sparse": Text("{count} with holes, which are read without a disk", "{count} 个稀疏文件（空洞部分不经磁盘）"),
    "unreadable": Text("{count} that may not be read", "{count} 个无权读取的文件"),
    "unreadable folder": Text("{count} folders that may not be read", "{count} 个无权读取的目录"),
    "empty": Text("{count} empty ones", "{count} 个空文件"),
}
_TOOK = Text("{size} read in {seconds}", "共读取 {size}，用时 {seconds}")

_COLUMNS = (
    *(Text("", ""), Text("rate", "速率"), Text("reads/s", "次/秒"), Text("median", "中位数"), Text("p95", "p95")),
    *(Text("worst", "最慢"), Text("from", "数据来自")),
)
_IN_ORDER = Text("in order, {depth} at a time", "顺序读取，{depth} 路")
_RANDOM = Text("{size} at random, {depth} at a time", "{size} 随机读取，{depth} 路")
_WHOLE_FILES = Text("whole small files, {depth} at a time", "整读小文件，{depth} 路")
_AGAIN = Text("read a second time, {depth} at a time", "再读一遍，{depth} 路")
_COLD_HOW = Text("{state}: {how}", "{state}：{how}")
_COLD_STATES = {
    Coldness.COLD: (Text("storage (cold)", "存储（冷）"), ""),
    Coldness.WARM: (Text("memory (warm)", "内存（热）"), "dim"),
    Coldness.PARTLY: (Text("partly page cache", "部分来自页缓存"), "yellow"),
    Coldness.UNKNOWN: (Text("unknown", "未知"), "yellow"),
}

_KNEE_FOUND = Text(
    "Knee: {depth} reads at a time bring {rate}, {gain} times what one brings; more bring no more.",
    "拐点：{depth} 路并发可达 {rate}，是单路的 {gain} 倍；再多也不会更快。",
)
_KNEE_ONE = Text(
    "Knee: one read at a time brings {rate}; more bring no more.", "拐点：单路就已达到 {rate}；再多也不会更快。"
)
_KNEE_NOT_REACHED = Text(
    "Knee: not reached. {depth} reads at a time bring {rate}, {gain} times what one brings.",
    "拐点：尚未出现。{depth} 路并发时为 {rate}，是单路的 {gain} 倍。",
)
_KNEE_NOISY = Text(
    "Knee: withheld. Rates may be off by {noise} by chance, which is more than what is to be told apart.",
    "拐点：不予给出。速率的偶然误差可达 {noise}，大于需要分辨的差别。",
)
_KNEE_NOT_MEASURED = Text("Knee: not measured.", "拐点：未测定。")
_FALLS = Text(
    "From {depth} on, more readers bring fewer bytes: they get in each other's way.",
    "从 {depth} 路起，读者越多反而越慢：它们互相干扰。",
)
_NEXT = Text("Next: io_depth={depth} ({reason}).", "下一步：io_depth={depth}（{reason}）。")
_NEXT_ESTIMATE = Text(
    "Next: begin with io_depth={depth} (an estimate: {reason}).", "下一步：先用 io_depth={depth}（估计值：{reason}）。"
)
_WORKERS = Text(
    "Readers are not decoders: num_workers is for decoding, about one a processor ({processors} here).",
    "读取与解码要分开：num_workers 只管解码，大约每个处理器一个（这里是 {processors} 个）。",
)
_WORKERS_THAT_READ = Text(
    "A loader that reads in its workers, as torch's does, would need {depth} of them for this rate; "
    "{processors} of them get {rate} at most, {share} of it.",
    "像 torch 那样由 worker 自己读数据的加载器，要 {depth} 个 worker 才能达到这个速率；"
    "{processors} 个最多 {rate}，只有 {share}。",
)


class StorageReport:
    """Says in one language what was found."""

    def __init__(self, language: str) -> None:
        self._language = language

    def kind_text(self, path: str, kind: StorageKind) -> Iterator[Line]:
        """What is under a path, without a measurement."""
        yield from self._head(path, kind)
        for fact in kind.evidence:
            yield self._line(_EVIDENCE, fact=fact)
        depth = _MEASURED_DEPTH if kind.is_depth_measured else _START_DEPTH
        yield self._line(depth, depth=kind.starting_depth, reason=kind.depth_reason)
        yield from self._what_is_unknown(kind.unknown)

    def probe_text(self, result: ProbeResult) -> Iterator[RenderableType]:
        """The whole result."""
        yield from self._head(result.path, result.kind)
        for line in self._files(result):
            yield Line(f"  {line}")
        yield Line("")
        rows = list(self._rows(result))
        yield self._table(rows)
        yield Line("")
        for state, how in dict.fromkeys((reading.coldness, reading.coldness_reason) for _, reading in rows):
            yield self._line(_COLD_HOW, "dim", state=_COLD_STATES[state][0], how=how)
        yield Line("")
        yield self._knee(result.knee)
        if result.knee.falls_beyond is not None:
            yield self._line(_FALLS, "yellow", depth=result.knee.falls_beyond)
        yield from self._what_is_unknown(result.unknown)
        yield Line("")
        suggestion = result.suggestion
        said = _NEXT if suggestion.is_measured else _NEXT_ESTIMATE
        yield self._line(said, depth=suggestion.io_depth, reason=suggestion.reason)
        yield self._line(_WORKERS, processors=result.num_processors)
        yield from self._workers_that_read(result)

    def _say(self, text: Text, **facts: object) -> str:
        told = {name: fact.of(self._language) if isinstance(fact, Text) else fact for name, fact in facts.items()}
        return text.of(self._language).format(**told)

    def _line(self, text: Text, style: str = "", **facts: object) -> Line:
        return Line(self._say(text, **facts), style=style)

    def _head(self, path: str, kind: StorageKind) -> Iterator[Line]:
        yield self._line(_TITLE, "bold", path=path, label=kind.medium.label)
        yield Line(f"  {kind.name}")

    def _what_is_unknown(self, unknown: tuple[Text, ...]) -> Iterator[Line]:
        if unknown:
            yield Line("")
            yield self._line(_UNKNOWN)
            yield from (Line(f"  - {said.of(self._language)}") for said in unknown)

    def _files(self, result: ProbeResult) -> Iterator[str]:
        files = result.files
        examples = ", ".join(_tail(path) for path in files.examples)
        if files.is_temporary:
            yield self._say(_TEST_FILE, size=format_bytes(files.large_bytes))
        elif files.num_large:
            size = format_bytes(files.large_bytes)
            yield self._say(_LARGE_FILES, count=files.num_large, size=size, examples=examples)
        else:
            size = format_bytes(files.small_bytes)
            yield self._say(_SMALL_FILES, count=files.num_small, size=size, examples=examples)
        if not files.is_all_seen:
            yield self._say(_NOT_ALL_SEEN, seen=files.num_seen)
        if files.passed_over:
            reasons = [self._say(_PASSED_REASONS[why], count=count) for why, count in files.passed_over.items()]
            yield self._say(_PASSED_OVER, what=", ".join(reasons))
        yield self._say(_TOOK, size=format_bytes(result.num_bytes), seconds=format_seconds(result.seconds))

    def _rows(self, result: ProbeResult) -> Iterator[tuple[str, MeasuredReading]]:
        small, warm = (() if each is None else (each,) for each in (result.small_random, result.warm))
        for text, readings in (
            (_IN_ORDER, result.in_order),
            (_RANDOM, small),
            (_RANDOM, result.random),
            (_WHOLE_FILES, result.whole_files),
            (_AGAIN, warm),
        ):
            for reading in readings:
                yield self._say(text, depth=reading.depth, size=format_bytes(reading.read_bytes or 0)), reading

    def _table(self, rows: list[tuple[str, MeasuredReading]]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for place, title in enumerate(_COLUMNS):
            justify = "left" if place in (0, len(_COLUMNS) - 1) else "right"
            table.add_column(self._say(title), justify=justify, no_wrap=True)  # type: ignore[arg-type]  # one of rich's words
        for name, reading in rows:
            latency, (state, style) = reading.latency, _COLD_STATES[reading.coldness]
            table.add_row(
                name,
                format_rate(reading.bytes_per_s),
                three_digits(reading.reads_per_s),
                *(format_seconds(each) for each in (latency.median_s, latency.p95_s, latency.worst_s)),
                self._line(state, style),
            )
        return table

    def _knee(self, knee: Knee) -> Line:
        if knee.state is KneeState.TOO_NOISY:
            return self._line(_KNEE_NOISY, "bold", noise=format_share(knee.noise or 0.0))
        if knee.depth is None or knee.rate is None:
            return self._line(_KNEE_NOT_MEASURED, "bold")
        said = _KNEE_ONE if knee.depth == 1 else _KNEE_FOUND
        said = _KNEE_NOT_REACHED if knee.state is KneeState.NOT_REACHED else said
        gain = three_digits(knee.gain or 1.0)
        return self._line(said, "bold", depth=knee.depth, rate=format_rate(knee.rate), gain=gain)

    def _workers_that_read(self, result: ProbeResult) -> Iterator[Line]:
        """What a loader gets whose workers read, where that is less than the knee."""
        knee, processors = result.knee, result.num_processors
        rates = {each.depth: each.bytes_per_s for each in result.ladder if each.depth <= processors}
        if knee.depth is None or knee.rate is None or not rates or knee.depth <= processors:
            return
        rate = rates[max(rates)] * processors / max(rates)
        if rate < 0.9 * knee.rate:
            rates_told = {"rate": format_rate(rate), "share": format_share(rate / knee.rate)}
            yield Line(self._say(_WORKERS_THAT_READ, depth=knee.depth, processors=processors, **rates_told))

    # ---------------------------------------------------------------- JSON

    def kind_json(self, path: str, kind: StorageKind) -> dict[str, Any]:
        """What is under a path: the head of a document of schema `headrace/storage/1`."""
        told = {
            "medium": kind.medium,
            "label": kind.medium.label,
            "name": kind.name,
            "layers": kind.layers,
            "evidence": kind.evidence,
            "starting_depth": kind.starting_depth,
            "depth_reason": kind.depth_reason,
            "is_depth_measured": kind.is_depth_measured,
            "unknown": kind.unknown,
        }
        plain = {name: self._plain(value) for name, value in told.items()}
        return {"schema": "headrace/storage/1", "headrace": __version__, "path": path, "kind": plain}

    def probe_json(self, result: ProbeResult) -> dict[str, Any]:
        """The whole document: the fields of the result, by their names."""
        measured = {name: value for name, value in self._fields(result).items() if name not in ("path", "kind")}
        measured["knee"] = {"bytes_per_s" if name == "rate" else name: each for name, each in measured["knee"].items()}
        return self.kind_json(result.path, result.kind) | measured

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Text):
            return value.of(self._language)
        if isinstance(value, tuple):
            return [self._plain(each) for each in value]
        if isinstance(value, MeasuredReading):
            first = {"depth": value.depth, "read_bytes": value.read_bytes, "bytes_per_s": value.bytes_per_s}
            return first | self._fields(value)
        return self._fields(value) if is_dataclass(value) else value

    def _fields(self, value: Any) -> dict[str, Any]:
        return {each.name: self._plain(getattr(value, each.name)) for each in fields(value)}


def format_rate(bytes_per_s: float) -> str:
    """Return a rate as disks are sold: in powers of ten.

    >>> format_rate(104_857_600), format_rate(7.3e9), format_rate(49_152)
    ('105 MB/s', '7.30 GB/s', '49.2 kB/s')
    """
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s")):
        if bytes_per_s >= 0.9995 * factor:
            return f"{three_digits(bytes_per_s / factor)} {unit}"
    return f"{three_digits(bytes_per_s / 1e3)} kB/s"


def _tail(path: str) -> str:
    printable = "".join(char if char.isprintable() else "?" for char in path)
    return printable if len(printable) <= _LONGEST_EXAMPLE else f"…{printable[1 - _LONGEST_EXAMPLE :]}"
