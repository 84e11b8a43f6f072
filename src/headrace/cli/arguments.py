"""Parsers of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from headrace.model import LANGUAGES

from .messages import default_language

_MONTH_S = 30 * 86400
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def whole(lowest: int, highest: int) -> Callable[[str], int]:
    """Return a parser of whole numbers in a range, whose error says the range."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not lowest <= number <= highest:
            raise argparse.ArgumentTypeError(f"{number} is not between {lowest} and {highest}")
        return number

    return parse


def seconds(lowest_s: float = 0.001, highest_s: float = _MONTH_S) -> Callable[[str], float]:
    """Return a parser of lengths of time in a range: `30`, `30s`, `2m`, `1h`.

    >>> parse = seconds(0.5, 3600)
    >>> parse("30"), parse("1.5s"), parse("2m")
    (30.0, 1.5, 120.0)
    """

    def parse(text: str) -> float:
        number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = text.strip()[len(number) :] or "s"
        try:
            value_s = float(number) * _UNITS_S[unit]
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError(f"{text!r} is no length of time; write 30, 30s, 2m or 1h") from None
        if not lowest_s <= value_s <= highest_s:
            raise argparse.ArgumentTypeError(f"{text} is not between {lowest_s:.12g} and {highest_s:.12g} seconds")
        return value_s

    return parse


def add_language(parser: argparse.ArgumentParser, *, of: str = "output") -> None:
    """Add `--lang`; `language_of` tells what was chosen."""
    help_text = f"language of the {of} (default: HEADRACE_LANG, else the locale's)"
    parser.add_argument("--lang", choices=LANGUAGES, default=None, help=help_text)


def language_of(args: argparse.Namespace) -> str:
    """Return the language that was asked for, else the one that the environment asks for."""
    chosen: str | None = args.lang
    return chosen or default_language()
