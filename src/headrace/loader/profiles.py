"""A loader's settings by name: an argument, the environment, a profile of `headrace.toml`, or one for the machine.

`DataLoader(..., profile="cluster")` takes what `[profiles.cluster]` sets: in the file that HEADRACE_CONFIG names, else
in the `headrace.toml` of the current folder or the nearest one above it. Each setting comes from the first of:
argument, environment (`HEADRACE_NUM_WORKERS`, …), profile (of the file, else built in), default.
"""

import functools
import inspect
import json
import logging
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

from headrace.engine import DEFAULT_SHARE, check_cpus, free_memory, usable_processors
from headrace.errors import UnusableInput
from headrace.model import (
    Said,
    Text,
    config_path,
    format_bytes,
    num_local_ranks,
    parse_bytes,
    profile_name,
    setting_text,
    write_step,
)

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
FILE_NAME = "headrace.toml"
_NEEDS_WORKERS = ("prefetch_factor", "persistent_workers")
BUILT_IN = ("debug", "conservative", "balanced", "aggressive")
# What a profile may set, and its default. Not `batch_size`: that changes what is learnt.
SETTINGS: Mapping[str, Any] = {
    "num_workers": 0,
    "prefetch_factor": None,
    "memory": None,
    "backend": "auto",
    "io_depth": None,
    "cpus": None,
    "pin_memory": False,
    "persistent_workers": False,
}
_LOWEST = {"num_workers": 0, "prefetch_factor": 1, "io_depth": 0}
_BACKENDS = ("auto", "process", "thread")
_MANY_TIMES = (
    "num_workers=%r (%s: %s) is left out: an IterableDataset that does not split itself comes whole from every worker. "
    "If its __iter__ splits by torch.utils.data.get_worker_info(), give num_workers= to the loader"
)


class Origin(Said):
    """Where a value comes from, in words; the first of these that has one."""

    ARGUMENT = "argument", Text("argument", "参数")
    ENVIRONMENT = "environment", Text("environment: {place}", "环境变量：{place}")
    FILE = "file", Text("profile {profile} of {place}", "配置 {profile}，来自 {place}")
    BUILT_IN = "built in", Text("profile {profile}, for {place}", "内置配置 {profile}，按 {place} 计算")
    DEFAULT = "default", Text("default", "默认值")


@dataclass(frozen=True)
class Setting:
    """A value, and where it comes from."""

    value: Any
    origin: Origin
    place: str = ""  # the variable; the file; what a built-in profile follows from


def resolve_settings(profile: str | None = None, given: Mapping[str, Any] | None = None) -> dict[str, Setting]:
    """Return each setting of a loader with its origin; `given` are arguments, which win.

    Raises `UnusableInput` for a profile that nobody knows and for values that mean nothing.
    """
    found = {name: Setting(default, Origin.DEFAULT) for name, default in SETTINGS.items()}
    if (asked := profile or profile_name()) is not None:
        found |= _of_profile(asked)
    for name in SETTINGS:
        variable, text = setting_text(name)
        if text:
            found[name] = Setting(_checked(name, _typed(text), variable), Origin.ENVIRONMENT, variable)
    found |= {name: Setting(value, Origin.ARGUMENT) for name, value in (given or {}).items() if name in SETTINGS}
    if found["num_workers"].value == 0:  # where torch refuses them: a profile for workers is no reason to fail
        others = (name for name in _NEEDS_WORKERS if found[name].origin is not Origin.ARGUMENT)
        found |= {name: Setting(SETTINGS[name], Origin.DEFAULT) for name in others}
    return found


def _of_profile(name: str) -> dict[str, Setting]:
    path = find_file()
    profiles = read_profiles(path) if path is not None else {}
    if name in profiles:
        return {key: Setting(value, Origin.FILE, str(path)) for key, value in profiles[name].items()}
    if name in BUILT_IN:
        built_in, why = _built_in()
        return {key: Setting(value, Origin.BUILT_IN, why) for key, value in built_in[name].items()}
    raise UnusableInput(
        f"there is no profile {name!r}",
        known=", ".join(dict.fromkeys((*profiles, *BUILT_IN))),
        file=path or f"no {FILE_NAME} in this folder or above it",
        next_step=f"[profiles.{name}] in {path or FILE_NAME}, or one of those that are known",
    )


