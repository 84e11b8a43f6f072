"""Parsers of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable


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
