"""The command's side of a target's test: one stage after the other, bounded in time and memory, whatever it does."""

import enum
import glob
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.forensics import DeathFacts, DeathWatch, SampleInHand, describe_death, look_at, recognise
from headrace.loader import TargetProcess, free_memory, usable_processors
from headrace.model import LANGUAGES, Text
from headrace.signals.system import read_text, read_tree_memory

from ..checks import Words

_LOOK_EVERY_S = 0.1
_SUSPICIOUS_S = 6.0  # of silence, after which is looked whether it can ever go on
_LOST_S = 3.0  # of silence after a worker could not send its batch
_BUSY_S, _BUSY_SHARE, _BUSY_PATIENCE = 5.0, 0.2, 2
_SAMPLES_S = 4.0
_FEWEST_WORKERS, _MOST_WORKERS = 2, 4
WORDS = Words(__package__, "problems.toml")
_DEADLOCKS, _SAY_LITTLE = ("FORKED_POOL", "FORK_DEADLOCK", "DEADLOCK"), ("IDLE", "ENDED", "UNKNOWN")
Doing: TypeAlias = Callable[[Text], AbstractContextManager[object]]  # says what is going on for as long as it is


class StageEnding(enum.Enum):
    """How a stage ended."""

    DONE = "done"
    FAILED = "failed"  # with an error
    HUNG = "hung"
    DIED = "died"
    MEMORY = "memory"  # it took more than it may


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """What came of a stage."""

    ending: StageEnding
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    in_hand: Mapping[str, Any] = field(default_factory=dict)  # what it was about to do when it ended
    said: str = ""  # what the user's code printed
    limit_bytes: int = 0
    peak_bytes: int = 0
    hang: Text | None = None  # where it hangs: the rest of a sentence
    is_deadlock: bool = False  # by what only a fork can do
    death: Text | None = None  # the rest of a sentence, of a process that died
    death_cause: str = ""

    @property
    def is_done(self) -> bool:
        return self.ending is StageEnding.DONE

    @property
    def error(self) -> Mapping[str, str]:
        """Of one that failed, or of its first sample that did: name, said, traceback."""
        found: Mapping[str, str] = self.facts.get("error") or next(iter(self.facts.get("bad", ())), {})
        return found


@dataclass(frozen=True, kw_only=True)
class DoctorSettings:
    """What is tested, and within which bounds."""

    target: str
    timeout_s: float = 60.0  # of a stage; the import gets three times as much
    memory_bytes: int | None = None  # default: half of what is free
    num_workers: int | None = None  # default: the loader's, else as many as there are cores
    is_quick: bool = False  # one sample and one batch, in-process


