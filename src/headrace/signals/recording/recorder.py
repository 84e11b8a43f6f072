"""Whoever owns a recording: drains the lanes and samples the system into a run directory, and outlives the training."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.errors import UnusableInput

from .area import Area
from .event_file import EventFile
from .lane_drain import LaneDrain
from .run_facts import RunFacts, write_facts
from .sampler import SystemSampler
from .system_file import SystemFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_log = logging.getLogger(__name__)

EVENTS_FILE, SYSTEM_FILE, RUN_FILE = "events.bin", "system.jsonl", "run.json"
# A run of an hour with eight workers writes some 400 MB of events; one of a month stays under this.
EVENTS_LIMIT_BYTES = 2 << 30
SYSTEM_LIMIT_BYTES = 256 << 20
_LEAST_INTERVAL_S = 0.05
_FULL = 0.25  # a ring that is fuller than this at a drain is drained sooner the next time


class Recorder:
    """Records into a directory until it is closed.

        with Recorder("runs/1", facts=RunFacts.here(command)) as recorder:
            child = subprocess.Popen(command, env={**os.environ, **recorder.environment})
            recorder.watch(child.pid)
            recorder.start()              # or call recorder.step() every recorder.pause_s seconds
            recorder.close(exit_code=child.wait())

    The watched process and all below it are what is sampled; until `watch` is called that is this process.
    `observer` is called with (pid, records) for what each drain brought, before anything is thinned.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        interval_s: float = 0.5,
        sample_interval_s: float = 1.0,
        facts: RunFacts | None = None,
        events_limit_bytes: int = EVENTS_LIMIT_BYTES,
        system_limit_bytes: int = SYSTEM_LIMIT_BYTES,
        area: Area | None = None,
        observer: Callable[[int, npt.NDArray[np.void]], None] | None = None,
    ) -> None:
        if interval_s <= 0 or sample_interval_s <= 0:
            raise ValueError("interval_s and sample_interval_s must be more than 0")
        self.directory = Path(directory)
        self._interval_s, self._sample_interval_s = interval_s, sample_interval_s
        self._facts = RunFacts.here() if facts is None else facts
        if not self._facts.start_monotonic_ns:
            self._facts = replace(self._facts, start_monotonic_ns=time.monotonic_ns(), start_wall_s=time.time())
        _prepare(self.directory)
        self.area = Area.create() if area is None else area
        self._sampler = SystemSampler(os.getpid(), directory=self.directory)
        self._facts = self._sampler.complete(self._facts)
        start_s = self._facts.start_monotonic_ns / 1e9
        self._events = EventFile(self.directory / EVENTS_FILE, limit_bytes=events_limit_bytes, start_s=start_s)
        self._system = SystemFile(
            self.directory / SYSTEM_FILE,
            limit_bytes=system_limit_bytes,
            start_s=start_s,
            interval_s=sample_interval_s,
        )
        self._drain = LaneDrain(self.area, observer)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._pause_s = interval_s
        self._write_facts()

    def __repr__(self) -> str:
        drain = self._drain
        return (
            f"Recorder({str(self.directory)!r}, processes={drain.num_processes}, "
            f"records={drain.num_records}, lost={drain.num_lost}, bytes={self._events.num_bytes})"
        )

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def facts(self) -> RunFacts:
        """What is known of the run so far."""
        return self._facts

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs in its environment to take part."""
        return {"HEADRACE_RECORDING": self.area.place}

    @property
    def pause_s(self) -> float:
        """How long to wait until the next `step`; shorter while rings fill fast."""
        return self._pause_s

    @property
    def num_records(self) -> int:
        return self._drain.num_records

    @property
    def num_lost(self) -> int:
        return self._drain.num_lost

    def watch(self, pid: int) -> None:
        """Say which process is the training: it and all below it are sampled."""
        self._sampler.watch(pid)
        self._facts = replace(self._facts, trainer_pid=pid)
        self._write_facts()

    def start(self) -> None:
        """Record in a thread of its own until `close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headrace-recorder", daemon=True)
            self._thread.start()

    def step(self) -> int:
        """Drain all lanes, and sample the system if that is due; returns how many records came."""
        with self._lock:
            return 0 if self._is_closed else self._step(is_last=False)

    def close(self, *, exit_code: int | None = None) -> None:
        """Drain the rest and write down how it ended. Safe to call twice.

        `exit_code` is as `subprocess` gives it: negative for a signal. None where there is nothing to tell.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self._is_closed:
                return
            self._step(is_last=True)
            self._is_closed = True
            signal = -exit_code if exit_code is not None and exit_code < 0 else None
            self._facts = replace(
                self._facts,
                end_monotonic_ns=time.monotonic_ns(),
                exit_code=exit_code if signal is None else None,
                exit_signal=signal,
                problems=tuple(self._problems()),
            )
            self._write_facts()
            self._events.close()
            self._system.close()
            self._sampler.close()
            self._drain.close()
            self.area.close()

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except Exception:  # a recording that fails must not end the training that it watches
                _log.exception("the recording of %s failed", self.directory)
                return
            if self._stop.wait(self._pause_s):
                return

    def _step(self, *, is_last: bool) -> int:
        now_s = time.monotonic()
        blocks, notes = self._drain.drain(is_last=is_last)
        self._events.write(blocks, notes, now_s=now_s, is_last=is_last)
        if is_last or self._system.is_due(now_s):
            self._system.write(self._sampler.sample(), now_s=now_s)
        if self._drain.fullest > _FULL:
            self._pause_s = max(_LEAST_INTERVAL_S, self._pause_s / 2)
        else:
            self._pause_s = min(self._interval_s, self._pause_s * 1.5)
        return sum(len(block) for _, _, block in blocks)

    def _problems(self) -> list[str]:
        found = [*self._events.problems, *self._system.problems, *self._drain.problems]
        if self.area.num_refused:
            found.append(
                f"{self.area.num_refused} times a process found no free lane among {self.area.num_lanes} "
                "and was not recorded"
            )
        return found

    def _write_facts(self) -> None:
        try:
            write_facts(self.directory / RUN_FILE, self._facts)
        except OSError as error:
            _log.warning("cannot write %s: %s", self.directory / RUN_FILE, error)


def _prepare(directory: Path) -> None:
    if (directory / RUN_FILE).exists() or (directory / EVENTS_FILE).exists():
        raise UnusableInput(
            f"{directory} holds a recording already",
            next_step="give another directory, or remove that one",
        )
    directory.mkdir(parents=True, exist_ok=True)
