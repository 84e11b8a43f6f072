"""The referee: starts the process under test, strikes its workers from outside, and notices when nothing comes."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from headrace.loader import TargetProcess
from headrace.model import FaultKind
from headrace.signals.system import read_stat

from .fault_plan import FROM_OUTSIDE, ChaosSettings, Fault, Subject, plan_round
from .report import ChaosReport, LeftOutSample, RoundFacts, judge_round, num_struck

_Blows = list[tuple[float, Fault]]  # when a signal is due for some worker
_Strikes = list[tuple[int, float]]
_SIGNALS = {FaultKind.KILL: signal.SIGKILL, FaultKind.STOP: signal.SIGSTOP}
_LATEST_STRIKE_S = 0.05
_MOST_TEXT = 20_000
_MOST_EMPTY_ROUNDS = 5


def run_chaos(settings: ChaosSettings) -> ChaosReport:
    """Run rounds of faults until enough have struck, and judge each of them."""
    started = time.monotonic()
    rounds: list[RoundFacts] = []
    left: list[str] = []
    subject: Subject | None = None
    empty = 0
    while not _is_enough(settings, rounds, started) and empty < _MOST_EMPTY_ROUNDS:
        with _TestedProcess(settings) as process:
            subject = process.subject
            while not _is_enough(settings, rounds, started) and empty < _MOST_EMPTY_ROUNDS:
                most = settings.faults_a_round
                if settings.seconds is None:
                    most = min(most, settings.num_faults - num_struck(rounds))
                facts = process.run_round(len(rounds), most)
                empty = empty + 1 if not facts.strikes and not facts.is_hang else 0
                rounds.append(facts)
                if facts.is_hang:
                    break  # what is left of the process is of no use
        left += process.left
    assert subject is not None
    return ChaosReport(
        settings=settings,
        subject=subject,
        rounds=rounds,
        verdicts=[judge_round(facts) for facts in rounds],
        elapsed_s=time.monotonic() - started,
        left=left,
    )


def _is_enough(settings: ChaosSettings, rounds: list[RoundFacts], started: float) -> bool:
    if settings.seconds is not None:
        return bool(rounds) and time.monotonic() - started >= settings.seconds
    return num_struck(rounds) >= settings.num_faults


class _TestedProcess(TargetProcess):
    """The process under test: whatever outlives it is told."""

    def __init__(self, settings: ChaosSettings) -> None:
        self._settings = settings
        self.left: list[str] = []
        super().__init__("headrace.doctor.chaos.subject", {"settings": asdict(settings)})
        self.subject = Subject(**self.told["subject"])

    def __exit__(self, *_: object) -> None:
        self.finish()
        try:
            self.child.wait(15)
        except subprocess.TimeoutExpired:
            self.left.append("the process under test did not end within 15 s")
        deadline = time.monotonic() + 3
        while (others := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.left += [f"process {pid} outlived the process under test" for pid in others if pid != self.child.pid]
        self.close()

    def run_round(self, number: int, most: int) -> RoundFacts:
        """Let one round happen; returns what came out of it, or where it hangs."""
        order, faults = plan_round(self._settings, self.subject, number, most)
        draw = random.Random(f"headrace-chaos/blows/{self._settings.seed}/{number}")
        pids: list[int] = []
        blows: _Blows = []
        strikes: _Strikes = []
        self.tell([number, most])
        for event in self._events(lambda: self._deal_blows(blows, pids, strikes, draw)):
            if event["event"] == "end":
                told = event["facts"]
                break
            pids[:] = event["pids"]
            due = (one for one in faults if one.batch == event["number"] and one.kind in FROM_OUTSIDE)
            blows.extend((time.monotonic() + draw.uniform(0, _LATEST_STRIKE_S), fault) for fault in due)
        else:
            ended = self.child.poll()
            if ended is None:
                told = {"is_hang": True, "stacks": self._dump_stacks()}
            else:
                told = {"error": f"the training process ended with code {ended}: {self.said()}"}
        return RoundFacts(
            number=number,
            order=order,
            batch_size=self.subject.batch_size,
            faults=faults,
            strikes=sorted([*told.pop("strikes", []), *strikes], key=lambda strike: strike[1]),
            quarantine=[LeftOutSample(**one) for one in told.pop("quarantine", [])],
            **told,
        )

    def _deal_blows(self, blows: _Blows, pids: list[int], strikes: _Strikes, draw: random.Random) -> float:
        """Send the signals that are due; returns how long nothing may come, or the time to the next of them."""
        for due_s, fault in [blow for blow in blows if blow[0] <= time.monotonic()]:
            blows.remove((due_s, fault))
            living = self.processes()
            victims = [pid for pid in pids if pid in living and pid != self.child.pid]
            if victims and _send(draw.choice(victims), _SIGNALS[fault.kind]):
                strikes.append((fault.number, time.monotonic()))
        if blows:
            return max(0.001, min(due_s for due_s, _ in blows) - time.monotonic())
        return self._settings.patience_s

    def _events(self, patience: Callable[[], float]) -> Iterator[dict[str, Any]]:
        """What the process tells, until it ends or says nothing for too long."""
        silent_since = time.monotonic()
        while not self.has_ended:
            allowed_s = patience()
            if (event := self.event(allowed_s)) is not None:
                silent_since = time.monotonic()
                yield event
            elif time.monotonic() - silent_since >= max(allowed_s, self._settings.patience_s):
                return
        self.child.wait(5)

    def _dump_stacks(self) -> str:
        """Where the training process and its workers stand; then they are ended."""
        everybody = sorted(self.processes(), key=lambda pid: pid != self.child.pid)
        lines = []
        for pid in everybody:
            stat = read_stat(pid)
            lines.append(f"process {pid} ({stat.name}): state {stat.state}" if stat else f"process {pid}: gone")
            _send(pid, signal.SIGUSR1)  # faulthandler prints, in workers that were forked as well
            time.sleep(0.3)
        said = self.said(most=_MOST_TEXT)
        self.end(everybody)
        return "\n".join([*lines, said])


def _send(pid: int, number: int) -> bool:
    """Send a signal; False where the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
