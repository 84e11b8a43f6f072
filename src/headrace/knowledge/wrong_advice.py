"""Well-known wrong advice, recognised in a text: a guide, a thread, a config, a library's own hint."""

import re
from dataclasses import dataclass

from .entry import Advice
from .store import advice

# What stands just before a phrase that warns of it.
_WARNED_OF = re.compile(
    r"(?:\b(?:not|never|n't|avoid|without|instead of|rather than)\b|不要|不应|不能|不必|别|避免|切勿)[^.。;；]{0,30}$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class AdviceFound:
    """A piece of wrong advice that stands in a text."""

    advice: Advice
    text: str
    line: int


def find_advice(text: str) -> tuple[AdviceFound, ...]:
    """Return the wrong advice in a text, each once, in the order in which it first appears.

    >>> [one.advice.id for one in find_advice("/dev/shm 满了？mp.set_sharing_strategy('file_system') 就好")]
    ['T04']
    """
    found: dict[str, AdviceFound] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for one in advice():
            if one.id not in found and _is_given(one, line):
                found[one.id] = AdviceFound(one, line.strip(), number)
    return tuple(found.values())


def _is_given(one: Advice, line: str) -> bool:
    """Return whether a line gives the advice; one that warns of it does not."""
    matches = (match for pattern in one.patterns if (match := pattern.search(line)))
    return any(not _WARNED_OF.search(line[: match.start()]) for match in matches)