def _built_in() -> tuple[dict[str, dict[str, Any]], str]:
    """Return the settings of the built-in profiles for this machine and rank, and what they follow from."""
    cores, free = usable_processors(), free_memory()[0]
    half, double = (int(times * DEFAULT_SHARE * free / num_local_ranks()) >> 20 for times in (0.5, 2.0))
    profiles: dict[str, dict[str, Any]] = {
        "debug": {"num_workers": 0},
        "conservative": {"num_workers": max(1, cores // 2), "memory": f"{max(1, half)}MiB"},
        "balanced": {"num_workers": cores - (cores > 2)},  # as "auto" has it: one is left to the training
        "aggressive": {"num_workers": cores, "memory": f"{max(1, double)}MiB", "persistent_workers": True},
    }
    return profiles, f"{cores} CPU, {format_bytes(free)}"


def with_profile(init: Callable[_P, None]) -> Callable[_P, None]:
    """Let a profile, or the environment, give a loader the arguments that its caller did not."""
    names = tuple(inspect.signature(init).parameters)

    @functools.wraps(init)
    def filled(*args: _P.args, **kwargs: _P.kwargs) -> None:
        from torch.utils.data import IterableDataset  # `headrace config` needs no torch

        given = {**dict(zip(names, args, strict=False)), **kwargs}
        profile = given.get("profile")
        if profile is not None and not isinstance(profile, str):
            raise TypeError(f"profile must be the name of a profile, got {profile!r}")
        resolved = resolve_settings(profile, given)
        workers, is_stream = resolved["num_workers"], isinstance(given.get("dataset"), IterableDataset)
        if is_stream and workers.value and workers.origin is not Origin.ARGUMENT:
            _log.warning(_MANY_TIMES, workers.value, workers.origin, workers.place)
            resolved = resolve_settings(profile, given | {"num_workers": SETTINGS["num_workers"]})
        chosen = {n: one for n, one in resolved.items() if one.origin not in (Origin.ARGUMENT, Origin.DEFAULT)}
        kwargs.update({name: one.value for name, one in chosen.items()}, profile=profile or profile_name())
        init(*args, **kwargs)
        if chosen:
            said = ", ".join(f"{name}={one.value!r} ({one.origin}: {one.place})" for name, one in chosen.items())
            _log.info("%s: %s", repr(args[0]), said)  # a record of the log should not keep a loader

    return filled


def find_file() -> Path | None:
    """Return the file with the profiles; None where there is none."""
    if named := config_path():
        if not os.path.isfile(named):
            raise UnusableInput(f"HEADRACE_CONFIG names {named}, which is no file", next_step="unset HEADRACE_CONFIG")
        return Path(named)
    here = Path.cwd()
    return next((path for path in (folder / FILE_NAME for folder in (here, *here.parents)) if path.is_file()), None)


def read_profiles(path: Path) -> dict[str, dict[str, Any]]:
    """Return the profiles of a file by name, their values checked."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnusableInput(f"{path} cannot be read: {error}", next_step="correct it, as TOML") from None
    if stray := document.keys() & {*SETTINGS, "profile"}:
        what = f"{path}: {', '.join(sorted(stray))} at the top of the file, where it is no profile's"
        raise UnusableInput(what, next_step="[profiles.NAME], and a line for each setting below it")
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(one, dict) for one in profiles.values()):
        raise UnusableInput(f"{path}: profiles are tables", next_step="[profiles.NAME], and a line for each setting")
    for name, values in profiles.items():
        for key, value in values.items():
            if key not in SETTINGS:
                what = f"{path}: profile {name} sets {key!r}, which no profile can"
                raise UnusableInput(what, known=", ".join(SETTINGS), next_step="give it to the loader as an argument")
            _checked(key, value, f"{path}: profile {name}")
    return profiles


def _checked(name: str, value: Any, where: str) -> Any:
    """Return a value as a loader takes it; what it cannot be is an error that says what it may be."""
    if name == "cpus" and isinstance(value, int):
        value = str(value)  # "8" of the environment is one processor
    try:
        if name in _LOWEST:
            if (type(value) is not int or value < _LOWEST[name]) and (name, value) != ("num_workers", "auto"):
                raise ValueError(f"a whole number from {_LOWEST[name]} on")
        elif name == "memory":
            parse_bytes(value)
        elif name == "cpus":
            check_cpus(value)
        elif name == "backend":
            if value not in _BACKENDS:
                raise ValueError(f"one of {', '.join(_BACKENDS)}")
        elif type(value) is not bool:
            raise ValueError("true or false")
    except (ValueError, TypeError) as error:
        raise UnusableInput(f"{where}: {name} = {value!r} cannot be used", next_step=str(error)) from None
    return value


def _typed(text: str) -> Any:
    """A value of the environment: a number, a truth, or a text.

    >>> [_typed(text) for text in ("8", "true", "auto", "8GiB")]
    [8, True, 'auto', '8GiB']
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdigit() else text


def write_profile(path: str | os.PathLike[str], name: str, settings: Mapping[str, Any], *, comment: str = "") -> None:
    """Write a profile, without settings that are None, into a file, in place of one of that name.

    Whatever else is in the file stays as it is, and the file is there whole or as it was.
    """
    target = Path(path)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise UnusableInput(f"{name!r} cannot be the name of a profile", next_step="letters, digits, - and _")
    before = target.read_text(encoding="utf-8") if target.exists() else ""
    if before:
        read_profiles(target)  # what is no file of profiles is left alone
    block = re.compile(rf"^\[profiles\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*(?:\n|\Z))*", re.MULTILINE)
    kept = block.sub("", before).rstrip()
    lines = [f"[profiles.{name}]", *(f"# {line}" for line in comment.splitlines())]
    # numbers, truths and texts of ours: as JSON writes them, so does TOML
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items() if value is not None]
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_text("\n".join([*([kept, ""] if kept else []), *lines, ""]), encoding="utf-8")
        read_profiles(temporary)
        temporary.replace(target)
    except OSError as error:
        raise UnusableInput(f"{target} cannot be written", next_step=write_step(error, target)) from None
    finally:
        temporary.unlink(missing_ok=True)
