"""`headrace storage`: what is under a path, how fast it reads, and how many reads at a time it is worth."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.model import Text, format_bytes, three_digits

from .arguments import Commands, add_command, add_language, seconds, whole
from .terminal import EXIT_OK, Terminal, line, say, table_of

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
_FILES = Text("{count} of its files, {size}", "读取了其中 {count} 个文件，共 {size}")
_COLUMNS = Text(",MB/s,from", ",MB/s,数据来自")
_IN_ORDER = Text("in order", "顺序读取")
_AGAIN = Text("in order, a second time", "顺序再读一遍")
_RANDOM = Text("{size} at random, {depth} at a time", "{size} 随机读取，{depth} 路")
_WHY = Text("{state}: {reason}", "{state}：{reason}")
_NEXT = Text("Next: io_depth={depth}.", "下一步：io_depth={depth}。")
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
        document, parts = {"kind": _plain(kind)}, [*_kind_parts(args.path, kind), _next_step(kind, None)]
    else:
        with terminal.progress(_READING.filled(path=args.path)):
            result = probe(args.path, seconds=args.seconds, depth_max=args.depth_max)
        document, parts = _plain(result), [*_result_parts(args.path, result)]
    if args.json:
        terminal.json(head | document)
    else:
        terminal.parts(parts)
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
    return {name: _plain(getattr(value, name)) for name in [*vars(value), *derived]}


def _kind_parts(path: str, kind: StorageKind) -> Iterator[RenderableType]:
    yield line(say(_TITLE, path=path, label=kind.medium.label), "bold")
    yield f"  {kind.name}\n  {say(_EVIDENCE, fact=kind.evidence)}"


def _result_parts(path: str, result: ProbeResult) -> Iterator[RenderableType]:
    yield from _kind_parts(path, result.kind)
    yield f"  {say(_FILES, count=result.num_files, size=format_bytes(result.file_bytes))}\n"
    names, readings = [_IN_ORDER, _AGAIN], [result.in_order, result.warm, *result.random]
    names += [_RANDOM.filled(size=format_bytes(each.read_bytes), depth=each.depth) for each in result.random]
    rows = [
        (name, three_digits(reading.bytes_per_s / 1e6), say(reading.coldness.label))
        for name, reading in zip(names, readings, strict=True)
    ]
    yield table_of(_COLUMNS, rows, left=(0, 2), folded={})
    for coldness, reason in dict.fromkeys((reading.coldness, reading.reason) for reading in readings):
        if reason is not None:
            yield line(say(_WHY, state=coldness.label, reason=reason), "dim")
    knee = result.knee
    yield ""
    yield line(say(knee.state.label, depth=knee.depth, more=2 * (knee.depth or 0)), "bold")
    yield _next_step(result.kind, result.io_depth)
    yield say(_WORKERS)


def _next_step(kind: StorageKind, depth: int | None) -> str:
    return say(_ESTIMATE if depth is None else _NEXT, depth=depth or kind.starting_depth, reason=kind.depth_reason)
