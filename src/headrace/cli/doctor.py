"""`headrace doctor`: does it work here, the machine and a target. `headrace quick`: one sample and one batch of it."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.model import Findings, Text, Verdict, format_bytes, format_seconds

from .arguments import Commands, add_command, add_language, add_target, seconds, size, whole
from .terminal import EXIT_FINDINGS, EXIT_OK, EXIT_TERMINATED, Terminal, line, printable, say, spoken, table_of

if TYPE_CHECKING:
    from rich.text import Text as Line

    from headrace.doctor import Check
    from headrace.doctor.target import StageResult

    from .terminal import Part

_TARGET = """
TARGET is path/to/file.py:name or package.module:name (a loader, a data set, or a function without arguments that
returns one), or a pattern of tar shards.
"""
_DOCTOR = """\
Does loading work here? First the machine: cores, memory, /dev/shm, limits, disks. Then, where a TARGET is given, its
loader, stage by stage: single samples, batches in-process, batches from workers (made by fork, and started anew by
spawn), and how many samples a second each gives. Each stage runs in a process of its own, bounded in time and memory:
what hangs, dies or grows there is a result, with its cause.
"""
_QUICK = """\
Fetch one sample, then make one batch without workers (num_workers=0), in seconds: shapes, dtypes, bytes, and how long
each part takes, with the stages that the data set names by `with headrace.stage("decode"):`. Where it fails, the whole
traceback, and what its message truly means.
"""
_QUICK_DOES = "one sample, then one batch, in seconds: shapes, bytes, times, what an error means"
_DOCTOR_DOES = "does loading work here: the machine, then your loader, stage by stage"
_EPILOG = """\
exit codes: 0 nothing wrong, 1 findings, 2 could not run, 130 interrupted (leaves nothing behind)
"""
_MACHINE = Text("machine", "机器")
_LOOKING = Text("looking at the machine", "正在检查机器")
_STYLES = {"pass": "green", "note": "bold", "warn": "bold yellow", "fail": "bold red", "skip": "dim"}
_HELPS = Text("what helps", "怎么办")
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
    quick = add_command(commands, shared, "quick", run_quick, _QUICK_DOES, description=_QUICK + _TARGET, epilog=_EPILOG)
    doctor = add_command(commands, shared, "doctor", run, _DOCTOR_DOES, description=_DOCTOR + _TARGET, epilog=_EPILOG)
    for parser, nargs in ((quick, None), (doctor, "?")):
        add = parser.add_argument
        add("--timeout", type=seconds(1, 86400), default=60.0, metavar="S", help="for each stage (default: 60)")
        add("--memory", type=size, metavar="SIZE", help="what a stage may take (default: half of what is free)")
        add_language(parser)
        add("--json", action="store_true", help="print one JSON document, schema headrace/findings/1, with its checks")
        add_target(parser, nargs=nargs)
    doctor.add_argument("--workers", type=whole(1, 512), metavar="N", help="default: the loader's, else one a core")


def _examine(args: argparse.Namespace, terminal: Terminal, **how: Any) -> tuple[dict[str, StageResult], list[Check]]:
    """Go through the stages of the target: what came of each, and the checks of that."""
    from headrace.doctor.target import DoctorSettings, Judge, run_stages

    settings = DoctorSettings(target=args.target, timeout_s=args.timeout, memory_bytes=args.memory, **how)
    results = run_stages(settings, terminal.progress)
    return results, list(Judge(args.target, results).checks())


def _document_of(checks: Sequence[Check]) -> dict[str, Any]:
    """The findings as every command has them, with the checks beside them."""
    findings = Findings.in_order(check.finding for check in checks if check.finding is not None)
    document = Findings(verdict=Verdict.UNKNOWN, findings=findings).as_json(spoken())
    return document | {"checks": [check.as_json(spoken()) for check in checks]}


# ------------------------------------------------------------------------------------------ doctor


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.doctor.machine import check_machine

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # which ends what was started
    with terminal.progress(_LOOKING):
        machine = check_machine(_data_folder(args.target))
    if not args.json:
        terminal.parts(_table(machine, _MACHINE))
    target = _examine(args, terminal, num_workers=args.workers)[1] if args.target is not None else []
    found = (check for check in (*machine, *target) if check.finding is not None)
    wrong = sorted(found, key=lambda check: check.outcome)  # "fail" before "warn"
    if args.json:
        terminal.json(_document_of([*machine, *target]))
        return EXIT_FINDINGS if wrong else EXIT_OK
    if target:
        terminal.parts(["", *_table(target, args.target)])
    terminal.parts(_findings(wrong) if wrong else ["", line(_NOTHING, "green")])
    what = _TUNE.filled(target=args.target) if args.target else _GIVE_TARGET
    if wrong and (finding := wrong[0].finding) is not None:
        again = " ".join(["headrace doctor", *([shlex.quote(args.target)] if args.target else [])])
        what = _THEN.filled(step=finding.fix[0], again=again)
    terminal.parts(["", _NEXT.filled(what=what)])
    return EXIT_FINDINGS if wrong else EXIT_OK


def _data_folder(target: str | None) -> Path | None:
    """That of shards; where a data set reads its files is not known before it does."""
    if target is None or ".py:" in target:
        return None
    folder = Path(target) if os.path.isdir(target) else Path(target).parent
    return folder if "{" not in str(folder) and folder.is_dir() and folder != Path() else None


def _table(checks: Sequence[Check], title: Text | str) -> Iterator[Part]:
    yield line(title, "bold")
    yield table_of(_HEADS, map(_row, checks), left=(0, 1, 3))


def _row(check: Check) -> tuple[Line | Text | str, ...]:
    took = format_seconds(check.seconds) if check.seconds is not None else ""
    return line(check.outcome.label, _STYLES[check.outcome]), check.title, took, printable(say(check.says))


def _findings(wrong: Sequence[Check]) -> Iterator[Part]:
    for number, check in enumerate(wrong, start=1):
        finding = check.finding
        assert finding is not None
        title = printable(say(finding.title or check.says))
        yield from ("", line(f"{number}. {title}", _STYLES[check.outcome]))
        for text in finding.evidence:
            yield from (f"   - {each}" for each in printable(say(text)).splitlines() if each != title)
        yield from (f"   {say(_HELPS)}: {say(text)}" for text in finding.fix)


# ------------------------------------------------------------------------------------------ quick

_IN_SAMPLE = Text("one sample", "一个样本")
_IN_BATCH = Text("one batch of {count:sample(s)}", "一个 batch（{count} 个样本）")
_FORM_HEADS = Text("name,what,shape,dtype,bytes", "名称,类型,形状,dtype,字节")
_TIMES = Text("time by stage", "各阶段用时")
_TIME_NAMES = {
    "import": Text("import and make it", "导入并创建"),
    "sample": Text("first sample", "第一个样本"),
    "batch": Text("one batch", "一个 batch"),
    "collate": Text("  of it collating", "  其中拼 batch"),
}
_MEANS = Text("What the message means", "这条信息的含义")
_WITH_WORKERS = Text(
    "`headrace doctor {target}` tests it with workers.", "`headrace doctor {target}` 用 worker 测试它。"
)


def run_quick(args: argparse.Namespace, terminal: Terminal) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # which ends what was started
    results, checks = _examine(args, terminal, is_quick=True)
    checks = [check for check in checks if check.name in results]
    failed = next((check for check in checks if check.finding is not None), None)
    if args.json:
        forms = {"sample": "sample", "batch": "loader"}
        document = {name: results[key].facts.get("form", []) for name, key in forms.items() if key in results}
        terminal.json(_document_of(checks) | document | {"times": dict(_times(results))})
    else:
        terminal.parts(_lines(args.target, results))
        next_step = _NEXT.filled(what=_WITH_WORKERS.filled(target=args.target))
        terminal.parts(_failure(failed, results[failed.name]) if failed is not None else ("", next_step))
    return EXIT_FINDINGS if failed is not None else EXIT_OK


def _lines(target: str, results: Mapping[str, StageResult]) -> Iterator[Part]:
    facts = results["import"].facts
    name = f"{target}: {facts['dataset']}" if "dataset" in facts else target
    yield line(printable(name), "bold")
    count = facts.get("batch_size") or 1
    for key, title in (("sample", _IN_SAMPLE), ("loader", _IN_BATCH.filled(count=count))):
        if key in results and (form := results[key].facts.get("form")):
            rows = map(_form_row, form)
            yield from ("", line(title, "bold"), table_of(_FORM_HEADS, rows, left=(0, 1, 2, 3), folded={}))
    yield from ("", line(_TIMES, "bold"))
    for key, took in _times(results):
        said = say(_TIME_NAMES[key]) if key in _TIME_NAMES else f"  {key}"
        yield f"  {format_seconds(took):>9}  {printable(said)}"


def _form_row(row: list[Any]) -> tuple[str, ...]:
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

    finding, traceback = check.finding, result.error.get("traceback") or result.said
    assert finding is not None
    yield from ("", line(printable(say(check.says)), "bold red"))
    if traceback:
        yield from ("", printable(traceback.strip()))
    else:
        yield from (f"  - {printable(say(text))}" for text in finding.evidence if text != check.says)
    if found := look_up(traceback):
        yield from ("", line(_MEANS, "bold"), render_text(found[:1], spoken()))
    yield from ("", *(f"- {say(text)}" for text in finding.fix if "headrace quick" not in text.en))
