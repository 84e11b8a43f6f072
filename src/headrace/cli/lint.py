"""`headrace lint`: training scripts and configurations, looked at without running them."""

import argparse
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from headrace import __version__
from headrace.doctor.lint import RULES, LintFinding, LintResult, lint
from headrace.model import Severity, Text

from .arguments import Commands, add_command, add_language
from .terminal import EXIT_COULD_NOT_RUN, EXIT_FINDINGS, EXIT_OK, Terminal, line, printable, say

_DESCRIPTION = """\
Look at training scripts, data sets and configurations without running them: flags that do not reach the loader as they
were given, settings that contradict each other, data that is read several times or lost in silence, what a loop waits
for in every step. Values are followed inside of each file; where one cannot be known, nothing is said.

Folders are searched for .py, .yaml and .yml. `# headrace: ignore[RULE]` on a line, or on the line before it, silences a
rule there.
"""
_EPILOG = """\
exit codes: 0 nothing found, 1 findings, 2 no findings, but a file could not be read or parsed
"""
_LEVELS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note"}
_STYLES = {Severity.HIGH: "bold red", Severity.MEDIUM: "bold yellow", Severity.LOW: "bold"}
_WHY, _FIX = Text("why", "原因"), Text("fix", "修改")
_TOTAL = Text("{found:finding(s)} in {files:file(s)}", "{files} 个文件，{found} 个问题")
_SILENCED = Text(", {count} silenced by comments", "，{count} 个被注释忽略")
_NOT_READ = Text("{path} was not looked at: {reason}", "没有检查 {path}：{reason}")
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "what is wrong with the loading in a training script, without running it"
    parser = add_command(commands, shared, "lint", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "paths", nargs="+", metavar="FILE", help="a script, a configuration or a folder; - is standard input"
    )
    for name, said in (("--select", f"only these rules: {', '.join(RULES)}"), ("--ignore", "all rules but these")):
        parser.add_argument(name, type=_rule_names, action="extend", default=[], metavar="RULE,…", help=said)
    add = parser.add_mutually_exclusive_group().add_argument
    add("--json", action="store_true", help="print one JSON document, schema headrace/lint/1")
    add("--sarif", action="store_true", help="print one SARIF 2.1.0 document, which code hosts and editors show")
    add_language(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    result = lint(args.paths, rules=set(args.select or RULES) - set(args.ignore))
    if args.json:
        terminal.json(result.as_json(args.lang))
    elif args.sarif:
        terminal.json(as_sarif(result))
    else:
        terminal.parts(_lines(result, is_verbose=terminal.verbosity > 0))
    for path, reason in result.unread.items():
        terminal.warn(printable(say(_NOT_READ, path=path, reason=reason)))
    return EXIT_FINDINGS if result.findings else EXIT_COULD_NOT_RUN if result.unread else EXIT_OK


def _rule_names(text: str) -> list[str]:
    names = [name for name in text.replace(",", " ").split() if name]
    for name in names:
        if name not in RULES:
            raise argparse.ArgumentTypeError(f"there is no rule {name!r}; there are {', '.join(RULES)}")
    return names


def _lines(result: LintResult, *, is_verbose: bool) -> Iterator[Any]:
    """Yield each finding; why and what to do with the first of a rule, or with each."""
    said: set[tuple[str, str]] = set()
    for found in result.findings:
        head = line(printable(f"{found.path}:{found.line}:{found.column}: "))
        head.append(found.rule.name, style=_STYLES[found.rule.severity])
        yield head.append(printable(f": {say(found.title)}"))
        advice = (found.rule.name, say(found.fix))
        if is_verbose or advice not in said:
            said.add(advice)
            yield line(f"    {say(_WHY)}: {say(found.rule.why)}")
            yield line(f"    {say(_FIX)}: {printable(advice[1])}")
    silenced = say(_SILENCED, count=result.num_ignored) if result.num_ignored else ""
    yield say(_TOTAL, found=len(result.findings), files=result.num_files - len(result.unread)) + silenced


def as_sarif(result: LintResult) -> dict[str, object]:
    """Return the findings as SARIF 2.1.0 has them."""
    rules = [
        {
            "id": rule.name,
            "shortDescription": {"text": say(rule.why)},
            "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        }
        for rule in RULES.values()
    ]
    unread = [{"level": "error", "message": {"text": f"{path}: {reason}"}} for path, reason in result.unread.items()]
    tool = {"driver": {"name": "headrace lint", "version": __version__, "rules": rules}}
    invocation = {"executionSuccessful": not unread, "toolExecutionNotifications": unread}
    results = list(map(_sarif_result, result.findings))
    ran = {"tool": tool, "columnKind": "unicodeCodePoints", "invocations": [invocation], "results": results}
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [ran]}


def _sarif_result(found: LintFinding) -> dict[str, object]:
    place = {
        "artifactLocation": {"uri": PurePath(found.path).as_posix()},
        "region": {"startLine": found.line, "startColumn": found.column},
    }
    return {
        "ruleId": found.rule.name,
        "ruleIndex": list(RULES).index(found.rule.name),
        "level": _LEVELS[found.rule.severity],
        "message": {"text": f"{say(found.title)}: {say(found.rule.why)}. {say(found.fix)}"},
        "locations": [{"physicalLocation": place}],
    }
