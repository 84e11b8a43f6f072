"""`headrace chaos`: let faults strike a loader over the user's own data set, and check every sample it delivers."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.model import Count, FaultKind, Text

from .arguments import Commands, add_command, add_language, add_target, seconds, whole
from .terminal import EXIT_FINDINGS, EXIT_OK, Terminal, line, say, table_of

if TYPE_CHECKING:
    from rich.text import Text as Line

    from headrace.doctor.chaos import ChaosReport, RoundVerdict

    from .terminal import Part

_DESCRIPTION = """\
Run headrace's DataLoader over a data set while faults strike it: workers are killed, stopped and crashed, samples
raise, hang and take long, memory is hogged, /dev/shm is full, file descriptors run out, the training process forks or
gets an exception out of next(). Then compare every sample that was delivered, one by one, with the order that seed and
epoch define, without the quarantined.

TARGET is path/to/file.py:name or package.module:name of a data set with a length and an index, of a function that
makes one, or of a loader, whose data set, batch size, collate_fn and worker_init_fn are used; or a pattern of tar
shards. Without it, an embedded data set. Nothing is changed in the data set; the faults come from a wrapper around it
and from outside.
"""

_EPILOG = """\
faults:
  kill, segv, bus, exit, abort   the worker dies: SIGKILL (from inside and from outside), a null pointer, a mapped file
                                 that was truncated, os._exit, abort()
  exception                      the sample raises: EIO that passes, or an error each time
  hang, stop                     a lock that nobody releases; SIGSTOP (from inside and from outside)
  slow, hog                      a sample takes a second; a sample takes 256 MiB for a moment
  shm_full, fd_limit             /dev/shm has no byte left; the limit of open files is lowered while it runs
  fork                           the training process holds batches, and forks a child that drops its copies of them
  interrupt                      a signal handler raises out of next(); the loop catches that and goes on
