"""`headrace plan`: the memory that a loader takes, before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.errors import UnusableInput
from headrace.model import Text, format_bytes, format_seconds, format_share, three_digits

from .arguments import Commands, add_command, add_language, add_target, size, whole
from .terminal import EXIT_FINDINGS, EXIT_OK, Terminal, line, say, table_of

if TYPE_CHECKING:
    from headrace.tuning import Machine, Measured, MemoryPlan, TargetFacts, TierRow

    from .terminal import Cells, Part

_DESCRIPTION = """\
Say how much memory a configuration takes at its peak, before anything runs: term by term, with torch's loader and with
ours, and which configurations fit this machine (its free memory, control groups, /dev/shm, cores, ranks).

A few samples of TARGET are fetched in a process of its own, bounded in time and memory; or --sample-bytes says how
large one is. The peak is that of a training slower than its loader, when everything ahead is full.
"""
_EPILOG = """\
examples:
  headrace plan train.py:train_set --batch-size 8
  headrace plan 'data/train-{000..127}.tar' --ranks 4
  headrace plan --sample-bytes 15MB --sequence-length 8 --batch-size 4 --num-workers 16 --prefetch-factor 8

exit codes: 0 it fits, 1 it does not, 2 could not run (usage or input), 130 interrupted
"""

_ESTIMATED = ("DATASET", "PINNED", "READ_AHEAD", "VALIDATION", "COLLATION")  # whatever is measured
_TITLE = Text(
    "batch {batch}, {workers:worker(s)}, prefetch {prefetch}", "batch {batch}，worker {workers}，prefetch {prefetch}"
)
_HEAD = Text(",torch,headrace,basis,how", ",torch,headrace,依据,算法")
_BASIS = {True: Text("estimate", "估算"), False: Text("measured", "实测")}
_GIVEN = Text("given", "给定")
_SUM = Text("a rank", "每个 rank")
_ALL = Text("{ranks} ranks", "{ranks} 个 rank")
_OF_FREE = Text("of what is free", "占可用内存")
_LEFT = Text("left for the page cache", "留给页缓存")
_SHARDS = Text("the shards have {size}", "分片共 {size}")
_TIER_HEAD = Text(
    ",workers,prefetch,torch,of free,/dev/shm,headrace,of free",
    ",worker,prefetch,torch,占可用,/dev/shm,headrace,占可用",
)
_TOO_MUCH = Text("{tier}: even one worker takes more", "{tier}：一个 worker 也放不下")
_MACHINE = Text(
    "machine: {memory} free ({source}), /dev/shm {shm}, {cores} cores, {ranks:rank(s)}",
    "机器：可用内存 {memory}（{source}），/dev/shm {shm}，{cores} 核，{ranks} 个 rank",
)
_SAMPLE = Text(
    "{dataset}: a sample is {size} ({least} to {most}, {count} fetched); fetching one takes {time}, at its peak {peak}",
    "{dataset}：一个样本 {size}（{least} 到 {most}，取了 {count} 个），读取一个样本峰值 {peak}，耗时 {time}",
)
_FORMULAS = Text(
    "estimates: what is copied of a data set is the size of its Python objects (1,000 of each container looked at); "
    "pinned copies are a power of two long; a worker of ours has 5 MiB of its engine's pages; samples of unknown "
    "decoding take twice their size",
    "估算方法：被复制的数据集按其 Python 对象的大小计（每个容器抽看 1000 个）；锁页副本按 2 的幂取整；"
    "headrace 的 worker 另有 5 MiB 引擎页面；不知道解码过程的样本按两倍大小计",
)
_PEAK = Text(
    "The peak of a training slower than its loader; one that waits for data comes close. No speed follows from it.",
    "这是训练慢于加载时的峰值；在等数据的训练也会接近它。表中数字不代表速度。",
)
_FITS = Text("It fits: {bytes} of {free}.", "放得下：{bytes} / {free}。")
_NOT = Text(
    "It does not fit with torch's loader: {bytes} of {free} free, {shm} of /dev/shm.",
    "用 torch 的加载器放不下：{bytes} / 可用 {free}，/dev/shm 需要 {shm}。",
)
_NEXT_OWN = Text("Next: headrace.DataLoader takes {bytes}.", "下一步：headrace.DataLoader 只占 {bytes}。")
_NEXT_ROW = Text("Next: a row that fits.", "下一步：选表中放得下的一行。")
_NEXT_LESS = Text("Next: a smaller batch, or {bytes} of free memory.", "下一步：减小 batch，或腾出 {bytes} 可用内存。")
_NEXT = Text("Next: `headrace tune` measures what it brings.", "下一步：用 `headrace tune` 实测它能带来什么。")
_MEASURING = Text("measuring {target}", "正在测量 {target}")


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "how much memory a loader takes, before anything runs"
    parser = add_command(commands, shared, "plan", run, summary, description=_DESCRIPTION, epilog=_EPILOG)
    add = parser.add_argument
    add_target(parser, nargs="?")
    add("--sample-bytes", type=size, metavar="SIZE", help="the size of a sample, such as 25MB, instead of a target")
    several = "how many of these --sample-bytes a sample holds (default: 1)"
    add("--sequence-length", type=whole(1, 1_000_000), metavar="N", help=several)
    for name, lowest, said in (
        ("--batch-size", 1, "samples a batch on each rank (default: the given loader's, else 1)"),
        ("--num-workers", 0, "default: the given loader's, else that of the row `balanced`"),
        ("--prefetch-factor", 1, "default: the given loader's, else torch's 2 and, for ours, as far as it goes itself"),
        ("--val-workers", 0, "workers of a validation loader that lives beside this one (default: 0)"),
        ("--ranks", 1, "training processes on this machine (default: LOCAL_WORLD_SIZE, else 1)"),
        ("--cores", 1, "plan for so many cores, in place of this machine's"),
    ):
        add(name, type=whole(lowest, 1_000_000), metavar="N", help=said)
    add("--memory", type=size, metavar="SIZE", help="plan for so much free memory, in place of this machine's")
    add("--pin-memory", action="store_true", help="batches are copied to pinned memory")
    add_language(parser)
    add("--json", action="store_true", help="print one JSON document, schema headrace/plan/1")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from headrace.tuning import Configuration, Machine, ProbeHost, peak_memory, tier_rows

    if (args.target is None) == (args.sample_bytes is None):
        next_step = "headrace plan train.py:train_set, or headrace plan --sample-bytes 25MB"
        raise UnusableInput("plan needs a target or --sample-bytes, one of them", next_step=next_step)
    if args.sequence_length and args.target:
        next_step = "leave it out: a sample of a target is what its data set returns, a whole sequence"
        raise UnusableInput("--sequence-length goes with --sample-bytes", next_step=next_step)
    machine = Machine.here(ranks=args.ranks)
    with terminal.progress(_MEASURING.filled(target=args.target or "torch")):
        with ProbeHost(args.target, memory_bytes=machine.memory_bytes // 2) as host:
            subject, measured = host.subject, host.measure()
    if args.memory is not None:
        machine = replace(machine, memory_bytes=args.memory, memory_source="--memory", shm_bytes=None)
    machine = machine if args.cores is None else replace(machine, cores=args.cores)
    cost, now = measured.cost, subject.baseline
    if args.sample_bytes is not None:
        cost = cost.of_size(args.sample_bytes * (args.sequence_length or 1))
    base = Configuration(
        batch_size=args.batch_size or subject.batch_size or 1,
        num_workers=args.num_workers if args.num_workers is not None else now.num_workers if now is not None else -1,
        prefetch_factor=args.prefetch_factor or (now.prefetch_factor if now is not None else None),
        pin_memory=args.pin_memory or subject.pin_memory,
        val_workers=args.val_workers or 0,
        budget_bytes=machine.budget_bytes,
        ranks=machine.ranks,
    )
    rows = tier_rows(cost, machine, base)
    asked = base if base.num_workers >= 0 else replace(base, num_workers=rows[1].torch.configuration.num_workers)
    plans = [peak_memory(cost, asked, loader) for loader in ("torch", "headrace")]
    if args.json:
        terminal.json(_document(measured, machine, plans, rows))
    else:
        title = say(_TITLE, batch=asked.batch_size, workers=asked.num_workers, prefetch=asked.prefetch_factor or 2)
        sample = [_measured(subject, measured)] if args.target else []
        terminal.parts([line(f"headrace plan: {title}", "bold"), *sample])
        terms = _term_rows(machine, plans, measured, is_given=args.target is None)
        terminal.parts(_text(machine, plans, rows, terms))
    return EXIT_OK if machine.fits(plans[0]) else EXIT_FINDINGS


def _document(measured: Measured, machine: Machine, plans: list[MemoryPlan], rows: Iterable[TierRow]) -> dict[str, Any]:
    def plain(plan: MemoryPlan) -> dict[str, Any]:
        sums = {name: getattr(plan, name) for name in ("rank_bytes", "total_bytes", "shm_bytes")}
        return {**asdict(plan), **sums, "fits": machine.fits(plan)}

    return {
        "schema": "headrace/plan/1",
        "headrace": __version__,
        "machine": asdict(machine),
        "measured": asdict(measured) | {name: getattr(measured.cost, name) for name in ("uses_rows", "worst_sample_s")},
        "plans": {plan.loader: plain(plan) for plan in plans},
        "tiers": [
            {"tier": row.tier.en, "fits": row.fits, "torch": plain(row.torch), "headrace": plain(row.headrace)}
            for row in rows
        ],
    }


def _measured(subject: TargetFacts, measured: Measured) -> Text:
    cost = measured.cost
    sizes = (cost.sample_bytes, measured.least_bytes, measured.greatest_bytes, cost.fetch_peak_bytes)
    told = dict(zip(("size", "least", "most", "peak"), map(format_bytes, sizes), strict=True))
    told |= {"dataset": subject.dataset, "time": format_seconds(measured.sample_s)}
    return _SAMPLE.filled(**told, count=measured.num_fetched)


def _text(machine: Machine, plans: list[MemoryPlan], rows: Sequence[TierRow], terms: Iterator[Cells]) -> Iterator[Part]:
    (theirs, ours), free = plans, format_bytes(machine.memory_bytes)
    shm = "?" if machine.shm_bytes is None else format_bytes(machine.shm_bytes)
    told = {"memory": free, "source": machine.memory_source, "shm": shm, "cores": three_digits(machine.cores)}
    yield from (_MACHINE.filled(**told, ranks=machine.ranks), "", table_of(_HEAD, terms, left=(0, 3, 4)), "")
    yield table_of(_TIER_HEAD, [_tier_row(row, machine) for row in rows])
    yield from (_TOO_MUCH.filled(tier=row.tier) for row in rows if not row.fits and rows[-1].fits)
    yield from ("", line(_FORMULAS, "dim"), line(_PEAK, "dim"), "")
    fits, taken = machine.fits(theirs), format_bytes(theirs.total_bytes)
    said = (_FITS if fits else _NOT).filled(bytes=taken, free=free, shm=format_bytes(theirs.shm_bytes))
    yield line(said, "green" if fits else "bold red")
    if fits:
        yield _NEXT
    elif machine.fits(ours) or rows[-1].fits:
        yield from [_NEXT_OWN.filled(bytes=format_bytes(ours.total_bytes))] * machine.fits(ours)
        yield from [_NEXT_ROW] * rows[-1].fits
    else:  # not even one worker of the last row
        yield _NEXT_LESS.filled(bytes=format_bytes(min(rows[-1].torch.total_bytes, rows[-1].headrace.total_bytes)))


def _term_rows(machine: Machine, plans: list[MemoryPlan], measured: Measured, *, is_given: bool) -> Iterator[Cells]:
    found = [{term.kind: term for term in plan.terms} for plan in plans]
    for kind in type(plans[0].terms[0].kind):
        terms = [terms.get(kind) for terms in found]
        if any(terms):
            is_guessed = kind.name == "IN_HAND" and (is_given or not measured.is_peak_measured)
            basis = _BASIS[kind.name in _ESTIMATED or is_guessed]
            basis = _GIVEN if is_given and kind.name in ("QUEUE", "LOOP") else basis
            formulas = dict.fromkeys(term.formula for term in terms if term)
            yield kind.label, *(format_bytes(term.bytes) if term else "" for term in terms), basis, "\n".join(formulas)
    free, totals = machine.memory_bytes, [plan.total_bytes for plan in plans]
    yield line(_SUM, "bold"), *(line(format_bytes(plan.rank_bytes), "bold") for plan in plans)
    if machine.ranks > 1:
        yield _ALL.filled(ranks=machine.ranks), *map(format_bytes, totals)
    yield _OF_FREE, *(format_share(total / free) for total in totals)
    files = "" if measured.file_bytes is None else _SHARDS.filled(size=format_bytes(measured.file_bytes))
    yield _LEFT, *(format_bytes(max(0, free - total)) for total in totals), "", files


def _tier_row(row: TierRow, machine: Machine) -> Cells:
    asked, taken = row.torch.configuration, (row.torch.total_bytes, row.headrace.total_bytes)
    theirs, ours = ((format_bytes(one), format_share(one / machine.memory_bytes)) for one in taken)
    name, shm = line(row.tier, "" if row.fits else "bold red"), format_bytes(row.torch.shm_bytes)
    return name, str(asked.num_workers), str(asked.prefetch_factor), *theirs, shm, *ours
