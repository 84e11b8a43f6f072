"""When to raise an alarm (a state machine, looks in, alarms out), and the user's command that is run for it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.model import Text, format_bytes, format_seconds, format_share, parse_bytes

from .end import End
from .look import SCHEMA, Alarm, MachineLook, TrainerLook, WorkerLook
from .reading import WorkerActivity

_LOG = logging.getLogger(__name__)
_AT_ONCE = 4  # a command that hangs must not pile up
_PATIENCE_S = 5.0
_TOGETHER_TICKS = 1000  # workers started within ten seconds of each other are of one epoch


@dataclass(frozen=True)
class MemoryLine:
    """How much memory is too much: a share of what there is, or bytes of the training's own processes."""

    share: float | None = None
    size_bytes: int | None = None

    @classmethod
    def parse(cls, text: str) -> MemoryLine:
        """Read "90%" or "40GiB".

        >>> MemoryLine.parse("90%").share, MemoryLine.parse("1GiB").size_bytes
        (0.9, 1073741824)
        """
        stripped = text.strip()
        if not stripped.endswith("%"):
            return cls(size_bytes=parse_bytes(stripped, name="--memory"))
        try:
            share = float(stripped[:-1]) / 100
        except ValueError:
            raise ValueError(f"--memory={text!r} is neither a share such as 90% nor a size such as 40GiB") from None
        if not 0 < share <= 1:
            raise ValueError(f"--memory={text!r}: a share lies above 0% and up to 100%")
        return cls(share=share)


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """Where the lines are."""

    memory: MemoryLine | None = field(default_factory=lambda: MemoryLine(share=0.9))
    stuck_s: float = 60.0  # longer than any healthy sample of the data sets we know
    swap_in_bytes_per_s: float = 1 << 20  # a few pages come back on any machine; a megabyte a second is felt
    again_after_s: float = 300.0  # what stays wrong is told again so often, not with every look