class Clinic:
    """Runs stages, each in a process that is well: a fresh one behind one that hung, died or took too much."""

    def __init__(self, settings: DoctorSettings, folder: str) -> None:
        self._settings, self._folder = settings, folder
        self._patient: TargetProcess | None = None
        self._limit = settings.memory_bytes or max(256 << 20, free_memory()[0] // 2)
        self._deaths = DeathWatch(time.monotonic())
        self._start_s = self.batch_s = 0.0  # of a process, with its import; of a batch in-process

    def close(self) -> None:
        """End the process that is there; another may follow."""
        patient, self._patient = self._patient, None
        if patient is not None:
            patient.close()

    def run(self, stage: str, **order: Any) -> StageResult:
        """Go through a stage; the target is imported first where the process is new."""
        if self._patient is None:
            self._deaths, began = DeathWatch(time.monotonic()), time.monotonic()
            start = {"target": self._settings.target, "folder": self._folder}
            self._patient = TargetProcess("headrace.doctor.target.patient", start)
            self._start_s = time.monotonic() - began
            if stage != "import" and not (imported := self.run("import")).is_done:
                self.close()
                return imported
        timeout_s = self._settings.timeout_s
        # as long as what is known to be slow takes: starts, a batch a worker, and some more where they share the cores
        patience_s = 3 * timeout_s if stage == "import" else timeout_s + 3 * self._start_s
        patience_s += 3 * self.batch_s * order.get("num_workers", 1)
        result = self._watch(self._patient, patience_s, {"stage": stage, **order})
        if stage == "import":
            self._start_s += result.seconds
        if not result.is_done and (stage == "workers" or result.ending is not StageEnding.FAILED):
            self.close()
        return result

    def _watch(self, patient: TargetProcess, patience_s: float, order: dict[str, Any]) -> StageResult:
        """Let the process go through a stage, and look after it."""
        said_before, began = patient.num_said, time.monotonic()
        for note in glob.glob(f"{self._folder}/worker-*"):
            os.unlink(note)
        patient.tell(order)
        in_hand: dict[str, Any] = {}
        peak, heard, looked, suspect = 0, began, began, 0
        used: deque[tuple[float, float]] = deque([(began, 0.0)], maxlen=round(_BUSY_S / _LOOK_EVERY_S))

        def ended(ending: StageEnding, **more: Any) -> StageResult:
            return StageResult(
                ending=ending,
                seconds=time.monotonic() - began,
                in_hand={**in_hand, "samples": [sample for _, sample in sorted(self._notes().items())]},
                said=patient.said(since=said_before, most=8000),
                limit_bytes=self._limit,
                peak_bytes=peak,
                **more,
            )

        while True:
            event, now = patient.event(_LOOK_EVERY_S), time.monotonic()
            if event is not None:
                heard, suspect = now, 0
                if event["event"] == "at":
                    in_hand = event
                else:
                    dead = [(worker, code) for worker, code in enumerate(event.get("exit_codes", ())) if code]
                    more = self._death(patient, dead[0][1], self._notes().get(dead[0][0])) if dead else {}
                    return ended(StageEnding(event["event"]), facts=event, **more)
            elif patient.has_ended:
                return ended(StageEnding.DIED, **self._death(patient, patient.child.wait(), in_hand.get("sample")))
            if now - looked >= _LOOK_EVERY_S:
                looked = now
                self._deaths.note(now)
                used.append((now, sum(one.cpu_s for one in patient.stats())))
                peak = max(peak, read_tree_memory(patient.child.pid) or 0)
                if peak > self._limit:
                    return ended(StageEnding.MEMORY)
            silent_s = now - heard
            is_busy = used[-1][1] - used[0][1] > _BUSY_SHARE * (used[-1][0] - used[0][0])
            # whoever computes may only be slow: other programs want the cores as well
            is_late = now - began > patience_s * (_BUSY_PATIENCE if is_busy else 1)
            if is_late or (silent_s > _LOST_S and "in _feed" in patient.said(since=said_before, most=8000)):
                return ended(StageEnding.HUNG, **_look(patient))
            if silent_s > _SUSPICIOUS_S * (suspect + 1):
                suspect += 1
                seen = _look(patient)
                if seen["is_deadlock"] and suspect > 1:
                    return ended(StageEnding.HUNG, **seen)

    def _notes(self) -> dict[int, str]:
        """What each worker was last asked for."""
        paths = glob.glob(f"{self._folder}/worker-*")
        return {int(path.rpartition("-")[2]): text for path in paths if (text := read_text(path).strip())}

    def _death(self, patient: TargetProcess, code: int, sample: Any) -> dict[str, Any]:
        samples = () if sample is None else (SampleInHand(index=sample),)
        now, pid = time.monotonic(), patient.child.pid
        known = DeathFacts(workers=(0,), pid=pid, exit_code=code, died_at_s=now, samples=samples)
        facts = self._deaths.complete(known)
        told = [describe_death(facts, language=language) for language in LANGUAGES]
        said = (one.sentence.removeprefix("worker 0").strip() for one in told)
        return {"death": Text(*said), "death_cause": told[0].cause.name}


def _look(patient: TargetProcess) -> dict[str, Any]:
    """Say where it hangs: in the worker that can tell most."""
    others = [pid for pid in patient.processes() if pid != patient.child.pid]
    workers = [pid for pid in others if "resource_tracker" not in read_text(f"/proc/{pid}/cmdline")]
    found = [recognise(look_at(pid)) for pid in workers[:_MOST_WORKERS] or [patient.child.pid]]
    told = min(found, key=lambda one: (one.kind.name not in _DEADLOCKS, one.kind.name in _SAY_LITTLE))
    hang = Text(*map(told.said, LANGUAGES))
    return {"hang": hang, "is_deadlock": bool(workers) and told.kind.name in _DEADLOCKS}


def run_stages(settings: DoctorSettings, doing: Doing = nullcontext) -> dict[str, StageResult]:
    """Go through the stages as far as they make sense, each while `doing` says so; returns what came of each, by name.

    Raises `CannotLoadTarget` where the text names nothing; code of the target that fails is a result.

    Samples and batches in-process come first, in one process; workers are then made by one that has touched no sample,
    as a training's are: threads and handles that the first samples leave behind would not be there.
    """
    results: dict[str, StageResult] = {}
    is_quick = settings.is_quick

    def go(name: str, **order: Any) -> StageResult:
        with doing(WORDS.said(f"doing_{name}", target=settings.target, count=order.get("num_workers", 0))):
            results[name] = clinic.run(name.partition("_")[0], **order)
        return results[name]

    folder = tempfile.TemporaryDirectory(prefix="headrace-doctor-")
    with folder as place, closing(Clinic(settings, place)) as clinic:
        imported = go("import")
        if not imported.is_done or imported.facts["kind"] == "no_length":
            return results
        most, seconds = (1, 0.0) if is_quick else (2000, min(_SAMPLES_S, settings.timeout_s / 4))
        sample = go("sample", seconds=seconds, most=most)
        if not sample.is_done or not sample.facts["num_good"]:
            return results
        good, facts = sample.facts["good"], imported.facts
        times = sample.facts["times"]
        clinic.batch_s = sum(times) / len(times) * (facts["batch_size"] or 1)
        few = is_quick or 8 * clinic.batch_s > settings.timeout_s
        some, odd = [] if is_quick else good, sample.facts["odd_keys"]
        batches = go("loader", good=some, odd=odd, num_batches=1 if few else 3)
        if is_quick or not batches.is_done or not batches.facts["times"]:
            return results
        clinic.close()
        given = settings.num_workers or facts["num_workers"]
        count = min(_MOST_WORKERS, max(_FEWEST_WORKERS, given))
        batch_s = max(batches.facts["times"])
        num_batches = 2 * count if 2 * batch_s < settings.timeout_s / 4 else count
        order = {"good": good, "num_workers": count, "num_batches": num_batches, "most_batches": 64}
        order |= {"draws": sample.facts["draws"]}
        for method in ("fork", "spawn"):
            go(f"workers_{method}", method=method, **order)
        method = facts["start_method"] if facts["start_method"] in ("fork", "spawn") else "spawn"
        if results[f"workers_{method}"].is_done and 6 * batch_s < settings.timeout_s / 2:
            go("benchmark", good=good, method=method, num_workers=given or usable_processors())
    return results
