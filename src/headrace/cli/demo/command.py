"""`headrace demo`: one training loop with torch's loader and with ours, in turn, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_start_method
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.errors import HeadraceError, InternalError
from headrace.model import Count, Text, format_bytes, three_digits, write_step

from ..arguments import Commands, add_command, add_language, whole
from ..terminal import EXIT_OK, Terminal, line, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from .loop import DemoSettings, LoopResult

_DESCRIPTION = """\
Build a small data set in a temporary folder, run the same training loop over it with torch's DataLoader and with
headrace's, in turn, and print first batch, waits, throughput and memory side by side. It takes about half a minute
and leaves nothing behind.
"""
# Reading the memory of six processes takes some milliseconds of a core that the workers could use; the peak of a loop
# in its steady state is broad.
_MEMORY_EVERY_S = 0.2
_TIME_TO_STOP_S = 10.0  # on a busy machine workers take seconds to end, and only then remove their temporary files
_LOADERS = ("torch", "headrace")
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM)


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "the same training loop with torch's loader and with ours, side by side"
    parser = add_command(commands, shared, "demo", summary, description=_DESCRIPTION)
    for name, lowest, highest, default, what in (
        ("--workers", 1, 64, 4, "workers of each loader"),
        ("--batch-size", 1, 256, 12, "samples in a batch"),
        ("--samples", 2, 4000, 192, "samples in the data set, each 0.5 MB on disk"),
    ):
        said = f"{what} ({lowest} to {highest}, default: {default})"
        parser.add_argument(name, type=whole(lowest, highest), default=default, metavar="N", help=said)
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/demo/2")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.samples < 2 * args.batch_size:
        args.parser.error(
            f"--samples {args.samples} is less than two batches of {args.batch_size}; "
            f"try --samples {16 * args.batch_size} or a smaller --batch-size"
        )
    from .loop import DemoSettings

    language = args.lang
    settings = DemoSettings(samples=args.samples, batch_size=args.batch_size, workers=args.workers)
    runs = _run_all(settings, language, terminal)
    if len({tuple(run.loop.checksums) for run in runs}) > 1:
        raise InternalError("headrace delivered other batches than torch")
    if args.json:
        terminal.json(report_json(settings, runs))
    else:
        terminal.result(_report_text(settings, runs, language))
    return EXIT_OK


@dataclass(frozen=True, kw_only=True)
class DemoRun:
    """One run of the loop and the memory that was seen from outside while it ran."""

    loader: str
    round: int
    loop: LoopResult
    peak_memory_bytes: int | None


def _run_all(settings: DemoSettings, language: str, terminal: Terminal) -> list[DemoRun]:
    """Build the data set, run every loader in every round, and leave nothing behind, not even after Ctrl-C."""
    from .loop import write_volumes

    runs = []
    for each in _STOPPED_BY:
        signal.signal(each, _stop)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        building = Text(
            f"building a data set of {settings.samples} volumes in a temporary folder",
            f"正在临时目录中生成 {settings.samples} 个体数据样本",
        )
        try:
            with terminal.progress(building.of(language)):
                write_volumes(folder, settings.samples)
        except OSError as error:
            what = f"the demo's data set could not be written: {error.strerror}"
            next_step = f"{write_step(error, os.path.join(folder, 'file'))}; or set TMPDIR to another folder"
            raise HeadraceError(what, folder=folder, next_step=next_step.removeprefix("; or ")) from error
        rounds = settings.rounds
        for number in range(1, rounds + 1):
            for loader in _LOADERS:
                running = Text(f"round {number} of {rounds}: {loader}", f"第 {number} 轮（共 {rounds} 轮）：{loader}")
                with terminal.progress(running.of(language)):
                    runs.append(_run_one(folder, settings, loader, number))
    return runs


def _stop(number: int, _: FrameType | None) -> None:
    """Let the first SIGINT or SIGTERM stop the demo and ignore the next ones, so that cleaning up is not cut short."""
    for each in _STOPPED_BY:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _run_one(folder: str, settings: DemoSettings, loader: str, number: int) -> DemoRun:
    from headrace.knowledge import hint_for

    from .loop import LoopResult, tree_memory_bytes

    result_file, log_file = (Path(folder) / f"{loader}-{number}.{kind}" for kind in ("out", "log"))
    asked = (loader, folder, json.dumps(asdict(settings)), str(result_file))
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.demo.loop", *asked],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches us alone, and the whole tree can be ended by its group
        )
    seen = []
    try:
        while process.poll() is None:
            seen.append(tree_memory_bytes(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(_MEMORY_EVERY_S)
    finally:
        _end(process)
    if process.returncode != 0:
        said = log_file.read_text(errors="replace").strip()
        kind = InternalError if loader == "headrace" else HeadraceError
        hint = hint_for(said)  # torch's batches may not fit into /dev/shm
        what = f"{loader}'s loader stopped in the middle of the demo\n{said}"
        next_step = {} if loader == "headrace" else {"next_step": "fewer --workers, or a smaller --batch-size"}
        raise kind(f"{what}\n{hint.of('en')}" if hint else what, exit_code=process.returncode, **next_step)
    return DemoRun(
        loader=loader,
        round=number,
        loop=LoopResult(**json.loads(result_file.read_text())),
        peak_memory_bytes=max((one for one in seen if one is not None), default=None),
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # as Ctrl-C would: the loader ends its workers
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TIME_TO_STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # whoever is left of the tree, and the process itself if it did not stop
    process.wait()


def _milliseconds(value: float) -> str:
    return f"{three_digits(1000 * value)} ms"


# the figures of a run: their names in the table, how they are shown, and how the rounds become one
_ROWS: dict[str, tuple[Text, Callable[[float], str], Callable[[Iterable[float]], float]]] = {
    "first_batch_s": (Text("first batch", "首个 batch 用时"), _milliseconds, median),
    "wait_median_s": (Text("wait for a batch, median", "等待一个 batch，中位数"), _milliseconds, median),
    "wait_worst_s": (Text("wait for a batch, worst", "等待一个 batch，最长"), _milliseconds, max),
    "samples_per_s": (Text("samples per second", "每秒样本数"), three_digits, median),
    "peak_memory_bytes": (Text("peak memory of all processes", "全部进程的内存峰值"), format_bytes, max),
    "loader_memory_bytes": (Text("  of it, added by the loader", "  其中由加载器增加的部分"), format_bytes, max),
}
_MORE_IS_BETTER = "samples_per_s"
# Where most waits are short and a few are long, the median is about nothing, and so is its ratio.
_WITHOUT_RATIO = "wait_median_s"


def summarise(runs: Sequence[DemoRun]) -> dict[str, dict[str, float | None]]:
    """Return each figure of both loaders over all rounds, and their ratio; `None`: the machine does not tell."""
    summary = {}
    for name, (_, _, join) in _ROWS.items():
        figures: dict[str, float | None] = {}
        for loader in _LOADERS:
            values = [_figures(run)[name] for run in runs if run.loader == loader]
            known = [value for value in values if value is not None]
            figures[loader] = join(known) if known else None
        torch, ours = figures["torch"], figures["headrace"]
        ratio = ours / torch if torch and ours is not None and name != _WITHOUT_RATIO else None
        summary[name] = {**figures, "ratio": ratio}
    return summary


def _figures(run: DemoRun) -> dict[str, float | None]:
    loop, peak, before = run.loop, run.peak_memory_bytes, run.loop.memory_before_bytes
    return {
        "first_batch_s": loop.first_batch_s,
        "wait_median_s": median(loop.waits_s),
        "wait_worst_s": max(loop.waits_s),
        "samples_per_s": loop.samples_per_s,
        "peak_memory_bytes": peak,
        "loader_memory_bytes": None if peak is None or before is None else peak - before,
    }


def report_json(settings: DemoSettings, runs: Sequence[DemoRun]) -> dict[str, Any]:
    from .loop import FASTEST_READ_MS, SAMPLE_BYTES, SLOWEST_READ_MS

    return {
        "schema": "headrace/demo/2",
        "versions": {"headrace": __version__, "torch": version("torch"), "python": platform.python_version()},
        "machine": {"cores": len(os.sched_getaffinity(0)), "system": f"{platform.system()} {platform.machine()}"},
        "settings": {
            **asdict(settings),
            "start_method": get_start_method(),
            "sample_bytes": SAMPLE_BYTES,
            "simulated_read_ms": [FASTEST_READ_MS, SLOWEST_READ_MS],
        },
        "figures": summarise(runs),
        "batches_identical": True,
        "runs": [asdict(run) for run in runs],
    }


def _report_text(asked: DemoSettings, runs: Sequence[DemoRun], language: str) -> RenderableType:
    from rich.console import Group

    from .loop import FASTEST_READ_MS, SAMPLE_BYTES, SLOWEST_READ_MS

    size, method, workers = format_bytes(SAMPLE_BYTES), get_start_method(), Count(asked.workers)
    cores = len(os.sched_getaffinity(0))
    title = Text("The same training loop over the same data set", "同一个训练循环，同一个数据集")
    facts = Text(
        f"{asked.samples} compressed volumes of {size}, batches of {asked.batch_size}, "
        f"{workers:worker(s)} ({method}), {asked.epochs} epochs, {cores} cores",
        f"{asked.samples} 个压缩体数据，每个解码后 {size}；batch 大小 {asked.batch_size}，{workers} 个 worker"
        f"（{method}），{asked.epochs} 个 epoch，{cores} 个 CPU 核",
    )
    slow_disk = Text(
        f"The disk is simulated: a sample sleeps {FASTEST_READ_MS} to {SLOWEST_READ_MS} ms before it is read. The rest "
        "is real.",
        f"磁盘速度是模拟的：每个样本读取前先休眠 {FASTEST_READ_MS} 到 {SLOWEST_READ_MS} 毫秒；其余都是真实的计算。",
    )
    measured = Text(
        f"The loaders took turns, {asked.rounds} rounds, each in its own process: the worst wait and the most memory "
        "of them, of the rest the median.",
        f"两种加载器交替运行，各 {asked.rounds} 轮，每次都用独立的进程；最长等待和内存取各轮最大值，其余取中位数。",
    )
    next_step = Text(
        "Next: in your script, `from headrace import DataLoader`, and leave everything else as it is.",
        "下一步：在训练脚本里改成 `from headrace import DataLoader`，其余代码不用动。",
    )
    return Group(
        line(title.of(language), "bold"),
        *(line(text.of(language)) for text in (facts, slow_disk)),
        "",
        _table(runs, language),
        "",
        *(line(text.of(language)) for text in (measured, next_step)),
    )


def _table(runs: Sequence[DemoRun], language: str) -> Table:
    table = plain_table(gap=3)
    table.add_column("")
    for heading in (*_LOADERS, "headrace / torch"):
        table.add_column(heading, justify="right")
    unknown = Text("not measured", "未测得").of(language)
    for name, figures in summarise(runs).items():
        (title, show, _), ratio = _ROWS[name], figures["ratio"]
        shown = [unknown if (value := figures[loader]) is None else show(value) for loader in _LOADERS]
        is_better = ratio is not None and (ratio > 1) == (name == _MORE_IS_BETTER)
        compared = line("" if ratio is None else f"{three_digits(ratio)}x", "green" if is_better else "yellow")
        table.add_row(title.of(language), *shown, compared)
    count = sum(len(run.loop.checksums) for run in runs if run.loader == "headrace")
    same = line(Text(f"yes, all {count}", f"一致，共 {count} 个").of(language), "green")
    table.add_row(Text("batches identical", "各 batch 内容是否一致").of(language), "", same, "")
    return table
