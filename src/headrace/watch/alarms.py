"""When to raise an alarm (a state machine, looks in, alarms out), and the user's command that is run for it."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from headrace.model import Text, format_bytes, format_seconds, format_share, parse_bytes

from .look import SCHEMA, Alarm, MachineLook, TrainerLook, WorkerLook
from .processes import End

_AT_ONCE = 4  # a command that hangs must not pile up
_PATIENCE_S = 5.0
_TOGETHER_TICKS = 1000  # workers started within ten seconds of each other are of one epoch


@dataclass(frozen=True)
class MemoryLine:
    """How much memory is too much: a share of what there is, or bytes of the training's own processes."""

    share: float | None = None
    size_bytes: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
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
    memory: MemoryLine | None = field(default_factory=lambda: MemoryLine(share=0.9))
    stuck_s: float = 60.0  # longer than any healthy sample of the data sets we know
    swap_in_bytes_per_s: float = 1 << 20  # a few pages come back on any machine; a megabyte a second is felt
    again_after_s: float = 300.0  # what stays wrong is told again so often, not with every look


@dataclass
class AlarmState:
    """What was told already, and who was there. No process and no clock inside."""

    settings: AlarmSettings
    told_at: dict[tuple[str, int | None], float] = field(default_factory=dict)
    known: dict[int, TrainerLook | WorkerLook] = field(default_factory=dict)  # those that have not ended
    unclear: list[WorkerLook] = field(default_factory=list)  # have ended, nobody knows how

    def handle(
        self,
        at_s: float,
        trainers: Sequence[TrainerLook],
        workers: Sequence[WorkerLook],
        machine: MachineLook,
        ended: Sequence[End] = (),
    ) -> tuple[Alarm, ...]:
        """Take in one look, `ended` since it began, and return what is new, or still wrong after a long time."""
        everybody: list[TrainerLook | WorkerLook] = [*trainers, *workers]
        self.known |= {one.pid: one for one in everybody}
        gone = {end.pid for end in ended}
        found = [
            *self._memory(machine),
            *(alarm for one in everybody if one.pid not in gone for alarm in self._stuck(one)),
            *self._gone(ended, [one for one in workers if one.pid not in gone]),
        ]
        self.known = {pid: one for pid, one in self.known.items() if pid not in gone}
        keys = {(alarm.kind, alarm.pid) for alarm in found}
        self.told_at = {k: t for k, t in self.told_at.items() if k in keys}  # what is over and comes back is told anew
        due_s = at_s - self.settings.again_after_s
        fresh = tuple(alarm for alarm in found if self.told_at.get((alarm.kind, alarm.pid), due_s) <= due_s)
        self.told_at |= {(alarm.kind, alarm.pid): at_s for alarm in fresh}
        return fresh

    def _memory(self, machine: MachineLook) -> Iterator[Alarm]:
        line, swap_in, limit_bytes = self.settings.memory, machine.swap_in_bytes_per_s, machine.memory_limit_bytes
        if swap_in is not None and swap_in >= self.settings.swap_in_bytes_per_s:
            rate = format_bytes(swap_in)
            what = Text(f"memory is read back from swap: {rate}/s", f"内存正在从交换区读回：每秒 {rate}")
            yield Alarm(kind="swap_in", pid=None, what=what, evidence={"bytes_per_s": swap_in})
        if line is None:
            return
        if line.size_bytes is not None and machine.tree_bytes > line.size_bytes:
            used, most = format_bytes(machine.tree_bytes), format_bytes(line.size_bytes)
            what = Text(f"the training holds {used}, more than {most}", f"训练进程共占用 {used}，超过 {most}")
            evidence: dict[str, object] = {"used_bytes": machine.tree_bytes, "line_bytes": line.size_bytes}
            yield Alarm(kind="memory", pid=None, what=what, evidence=evidence)
        share = (machine.memory_used_bytes or 0) / limit_bytes if limit_bytes else 0.0
        if line.share is not None and limit_bytes and share > line.share:
            used, most, source = format_share(share), format_share(line.share), machine.memory_source
            limit = format_bytes(limit_bytes)
            what = Text(
                f"{used} of {limit} are in use ({source}), more than {most}",
                f"{limit} 内存已用 {used}（{source}），超过 {most}",
            )
            evidence = {"share": share, "limit_bytes": limit_bytes}
            yield Alarm(kind="memory", pid=None, what=what, evidence=evidence)

    def _stuck(self, process: TrainerLook | WorkerLook) -> Iterator[Alarm]:
        """One that is at one place for too long; one that computes may be at a heavy batch: five times as long."""
        if process.same_for_s < self.settings.stuck_s * (1 if process.rates.cpu_share < 0.05 else 5):
            return
        name, pid, time_text = process.name, process.pid, format_seconds(process.same_for_s)
        what = Text(
            f"{name} (pid {pid}) has stood at the same place for {time_text}: {process.place}",
            f"{name}（pid {pid}）停在同一处已有 {time_text}：{process.place}",
        )
        if process.standing.state in ("T", "t"):
            what = Text(
                f"{name} (pid {pid}) has been stopped for {time_text} by a signal or a debugger: `kill -CONT {pid}`",
                f"{name}（pid {pid}）已被信号或调试器暂停 {time_text}：可执行 `kill -CONT {pid}`",
            )
        evidence = {"same_for_s": process.same_for_s, "stack": [str(frame) for frame in process.stack]}
        yield Alarm(kind="stuck", pid=pid, what=what, evidence=evidence)

    def _gone(self, ended: Sequence[End], living: Sequence[WorkerLook]) -> Iterator[Alarm]:
        """Those that were lost. At the end of an epoch torch ends all workers at once, with exit code 0.

        One that was killed says so. Of one whose end only its parent knows, the next look decides: it is lost if the
        workers that were started with it are still there.
        """
        ends = {end.pid: end for end in ended}
        bereft = [pid for pid in ends if isinstance(self.known.get(pid), TrainerLook)]  # their own ends are told
        for worker in self.unclear:
            siblings = (one for one in living if one.trainer_pid == worker.trainer_pid)
            is_lost = any(abs(one.started - worker.started) < _TOGETHER_TICKS for one in siblings)
            if is_lost and worker.trainer_pid not in bereft:
                yield _gone_alarm(worker, End(pid=worker.pid))
        self.unclear = []
        for pid, end in ends.items():
            process = self.known.get(pid)
            if process is None or end.exit_code == 0:
                continue
            is_told = end.status is not None and end.signal_number != signal.SIGTERM
            if is_told or isinstance(process, TrainerLook):
                yield _gone_alarm(process, end)
            elif process.trainer_pid not in bereft:
                self.unclear.append(process)