exit codes: 0 all survived, 1 something was lost, repeated, damaged, hung or left behind, or the data set has bad
samples of its own, 2 could not run
"""

_MOST_ROUNDS = 10
_MOST_OWN = 10
_MOST_STACK_LINES = 60


_PROBLEMS = {
    "lost": Text("samples lost", "丢失的样本"),
    "repeated": Text("samples delivered twice", "重复交付的样本"),
    "out_of_order": Text("samples in another place than the order says", "顺序不对的样本"),
    "damaged": Text("samples whose content is not what their worker made", "内容与 worker 产出不符的样本"),
    "wrongly_condemned": Text("good samples put into quarantine", "被误隔离的好样本"),
    "wrongly_spared": Text("samples that fail each time, and are not in quarantine", "每次都失败却没有被隔离的样本"),
    "wrong_batch_sizes": Text("rounds with other batch sizes", "batch 大小不对的轮次"),
    "errors": Text("rounds ended by an error", "因报错而中断的轮次"),
    "hangs": Text("rounds that hung", "卡死的轮次"),
    "leftovers": Text("processes, files or /dev/shm entries left behind", "残留的进程、文件或 /dev/shm 条目"),
}

_HEADS = Text("fault,injected,survived,worst wait", "故障,注入次数,挺过次数,最长等待")
_NEXT = Text(
    'Next: in your script, DataLoader(…, on_error="quarantine", quarantine_file="bad.jsonl").',
    '下一步：在训练脚本里使用 DataLoader(…, on_error="quarantine", quarantine_file="bad.jsonl")。',
)
_REPORT_IT = Text(
    "Next: report this with the whole output of `headrace chaos --json …` and with `headrace --version`.",
    "下一步：请附上 `headrace chaos --json …` 的完整输出和 `headrace --version`，把这个问题报告给我们。",
)


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "let faults strike a loader over your data set, and check every sample that comes"
    parser = add_command(commands, shared, "chaos", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    add = parser.add_argument
    add_target(parser, nargs="?")
    which = "which kinds (default: all of those below)"
    add("--faults", dest="kinds", type=_kinds, default=tuple(FaultKind), metavar="KIND,…", help=which)
    # by the names of `ChaosSettings`, which they become
    drawn = "samples that a round goes through, drawn anew each time (default: 1000)"
    for name, setting, lowest, highest, default, said in (
        ("--num-faults", "num_faults", 1, 100_000, 40, "how many faults (default: 40)"),
        ("--seed", "seed", 0, 2**63 - 1, 0, "of the order and the faults (default: 0)"),
        ("--workers", "num_workers", 1, 64, None, "default: the given loader's, else 4"),
        ("--batch-size", "batch_size", 1, 100_000, None, "default: the given loader's, else 8"),
        ("--samples", "most_samples", 2, 10_000_000, 1000, drawn),
    ):
        add(name, dest=setting, type=whole(lowest, highest), default=default, metavar="N", help=said)
    add("--seconds", type=seconds(), metavar="S", help="go on for so long, instead of --num-faults")
    hanging = "past this age a sample counts as hanging; more than your slowest sample takes (default: 3)"
    add("--timeout", dest="timeout_s", type=seconds(), default=3.0, metavar="S", help=hanging)
    add("--backend", choices=("process", "thread"), default="process", help="default: process")
    methods = ("fork", "forkserver", "spawn")
    add("--start-method", choices=methods, help="how worker processes start (default: the platform's)")
    add_language(parser)
    add("--json", action="store_true", help="print one JSON document, schema headrace/chaos/1")


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = ", ".join(kind for kind in kinds if kind not in list(FaultKind))
    if unknown or not kinds:
        raise argparse.ArgumentTypeError(f"{unknown or 'nothing'} is no fault; choose from {', '.join(FaultKind)}")
    return kinds


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.doctor.chaos import PRACTICE, ChaosSettings, run_chaos

    chosen = {each.name: getattr(args, each.name) for each in fields(ChaosSettings) if each.name in args}
    settings = ChaosSettings(**{**chosen, "target": args.target or PRACTICE})
    with terminal.progress(Text("faults strike the loader", "正在向加载器注入故障")):
        report = run_chaos(settings)
    if args.json:
        terminal.json(report_json(report))
    else:
        terminal.parts([*_head(report), "", table_of(_HEADS, _rows(report)), "", *_outcome(report)])
    return EXIT_OK if report.is_clean and not report.own_failures else EXIT_FINDINGS


def _head(report: ChaosReport) -> Iterator[Part]:
    totals, subject, settings = report.totals(), report.subject, report.settings
    name, seed, took = subject.dataset, settings.seed, f"{report.elapsed_s:.0f}"
    delivered, rounds, most = totals["delivered"], totals["rounds"], settings.most_samples
    workers, batch, how = Count(subject.num_workers), subject.batch_size, (settings.backend, subject.start_method)
    title = Text(f"headrace.DataLoader under faults: {name}", f"故障注入下的 headrace.DataLoader：{name}")
    yield line(title, "bold")
    yield Text(
        f"{delivered} samples delivered in {rounds} rounds of up to {most}, batches of {batch}, "
        f"{workers:worker(s)} ({how[0]}, {how[1]}), {took} s",
        f"共 {rounds} 轮（每轮至多 {most} 个样本），交付 {delivered} 个样本；batch 大小 {batch}，"
        f"{workers} 个 worker（{how[0]}，{how[1]}），用时 {took} 秒",
    )
    yield Text(
        f"seed {seed}: the same order and the same faults come again with --seed {seed}",
        f"随机种子 {seed}：用 --seed {seed} 可以重现同样的样本顺序和同样的故障",
    )


def _rows(report: ChaosReport) -> Iterator[Sequence[Line | Text | str]]:
    for kind, one in report.kinds().items():
        survived = line(str(one.survived), "green" if one.survived == one.injected else "bold red")
        yield kind.label, str(one.injected), survived, f"{one.worst_wait_s:.2f} s"


def _outcome(report: ChaosReport) -> Iterator[Part]:
    for kind, reason in report.subject.skipped.items():
        yield Text("left out: {kind}, for {reason}", "未注入 {kind}：{reason}").filled(
            kind=FaultKind(kind).label, reason=reason
        )
    if report.is_clean:
        clean = Text(
            "0 lost, 0 repeated, 0 damaged, 0 hangs, 0 leftovers: every sample came once, in the order of seed and "
            "epoch",
            "丢失 0、重复 0、损坏 0、卡死 0、残留 0：每个样本恰好出现一次，顺序与种子和 epoch 所定的完全一致",
        )
        yield line(clean, "green")
    else:
        yield from (line(said, "bold red") for said in _problems(report))
    if count := Count(report.totals()["quarantined"]):
        yield Text(
            f"{count:sample(s) that (fails|fail)} each time, left out and named in the quarantine",
            f"有 {count} 个样本每次读取都失败，已被隔离并逐个记名",
        )
    if own := report.own_failures:
        bad = Text(
            f"The data set has bad samples of its own ({len(own)}), without any fault from us:",
            f"数据集里本来就有 {len(own)} 个坏样本，与注入的故障无关：",
        )
        yield line(bad, "yellow")
    for one in own[:_MOST_OWN]:
        index, said = one.index, (one.message.strip().splitlines() or [""])[-1]
        sample = Text(f"  sample {index}: {one.exception}: {said}", f"  样本 {index}：{one.exception}：{said}")
        yield line(sample, "yellow")
    yield _NEXT if report.is_clean else _REPORT_IT


def _problems(report: ChaosReport) -> Iterator[Text | str]:
    yield Text("Not survived:", "没有挺过去的：")
    yield from (f"  {count} {say(_PROBLEMS[name])}" for name, count in report.problems().items() if count)
    rounds = zip(report.rounds, report.verdicts, strict=True)
    for facts, verdict in [one for one in rounds if not one[1].is_clean][:_MOST_ROUNDS]:
        what = "; ".join(_what(verdict))
        yield Text(f"  round {facts.number}: {what}", f"  第 {facts.number} 轮：{what}")
        if facts.stacks:
            yield Text("  where it stood:", "  卡住的位置：")
            yield from (f"    {each}" for each in facts.stacks.splitlines()[-_MOST_STACK_LINES:])
    yield from (f"  {each}" for each in report.left)


def _what(verdict: RoundVerdict) -> Iterator[str]:
    for name in ("lost", "repeated", "damaged", "wrongly_condemned", "wrongly_spared"):
        if found := getattr(verdict, name):
            indices = [str(one if isinstance(one, int) else one.index) for one in found]
            yield f"{say(_PROBLEMS[name])}: {', '.join(indices[:8])}{', …' if len(indices) > 8 else ''}"
    if verdict.out_of_order:
        yield f"{say(_PROBLEMS['out_of_order'])}: {verdict.out_of_order}"
    yield from filter(None, [verdict.batch_sizes, verdict.error, say(_PROBLEMS["hangs"]) if verdict.is_hang else ""])
    yield from verdict.left


def report_json(report: ChaosReport) -> dict[str, Any]:
    rounds = [each for each in zip(report.rounds, report.verdicts, strict=True) if not each[1].is_clean]
    problems = [{"round": facts.number, **asdict(verdict), "stacks": facts.stacks} for facts, verdict in rounds]
    for problem in problems:
        del problem["own"]
    return {
        "schema": "headrace/chaos/1",
        "versions": {"headrace": __version__, "python": platform.python_version()},
        "machine": {"cores": len(os.sched_getaffinity(0)), "system": f"{platform.system()} {platform.machine()}"},
        "settings": asdict(report.settings),
        "subject": {**vars(report.subject), "skipped": dict(report.subject.skipped)},
        "elapsed_s": report.elapsed_s,
        "is_clean": report.is_clean,
        "totals": report.totals(),
        "kinds": {kind.value: vars(figures) for kind, figures in report.kinds().items()},
        "own_failures": [vars(one) for one in report.own_failures],
        "problems": problems,
        "left": list(report.left),
    }
