"""`headrace doctor`: does it work here, the machine and then a target, stage by stage.

- `quick`: one sample and one batch, in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model import Findings, Text, format_seconds

from ..arguments import Commands, add_command, add_language, add_target, seconds, size, whole
from ..terminal import EXIT_FINDINGS, EXIT_OK, EXIT_TERMINATED, Terminal, line, printable, say, table_of
from . import quick
from .quick import document_of

if TYPE_CHECKING:
    from rich.text import Text as Line

    from headrace.doctor import Check

    from ..terminal import Part

_DESCRIPTION = """\
Does loading work here? First the machine: cores, memory, /dev/shm, limits, disks. Then, where a TARGET is given, its
loader, stage by stage: single samples, batches in-process, batches from workers (made by fork, and started anew by
spawn), and how many samples a second each gives. Each stage runs in a process of its own, bounded in time and memory:
what hangs, dies or grows there is a result, with its cause.

TARGET is path/to/file.py:name or package.module:name (a loader, a data set, or a function without arguments that
returns one), or a pattern of tar shards.
"""
_EPILOG = """\
exit codes: 0 nothing wrong, 1 findings, 2 could not run, 130 interrupted (leaves nothing behind)
"""
_MACHINE = Text("machine", "机器")
_LOOKING = Text("looking at the machine", "正在检查机器")
_STYLES = {"pass": "green", "warn": "bold yellow", "fail": "bold red", "skip": "dim"}
_WORDS = {
    "pass": Text("PASS", "通过"),
    "warn": Text("WARN", "注意"),
    "fail": Text("FAIL", "失败"),
    "skip": Text("SKIP", "跳过"),
}
_HELPS = Text("what helps", "怎么办")
_CHANGE = Text("change", "改这里")
_NEXT = Text("Next: {what}", "下一步：{what}")
_NOTHING = Text("Nothing wrong was found.", "没有发现问题。")
_TUNE = Text(
    "`headrace tune {target}` finds the settings that feed it best", "`headrace tune {target}` 找出最合适的设置"
)
_GIVE_TARGET = Text(
    "`headrace doctor path/to/file.py:name` tests your own loader",
    "`headrace doctor path/to/file.py:name` 测试你的加载器",
)
_THEN = Text("{step}; then `{again}` again", "{step}；然后再次运行 `{again}`")
_HEADS = Text(",looked at,time,seen", ",检查,用时,所见")


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    quick.add_parser(commands, shared)
    summary = "does loading work here: the machine, then your loader, stage by stage"
    parser = add_command(commands, shared, "doctor", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    add_target(parser, nargs="?")
    add = parser.add_argument
    add("--timeout", type=seconds(1, 86400), default=60.0, metavar="S", help="for each stage (default: 60)")
    add("--memory", type=size, metavar="SIZE", help="what a stage may take (default: half of what is free)")
    add("--workers", type=whole(1, 512), metavar="N", help="default: the loader's, else one a core")
    add_language(parser)
    add("--json", action="store_true", help="print one JSON document, schema headrace/findings/1, with its checks")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.doctor.machine import check_machine
    from headrace.doctor.target import DoctorSettings, examine

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # which ends what was started
    with terminal.progress(_LOOKING):
        machine = check_machine(_data_paths(args.target))
    if not args.json:
        terminal.parts(_table(machine, _MACHINE))
    target: Sequence[Check] = ()
    if args.target is not None:
        settings = DoctorSettings(
            target=args.target, timeout_s=args.timeout, memory_bytes=args.memory, num_workers=args.workers
        )
        with contextlib.ExitStack() as shown:

            def tell(text: Text) -> None:
                shown.close()
                shown.enter_context(terminal.progress(text))

            target = examine(settings, tell)
    checks = [*machine, *target]
    findings = Findings.in_order(check.finding for check in checks if check.finding is not None)
    if args.json:
        terminal.json(document_of(checks, findings))
        return EXIT_FINDINGS if findings else EXIT_OK
    if target:
        terminal.parts(["", *_table(target, args.target)])
    wrong = [check for check in checks if check.finding is not None]
    terminal.parts(_findings(sorted(wrong, key=lambda check: check.outcome.value)))  # "fail" before "warn"
    if findings:
        step = next((text for one in findings for text in one.fix), Text("", ""))
        again = " ".join(["headrace doctor", *([shlex.quote(args.target)] if args.target else [])])
        what = _THEN.filled(step=step, again=again)
    else:
        what = _TUNE.filled(target=args.target) if args.target else _GIVE_TARGET
        terminal.parts(["", line(_NOTHING, "green")])
    terminal.parts([*([""] if findings else []), _NEXT.filled(what=what)])
    return EXIT_FINDINGS if findings else EXIT_OK


def _data_paths(target: str | None) -> list[Path]:
    """The folder of shards; where a data set reads its files is not known before it does."""
    if target is None or ".py:" in target:
        return []
    folder = Path(target) if os.path.isdir(target) else Path(target).parent
    return [folder] if "{" not in str(folder) and folder.is_dir() and folder != Path() else []


def _table(checks: Sequence[Check], title: Text | str) -> Iterator[Part]:
    yield line(title, "bold")
    yield table_of(_HEADS, map(_row, checks), left=(0, 1, 3))


def _row(check: Check) -> tuple[Line | Text | str, ...]:
    outcome, took = check.outcome.value, format_seconds(check.seconds) if check.seconds is not None else ""
    return line(_WORDS[outcome], _STYLES[outcome]), check.title, took, printable(say(check.says))


def _findings(checks: Sequence[Check]) -> Iterator[Part]:
    for number, check in enumerate(checks, start=1):
        finding = check.finding
        assert finding is not None
        title = printable(say(finding.title or check.says))
        yield from ("", line(f"{number}. {title}", _STYLES[check.outcome.value]))
        for text in finding.evidence:
            yield from (f"   - {each}" for each in printable(say(text)).splitlines())
        yield from (f"   {say(_HELPS)}: {say(text)}" for text in finding.fix)
        if finding.change is not None and finding.change not in finding.fix:
            yield f"   {say(_CHANGE)}: {say(finding.change)}"