@dataclass
class AlarmState:
    """What was told already, and who was there. No process and no clock inside."""

    settings: AlarmSettings
    told_at: dict[tuple[str, int | None], float] = field(default_factory=dict)
    workers: dict[tuple[int, int], WorkerLook] = field(default_factory=dict)
    trainers: dict[tuple[int, int], TrainerLook] = field(default_factory=dict)
    missing: dict[tuple[int, int], WorkerLook] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)

    def expect(self, trainers: Sequence[TrainerLook], workers: Sequence[WorkerLook]) -> None:
        """Learn of processes that were there when a look began: one may be gone before it is seen at all."""
        for worker in workers:
            self.workers.setdefault((worker.pid, worker.started), worker)
        for trainer in trainers:
            self.trainers.setdefault((trainer.pid, trainer.started), trainer)

    def handle(
        self,
        at_s: float,
        trainers: Sequence[TrainerLook],
        workers: Sequence[WorkerLook],
        machine: MachineLook,
        ended: Sequence[End] = (),
    ) -> tuple[Alarm, ...]:
        """Take in one look and return what is new, or still wrong after a long time."""
        self.ends.update({end.pid: end for end in ended})
        found = [
            *self._memory(machine),
            *self._swap(machine),
            *(alarm for trainer in trainers for alarm in self._stuck_trainer(trainer)),
            *(alarm for worker in workers for alarm in self._stuck_worker(worker)),
            *self._gone(trainers, workers),
        ]
        self.workers = {(worker.pid, worker.started): worker for worker in workers}
        self.trainers = {(trainer.pid, trainer.started): trainer for trainer in trainers}
        return tuple(self._fresh(found, at_s))

    def _fresh(self, found: Sequence[Alarm], at_s: float) -> list[Alarm]:
        keys = {(alarm.kind, alarm.pid) for alarm in found}
        # what is over may be told again when it comes back; a process that is gone never does
        self.told_at = {k: t for k, t in self.told_at.items() if k in keys or k[0].endswith("_gone")}
        fresh = []
        for alarm in found:
            key = (alarm.kind, alarm.pid)
            if key not in self.told_at or at_s - self.told_at[key] >= self.settings.again_after_s:
                self.told_at[key] = at_s
                fresh.append(alarm)
        return fresh

    def _memory(self, machine: MachineLook) -> list[Alarm]:
        line, share = self.settings.memory, machine.memory_share
        if line is None:
            return []
        if line.size_bytes is not None and machine.tree_bytes > line.size_bytes:
            what = Text("the training holds {used}, more than {line}", "训练进程共占用 {used}，超过 {line}").filled(
                used=format_bytes(machine.tree_bytes), line=format_bytes(line.size_bytes)
            )
            evidence: dict[str, object] = {"used_bytes": machine.tree_bytes, "line_bytes": line.size_bytes}
            return [Alarm(kind="memory", pid=None, what=what, evidence=evidence)]
        if line.share is not None and share is not None and share > line.share:
            what = Text(
                "{share} of {limit} are in use ({source}), more than {line}",
                "{limit} 内存已用 {share}（{source}），超过 {line}",
            ).filled(
                share=format_share(share),
                limit=format_bytes(machine.memory_limit_bytes or 0),
                source=machine.memory_source,
                line=format_share(line.share),
            )
            evidence = {"share": share, "limit_bytes": machine.memory_limit_bytes}
            return [Alarm(kind="memory", pid=None, what=what, evidence=evidence)]
        return []

    def _swap(self, machine: MachineLook) -> list[Alarm]:
        rate = machine.swap_in_bytes_per_s
        if rate is None or rate < self.settings.swap_in_bytes_per_s:
            return []
        what = Text("memory is read back from swap: {rate}/s", "内存正在从交换区读回：每秒 {rate}")
        what = what.filled(rate=format_bytes(rate))
        return [Alarm(kind="swap_in", pid=None, what=what, evidence={"bytes_per_s": rate})]

    def _stuck_worker(self, worker: WorkerLook) -> list[Alarm]:
        if not is_stuck(worker, self.settings.stuck_s):
            return []
        what = stood_still(worker)
        if worker.activity is WorkerActivity.STOPPED:
            what = Text(
                "{name} (pid {pid}) has been stopped for {time} by a signal or a debugger: `kill -CONT {pid}`",
                "{name}（pid {pid}）已被信号或调试器暂停 {time}：可执行 `kill -CONT {pid}`",
            ).filled(name=worker.name, pid=worker.pid, time=format_seconds(worker.same_for_s))
        return [_stuck_alarm(worker, what)]

    def _stuck_trainer(self, trainer: TrainerLook) -> list[Alarm]:
        if trainer.same_for_s < self.settings.stuck_s:
            return []
        what = Text(
            "the trainer (pid {pid}) has not got on for {time}: {place}",
            "训练进程（pid {pid}）已有 {time} 没有进展：{place}",
        ).filled(
            pid=trainer.pid,
            time=format_seconds(trainer.same_for_s),
            place=trainer.reading.at or trainer.standing.wait_channel or "?",
        )
        return [_stuck_alarm(trainer, what)]

    def _gone(self, trainers: Sequence[TrainerLook], workers: Sequence[WorkerLook]) -> list[Alarm]:
        here = {(worker.pid, worker.started) for worker in workers}
        living = {trainer.pid for trainer in trainers}
        found = []
        for key, trainer in self.trainers.items():
            end = self.ends.get(trainer.pid)
            if trainer.pid not in living and not (end is not None and end.is_known_good):
                rank = "" if trainer.rank is None else f", rank {trainer.rank}"
                name = Text(f"the trainer (pid {trainer.pid}{rank})", f"训练进程（pid {trainer.pid}{rank}）")
                found.append(_gone_alarm("trainer_gone", trainer.pid, name, end))
                self.missing = {k: w for k, w in self.missing.items() if w.trainer_pid != key[0]}
        candidates = {**self.missing, **{key: worker for key, worker in self.workers.items() if key not in here}}
        self.missing = {}
        for key, worker in candidates.items():
            verdict = self._judge_missing(worker, workers, living, is_second_look=key not in self.workers)
            if verdict is None:
                self.missing[key] = worker
            elif verdict:
                name = Text(f"{worker.name} (pid {worker.pid})", f"{worker.name}（pid {worker.pid}）")
                found.append(_gone_alarm("worker_gone", worker.pid, name, self.ends.get(worker.pid)))
        return found

    def _judge_missing(
        self, worker: WorkerLook, workers: Sequence[WorkerLook], living: set[int], *, is_second_look: bool
    ) -> bool | None:
        """Whether a worker that is not there any more was lost; None: the next look decides.

        At the end of an epoch torch ends all workers at once, with exit code 0. One that was killed says so; of one
        whose end nobody saw it tells that its siblings are still there.
        """
        end = self.ends.get(worker.pid)
        if end is not None and end.is_known_good:
            return False
        if end is not None and end.is_known_bad and end.signal_number != signal.SIGTERM:
            return True
        if worker.trainer_pid is not None and worker.trainer_pid not in living:
            return False  # the trainer's own end is told
        has_siblings = any(
            one.trainer_pid == worker.trainer_pid and abs(one.started - worker.started) < _TOGETHER_TICKS
            for one in workers
        )
        if not has_siblings:
            return False
        return True if is_second_look else None


