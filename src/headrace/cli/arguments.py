"""What several commands take: a parser, a target, ranges, sizes, lengths of time, the language, files to write."""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.errors import UnusableInput
from headrace.model import LANGUAGES, language, parse_bytes, write_step

from .terminal import speak

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_MONTH_S = 30 * 86400
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def add_command(
    commands: Commands, shared: argparse.ArgumentParser, name: str, run: Callable[..., int], summary: str, **texts: Any
) -> argparse.ArgumentParser:
    """Add a command with the options that all of them share; its texts are printed as they are written."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(name, parents=[shared], help=summary, formatter_class=as_written, **texts)
    parser.set_defaults(parser=parser, run=run)
    return parser


def add_target(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    """Add what a command works on, which `headrace.loader.load_target` finds."""
    said = "file.py:name or pkg.mod:name (a loader, a data set, or a function that returns one), or shards"
    parser.add_argument("target", nargs=nargs, metavar="TARGET", help=said)


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written before the work is done whose result it is for."""
    from headrace.signals.system import why_unwritable

    if (error := why_unwritable(path)) is not None:
        raise UnusableInput(f"{path} cannot be written", reason=error.strerror, next_step=write_step(error, path))


def whole(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers in a range, whose error says the range."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < lowest or (highest is not None and number > highest):
            wrong = f"less than {lowest}" if highest is None else f"not between {lowest} and {highest}"
            raise argparse.ArgumentTypeError(f"{number} is {wrong}")
        return number

    return parse


def size(text: str) -> int:
    """Parse a number of bytes: `25MB`, `8GiB`."""
    try:
        return parse_bytes(text, name="a size")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(lowest_s: float = 0.001, highest_s: float = _MONTH_S, *, usual: str = "s") -> Callable[[str], float]:
    """Return a parser of lengths of time in a range: `30` (of the usual unit), `30s`, `2m`, `1h`.

    >>> parse = seconds(0.5, 3600)
    >>> parse("30"), parse("1.5s"), parse("2m"), seconds(usual="ms")("120")
    (30.0, 1.5, 120.0, 0.12)
    """

    def parse(text: str) -> float:
        number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = text.strip()[len(number) :] or usual
        try:
            value_s = float(number) * _UNITS_S[unit]
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError(f"{text!r} is no length of time; write 30, 30s, 2m or 1h") from None
        if not lowest_s <= value_s <= highest_s:
            raise argparse.ArgumentTypeError(f"{text} is not between {lowest_s:.12g} and {highest_s:.12g} seconds")
        return value_s

    return parse


def add_language(parser: argparse.ArgumentParser, *, of: str = "output") -> None:
    help_text = f"language of the {of} (default: HEADRACE_LANG, else the locale's)"
    parser.add_argument("--lang", type=speak, choices=LANGUAGES, default=default_language(), help=help_text)


def default_language(environ: Mapping[str, str] = os.environ) -> str:
    """Return the language that HEADRACE_LANG asks for, else the one of the locale; English when in doubt.

    >>> default_language({"LANG": "zh_CN.UTF-8"}), default_language({"LANG": "zh_CN.UTF-8", "HEADRACE_LANG": "en"})
    ('zh', 'en')
    """
    asked = language(environ)
    if asked in LANGUAGES:
        return asked
    # The order in which POSIX looks at them; the first one that is set decides.
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"
