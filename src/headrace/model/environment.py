"""The environment variables that Headrace reads: all of them, in one place.

| variable | meaning |
| --- | --- |
| `HEADRACE_LANG` | language of the commands' output: `en` or `zh`; else the locale decides |
| `HEADRACE_STATS` | `0`: loaders keep no times and histograms, unless `record=True` is passed |
| `LOCAL_WORLD_SIZE` | set by torchrun: how many ranks share this machine's memory and processors |
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def language(environ: Mapping[str, str] | None = None) -> str:
    """The language that was asked for, as two letters; empty where none was."""
    return (os.environ if environ is None else environ).get("HEADRACE_LANG", "").lower()[:2]


def keeps_statistics(environ: Mapping[str, str] | None = None) -> bool:
    """Whether loaders record by default.

    >>> keeps_statistics({}), keeps_statistics({"HEADRACE_STATS": "0"})
    (True, False)
    """
    return (os.environ if environ is None else environ).get("HEADRACE_STATS", "1") not in ("0", "off", "false")


def num_local_ranks(environ: Mapping[str, str] | None = None) -> int:
    """How many ranks run on this machine.

    >>> num_local_ranks({"LOCAL_WORLD_SIZE": "4"}), num_local_ranks({"LOCAL_WORLD_SIZE": "?"})
    (4, 1)
    """
    value = (os.environ if environ is None else environ).get("LOCAL_WORLD_SIZE", "")
    return max(1, int(value)) if value.isdigit() else 1


def find_rank() -> int:
    """Return this process's rank among all, as torchrun and Slurm tell it; 0 where nobody does."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return 0
