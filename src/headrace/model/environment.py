"""The environment variables that Headrace reads: all of them, in one place.

| variable | meaning |
| --- | --- |
| `HEADRACE_CONFIG` | the file with the profiles of loaders; else `headrace.toml` of this folder or of one above it |
| `HEADRACE_FEED` | `1`, `measure`, `tune`: `headrace run` feeds torch's loaders, as with `--feed`, `--feed=measure` … |
| `HEADRACE_FEED_RANDOM` | `1`: also where samples draw random numbers, as with `--feed-random` |
| `HEADRACE_LANG` | language of the commands' output: `en` or `zh`; else the locale decides |
| `HEADRACE_PROFILE` | the profile of loaders that are given none: a name of that file, or a built-in one |
| `HEADRACE_MALLOC` | set by `headrace run --malloc keep`: torch's workers keep the pages of their heaps |
| `HEADRACE_WORKER_THREADS` | set by `headrace run --worker-threads`: threads of libraries in torch's workers |
| `HEADRACE_NUM_WORKERS`, `_PREFETCH_FACTOR`, `_MEMORY`, `_BACKEND` | settings of loaders that are not given them |
| `HEADRACE_IO_DEPTH`, `_PIN_MEMORY`, `_PERSISTENT_WORKERS`, `_CPUS` | the same |
| `HEADRACE_RECORDING` | set by `headrace run` for the processes it starts: where they leave their events |
| `HEADRACE_REPLAY` | set by `headrace run --replay`: how many steps the training gets cached batches for |
| `HEADRACE_STATS` | `0`: loaders keep no times and histograms, unless `keep_stats=True` is passed |
| `HEADRACE_TIMING` | `1`: named stages print a line each, sample by sample; `0`: they do not, whatever the next says |
| `DEBUG_TIMING` | `true`: the same, by the name that our users' scripts already know |
| `XDG_CACHE_HOME` | where the user's caches are; ours are in `headrace` there (default: `~/.cache`) |
| `LOCAL_WORLD_SIZE` | set by torchrun: how many ranks share this machine's memory and processors |
"""

import os
from collections.abc import Mapping
from pathlib import Path


def language(environ: Mapping[str, str] = os.environ) -> str:
    """The language that was asked for, as two letters; empty where none was."""
    return environ.get("HEADRACE_LANG", "").lower()[:2]


def config_path(environ: Mapping[str, str] = os.environ) -> str:
    """The file with the profiles of loaders; empty where none is named."""
    return environ.get("HEADRACE_CONFIG", "")


def profile_name(environ: Mapping[str, str] = os.environ) -> str | None:
    """The profile of loaders that are given none."""
    return environ.get("HEADRACE_PROFILE") or None


def setting_text(name: str, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The variable of a loader's setting, and what it says.

    >>> setting_text("num_workers", {"HEADRACE_NUM_WORKERS": "8"})
    ('HEADRACE_NUM_WORKERS', '8')
    """
    variable = f"HEADRACE_{name.upper()}"
    return variable, environ.get(variable, "")


def recording_place(environ: Mapping[str, str] = os.environ) -> str:
    """Where this process's events go; empty where nobody records."""
    return environ.get("HEADRACE_RECORDING", "")


def replay_steps(environ: Mapping[str, str] = os.environ) -> int:
    """For how many steps cached batches are given, to measure the ceiling; 0: not at all.

    >>> replay_steps({"HEADRACE_REPLAY": "64"}), replay_steps({})
    (64, 0)
    """
    value = environ.get("HEADRACE_REPLAY", "")
    return int(value) if value.isdigit() else 0


def feed_mode(environ: Mapping[str, str] = os.environ) -> str:
    """How torch's loaders are fed by ours under `headrace run`: "1", "measure", "tune"; empty: not at all.

    >>> feed_mode({"HEADRACE_FEED": "measure"}), feed_mode({"HEADRACE_FEED": "0"})
    ('measure', '')
    """
    value = environ.get("HEADRACE_FEED", "")
    return "" if value in ("0", "off", "false") else value


def feeds_random(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether samples that draw may get other random numbers than torch's workers would give them."""
    return environ.get("HEADRACE_FEED_RANDOM", "0") not in ("", "0", "off", "false")


def keeps_worker_heap(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torch's workers are to keep the pages of their heaps."""
    return environ.get("HEADRACE_MALLOC") == "keep"


def worker_threads(environ: Mapping[str, str] = os.environ) -> int:
    """How many threads libraries are to use in torch's workers; 0: as many as they like.

    >>> worker_threads({"HEADRACE_WORKER_THREADS": "1"}), worker_threads({})
    (1, 0)
    """
    value = environ.get("HEADRACE_WORKER_THREADS", "")
    return int(value) if value.isdigit() else 0


def keeps_stats(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether loaders record by default.

    >>> keeps_stats({}), keeps_stats({"HEADRACE_STATS": "0"})
    (True, False)
    """
    return environ.get("HEADRACE_STATS", "1") not in ("0", "off", "false")


def prints_timing(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether named stages print their times.

    >>> prints_timing({"HEADRACE_TIMING": "1"}), prints_timing({"DEBUG_TIMING": "True"}), prints_timing({})
    (True, True, False)
    """
    value = environ.get("HEADRACE_TIMING") or environ.get("DEBUG_TIMING", "")
    return value.lower() in ("1", "true", "yes", "on")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where Headrace may keep what it can find out again.

    >>> cache_folder({"XDG_CACHE_HOME": "/var/cache/me"})
    PosixPath('/var/cache/me/headrace')
    """
    places = environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")
    # without HOME, a user who has no name in a container has no home either: "~" would be a folder in this one
    return Path(next(filter(os.path.isabs, places), f"/tmp/headrace-cache-{os.getuid()}")) / "headrace"


def num_local_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """How many ranks run on this machine.

    >>> num_local_ranks({"LOCAL_WORLD_SIZE": "4"}), num_local_ranks({"LOCAL_WORLD_SIZE": "?"})
    (4, 1)
    """
    value = environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(value)) if value.isdigit() else 1


def find_rank() -> int:
    """Return this process's rank among all; 0 where nobody tells."""
    return rank_in(os.environ) or 0


def rank_in(variables: Mapping[str, str]) -> int | None:
    """Return the rank that torchrun, Slurm or MPI tell a process before it starts; None where nobody does."""
    told = (variables.get(name, "") for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))
    return next((int(text) for text in told if text.isdigit()), None)
