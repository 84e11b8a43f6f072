"""`headrace quarantine`: the samples that runs have condemned, shown, filtered and counted."""

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError

from ..arguments import add_language, language_of
from ..exits import EXIT_FINDINGS, EXIT_OK
from ..terminal import Terminal

if TYPE_CHECKING:
    from .choice import Choice
    from .messages import QuarantineMessages
    from .report import QuarantineReport

_DESCRIPTION = """\
Show what is in quarantine files: the samples that a loader with quarantine=FILE has left out, and why. Each sample
is shown once, with the number of times it was condemned. Filters may be given more than once; --contains then asks
for all of its texts, the others for any of their values.
"""
_EPILOG = """\
exit codes: 0 no condemned sample (that passes the filters), 1 there are some, or damaged lines, 2 a file cannot be read
"""
_KINDS = ("exception", "worker_lost", "hang")
_GROUPS = ("exception", "shard", "file", "worker", "rank", "kind")
_MOST_DAMAGES_SAID = 10


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", shared: argparse.ArgumentParser
) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "quarantine",
        parents=[shared],
        help="the samples that runs have left out, and why",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a quarantine file; several are read as one")
    filters = parser.add_argument_group("filters")
    filters.add_argument("--kind", action="append", choices=_KINDS, default=[], help="how the sample failed")
    filters.add_argument(
        "--exception", action="append", default=[], metavar="NAME", help="type of the exception, with or without module"
    )
    filters.add_argument(
        "--contains", action="append", default=[], metavar="TEXT", help="text in message, traceback, file, shard or key"
    )
    filters.add_argument(
        "--since", type=_since, default=None, metavar="WHEN", help="2h, 3d, 2026-07-30 or '2026-07-30 14:00' (local)"
    )
    filters.add_argument("--rank", action="append", type=int, default=[], metavar="N", help="rank that condemned it")
    filters.add_argument(
        "--shard", action="append", default=[], metavar="NAME", help="path or name of its shard; * and ? are allowed"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--by", choices=_GROUPS, default=None, help="count by this instead of showing each sample")
    shape.add_argument("--indices", action="store_true", help="only the indices or keys, one a line, as JSON")
    shape.add_argument("--traceback", action="store_true", help="each sample with its full traceback")
    parser.add_argument(
        "--limit", type=_limit, default=100, metavar="N", help="show the last N samples (default: 100; 0: all)"
    )
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/quarantine/1")
    parser.set_defaults(run=lambda args, terminal: run(parser, args, terminal))


def run(parser: argparse.ArgumentParser, args: argparse.Namespace, terminal: Terminal) -> int:
    """Read the files and print what was asked for."""
    if args.json and args.indices:
        parser.error("argument --json: not allowed with argument --indices; the document holds the keys too")
    from .choice import Choice
    from .messages import quarantine_messages
    from .report import key_lines, report_json, report_parts, report_tracebacks

    language = language_of(args)
    words = quarantine_messages(language)
    choice = Choice(
        kinds=tuple(args.kind),
        exceptions=tuple(args.exception),
        contains=tuple(args.contains),
        since=args.since,
        ranks=tuple(args.rank),
        shards=tuple(args.shard),
    )
    report = _read(args.files, choice, group_by=args.by)
    _say_damages(report, words, terminal)
    if args.json:
        terminal.document(json.dumps(report_json(report), ensure_ascii=False, indent=2))
    elif args.indices:
        lines, num_others = key_lines(report.samples)
        if lines:
            terminal.document("\n".join(lines))
        if num_others:
            terminal.warn(words.no_text_key.format(count=num_others))
    elif args.traceback:
        terminal.document(report_tracebacks(report, words, limit=args.limit))
    else:
        terminal.parts(report_parts(report, words, limit=args.limit, language=language))
    return EXIT_FINDINGS if report.has_findings else EXIT_OK


def _read(files: list[str], choice: "Choice", *, group_by: str | None) -> "QuarantineReport":
    from headrace.model import SampleFailure
    from headrace.signals import Damage, QuarantineFile, merge_failures

    from .report import QuarantineReport

    failures: list[SampleFailure] = []
    damages: list[Damage] = []
    for path in files:
        try:
            for entry in QuarantineFile(path).entries():
                if isinstance(entry, Damage):
                    damages.append(entry)
                else:
                    failures.append(entry)
        except OSError as error:
            raise HeadraceError(f"cannot read {path}: {error.strerror or error}") from error
    return QuarantineReport(
        files=tuple(files),
        choice=choice,
        samples=tuple(merge_failures(filter(choice.passes, failures))),
        num_in_files=len(merge_failures(failures)),
        damages=tuple(damages),
        group_by=group_by,
    )


def _say_damages(report: "QuarantineReport", words: "QuarantineMessages", terminal: Terminal) -> None:
    from .report import printable

    for damage in report.damages[:_MOST_DAMAGES_SAID]:
        said = words.damage_line.format(path=damage.path, line=damage.line, reason=damage.reason)
        terminal.warn(printable(said))
    left = len(report.damages) - _MOST_DAMAGES_SAID
    if left > 0:
        terminal.warn(words.more_damage.format(count=left))


def _since(text: str) -> datetime:
    from .choice import parse_since

    try:
        return parse_since(text, now=datetime.now(UTC))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write an age such as 90m, 2h or 3d, or a date such as 2026-07-30"
        ) from None


def _limit(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is less than 0")
    return number
