"""Shards as people name them: braces, globs, lists, folders."""

import glob
import os
import re
from collections.abc import Iterable

from headrace.errors import NotSupported, UnusableInput

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_BRACES = re.compile(r"\{([^{}]*)\}")
_NESTED = re.compile(r"\{[^{}]*\{[^{}]*\}[^{}]*\}")
_ELSEWHERE = re.compile(r"(?!file:)(\w[\w+.-]*):(?=//|\S* )|pipe:")
_MOST = 10_000_000  # a slip of the finger in a range should not fill the memory
_NAME_SHARDS = "the path of a shard, a folder of shards, or a pattern such as 'train-{000..127}.tar'"

Urls = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def expand_urls(urls: Urls) -> list[str]:
    """Return the paths of all shards that are meant, in order; each must be a file that is there.

    Braces give their parts in order, as a shell does; what a glob finds is sorted; a folder stands for its `*.tar`.
    """
    given = [urls] if isinstance(urls, (str, os.PathLike)) else list(urls)
    if not given:
        raise UnusableInput("no shards were named: the list is empty", next_step=_NAME_SHARDS)
    found: list[str] = []
    for url in given:
        text = os.fspath(url)
        if not isinstance(text, str):
            raise TypeError(f"a shard is named by a text or a path, not by {url!r}")
        if _ELSEWHERE.match(text):
            raise NotSupported(
                f"{text} is not a local file: shards are read from files",
                next_step="copy them to a local or mounted folder, and name that",
            )
        for path in expand_braces(text.removeprefix("file://").removeprefix("file:")):
            found += _find(path, text)
    missing = [path for path in found if not os.path.isfile(path)]
    if missing:
        raise UnusableInput(
            f"{len(missing)} of {len(found)} shards are not there",
            first=missing[0],
            **({"last": missing[-1]} if len(missing) > 1 else {}),
            next_step=_NAME_SHARDS,
        )
    return found


def _find(path: str, given: str) -> list[str]:
    if os.path.isdir(path):
        pattern, given = os.path.join(glob.escape(path), "*.tar"), f"{path}/*.tar"
    elif glob.has_magic(path) and not os.path.exists(path):
        pattern = path
    else:
        return [path]
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        folder = os.path.abspath(os.path.dirname(given) or ".")
        raise UnusableInput(f"no shard fits {given}", folder=folder, next_step=_NAME_SHARDS)
    return found


def expand_braces(text: str) -> list[str]:
    """Return the texts that braces stand for; braces inside of others are refused.

    >>> expand_braces("x-{008..010}.tar"), expand_braces("{train,val}-{0..1}"), expand_braces("{a}.tar")
    (['x-008.tar', 'x-009.tar', 'x-010.tar'], ['train-0', 'train-1', 'val-0', 'val-1'], ['{a}.tar'])
    """
    if _NESTED.search(text):
        raise NotSupported(f"{text} has braces inside of braces", next_step="a list of patterns without")
    head, *rest = _BRACES.split(text)  # text, what is between braces, text, …
    found = [head]
    for inside, after in zip(rest[::2], rest[1::2], strict=True):
        parts = _parts(inside)
        found = [f"{before}{part}{after}" for before in found for part in parts]
        if len(found) > _MOST:
            raise UnusableInput(f"{text} names more than {_MOST} shards", next_step=_NAME_SHARDS)
    return found


def _parts(inside: str) -> list[str]:
    span = _RANGE.fullmatch(inside)
    if span is None:
        return inside.split(",") if "," in inside else [f"{{{inside}}}"]
    first, last = int(span[1]), int(span[2])
    step = abs(int(span[3] or 1)) or 1
    if abs(last - first) // step >= _MOST:
        raise UnusableInput(f"{{{inside}}} names more than {_MOST} shards", next_step=_NAME_SHARDS)
    is_padded = any(len(number) > 1 and number.lstrip("-").startswith("0") for number in (span[1], span[2]))
    width = max(len(span[1]), len(span[2])) if is_padded else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{number:0{width}d}" for number in numbers]
