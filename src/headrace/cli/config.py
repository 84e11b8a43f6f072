"""`headrace config`: the settings that loaders get here, each with its origin."""

from __future__ import annotations

import argparse
import os

from headrace.model import Text, cache_folder, keeps_stats, num_local_ranks, profile_name

from .arguments import Commands, add_command, add_language, default_language
from .terminal import EXIT_OK, Terminal, line, table_of

_DESCRIPTION = """\
Show what a headrace.DataLoader gets here that is given nothing but a data set: each setting, its value and where it
comes from. The order is: argument of the loader, environment (HEADRACE_…), profile of headrace.toml or a built-in one
(debug, conservative, balanced, aggressive, computed for this machine), default.
"""
_HEAD = Text("setting,value,origin", "设置,取值,来源")
_TITLE = Text("Settings of a loader", "加载器的设置")
_WITH = Text("Settings of a loader, profile {name}", "加载器的设置，配置 {name}")
_FILE = Text("file: {path}, profiles: {names}", "文件：{path}，其中的配置：{names}")
_NO_FILE = Text("no headrace.toml in this folder or above it", "当前目录及上级目录都没有 headrace.toml")
_BUILT_IN = Text("built in: {names}", "内置配置：{names}")
_NEXT = Text('Next: DataLoader(…, profile="{name}")', '下一步：DataLoader(…, profile="{name}")')


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "the settings that loaders get here, each with its origin"
    parser = add_command(commands, shared, "config", run, summary, description=_DESCRIPTION)
    parser.add_argument("--profile", metavar="NAME", help="as with DataLoader(profile=NAME)")
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/config/1")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.loader import BUILT_IN, Origin, Setting, find_file, read_profiles, resolve_settings

    profile, path = args.profile or profile_name(), find_file()
    settings, known = resolve_settings(profile), read_profiles(path) if path is not None else {}
    others = {
        "HEADRACE_LANG": default_language(),
        "HEADRACE_STATS": keeps_stats(),
        "LOCAL_WORLD_SIZE": num_local_ranks(),
        "XDG_CACHE_HOME": str(cache_folder()),
    }
    if args.json:
        found = {name: vars(one) for name, one in settings.items()}
        document = {"schema": "headrace/config/1", "profile": profile, "file": path and str(path), "profiles": known}
        terminal.json(document | {"settings": found, "others": others})
        return EXIT_OK

    for name, value in others.items():
        place = name if os.environ.get(name) else ""
        settings[name] = Setting(value, Origin.ENVIRONMENT if place else Origin.DEFAULT, place)
    rows = []
    for name, one in settings.items():  # the file's path is below
        told = one.origin.label.filled(place=os.path.basename(one.place), profile=profile)
        rows.append((name, "-" if one.value is None else str(one.value), line(told, "" if one.place else "dim")))
    title = _TITLE if profile is None else _WITH.filled(name=profile)
    own = _NO_FILE if path is None else _FILE.filled(path=path, names=", ".join(known) or "-")
    built_in = _BUILT_IN.filled(names=", ".join(BUILT_IN))
    terminal.parts([line(title, "bold"), table_of(_HEAD, rows, left=(0, 1, 2)), "", own, built_in])
    if profile is None:
        terminal.parts(["", _NEXT.filled(name=next(iter(known), "balanced"))])
    return EXIT_OK
