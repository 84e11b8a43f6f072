"""`headrace run`: a training script as it is, timed, and why it waits."""

from __future__ import annotations

import argparse
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import add_language, language_of
from ..terminal import Terminal
from .messages import RUN_MESSAGES, RunMessages
from .replay import ReplayNews, steps_of
from .replay import add_options as add_replay_options

if TYPE_CHECKING:
    from headrace.launch import Ended

_DESCRIPTION = """\
Run a training script unchanged and say at the end where its time went and why it waits: verdict, evidence, what helps,
what cannot. Every process that it starts is reached (workers, ranks of torchrun or accelerate). The script keeps its
output, its exit code, its signals and its terminal; our report goes to stderr, and a recording into a directory.
"""
_EPILOG = """\
examples:
  headrace run train.py --epochs 3
  headrace run -m package.train --epochs 3
  headrace run --out runs/first -- torchrun --nproc_per_node 4 train.py
  headrace run --json why.json --lang zh -- accelerate launch train.py
  headrace run --replay train.py                    how fast with a perfect loader? (changes the training)
  headrace run --report headrace-runs/train-…       the report of a run directory, also after a crash

The exit code is the script's own; of --report it is 0 without findings and 1 with some.
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser = commands.add_parser(
        "run",
        parents=[shared],
        help="run a training script unchanged, and say why it waits",
        usage="headrace run [options] (train.py | -m module | -- command) [args ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", metavar="DIR", help="where the recording goes (default: headrace-runs/NAME-TIME in this folder)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the findings there, schema headrace/findings/1")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--live",
        action="store_true",
        help="a status line while it runs: at the bottom of a terminal, else on stderr every few seconds",
    )
    shown.add_argument(
        "--tui", action="store_true", help="a live screen; the script's output goes into the run directory meanwhile"
    )
    add_language(parser, of="report")
    add_replay_options(parser)
    parser.add_argument(
        "--report",
        metavar="DIR",
        help="run nothing: report on a run directory, also one that a crash left or of monitor",
    )
    parser.add_argument("-m", dest="module", metavar="module", nargs=argparse.REMAINDER, help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a script and its arguments, or -- and any command")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the script, report, and end as it ended."""
    from headrace.launch import RunOptions, command_of, new_run_directory, run_recorded

    from .live import Display

    language = language_of(args)
    words = RUN_MESSAGES[language]
    if args.report:
        from .report import report_on

        return report_on(args, terminal, language)
    command = command_of(args.command, module=args.module)
    for warning in command.warnings:
        terminal.warn(warning.of(language))
    directory = Path(args.out) if args.out else new_run_directory(command.name)
    display = Display(terminal, language, kind="tui" if args.tui else "live" if args.live else "", directory=directory)
    news = ReplayNews(words, steps_of(args), is_held=args.tui)

    def observe(pid: int, records: Any) -> None:
        news.observe(pid, records)
        if display.is_on:
            display.observe(pid, records)

    with display:
        ended = run_recorded(
            command,
            RunOptions(directory=directory, replay_steps=steps_of(args)),
            observer=observe if display.is_on or steps_of(args) else None,
            tick=display.tick if display.is_on else None,
            output=display.output,
        )
    news.release()
    display.tell_output(failed=ended.returncode != 0)
    try:
        _report(args, terminal, words, directory, ended, language)
    except Exception as error:  # whatever happens to the report, the script's end is what counts
        traceback.print_exc()
        terminal.warn(words.no_report.format(error=error, directory=directory))
    return ended.end_likewise()


def _report(
    args: argparse.Namespace, terminal: Terminal, words: RunMessages, directory: Path, ended: Ended, language: str
) -> None:
    from headrace.model import Text, format_seconds
    from headrace.reports import findings_json, findings_text, headline_of
    from headrace.signals.recording import read_run

    from .report import explain_directory

    findings = explain_directory(directory, read_run(directory))
    if ended.problem:
        said = Text("the recording ended early: {problem}", "录制提前结束：{problem}").filled(problem=ended.problem)
        findings = replace(findings, limits=(*findings.limits, said))
    # a recording that ended early does not know how the script ended
    findings = replace(findings, source={**findings.source, "exit_code": ended.exit_code})
    document = findings_json(findings, language=language)
    (directory / "findings.json").write_text(document + "\n", encoding="utf-8")
    if args.json:
        Path(args.json).write_text(document + "\n", encoding="utf-8")
    sys.stdout.flush()
    if terminal.is_quiet:
        terminal.aside(f"headrace: {headline_of(findings, language)} ({directory})")
        return
    terminal.aside(f"\n{words.title.format(duration=format_seconds(ended.duration_s), code=ended.exit_code)}")
    terminal.aside(findings_text(findings, language=language))
    terminal.aside(words.recorded.format(directory=directory))
