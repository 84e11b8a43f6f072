"""`headrace demo`: one training loop with torch's loader and with ours, side by side."""

import argparse
import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from headrace.errors import InternalError

from ..arguments import add_language, language_of, whole
from ..exits import EXIT_OK
from ..messages import demo_messages
from ..terminal import Terminal

if TYPE_CHECKING:
    from .runs import Building, Running

_DESCRIPTION = """\
Build a small data set in a temporary folder, run the same training loop over it with torch's DataLoader and with
headrace's, in turn, and print first batch, waits, throughput and memory side by side. It takes about half a minute
and leaves nothing behind.
"""


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", shared: argparse.ArgumentParser
) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "demo",
        parents=[shared],
        help="the same training loop with torch's loader and with ours, side by side",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--workers",
        type=whole(1, 64),
        default=4,
        metavar="N",
        help="workers of each loader (1 to 64, default: 4)",
    )
    parser.add_argument(
        "--batch-size",
        type=whole(1, 256),
        default=12,
        metavar="N",
        help="samples in a batch (1 to 256, default: 12)",
    )
    parser.add_argument(
        "--samples",
        type=whole(2, 4000),
        default=192,
        metavar="N",
        help="samples in the data set, each 0.5 MB on disk (2 to 4000, default: 192)",
    )
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/demo/1")
    parser.set_defaults(run=lambda args, terminal: run(parser, args, terminal))


def run(parser: argparse.ArgumentParser, args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the demo and print its figures."""
    if args.samples < 2 * args.batch_size:
        parser.error(
            f"--samples {args.samples} is less than two batches of {args.batch_size}; "
            f"try --samples {16 * args.batch_size} or a smaller --batch-size"
        )
    from .report import report_json, report_text, summarise
    from .runs import DemoSettings, Running, run_demo

    words = demo_messages(language_of(args))
    settings = DemoSettings(samples=args.samples, batch_size=args.batch_size, workers=args.workers)

    def during(stage: "Building | Running") -> AbstractContextManager[None]:
        if isinstance(stage, Running):
            return terminal.progress(
                words.running.format(round=stage.round, rounds=settings.rounds, loader=stage.loader)
            )
        return terminal.progress(words.building.format(samples=settings.samples))

    report = summarise(settings, run_demo(settings, during=during))
    if args.json:
        terminal.document(json.dumps(report_json(report), ensure_ascii=False, indent=2))
    else:
        terminal.result(report_text(report, words))
    if report.first_difference is not None:
        raise InternalError("headrace delivered other batches than torch", first_difference=report.first_difference)
    return EXIT_OK
