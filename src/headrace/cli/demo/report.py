"""The figures of the demo, as text and as JSON from the same object."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import __version__
from headrace.model import Text, format_bytes, three_digits

from ..terminal import line, plain_table
from .loop import FASTEST_READ_MS, SAMPLE_BYTES, SLOWEST_READ_MS, DemoSettings, LoopResult

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text as Line

LOADERS = ("torch", "headrace")
_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 64


@dataclass(frozen=True, kw_only=True)
class DemoRun:
    """One run of the loop and the memory that was seen from outside while it ran."""

    loader: str
    round: int
    loop: LoopResult
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How many times better we are than torch: the median of the rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """All figures of a demo. `None` means that the machine does not tell."""

    settings: DemoSettings
    figures: dict[str, dict[str, float | None]]
    gains: dict[str, Gain | None]
    first_difference: int | None
    num_batches: int
    runs: Sequence[DemoRun]


def _seconds(value: float) -> str:
    return f"{three_digits(value)} s"


def _milliseconds(value: float) -> str:
    return f"{three_digits(1000 * value)} ms"


def _percent(value: float) -> str:
    return f"{three_digits(100 * value)} %"


class _Row(NamedTuple):
    """A figure in the table: how it is shown, and what we are where it is better or worse with us."""

    title: Text
    show: Callable[[float], str]
    better_or_worse: tuple[Text, Text] | None = None  # None: no ratio is shown


_LESS = (Text("less", "更省"), Text("more", "更多"))
_ROWS = {
    "first_batch_s": _Row(
        Text("first batch", "首个 batch 用时"), _seconds, (Text("sooner", "更早"), Text("later", "更晚"))
    ),
    # No ratio: where most waits are short and a few are long, the median is about nothing.
    "wait_median_s": _Row(Text("wait for a batch, median", "等待一个 batch，中位数"), _milliseconds),
    "wait_worst_s": _Row(
        Text("wait for a batch, worst", "等待一个 batch，最长"),
        _milliseconds,
        (Text("shorter", "更短"), Text("longer", "更长")),
    ),
    "waiting_share": _Row(Text("share of the time spent waiting", "等待时间占比"), _percent),
    "samples_per_s": _Row(
        Text("samples per second", "每秒样本数"), three_digits, (Text("faster", "更快"), Text("slower", "更慢"))
    ),
    "peak_memory_bytes": _Row(Text("peak memory of all processes", "全部进程的内存峰值"), format_bytes, _LESS),
    "loader_memory_bytes": _Row(Text("  of it, added by the loader", "  其中由加载器增加的部分"), format_bytes, _LESS),
    "page_faults_per_sample": _Row(
        Text("page faults per sample", "每个样本的缺页次数"),
        three_digits,
        (Text("fewer", "更少"), Text("more", "更多")),
    ),
}
_WORST_OF_ROUNDS = ("wait_worst_s", "peak_memory_bytes", "loader_memory_bytes")  # of the others the median
_MORE_IS_BETTER = "samples_per_s"


def _figures(run: DemoRun) -> dict[str, float | None]:
    loop, peak, before = run.loop, run.peak_memory_bytes, run.loop.memory_before_bytes
    return {
        "first_batch_s": loop.first_batch_s,
        "wait_median_s": median(loop.waits_s),
        "wait_worst_s": max(loop.waits_s),
        "waiting_share": sum(loop.waits_s) / loop.loop_s,
        "samples_per_s": loop.samples_per_s,
        "peak_memory_bytes": peak,
        "loader_memory_bytes": None if peak is None or before is None else peak - before,
        "page_faults_per_sample": loop.page_faults_per_sample,
    }


def summarise(settings: DemoSettings, runs: Sequence[DemoRun]) -> DemoReport:
    """Return the figures of all runs, and whether every batch was the same with both loaders."""
    figures: dict[str, dict[str, float | None]] = {loader: {} for loader in LOADERS}
    gains = {}
    for name in _ROWS:
        values = {loader: [_figures(run)[name] for run in runs if run.loader == loader] for loader in LOADERS}
        for loader in LOADERS:
            known = [value for value in values[loader] if value is not None]
            join = max if name in _WORST_OF_ROUNDS else median
            figures[loader][name] = join(known) if known else None
        gains[name] = _gain(values["torch"], values["headrace"], more_is_better=name == _MORE_IS_BETTER)
    return DemoReport(
        settings=settings,
        figures=figures,
        gains=gains,
        first_difference=_first_difference([run.loop.checksums for run in runs]),
        num_batches=sum(len(run.loop.checksums) for run in runs if run.loader == "headrace"),
        runs=runs,
    )


def _gain(torch: list[float | None], headrace: list[float | None], *, more_is_better: bool) -> Gain | None:
    """Return torch / headrace for what should be small, headrace / torch for what should be large, round by round."""
    ratios = []
    for theirs, ours in zip(torch, headrace, strict=True):
        above, below = (ours, theirs) if more_is_better else (theirs, ours)
        if above is None or below is None or above <= 0 or below <= 0:
            return None
        ratios.append(above / below)
    return Gain(median=median(ratios), low=min(ratios), high=max(ratios))


def _first_difference(checksums: Sequence[Sequence[int]]) -> int | None:
    """Return the number of the first batch, from 1, that was not the same in every run."""
    for number, batch in enumerate(zip(*checksums, strict=False), start=1):
        if len(set(batch)) > 1:
            return number
    lengths = {len(run) for run in checksums}
    return None if len(lengths) == 1 else min(lengths) + 1


def report_json(report: DemoReport) -> dict[str, Any]:
    """Return the document that `headrace demo --json` prints."""
    first = report.runs[0].loop
    return {
        "schema": "headrace/demo/1",
        "versions": {"headrace": __version__, "torch": first.torch_version, "python": platform.python_version()},
        "machine": {"cores": len(os.sched_getaffinity(0)), "system": f"{platform.system()} {platform.machine()}"},
        "settings": {
            **asdict(report.settings),
            "start_method": first.start_method,
            "sample_bytes": SAMPLE_BYTES,
            "simulated_read_ms": [FASTEST_READ_MS, SLOWEST_READ_MS],
        },
        "figures": report.figures,
        "gains": {name: gain and asdict(gain) for name, gain in report.gains.items()},
        "batches_identical": report.first_difference is None,
        "runs": [asdict(run) for run in report.runs],
    }


def report_text(report: DemoReport, language: str) -> RenderableType:
    """Return what `headrace demo` prints."""
    from rich.console import Group

    asked, size, method = report.settings, format_bytes(SAMPLE_BYTES), report.runs[0].loop.start_method
    cores = len(os.sched_getaffinity(0))
    title = Text("The same training loop over the same data set", "同一个训练循环，同一个数据集")
    facts = Text(
        f"{asked.samples} compressed volumes of {size}, batches of {asked.batch_size}, {asked.workers} workers "
        f"({method}), {asked.epochs} epochs, {cores} cores",
        f"{asked.samples} 个压缩体数据，每个解码后 {size}；batch 大小 {asked.batch_size}，{asked.workers} 个 worker"
        f"（{method}），{asked.epochs} 个 epoch，{cores} 个 CPU 核",
    )
    slow_disk = Text(
        f"The disk is simulated: a sample sleeps {FASTEST_READ_MS} to {SLOWEST_READ_MS} ms before it is read. The rest "
        "is real.",
        f"磁盘速度是模拟的：每个样本读取前先休眠 {FASTEST_READ_MS} 到 {SLOWEST_READ_MS} 毫秒；其余都是真实的计算。",
    )
    measured = Text(
        f"The loaders took turns, {asked.rounds} rounds, each in its own process; ratios: median of the rounds "
        "(spread).",
        f"两种加载器交替运行，各 {asked.rounds} 轮，每次都用独立的进程；倍数取各轮的中位数，括号内为各轮的范围。",
    )
    next_step = Text(
        "Next: in your script, `from headrace import DataLoader`, and leave everything else as it is.",
        "下一步：在训练脚本里改成 `from headrace import DataLoader`，其余代码不用动。",
    )
    return Group(
        line(title.of(language), "bold"),
        line(facts.of(language)),
        line(slow_disk.of(language)),
        "",
        _table(report, language),
        "",
        *map(line, timelines(report, language)),
        "",
        line(measured.of(language)),
        line(next_step.of(language)),
    )


def _table(report: DemoReport, language: str) -> Table:
    table = plain_table(gap=3)
    table.add_column("")
    for loader in LOADERS:
        table.add_column(loader, justify="right")
    table.add_column(Text("headrace is", "与 torch 相比").of(language))
    unknown = Text("not measured", "未测得").of(language)
    for name, row in _ROWS.items():
        values = [report.figures[loader][name] for loader in LOADERS]
        shown = [unknown if value is None else row.show(value) for value in values]
        table.add_row(row.title.of(language), *shown, _compare(report.gains[name], row, language))
    first, count = report.first_difference, report.num_batches
    if first is None:
        same = line(Text(f"yes, all {count}", f"一致，共 {count} 个").of(language), "green")
    else:
        differs = Text(f"NO, first difference at batch {first}", f"不一致，首个差异在第 {first} 个 batch")
        same = line(differs.of(language), "bold red")
    table.add_row(Text("batches identical", "各 batch 内容是否一致").of(language), "", same, "")
    return table


def _compare(gain: Gain | None, row: _Row, language: str) -> Line:
    if gain is None or row.better_or_worse is None:
        return line("")
    if three_digits(gain.median) == "1.00":
        return line(Text("the same", "相同").of(language))
    is_better = gain.median > 1
    ratios = sorted(ratio if is_better else 1 / ratio for ratio in (gain.low, gain.median, gain.high))
    low, middle, high = map(three_digits, ratios)
    word = row.better_or_worse[0 if is_better else 1]
    said = Text(f"{middle}x {word.en}", f"{middle}× {word.zh}").of(language)
    return line(f"{said} ({low}–{high})", "green" if is_better else "yellow")


def timelines(report: DemoReport, language: str) -> list[str]:
    """Return the waits of the last round as one line of bars a loader, on one scale."""
    last = {run.loader: run.loop.waits_s for run in report.runs}
    worst_s = max(max(waits_s) for waits_s in last.values())
    worst, num_batches = _milliseconds(worst_s), max(len(waits_s) for waits_s in last.values())
    title = Text(
        f"Waits, one bar a batch, one scale for both (full height: {worst}); the first batch is left out:",
        f"每个 batch 的等待时间，一格一个 batch，两行用同一刻度（满格为 {worst}），不含首个 batch：",
    )
    lines = [title.of(language)]
    lines += [f"  {loader:<8}  {_bars(last[loader][:_MOST_BARS], full=worst_s)}" for loader in LOADERS]
    if num_batches > _MOST_BARS:
        cut = Text(
            f"  (the first {_MOST_BARS} of {num_batches} batches)",
            f"  （共 {num_batches} 个 batch，这里只画前 {_MOST_BARS} 个）",
        )
        lines.append(cut.of(language))
    return lines


def _bars(values: Sequence[float], *, full: float) -> str:
    """Draw each value as a bar; `full` is the value of the highest one."""
    return "".join(_BARS[min(len(_BARS) - 1, int(value / full * len(_BARS)))] for value in values)
