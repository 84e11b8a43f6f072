"""`headrace storage`: what is under a path, how fast it reads, and how many reads at a time it is worth."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.model import Text, format_bytes, format_seconds, format_share, three_digits

from .arguments import Commands, add_command, add_language, seconds, whole
from .terminal import EXIT_OK, Terminal, line, printable, say, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.storage.media import ProbeResult, StorageKind

_DESCRIPTION = """\
Say what is under PATH (NVMe, SSD, hard disk, NFS, Lustre, FUSE, overlay, …) and measure how fast it can be read: in
order, cold and warm, and at random up to the knee: the number of reads at a time after which more bring no more bytes.

PATH is a file, or a folder whose files are read: several, drawn at random. Nothing is written. The files that are read
are dropped from the page cache. What cannot be learnt is called unknown.
"""
_EPILOG = """\
exit codes: 0 measured, 2 nothing could be measured (no such path, too little to read, a failed read), 130 interrupted
"""

_TITLE = Text("{path}: {label}", "{path}：{label}")
_EVIDENCE = Text("evidence: {fact}", "依据：{fact}")
_START_DEPTH = Text("begin with a depth of {depth} ({reason}); not measured", "起始深度：{depth}（{reason}）；未经测量")
_FILES = Text("{count} of its files, {size}: {examples}", "读取了其中 {count} 个文件，共 {size}：{examples}")
_PASSED_OVER = Text("passed over: {count}, unreadable, empty or with holes", "跳过 {count} 个：无权读取、为空或有空洞")
_TOOK = Text("measured in {seconds}", "用时 {seconds}")

_COLUMNS = Text(",rate,spread,median,worst,from", ",速率,波动,中位数,最慢,数据来自")
_IN_ORDER = Text("in order", "顺序读取")
_AGAIN = Text("in order, a second time", "顺序再读一遍")
_RANDOM = Text("{size} at random, {depth} at a time", "{size} 随机读取，{depth} 路")
_STATES = {  # by the values of Coldness
    "cold": (Text("storage (cold)", "存储（冷）"), ""),
    "warm": (Text("memory (warm)", "内存（热）"), "dim"),
    "partly": (Text("partly page cache", "部分来自页缓存"), "yellow"),
    "unknown": (Text("unknown", "未知"), "yellow"),
}
_HOW_KNOWN = Text("{state}: {how}", "{state}：{how}")

_KNEES = {  # by the values of KneeState
    "found": Text(
        "Knee at {depth}: {rate}, {gain} times what one read at a time brings; more bring no more.",
        "拐点：{depth} 路并发可达 {rate}，是单路的 {gain} 倍；再多也不会更快。",
    ),
    "not_reached": Text(
        "Knee: not reached. {depth} at a time bring {rate}, {gain} times what one brings.",
        "拐点：尚未出现。{depth} 路并发时为 {rate}，是单路的 {gain} 倍。",
    ),
    "too_noisy": Text(
        "Knee: withheld. Rates differ by {noise} from round to round, more than what is to be told apart.",
        "拐点：不予给出。各轮速率相差 {noise}，大于需要分辨的差别。",
    ),
    "not_measured": Text("Knee: not measured.", "拐点：未测定。"),
}
_NEXT = Text("Next: io_depth={depth} ({reason}).", "下一步：io_depth={depth}（{reason}）。")
_ESTIMATE = Text("Next: io_depth={depth} (an estimate: {reason}).", "下一步：io_depth={depth}（估计值：{reason}）。")
_WORKERS = Text("num_workers is for decoding, about one a processor.", "num_workers 只管解码，大约每个处理器一个。")
_READING = Text("reading {path}", "正在读取 {path}")


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "what is under a path, how fast it reads, and how many reads at a time it is worth"
    parser = add_command(commands, shared, "storage", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    add = parser.add_argument
    add("path", metavar="PATH", help="a file, or a folder with data")
    add("--seconds", type=seconds(0.5, 3600), default=15.0, metavar="S", help="how long to measure (default: 15)")
    add("--depth-max", type=whole(1, 1024), default=64, metavar="N", help="most reads at a time (default: 64)")
    add("--no-measure", action="store_true", help="only say what is under the path; read nothing")
    add_language(parser)
    add("--json", action="store_true", help="print one JSON document, schema headrace/storage/2")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.storage.media import kind_of, probe

    head = {"schema": "headrace/storage/2", "headrace": __version__, "path": args.path}
    if args.no_measure:
        kind = kind_of(args.path)
        if args.json:
            terminal.json(head | {"kind": _plain(kind)})
        else:
            terminal.parts(_kind_parts(args.path, kind))
        return EXIT_OK

    # a quarter of a minute needs no line in a log
    is_watched = sys.stderr.isatty() or args.verbosity > 0
    progress = terminal.progress(say(_READING, path=args.path)) if is_watched else nullcontext()
    with progress:
        result = probe(args.path, seconds=args.seconds, depth_max=args.depth_max)
    if args.json:
        terminal.json(head | _plain(result))
    else:
        terminal.parts(_result_parts(result))
    return EXIT_OK


def _plain(value: Any) -> Any:
    """A value as JSON has it: fields and what follows from them by name, sentences in one language."""
    if isinstance(value, Text):
        return say(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if not is_dataclass(value):
        return value
    derived = [name for name, each in vars(type(value)).items() if isinstance(each, property)]
    names = [*(each.name for each in fields(value)), *derived]
    return {name: _plain(getattr(value, name)) for name in names}


def _kind_parts(path: str, kind: StorageKind) -> Iterator[RenderableType]:
    yield line(say(_TITLE, path=path, label=kind.medium.label), "bold")
    yield f"  {kind.name}\n  {say(_EVIDENCE, fact=kind.evidence)}"
    yield f"  {say(_START_DEPTH, depth=kind.starting_depth, reason=kind.depth_reason)}"


def _result_parts(result: ProbeResult) -> Iterator[RenderableType]:
    yield line(say(_TITLE, path=result.path, label=result.kind.medium.label), "bold")
    yield f"  {result.kind.name}"
    examples = ", ".join(printable(path, keep="") for path in result.examples)
    yield f"  {say(_FILES, count=result.num_files, size=format_bytes(result.file_bytes), examples=examples)}"
    if result.num_passed_over:
        yield f"  {say(_PASSED_OVER, count=result.num_passed_over)}"
    yield f"  {say(_TOOK, seconds=format_seconds(result.seconds))}\n"
    names, readings = (
        [_IN_ORDER, _AGAIN, *(_RANDOM for _ in result.random)],
        [result.in_order, result.warm, *result.random],
    )
    rows = [
        (
            name.filled(size=format_bytes(reading.read_bytes), depth=reading.depth),
            format_rate(reading.bytes_per_s),
            f"±{100 * reading.spread:.0f} %" if len(reading.rates) > 1 else "",
            format_seconds(reading.median_s),
            format_seconds(reading.worst_s),
            line(*_STATES[reading.coldness]),
        )
        for name, reading in zip(names, readings, strict=True)
    ]
    yield from (table_of(_COLUMNS, rows, left=(0, 5), folded={}), "")
    for known in dict.fromkeys((_STATES[reading.coldness][0], reading.coldness_reason) for reading in readings):
        yield line(say(_HOW_KNOWN, state=known[0], how=known[1]), "dim")
    yield ""
    knee, suggestion = result.knee, result.suggestion
    rate, noise = format_rate(knee.bytes_per_s or 0.0), format_share(knee.noise or 0.0)
    yield line(say(_KNEES[knee.state], depth=knee.depth, rate=rate, gain=three_digits(knee.gain), noise=noise), "bold")
    next_step = _NEXT if suggestion.is_measured else _ESTIMATE
    yield f"\n{say(next_step, depth=suggestion.io_depth, reason=suggestion.reason)}"
    yield say(_WORKERS)


def format_rate(bytes_per_s: float) -> str:
    """Return a rate as disks are sold: in powers of ten.

    >>> format_rate(104_857_600), format_rate(7.3e9), format_rate(49_152)
    ('105 MB/s', '7.30 GB/s', '49.2 kB/s')
    """
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s")):
        if bytes_per_s >= 0.9995 * factor:
            return f"{three_digits(bytes_per_s / factor)} {unit}"
    return f"{three_digits(bytes_per_s / 1e3)} kB/s"
