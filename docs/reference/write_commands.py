"""Write the page of all commands from their own parser: `python docs/reference/write_commands.py`."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from headrace.cli.entry import command_parser
from headrace.model import environment

INTRO = """\
What `headrace COMMAND --help` says, on one page. It is written by `write_commands.py` from the commands themselves;
change it there. What they find is explained in the [guides](../README.md).

stdout carries the result and nothing else; progress and warnings go to stderr.
"""
_HIDDEN = (argparse._HelpAction, argparse._SubParsersAction)


def page() -> str:
    parser = command_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    said = {one.dest: one.help or "" for one in commands._choices_actions}
    common = {text for action in parser._actions for text in action.option_strings}
    parts = ["# Commands and their options", INTRO.strip()]
    parts += [f"- [`headrace {name}`](#headrace-{name}): {said[name]}" for name in commands.choices]
    parts = [*parts[:2], "\n".join(parts[2:]), "## For all of them", "\n".join(_table(parser, set()))]
    parts.append(_block(parser.epilog or ""))
    parts += ["## Environment variables", (environment.__doc__ or "").partition("\n\n")[2].strip()]
    for name, command in commands.choices.items():
        parts += [f"## headrace {name}", (command.description or "").strip().replace("\n ", "\n")]
        parts.append("\n".join(_table(command, common)))
        if command.epilog:
            parts.append(_block(command.epilog))
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _table(parser: argparse.ArgumentParser, left_out: set[str]) -> Iterator[str]:
    yield "| option | meaning |"
    yield "| --- | --- |"
    for action in parser._actions:
        is_told = action.help not in (None, argparse.SUPPRESS) and not isinstance(action, _HIDDEN)
        if is_told and not left_out & set(action.option_strings):
            meaning = (action.help or "").replace("%%", "%").replace("|", "\\|")
            yield f"| {_spelling(action)} | {meaning} |"


def _spelling(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None and action.choices is not None:
        value = f"{{{','.join(map(str, action.choices))}}}"
    if not action.option_strings:
        return f"`{value or action.dest}`"
    taken = f" {value or action.dest.upper()}" if action.nargs != 0 else ""
    if action.nargs == argparse.OPTIONAL:
        taken = f" [{taken.strip()}]"
    return ", ".join(f"`{text}{taken}`" for text in action.option_strings)


if __name__ == "__main__":
    Path(__file__).with_name("commands.md").write_text(page(), encoding="utf-8")
