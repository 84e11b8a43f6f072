"""`headrace storage`: what is under a path, how fast it reads, and how many reads at a time it is worth."""

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NoReturn

from ..arguments import add_language, language_of, seconds, whole
from ..terminal import EXIT_OK, EXIT_TERMINATED, Terminal

_DESCRIPTION = """\
Say what is under PATH (NVMe, SSD, hard disk, NFS, Lustre, FUSE, overlay, …) and measure how fast it can be read: in
order and at random, cold and warm, how long single reads take, and the knee: the number of reads at a time after which
more readers bring no more bytes.

PATH is a file, or a folder whose files are read: several, drawn at random. Nothing is written, unless --write-test asks
for it. The files that are read are dropped from the page cache. What could not be learnt is said.
"""
_EPILOG = """\
exit codes: 0 measured, 2 nothing could be measured (no such path, too little to read, a failed read), 130 interrupted
"""


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", shared: argparse.ArgumentParser
) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "storage",
        parents=[shared],
        help="what is under a path, how fast it reads, and how many reads at a time it is worth",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", help="a file, or a folder with data")
    parser.add_argument(
        "--seconds", type=seconds(0.5, 3600), default=15.0, metavar="S", help="about how long to measure (default: 15)"
    )
    parser.add_argument(
        "--bytes", type=_size, default=16 << 30, metavar="SIZE", help="read no more than this (default: 16GiB)"
    )
    parser.add_argument(
        "--depth-max", type=whole(1, 1024), default=64, metavar="N", help="most reads at a time (default: 64)"
    )
    parser.add_argument(
        "--read", type=_read_size, default=1 << 20, metavar="SIZE", help="size of a read at random (default: 1MiB)"
    )
    parser.add_argument("--no-measure", action="store_true", help="only say what is under the path; read nothing")
    parser.add_argument(
        "--remember",
        action="store_true",
        help="keep the depth that was found for later loaders of this machine, in the user's cache folder (30 days)",
    )
    parser.add_argument(
        "--write-test",
        type=whole(16, 1 << 20),
        default=None,
        metavar="FILE_MB",
        help="write a file of so many MiB into the folder PATH, measure with that one, and remove it",
    )
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/storage/1")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Measure and print."""
    from headrace.model import Text
    from headrace.storage.media import kind_of, probe, remember

    from .report import StorageReport

    language = language_of(args)
    report = StorageReport(language)
    if args.no_measure:
        kind = kind_of(args.path)
        if args.json:
            terminal.document(json.dumps(report.kind_json(args.path, kind), ensure_ascii=False, indent=2))
        else:
            terminal.parts(report.kind_text(args.path, kind))
        return EXIT_OK

    def say(phase: Text) -> None:
        with terminal.progress(phase.of(language)):
            pass

    # a quarter of a minute needs no line in a log
    is_watched = sys.stderr.isatty() or args.verbosity > 0
    reading = Text("reading {path}", "正在读取 {path}").filled(path=args.path)
    progress = terminal.progress(reading.of(language)) if is_watched else nullcontext()
    with _removing_on_sigterm(), progress:
        result = probe(
            args.path,
            seconds=args.seconds,
            max_bytes=args.bytes,
            depth_max=args.depth_max,
            read_bytes=args.read,
            write_test_bytes=None if args.write_test is None else args.write_test << 20,
            on_phase=say if args.verbosity > 0 else None,
        )
    kept_in = remember(result) if args.remember else None
    if args.json:
        terminal.document(json.dumps(report.probe_json(result), ensure_ascii=False, indent=2))
    else:
        terminal.parts(report.probe_text(result))
    if args.remember:
        kept = Text("the depth is kept in {path}", "深度已保存在 {path}").filled(path=kept_in)
        not_kept = Text(
            "the depth is not kept: it was not measured, or the cache folder cannot be written",
            "深度没有保存：未能测定，或缓存目录不可写",
        )
        terminal.warn((not_kept if kept_in is None else kept).of(language))
    return EXIT_OK


@contextmanager
def _removing_on_sigterm() -> Iterator[None]:
    """Let a test file be removed also when a job is told to end."""

    def end(*_: object) -> NoReturn:
        sys.exit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _size(text: str) -> int:
    from headrace.model import parse_bytes

    try:
        return parse_bytes(text, name="size")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _read_size(text: str) -> int:
    size = _size(text)
    if size % 4096 or not 4096 <= size <= 8 << 20:
        raise argparse.ArgumentTypeError(f"{text} is not a multiple of 4 KiB up to 8 MiB")
    return size
