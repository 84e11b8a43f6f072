"""What a run directory tells: its findings, and `headrace run --report DIR` for one that is there already."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..exits import EXIT_FINDINGS, EXIT_OK
from ..terminal import Terminal
from .messages import RUN_MESSAGES

if TYPE_CHECKING:
    from headrace.model import Findings
    from headrace.signals.recording import Recording, RunFacts


def explain_directory(directory: Path, recording: Recording) -> Findings:
    """Return why a recorded training waits, with what was noted beside the recording."""
    from headrace.causes.recorded import explain_recording
    from headrace.launch import read_notes

    findings, facts = explain_recording(recording), recording.facts
    source = {"run_directory": str(directory), "command": list(facts.command), "exit_code": facts.shell_code}
    return replace(findings, limits=(*findings.limits, *read_notes(directory)), source=source)


def report_on(args: argparse.Namespace, terminal: Terminal, language: str) -> int:
    """Read a run directory and print its report: the result of this command, so it goes to stdout."""
    from headrace.errors import UnusableInput
    from headrace.model import format_seconds
    from headrace.reports import findings_json, findings_text, headline_of
    from headrace.signals.recording import read_run

    if args.command or args.module:
        raise UnusableInput(
            "--report runs nothing, and something to run was named",
            next_step="headrace run --report DIR, or headrace run train.py",
        )
    directory = Path(args.report)
    recording = read_run(directory)
    if not len(recording.events) and not recording.system:
        raise UnusableInput(
            f"{directory} holds no recording", problems="; ".join(recording.problems), next_step="headrace run train.py"
        )
    findings = explain_directory(directory, recording)
    if args.json:
        Path(args.json).write_text(findings_json(findings, language=language) + "\n", encoding="utf-8")
    if terminal.is_quiet:
        terminal.document(headline_of(findings, language))
    else:
        words, facts = RUN_MESSAGES[language], recording.facts
        duration_s = (recording.end_ns - facts.start_monotonic_ns) / 1e9
        terminal.document(
            words.report_title.format(
                directory=directory, duration=format_seconds(duration_s), ended=_ending(facts, language)
            )
        )
        terminal.result(findings_text(findings, language=language))
    return EXIT_FINDINGS if findings.findings else EXIT_OK


def _ending(facts: RunFacts, language: str) -> str:
    """Return how the run ended, as far as that was written down."""
    is_chinese = language == "zh"
    if facts.exit_signal is not None:
        return f"被信号 {facts.exit_signal} 终止" if is_chinese else f"ended by signal {facts.exit_signal}"
    if facts.exit_code is not None:
        return f"退出码 {facts.exit_code}" if is_chinese else f"exit code {facts.exit_code}"
    if facts.is_finished:
        return "已结束" if is_chinese else "ended"
    return "没有记下结束" if is_chinese else "no end was written down"
