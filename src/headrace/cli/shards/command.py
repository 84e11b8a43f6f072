"""`headrace shards`: index tar shards, list them, and say what is wrong with them."""

import argparse
import json
from typing import TYPE_CHECKING

from ..arguments import add_language, language_of
from ..exits import EXIT_FINDINGS, EXIT_OK
from ..terminal import Terminal
from .messages import shards_messages

if TYPE_CHECKING:
    from headrace.storage.shards import ShardFacts


_DESCRIPTION = """\
Index tar shards and say what is in them and what is wrong: cut or corrupt places with their offsets and what is still
readable, samples that lost something, members that are in no sample. The index lies beside each shard (or in the user's
cache, where that folder is read-only), and headrace.Shards uses it. Only headers are read, unless --verify is given.

FILE is a path, a folder, "x-{000000..000123}.tar", or a glob.
"""
_EPILOG = """\
exit codes: 0 all shards are whole, 1 damage, unpaired members or data that changed, 2 a file is not there
"""


def add_parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", shared: argparse.ArgumentParser
) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "shards",
        parents=[shared],
        help="index tar shards, list them, and find what is damaged",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="shards, as headrace.Shards takes them")
    parser.add_argument(
        "--pair",
        action="append",
        type=_pair,
        default=[],
        metavar="FIELD=PATTERN",
        help="a pairing rule, such as npz={key}_features.npz; may be given more than once (default: WebDataset's rule)",
    )
    parser.add_argument(
        "--fields", type=_names, metavar="NAME,…", help="fields that a sample must have; others are unpaired"
    )
    parser.add_argument("--list", action="store_true", help="every sample: its key, its fields and their sizes")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read all data and compare it with the checksums that --verify stored before",
    )
    parser.add_argument("--rebuild", action="store_true", help="index anew, even where the index is up to date")
    parser.add_argument("--index-dir", metavar="DIR", help="where the indexes lie (default: beside the shards)")
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/shards/1")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Survey the shards and print what was found."""
    from headrace.storage.shards import expand_urls, survey_shards

    from .text import document, list_lines, report_parts

    words = shards_messages(language_of(args))
    paths = expand_urls(args.files)
    pairing = dict(args.pair) or "webdataset"
    with terminal.progress(words.reading.format(count=len(paths))):
        facts: list[ShardFacts] = list(
            survey_shards(
                paths,
                pairing=pairing,
                fields=args.fields,
                verify=args.verify,
                rebuild=args.rebuild,
                index_dir=args.index_dir,
            )
        )
    if args.json:
        terminal.document(json.dumps(document(facts, pairing, args.fields, with_samples=args.list), ensure_ascii=False))
    elif args.list:
        for line in list_lines(facts, pairing, args.fields):
            terminal.document(line)
    else:
        terminal.parts(report_parts(facts, words, urls=args.files, verify=args.verify))
    return EXIT_OK if all(shard.is_whole for shard in facts) else EXIT_FINDINGS


def _pair(text: str) -> tuple[str, str]:
    field, equals, pattern = text.partition("=")
    if not equals or not field or "{key}" not in pattern:
        raise argparse.ArgumentTypeError(f"{text!r} is no rule; write FIELD=PATTERN, such as npz={{key}}_features.npz")
    return field, pattern


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
