"""`headrace config`: the settings that loaders get here, each with its origin."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.model import Text, cache_folder, keeps_stats, num_local_ranks, profile_name

from .arguments import Commands, add_command, add_language, default_language
from .terminal import EXIT_OK, Terminal, line, plain_table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from headrace.loader import Setting

_DESCRIPTION = """\
Show what a headrace.DataLoader gets here that is given nothing but a data set: each setting, its value and where it
comes from. The order is: argument of the loader, environment (HEADRACE_…), profile of headrace.toml or a built-in one
(debug, conservative, balanced, aggressive, computed for this machine), default.
"""
_ORIGINS = {  # by the values of Origin
    "argument": Text("argument", "参数"),
    "environment": Text("environment: {place}", "环境变量：{place}"),
    "file": Text("profile {profile} of {place}", "配置 {profile}，来自 {place}"),
    "built in": Text("profile {profile}, for {place}", "内置配置 {profile}，按 {place} 计算"),
    "default": Text("default", "默认值"),
}
_HEAD = Text("setting,value,origin", "设置,取值,来源")
_TITLE = Text("Settings of a loader, {profile}", "加载器的设置，{profile}")
_NO_PROFILE = Text("without a profile", "未使用配置")
_WITH = Text("profile {name}", "配置 {name}")
_FILE = Text("file: {path}, profiles: {names}", "文件：{path}，其中的配置：{names}")
_NO_FILE = Text("no headrace.toml in this folder or above it", "当前目录及上级目录都没有 headrace.toml")
_BUILT_IN = Text("built in: {names}", "内置配置：{names}")
_OTHERS = Text("Of commands and statistics:", "命令与统计：")
_NEXT = Text('Next: DataLoader(…, profile="{name}")', '下一步：DataLoader(…, profile="{name}")')


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "the settings that loaders get here, each with its origin"
    parser = add_command(commands, shared, "config", run, summary, description=_DESCRIPTION)
    parser.add_argument("--profile", metavar="NAME", help="as with DataLoader(profile=NAME)")
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/config/1")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.loader import find_file, read_profiles, resolve_settings

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
    else:
        terminal.parts(_parts(args.lang, profile, path, settings, known, others))
    return EXIT_OK


def _parts(
    language: str,
    profile: str | None,
    path: Path | None,
    settings: dict[str, Setting],
    known: dict[str, Any],
    others: dict[str, Any],
) -> Iterator[RenderableType]:
    from headrace.loader import BUILT_IN

    def say(text: Text, **facts: object) -> str:
        return text.filled(**facts).of(language)

    chosen = say(_NO_PROFILE) if profile is None else say(_WITH, name=profile)
    yield line(say(_TITLE, profile=chosen), "bold")
    table = plain_table(gap=3)
    for title in say(_HEAD).split(","):
        table.add_column(title)
    for name, one in settings.items():
        origin = say(
            _ORIGINS[one.origin], place=os.path.basename(one.place), profile=profile
        )  # the file's path is below
        table.add_row(name, "-" if one.value is None else str(one.value), line(origin, "" if one.place else "dim"))
    yield from (table, "")
    yield say(_NO_FILE) if path is None else say(_FILE, path=path, names=", ".join(known) or "-")
    yield from (say(_BUILT_IN, names=", ".join(BUILT_IN)), "", say(_OTHERS))
    for name, value in others.items():
        origin = say(_ORIGINS["environment"], place=name) if os.environ.get(name) else say(_ORIGINS["default"])
        yield f"  {name} = {value} ({origin})"
    if profile is None:
        yield from ("", say(_NEXT, name=next(iter(known), "balanced")))
