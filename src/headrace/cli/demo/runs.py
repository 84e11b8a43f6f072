"""All runs of the demo: torch's loader and ours in turn, each in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from headrace.errors import HeadraceError, InternalError
from headrace.model import format_bytes

from .data import SAMPLE_BYTES, write_volumes
from .loop import LoopResult, LoopSettings
from .memory import tree_memory_bytes

LOADERS = ("torch", "headrace")

# Reading the memory of six processes takes some milliseconds of a core that the workers could use; the peak of a loop
# in its steady state is broad.
_MEMORY_EVERY_S = 0.2
_TIME_TO_STOP_S = 3.0


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What the user may choose; the defaults make a demo of some 20 seconds on two cores."""

    samples: int = 192  # 16 batches an epoch: enough to see a pattern in the waits
    batch_size: int = 12
    workers: int = 4
    rounds: int = 2
    epochs: int = 2  # the first warms up; page faults are counted in the second


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of the loop and the memory that was seen from outside while it ran."""

    loader: str
    round: int
    loop: LoopResult
    peak_memory_bytes: int | None


@dataclass(frozen=True)
class Building:
    """The data set is being written."""


@dataclass(frozen=True)
class Running:
    """A loader has its turn."""

    loader: str
    round: int


def run_demo(
    settings: DemoSettings, *, during: Callable[[Building | Running], AbstractContextManager[None]]
) -> list[Run]:
    """Build the data set, run every loader in every round, and leave nothing behind, not even after Ctrl-C."""
    runs = []
    with _stopped_once(), tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        with during(Building()):
            _build(folder, settings)
        for number in range(1, settings.rounds + 1):
            for loader in LOADERS:
                with during(Running(loader, number)):
                    runs.append(_run(folder, settings, loader, number))
    return runs


def _build(folder: str, settings: DemoSettings) -> None:
    try:
        write_volumes(folder, settings.samples)
    except OSError as error:
        raise HeadraceError(
            f"the demo's data set could not be written: {error.strerror}",
            folder=folder,
            samples=settings.samples,
            next_step="set TMPDIR to a folder with more room, or ask for fewer --samples",
        ) from error


def _run(folder: str, settings: DemoSettings, loader: str, number: int) -> Run:
    asked = LoopSettings(
        loader=loader,
        folder=folder,
        samples=settings.samples,
        batch_size=settings.batch_size,
        workers=settings.workers,
        epochs=settings.epochs,
    )
    settings_file, result_file, log_file = (Path(folder) / f"{loader}-{number}.{kind}" for kind in ("in", "out", "log"))
    settings_file.write_text(json.dumps(asdict(asked)))
    peak_memory_bytes = None
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.demo.loop", str(settings_file), str(result_file)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches us alone, and the whole tree can be ended by its group
        )
    try:
        while process.poll() is None:
            memory_bytes = tree_memory_bytes(process.pid)
            if memory_bytes is not None:
                peak_memory_bytes = max(peak_memory_bytes or 0, memory_bytes)
            try:
                process.wait(_MEMORY_EVERY_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        _end(process)
    if process.returncode != 0:
        raise _failure(asked, process.returncode, log_file.read_text(errors="replace").strip())
    loop = LoopResult(**json.loads(result_file.read_text()))
    return Run(loader=loader, round=number, loop=loop, peak_memory_bytes=peak_memory_bytes)


def _end(process: "subprocess.Popen[bytes]") -> None:
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


def _failure(asked: LoopSettings, exit_code: int, log: str) -> HeadraceError:
    if asked.loader == "headrace":
        return InternalError(f"headrace's loader stopped in the middle of the demo\n{log}", exit_code=exit_code)
    in_flight_bytes = 2 * asked.workers * asked.batch_size * SAMPLE_BYTES  # torch's default: two batches a worker
    free_bytes = _free_shared_bytes()
    if free_bytes is not None and free_bytes < in_flight_bytes:
        return HeadraceError(
            "torch's loader stopped in the middle of the demo: its batches do not fit into /dev/shm",
            exit_code=exit_code,
            needed=format_bytes(in_flight_bytes),
            free=format_bytes(free_bytes),
            next_step="headrace demo --workers 2 --batch-size 4, or `docker run --shm-size=1g`",
        )
    return HeadraceError(f"torch's loader stopped in the middle of the demo\n{log}", exit_code=exit_code)


def _free_shared_bytes() -> int | None:
    try:
        room = os.statvfs("/dev/shm")
    except FileNotFoundError:
        return None
    return room.f_bavail * room.f_frsize


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