def is_stuck(worker: WorkerLook, stuck_s: float) -> bool:
    """Whether a worker is at one place for too long; one that computes may be at a heavy batch: five times as long."""
    return worker.same_for_s >= (stuck_s if worker.rates.cpu_share < 0.05 else 5 * stuck_s)


def stood_still(worker: WorkerLook) -> Text:
    """Where a worker stands, and for how long."""
    return Text(
        "{name} (pid {pid}) has stood at the same place for {time}: {place}",
        "{name}（pid {pid}）停在同一处已有 {time}：{place}",
    ).filled(name=worker.name, pid=worker.pid, time=format_seconds(worker.same_for_s), place=worker.place)


def _stuck_alarm(process: TrainerLook | WorkerLook, what: Text) -> Alarm:
    evidence = {"same_for_s": process.same_for_s, "stack": [str(frame) for frame in process.stack]}
    return Alarm(kind="stuck", pid=process.pid, what=what, evidence=evidence)


def _gone_alarm(kind: str, pid: int, name: Text, end: End | None) -> Alarm:
    said = (end or End(pid=pid)).text()
    status = {} if end is None else {"exit_code": end.exit_code, "signal": end.signal_number}
    return Alarm(kind=kind, pid=pid, what=Text(f"{name.en} {said.en}", f"{name.zh}{said.zh}"), evidence=status)


class AlertCommand:
    """A shell command that gets each alarm in its environment and as JSON on stdin."""

    def __init__(self, command: str, *, language: str = "en") -> None:
        self._command, self._language = command, language
        self._running: list[subprocess.Popen[bytes]] = []
        self.num_started = self.num_left_out = 0

    def __enter__(self) -> AlertCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, alarm: Alarm, watched: str) -> None:
        """Start the command; left out, and counted, while several still run."""
        self._running = [process for process in self._running if process.poll() is None]
        if len(self._running) >= _AT_ONCE:
            self.num_left_out += 1
            _LOG.warning("alarm %s: the alert command is left out, %d of it still run", alarm.kind, _AT_ONCE)
            return
        document = {"schema": SCHEMA, "event": "alarm", "watched": watched, **alarm.as_json(self._language)}
        environment = {
            **os.environ,
            "HEADRACE_ALARM": alarm.kind,
            "HEADRACE_ALARM_PID": "" if alarm.pid is None else str(alarm.pid),
            "HEADRACE_ALARM_TEXT": alarm.what.of(self._language),
            "HEADRACE_ALARM_WATCHED": watched,
        }
        with tempfile.TemporaryFile() as given:  # a pipe could fill up and hold us
            given.write(json.dumps(document, ensure_ascii=False).encode())
            given.seek(0)
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._command],
                    stdin=given,
                    stdout=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                _LOG.warning("the alert command does not start: %s", error)
                return
        self._running.append(process)
        self.num_started += 1

    def close(self) -> None:
        """Give those that still run a few seconds, then leave them: they are the user's."""
        deadline = time.monotonic() + _PATIENCE_S
        for process in self._running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.returncode = 0  # not ours to end, and no complaint of Popen about it
        self._running.clear()
