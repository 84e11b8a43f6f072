"""`headrace demo`: one training loop with torch's loader and with ours, in turn, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, InternalError
from headrace.model import Text, format_bytes

from ..arguments import Commands, add_command, add_language, language_of, whole
from ..terminal import EXIT_OK, Terminal

if TYPE_CHECKING:
    from .loop import DemoSettings
    from .report import DemoRun

_DESCRIPTION = """\
Build a small data set in a temporary folder, run the same training loop over it with torch's DataLoader and with
headrace's, in turn, and print first batch, waits, throughput and memory side by side. It takes about half a minute
and leaves nothing behind.
"""
# Reading the memory of six processes takes some milliseconds of a core that the workers could use; the peak of a loop
# in its steady state is broad.
_MEMORY_EVERY_S = 0.2
_TIME_TO_STOP_S = 3.0


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser = add_command(
        commands,
        shared,
        "demo",
        summary="the same training loop with torch's loader and with ours, side by side",
        description=_DESCRIPTION,
    )
    options = (
        ("--workers", 1, 64, 4, "workers of each loader"),
        ("--batch-size", 1, 256, 12, "samples in a batch"),
        ("--samples", 2, 4000, 192, "samples in the data set, each 0.5 MB on disk"),
    )
    for name, lowest, highest, default, what in options:
        said = f"{what} ({lowest} to {highest}, default: {default})"
        parser.add_argument(name, type=whole(lowest, highest), default=default, metavar="N", help=said)
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/demo/1")
    parser.set_defaults(run=lambda args, terminal: run(parser, args, terminal))


def run(parser: argparse.ArgumentParser, args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the demo and print its figures."""
    if args.samples < 2 * args.batch_size:
        parser.error(
            f"--samples {args.samples} is less than two batches of {args.batch_size}; "
            f"try --samples {16 * args.batch_size} or a smaller --batch-size"
        )
    from .loop import DemoSettings
    from .report import report_json, report_text, summarise

    language = language_of(args)
    settings = DemoSettings(samples=args.samples, batch_size=args.batch_size, workers=args.workers)
    report = summarise(settings, _run_all(settings, language, terminal))
    if args.json:
        terminal.json(report_json(report))
    else:
        terminal.result(report_text(report, language))
    if report.first_difference is not None:
        raise InternalError("headrace delivered other batches than torch", first_difference=report.first_difference)
    return EXIT_OK


def _run_all(settings: DemoSettings, language: str, terminal: Terminal) -> list[DemoRun]:
    """Build the data set, run every loader in every round, and leave nothing behind, not even after Ctrl-C."""
    from .report import LOADERS

    runs = []
    with _stopped_once(), tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        building = Text(
            f"building a data set of {settings.samples} volumes in a temporary folder",
            f"正在临时目录中生成 {settings.samples} 个体数据样本",
        )
        with terminal.progress(building.of(language)):
            _build(folder, settings.samples)
        for number in range(1, settings.rounds + 1):
            for loader in LOADERS:
                running = Text(
                    f"round {number} of {settings.rounds}: {loader}",
                    f"第 {number} 轮（共 {settings.rounds} 轮）：{loader}",
                )
                with terminal.progress(running.of(language)):
                    runs.append(_run_one(folder, settings, loader, number))
    return runs


@contextmanager
def _stopped_once() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the demo and ignore the next ones, so that cleaning up is not cut short."""

    def stop(number: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _build(folder: str, samples: int) -> None:
    from .loop import write_volumes

    try:
        write_volumes(folder, samples)
    except OSError as error:
        raise HeadraceError(
            f"the demo's data set could not be written: {error.strerror}",
            folder=folder,
            samples=samples,
            next_step="set TMPDIR to a folder with more room, or ask for fewer --samples",
        ) from error


def _run_one(folder: str, settings: DemoSettings, loader: str, number: int) -> DemoRun:
    from headrace.signals.system import ProcessTree

    from .loop import LoopResult, tree_memory_bytes
    from .report import DemoRun

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
    peak_memory_bytes, tree = None, ProcessTree(process.pid)
    try:
        while process.poll() is None:
            memory_bytes = tree_memory_bytes(tree)
            if memory_bytes is not None:
                peak_memory_bytes = max(peak_memory_bytes or 0, memory_bytes)
            try:
                process.wait(_MEMORY_EVERY_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        _end(process)
    if process.returncode != 0:
        raise _failure(loader, settings, process.returncode, log_file.read_text(errors="replace").strip())
    loop = LoopResult(**json.loads(result_file.read_text()))
    return DemoRun(loader=loader, round=number, loop=loop, peak_memory_bytes=peak_memory_bytes)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # as Ctrl-C would: the loader ends its workers
        try:
            process.wait(_TIME_TO_STOP_S)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)  # whoever is left of the tree, and the process itself if it did not stop
    except ProcessLookupError:
        pass
    process.wait()


def _failure(loader: str, settings: DemoSettings, exit_code: int, log: str) -> HeadraceError:
    from .loop import SAMPLE_BYTES

    if loader == "headrace":
        return InternalError(f"headrace's loader stopped in the middle of the demo\n{log}", exit_code=exit_code)
    in_flight_bytes = 2 * settings.workers * settings.batch_size * SAMPLE_BYTES  # torch's default: two batches a worker
    try:
        room = os.statvfs("/dev/shm")
        free_bytes = room.f_bavail * room.f_frsize
    except FileNotFoundError:
        free_bytes = in_flight_bytes
    if free_bytes < in_flight_bytes:
        return HeadraceError(
            "torch's loader stopped in the middle of the demo: its batches do not fit into /dev/shm",
            exit_code=exit_code,
            needed=format_bytes(in_flight_bytes),
            free=format_bytes(free_bytes),
            next_step="headrace demo --workers 2 --batch-size 4, or `docker run --shm-size=1g`",
        )
    return HeadraceError(f"torch's loader stopped in the middle of the demo\n{log}", exit_code=exit_code)