def _gone_alarm(process: TrainerLook | WorkerLook, end: End) -> Alarm:
    kind, said = "worker_gone" if isinstance(process, WorkerLook) else "trainer_gone", end.text()
    name = f"{process.name} (pid {process.pid})"
    evidence = {"exit_code": end.exit_code, "signal": end.signal_number}
    return Alarm(kind=kind, pid=process.pid, what=Text(f"{name} {said.en}", f"{name} {said.zh}"), evidence=evidence)


class AlertCommand:
    """A shell command that gets each alarm in its environment and as JSON on stdin."""

    def __init__(self, command: str, *, language: str = "en") -> None:
        self._command, self._language = command, language
        self._running: list[subprocess.Popen[bytes]] = []
        self.num_left_out = 0

    def tell(self, alarm: Alarm, watched: str) -> None:
        """Start the command; left out, and counted, while several still run."""
        self._running = [process for process in self._running if process.poll() is None]
        if len(self._running) >= _AT_ONCE:
            self.num_left_out += 1
            return
        document = {"schema": SCHEMA, "event": "alarm", "watched": watched, **alarm.as_json(self._language)}
        environment = {
            **os.environ,
            "HEADRACE_ALARM": alarm.kind,
            "HEADRACE_ALARM_PID": "" if alarm.pid is None else str(alarm.pid),
            "HEADRACE_ALARM_TEXT": alarm.what.of(self._language),
            "HEADRACE_ALARM_WATCHED": watched,
        }
        command, nowhere = ["/bin/sh", "-c", self._command], subprocess.DEVNULL
        with tempfile.TemporaryFile() as given:  # a pipe could fill up and hold us
            given.write(json.dumps(document, ensure_ascii=False).encode())
            given.seek(0)
            try:
                self._running.append(
                    subprocess.Popen(command, stdin=given, stdout=nowhere, env=environment, start_new_session=True)
                )
            except OSError:  # a machine that is short of memory starts no process
                self.num_left_out += 1

    def close(self) -> None:
        """Give those that still run a few seconds, then leave them: they are the user's."""
        deadline = time.monotonic() + _PATIENCE_S
        for process in self._running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.returncode = 0  # not ours to end, and no complaint of Popen about it
        self._running.clear()
