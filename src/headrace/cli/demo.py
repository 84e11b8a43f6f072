"""`headrace demo`: one training loop with torch's loader and with ours, in turn, each in a process of its own."""

import argparse
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from importlib.metadata import version
from itertools import product
from multiprocessing import get_start_method
from pathlib import Path
from statistics import median
from typing import Any

from headrace import __version__
from headrace.errors import HeadraceError, InternalError
from headrace.model import Count, Text, format_bytes, format_seconds, three_digits, write_step

from .arguments import Commands, add_command, add_language, whole
from .terminal import EXIT_OK, Terminal, line, plain_table

_DESCRIPTION = """\
Build a small data set in a temporary folder, run the same training loop over it with torch's DataLoader and with
headrace's, in turn, and print first batch, waits, throughput and memory side by side. It takes about half a minute
and leaves nothing behind.
"""
_LOADERS = ("torch", "headrace")
_ROUNDS = _EPOCHS = 2
_SHAPE = (64, 96, 96)  # int16: 1.1 MiB a sample, about 4 ms to inflate
_SAMPLE_BYTES = 2 * 64 * 96 * 96
_FASTEST_MS, _SLOWEST_MS = 10, 20  # of a sample's read
_EVERY = 8  # the model looks at every 8th voxel along each axis: a step of some milliseconds on one core
# Reading the memory of six processes takes some milliseconds of a core that the workers could use; the peak of a loop
# in its steady state is broad.
_MEMORY_EVERY_S = 0.2
_TIME_TO_STOP_S = 10.0  # on a busy machine workers take seconds to end, and only then remove their temporary files
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM)


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "the same training loop with torch's loader and with ours, side by side"
    parser = add_command(commands, shared, "demo", run, summary, description=_DESCRIPTION)
    for name, lowest, highest, default, what in (
        ("--workers", 1, 64, 4, "workers of each loader"),
        ("--batch-size", 1, 256, 12, "samples in a batch"),
        ("--samples", 2, 4000, 192, "samples in the data set, each 0.5 MB on disk"),
    ):
        said = f"{what} ({lowest} to {highest}, default: {default})"
        parser.add_argument(name, type=whole(lowest, highest), default=default, metavar="N", help=said)
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/demo/2")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    samples, batch_size = args.samples, args.batch_size
    if samples < 2 * batch_size:
        more = f"try --samples {16 * batch_size} or a smaller --batch-size"
        args.parser.error(f"--samples {samples} is less than two batches of {batch_size}; {more}")
    for each in _STOPPED_BY:
        signal.signal(each, _stop)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        runs = _run_all(folder, args, terminal)
    if len({tuple(one["loop"]["checksums"]) for one in runs}) > 1:
        raise InternalError("headrace delivered other batches than torch")
    if args.json:
        terminal.json(_report_json(args, runs))
    else:
        print_report(args, runs, terminal)
    return EXIT_OK


def _stop(number: int, _: object) -> None:
    """Let the first SIGINT or SIGTERM stop the demo and ignore the next ones, so that cleaning up is not cut short."""
    for each in _STOPPED_BY:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _run_all(folder: str, args: argparse.Namespace, terminal: Terminal) -> list[dict[str, Any]]:
    """Build the data set, and run every loader in every round: what each run measured, as `--json` shows it."""
    import numpy as np

    count, runs = args.samples, []
    noise = np.random.default_rng(0).integers(0, 64, _SHAPE, dtype=np.int16)
    building = (
        f"building a data set of {count} volumes in a temporary folder",
        f"正在临时目录中生成 {count} 个体数据样本",
    )
    try:
        with terminal.progress(Text(*building).of(args.lang)):
            for index in range(count):  # each one different
                Path(folder, str(index)).write_bytes(zlib.compress(np.roll(noise, index).data, level=1))
    except OSError as error:
        what = f"the demo's data set could not be written: {error.strerror}"
        next_step = f"{write_step(error, os.path.join(folder, 'file'))}; or set TMPDIR to another folder"
        raise HeadraceError(what, folder=folder, next_step=next_step.removeprefix("; or ")) from error
    for number, loader in product(range(1, _ROUNDS + 1), _LOADERS):
        running = Text(f"round {number} of {_ROUNDS}: {loader}", f"第 {number} 轮（共 {_ROUNDS} 轮）：{loader}")
        with terminal.progress(running.of(args.lang)):
            loop, peak = _run_one(loader, folder, args, Path(folder) / f"{loader}-{number}.out")
        runs.append({"loader": loader, "round": number, "loop": loop, "peak_memory_bytes": peak})
    return runs


