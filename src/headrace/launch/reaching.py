"""How Python processes that are started later are reached: our folder stands at the head of their PYTHONPATH."""

from __future__ import annotations

import os
from pathlib import Path

_SITE = str(Path(__file__).parent / "site")


def with_site(path: str | None) -> str:
    """Return a PYTHONPATH that begins with our folder."""
    # the rest as it is: an empty entry in it means the working directory
    return os.pathsep.join([_SITE, path] if path else [_SITE])


def without_site(path: str) -> str | None:
    """Return a PYTHONPATH without our folder at its head; None where nothing else is in it."""
    if path == _SITE:
        return None
    return path.removeprefix(_SITE + os.pathsep)
