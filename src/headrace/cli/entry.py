"""The `headrace` command: its options and the way to each command."""

import argparse
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from headrace import __version__
from headrace.errors import HeadraceError, InternalError, UnusableInput
from headrace.model import write_step

from . import chaos, config, demo, doctor, explain, lint, plan, quarantine, run, shards, storage, tune, watch
from .terminal import EXIT_COULD_NOT_RUN, EXIT_OUR_BUG, EXIT_READER_GONE, Terminal

_EPILOG = """\
exit codes: 0 nothing wrong, 1 findings, 2 could not run (usage or input), 3 a bug in headrace, 130 interrupted
environment: HEADRACE_LANG (en or zh), HEADRACE_STATS (0: no statistics), NO_COLOR
"""


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run the `headrace` command and return its exit code; `KeyboardInterrupt` is the caller's."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character still gets the figures
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args, unknown = command_parser().parse_known_args(words)
        if unknown and args.run is run.run:
            raise run.misplaced(words, unknown)
        if unknown:
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        code: int = args.run(args, Terminal(color=args.color, verbosity=args.verbosity))
        sys.stdout.flush()
    except SystemExit as stop:  # --help, --version, wrong usage that argparse has explained, or a signal
        return stop.code if isinstance(stop.code, int) else EXIT_COULD_NOT_RUN
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter's last flush complains
        return EXIT_READER_GONE
    except Exception as error:
        if _is_interrupted(error):  # an import may call it an `ImportError`
            raise KeyboardInterrupt from None
        step = write_step(error, error.filename or "stdout") if isinstance(error, OSError) else ""
        if step and not isinstance(error, FileNotFoundError):  # no bug of ours
            error = UnusableInput(str(error), next_step=step)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it may be what is full
        if isinstance(error, HeadraceError) and not isinstance(error, InternalError):
            print(f"headrace: {error}", file=sys.stderr)
            return EXIT_COULD_NOT_RUN
        traceback.print_exc()
        if not isinstance(error, InternalError):
            print(f"headrace: {InternalError('this is a bug in headrace')}", file=sys.stderr)
        return EXIT_OUR_BUG
    return code


def _is_interrupted(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupted(error.__context__))


def command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace",
        description="Headrace keeps GPUs fed: a loader that does not stall, and the reason why a training waits.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shown = "show the versions of headrace, Python and torch"
    parser.add_argument("--version", action=_ShowVersions, nargs=0, help=shown)
    _add_output_options(parser, color="auto", verbosity=0)
    # After the command the same options may come again; there they have no default, or it would undo the first ones.
    shared = argparse.ArgumentParser(add_help=False)
    _add_output_options(shared, color=argparse.SUPPRESS, verbosity=argparse.SUPPRESS)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (chaos, config, demo, doctor, quarantine, explain, lint, plan, run, tune, watch, shards, storage):
        command.add_parser(commands, shared)
    return parser


def _add_output_options(parser: argparse.ArgumentParser, *, color: str, verbosity: int | str) -> None:
    when = "colour on stdout and stderr (default: auto, on a terminal unless NO_COLOR is set)"
    parser.add_argument("--color", choices=("auto", "always", "never"), default=color, help=when)
    add = partial(parser.add_mutually_exclusive_group().add_argument, action="store_const", dest="verbosity")
    add("-q", "--quiet", const=-1, default=verbosity, help="the result only")
    add("-v", "--verbose", const=1, default=verbosity, help="more on stderr")


class _ShowVersions(argparse.Action):
    """Print what a report of a bug needs, and end; looking for torch's version takes longer than all other options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        torch = "no torch"
        with suppress(PackageNotFoundError):
            torch = f"torch {version('torch')}"
        system = f"{platform.system()} {platform.machine()}"
        print(f"headrace {__version__} (Python {platform.python_version()}, {torch}, {system})")
        parser.exit()