def _run_one(loader: str, folder: str, args: argparse.Namespace, result_file: Path) -> tuple[Any, int | None]:
    """Run the loop in a process, and look at its memory from outside while it runs."""
    from headrace.knowledge import hint_for
    from headrace.signals.system import read_tree_memory

    sizes = map(str, (args.samples, args.batch_size, args.workers))
    command = [sys.executable, "-m", __name__, loader, folder, *sizes, str(result_file)]
    log_file, seen = result_file.with_suffix(".log"), []
    with log_file.open("wb") as log:  # in its own session: Ctrl-C reaches us alone, and its group is the whole tree
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        while process.poll() is None:
            seen.append(read_tree_memory(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(_MEMORY_EVERY_S)
    finally:
        process.send_signal(signal.SIGINT)  # to one that still runs, as Ctrl-C would: the loader ends its workers
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TIME_TO_STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whoever is left, and the process itself if it did not stop
        process.wait()
    if process.returncode != 0:
        said = log_file.read_text(errors="replace").strip()
        hint = hint_for(said)  # torch's batches may not fit into /dev/shm
        what = f"{loader}'s loader stopped in the middle of the demo\n{said}" + (f"\n{hint.of('en')}" if hint else "")
        if loader == "headrace":
            raise InternalError(what, exit_code=process.returncode)
        raise HeadraceError(what, exit_code=process.returncode, next_step="fewer --workers, or a smaller --batch-size")
    return json.loads(result_file.read_text()), max((one for one in seen if one is not None), default=None)


# the figures of a run: their names in the table, how they are shown, and how the rounds become one
_ROWS: dict[str, tuple[Text, Any, Any]] = {
    "first_batch_s": (Text("first batch", "首个 batch 用时"), format_seconds, median),
    "wait_median_s": (Text("wait for a batch, median", "等待一个 batch，中位数"), format_seconds, median),
    "wait_worst_s": (Text("wait for a batch, worst", "等待一个 batch，最长"), format_seconds, max),
    "samples_per_s": (Text("samples per second", "每秒样本数"), three_digits, median),
    "peak_memory_bytes": (Text("peak memory of all processes", "全部进程的内存峰值"), format_bytes, max),
    "loader_memory_bytes": (Text("  of it, added by the loader", "  其中由加载器增加的部分"), format_bytes, max),
}


def summarise(runs: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return each figure of both loaders over all rounds, and their ratio; `None`: the machine does not tell."""
    summary = {}
    for name, (_, _, join) in _ROWS.items():
        known = {loader: [_figures(one)[name] for one in runs if one["loader"] == loader] for loader in _LOADERS}
        torch, ours = (None if None in values else join(values) for values in known.values())
        # where most waits are short and a few are long, the median is about nothing, and so is its ratio
        ratio = ours / torch if torch and ours is not None and name != "wait_median_s" else None
        summary[name] = {"torch": torch, "headrace": ours, "ratio": ratio}
    return summary


def _figures(run: dict[str, Any]) -> dict[str, float | None]:
    loop, peak, before = run["loop"], run["peak_memory_bytes"], run["loop"]["memory_before_bytes"]
    waits = {"wait_median_s": median(loop["waits_s"]), "wait_worst_s": max(loop["waits_s"])}
    added = None if peak is None or before is None else peak - before
    return {**loop, **waits, "peak_memory_bytes": peak, "loader_memory_bytes": added}


def _report_json(args: argparse.Namespace, runs: list[dict[str, Any]]) -> dict[str, Any]:
    settings = {name: getattr(args, name) for name in ("samples", "batch_size", "workers")}
    settings |= {"rounds": _ROUNDS, "epochs": _EPOCHS, "start_method": get_start_method()}
    settings |= {"sample_bytes": _SAMPLE_BYTES, "simulated_read_ms": [_FASTEST_MS, _SLOWEST_MS]}
    return {
        "schema": "headrace/demo/2",
        "versions": {"headrace": __version__, "torch": version("torch"), "python": platform.python_version()},
        "machine": {"cores": len(os.sched_getaffinity(0)), "system": f"{platform.system()} {platform.machine()}"},
        "settings": settings,
        "figures": summarise(runs),
        "batches_identical": True,
        "runs": runs,
    }


def print_report(args: argparse.Namespace, runs: list[dict[str, Any]], terminal: Terminal) -> None:
    from rich.console import Group

    size, method, workers = format_bytes(_SAMPLE_BYTES), get_start_method(), Count(args.workers)
    count, batch_size, cores = args.samples, args.batch_size, len(os.sched_getaffinity(0))
    above = (
        Text(
            f"{count} compressed volumes of {size}, batches of {batch_size}, {workers:worker(s)} ({method}), "
            f"{_EPOCHS} epochs, {cores} cores",
            f"{count} 个压缩体数据，每个解码后 {size}；batch 大小 {batch_size}，{workers} 个 worker（{method}），"
            f"{_EPOCHS} 个 epoch，{cores} 个 CPU 核",
        ),
        Text(
            f"The disk is simulated: a sample sleeps {_FASTEST_MS} to {_SLOWEST_MS} ms before it is read. "
            "The rest is real.",
            f"磁盘速度是模拟的：每个样本读取前先休眠 {_FASTEST_MS} 到 {_SLOWEST_MS} 毫秒；其余都是真实的计算。",
        ),
    )
    below = (
        Text(
            f"The loaders took turns, {_ROUNDS} rounds, each in its own process: the worst wait and the most memory "
            "of them, of the rest the median.",
            f"两种加载器交替运行，各 {_ROUNDS} 轮，每次都用独立的进程；最长等待和内存取各轮最大值，其余取中位数。",
        ),
        Text(
            "Next: in your script, `from headrace import DataLoader`, and leave everything else as it is.",
            "下一步：在训练脚本里改成 `from headrace import DataLoader`，其余代码不用动。",
        ),
    )
    title = Text("The same training loop over the same data set", "同一个训练循环，同一个数据集").of(args.lang)
    unknown = Text("not measured", "未测得").of(args.lang)
    table = plain_table(gap=3)
    for heading in ("", *_LOADERS, "headrace / torch"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, figures in summarise(runs).items():
        (row, show, _), ratio = _ROWS[name], figures["ratio"]
        shown = [unknown if figures[loader] is None else show(figures[loader]) for loader in _LOADERS]
        is_better = ratio is not None and (ratio > 1) == (name == "samples_per_s")
        compared = line("" if ratio is None else f"{three_digits(ratio)}x", "green" if is_better else "yellow")
        table.add_row(row.of(args.lang), *shown, compared)
    num_batches = sum(len(one["loop"]["checksums"]) for one in runs if one["loader"] == "headrace")
    same = Text(f"yes, all {num_batches}", f"一致，共 {num_batches} 个").of(args.lang)
    table.add_row(Text("batches identical", "各 batch 内容是否一致").of(args.lang), "", line(same, "green"), "")
    said, next_step = ([line(text.of(args.lang)) for text in texts] for texts in (above, below))
    terminal.result(Group(line(title, "bold"), *said, "", table, "", *next_step))


class SlowVolumes:
    """A map-style data set over the small compressed volumes in a folder. A worker needs no torch for it."""

    def __init__(self, folder: str, num_samples: int) -> None:
        self.folder, self.num_samples = folder, num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        import numpy as np

        # How long the disk takes is a function of the index alone, so both loaders pay it. Knuth's multiplicative
        # hash: even, and without a pattern.
        spread = (index * 2654435761 % 2**32) / 2**32
        time.sleep((_FASTEST_MS + (_SLOWEST_MS - _FASTEST_MS) * spread) / 1000)
        data = bytearray(zlib.decompress(Path(self.folder, str(index)).read_bytes()))
        return {"volume": np.frombuffer(data, np.int16).reshape(_SHAPE), "label": index % 2, "index": index}


def _train(loader_name: str, folder: str, num_samples: int, batch_size: int, num_workers: int) -> dict[str, Any]:
    """Train a small model over the data set in a folder and measure what the loop saw of its loader."""
    import torch

    import headrace
    from headrace.signals.system import read_tree_memory

    torch.set_num_threads(1)  # on the machine of a demo the cores belong to the workers
    weights = torch.zeros(_SAMPLE_BYTES // 2 // _EVERY**3, 2, requires_grad=True)
    kind: Any = headrace.DataLoader if loader_name == "headrace" else torch.utils.data.DataLoader
    how = {"batch_size": batch_size, "shuffle": True, "num_workers": num_workers, "persistent_workers": True}
    arrivals: list[float] = []
    waits_s: list[float] = []
    checksums: list[int] = []
    memory_before_bytes, asked_at = read_tree_memory(os.getpid()), time.perf_counter()
    loader = kind(SlowVolumes(folder, num_samples), generator=torch.Generator().manual_seed(0), **how)
    for _ in range(_EPOCHS):
        for batch in loader:
            arrivals.append(time.perf_counter())
            waits_s.append(arrivals[-1] - asked_at)
            # All bytes, as a copy to a device would read them; this is also what shows that batches are identical.
            checksums.append(0)
            for name in sorted(batch):
                checksums[-1] = zlib.crc32(batch[name].numpy().data, checksums[-1])
            voxels = batch["volume"][:, ::_EVERY, ::_EVERY, ::_EVERY].flatten(1).float()
            loss = torch.nn.functional.cross_entropy(voxels @ weights, batch["label"])
            # By hand: a torch optimizer imports the compiler, which costs a second and leaves a folder behind.
            (gradient,) = torch.autograd.grad(loss, [weights])
            with torch.no_grad():
                weights.sub_(1e-6 * gradient)
            del batch, voxels
            asked_at = time.perf_counter()
        asked_at = time.perf_counter()
    return {
        "first_batch_s": waits_s[0],
        "waits_s": waits_s[1:],  # epoch after epoch
        "samples_per_s": (_EPOCHS * num_samples - batch_size) / (arrivals[-1] - arrivals[0]),
        "memory_before_bytes": memory_before_bytes,
        "checksums": checksums,
    }


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing is left behind, however our parent ends
    _, name, place, *numbers, result = sys.argv
    Path(result).write_text(json.dumps(_train(name, place, *map(int, numbers))))
