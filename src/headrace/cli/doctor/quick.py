"""`headrace quick`: one sample, then one batch, in seconds: what is in them, what they take, what an error means."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.model import Finding, Findings, Text, Verdict, format_bytes, format_seconds

from ..arguments import Commands, add_command, add_language, add_target, seconds, size
from ..terminal import EXIT_FINDINGS, EXIT_OK, EXIT_TERMINATED, Terminal, line, printable, say, spoken, table_of

if TYPE_CHECKING:
    from headrace.doctor import Check
    from headrace.doctor.target import StageResult

    from ..terminal import Part

_DESCRIPTION = """\
Fetch one sample, then make one batch without workers (num_workers=0), in seconds: shapes, dtypes, bytes, and how long
each part takes, with the stages that the data set names by `with headrace.stage("decode"):`. Where it fails, the whole
traceback, and what its message truly means.

TARGET is path/to/file.py:name or package.module:name (a loader, a data set, or a function without arguments that
returns one), or a pattern of tar shards.
"""
_EPILOG = """\
exit codes: 0 it works, 1 it does not, 2 could not run, 130 interrupted
"""
_DOING = Text("one sample, then one batch, of {target}", "{target}：取一个样本，再组一个 batch")
_IN_SAMPLE = Text("one sample", "一个样本")
_IN_BATCH = Text("one batch of {count:sample(s)}", "一个 batch（{count} 个样本）")
_HEADS = Text("name,what,shape,dtype,bytes", "名称,类型,形状,dtype,字节")
_TIMES = Text("time by stage", "各阶段用时")
_TIME_NAMES = {
    "import": Text("import and make it", "导入并创建"),
    "sample": Text("first sample", "第一个样本"),
    "batch": Text("one batch", "一个 batch"),
    "collate": Text("  of it collating", "  其中拼 batch"),
}
_MEANS = Text("What the message means", "这条信息的含义")
_NEXT = Text(
    "Next: `headrace doctor {target}` tests it with workers.", "下一步：`headrace doctor {target}` 用 worker 测试它。"
)


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "one sample, then one batch, in seconds: shapes, bytes, times, what an error means"
    parser = add_command(commands, shared, "quick", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    add_target(parser)
    add = parser.add_argument
    add("--timeout", type=seconds(1, 86400), default=60.0, metavar="S", help="for each stage (default: 60)")
    add("--memory", type=size, metavar="SIZE", help="what it may take (default: half of what is free)")
    add_language(parser)
    add("--json", action="store_true", help="print one JSON document, schema headrace/findings/1, with its checks")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.doctor.target import DoctorSettings, Judge, run_stages

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # which ends what was started
    settings = DoctorSettings(target=args.target, timeout_s=args.timeout, memory_bytes=args.memory)
    with terminal.progress(_DOING.filled(target=args.target)):
        results = run_stages(settings, is_quick=True)
    checks = [check for check in Judge(args.target, results).checks() if check.name in results]
    failed = next((check for check in checks if check.finding is not None), None)
    if args.json:
        findings = tuple(check.finding for check in checks if check.finding is not None)
        document = document_of(checks, findings)
        document |= {name: results[key].facts.get("form", []) for name, key in _FORMS.items() if key in results}
        terminal.json(document | {"times": dict(_times(results))})
    else:
        terminal.parts(_lines(args.target, results))
        terminal.parts(_failure(failed, results[failed.name]) if failed is not None else ("", _next(args.target)))
    return EXIT_FINDINGS if failed is not None else EXIT_OK


_FORMS = {"sample": "sample", "batch": "loader"}


def _next(target: str) -> str:
    return say(_NEXT, target=target)


def document_of(checks: Sequence[Check], findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Return the findings as every command has them, with the checks beside them."""
    language = spoken()
    document = Findings(verdict=Verdict.UNKNOWN, findings=findings).as_json(language)
    return document | {"checks": [check.as_json(language) for check in checks]}


def _lines(target: str, results: Mapping[str, StageResult]) -> Iterator[Part]:
    facts = results["import"].facts
    name = f"{target}: {facts['dataset']}" if "dataset" in facts else target
    yield line(printable(name), "bold")
    count = facts.get("batch_size") or 1
    for key, title in (("sample", _IN_SAMPLE), ("loader", _IN_BATCH.filled(count=count))):
        if key in results and (form := results[key].facts.get("form")):
            yield from ("", line(title, "bold"), table_of(_HEADS, map(_row, form), left=(0, 1, 2, 3), folded={}))
    yield from ("", line(_TIMES, "bold"))
    for key, took in _times(results):
        said = say(_TIME_NAMES[key]) if key in _TIME_NAMES else f"  {key}"
        yield f"  {format_seconds(took):>9}  {printable(said)}"


def _row(row: list[Any]) -> tuple[str, ...]:
    name, kind, shape, dtype, nbytes = row
    shown = "×".join(map(str, shape)) if shape else ""
    return printable(name) or "-", kind, shown, dtype, format_bytes(nbytes) if nbytes else ""


def _times(results: Mapping[str, StageResult]) -> Iterator[tuple[str, float]]:
    yield "import", results["import"].seconds
    sample, batch = (results.get(name) for name in ("sample", "loader"))
    if sample is not None and sample.facts.get("times"):
        yield "sample", sample.facts["times"][0]
        yield from sample.facts["parts"].items()
    if batch is not None and batch.facts.get("times"):
        yield "batch", batch.facts["times"][0]
        yield "collate", batch.facts["collate_s"]


def _failure(check: Check, result: StageResult) -> Iterator[Part]:
    from headrace.knowledge import look_up, render_text

    finding = check.finding
    assert finding is not None
    bad = result.facts.get("bad") or [result.facts.get("error", {})]
    traceback = bad[0].get("traceback") or result.said
    yield from ("", line(printable(say(check.says)), "bold red"))
    if traceback:
        yield from ("", printable(traceback.strip()))
    else:
        yield from (f"  - {printable(say(text))}" for text in finding.evidence)
    if found := look_up(traceback):
        yield from ("", line(_MEANS, "bold"), render_text(found[:1], spoken()))
    yield from ("", *(f"- {say(text)}" for text in finding.fix if "headrace quick" not in text.en))
