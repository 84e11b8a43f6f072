"""One drawn training under `headrace run`: run it, see whether its cause came about, compare what was said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .drawing import Drawn
from .files import make_data, scratch_folder
from .kinds import draw
from .limits import CannotLimit, limited
from .verifying import right_first, why_not

TRAINING = Path(__file__).with_name("training.py")
NOTHING = "(none)"
HUNG = "hung"  # the file by which a worker of a training tells that it now hangs
_MOST_ATTEMPTS = 4
_HANGS_FOR_S = 8.0  # before somebody ends it


class CouldNotRun(Exception):
    """A training that failed by itself, or of which nothing was said."""


@dataclass(frozen=True)
class Outcome:
    """One training and what was said of it."""

    kind: str
    name: str
    seed: int
    loader: str
    expected: list[str]  # which may come first; empty: there must be no finding
    among: list[list[str]]  # of each, one must be among the findings
    found: list[tuple[str, float]]  # cause, share
    verdict: str
    bottleneck: str
    wanted_bottleneck: str
    exit_code: int
    measured: dict[str, float]
    counted: dict[str, int]
    drawn: dict[str, Any]
    redrawn: list[str] = field(default_factory=list)  # why trainings before this one were not what they should be
    findings: list[dict[str, Any]] = field(default_factory=list)  # with their evidence, of a wrong one

    @property
    def first(self) -> str:
        return self.found[0][0] if self.found else NOTHING

    @property
    def is_right(self) -> bool:
        causes = {cause for cause, _ in self.found}
        if not self.expected:
            return not causes
        return self.first in self.expected and all(causes & set(wanted) for wanted in self.among)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_right": self.is_right}


def run_one(
    kind: str, seed: int, *, seconds: float, keep: str | None = None, cpus: Sequence[int] = (), loader: str = ""
) -> Outcome:
    """Run the training of a seed; draw again where its cause did not come about."""
    redrawn: list[str] = []
    for attempt in range(_MOST_ATTEMPTS):
        drawn = draw(kind, seed, seconds=seconds, attempt=attempt)
        if loader:
            drawn = replace(drawn, spec={**drawn.spec, "loader": "headrace" if "backend" in drawn.spec else loader})
        if drawn.needs_gpu and not Path("/dev/nvidia0").exists():
            raise CannotLimit("no GPU here")
        document, measured, counted, exit_code, reason = _run(drawn, kind, seed, attempt, keep, cpus)
        if not reason:
            return _outcome(kind, seed, drawn, document, measured, counted, exit_code, redrawn)
        redrawn.append(reason)
    raise CannotLimit(f"the cause did not come about in {_MOST_ATTEMPTS} trainings: {'; '.join(redrawn)}")


def _run(
    drawn: Drawn, kind: str, seed: int, attempt: int, keep: str | None, cpus: Sequence[int]
) -> tuple[dict[str, Any], dict[str, float], dict[str, int], int, str]:
    with scratch_folder() as name:
        folder = Path(name)
        spec = {**drawn.spec, "folder": name, **make_data(drawn, folder)}
        result, measured = folder / "findings.json", folder / "measured.json"
        out = Path(keep) / f"{kind}-{seed}-{attempt}" if keep else folder / "run"
        with limited(drawn.limits, folder, cpus=cpus) as limits, open(folder / "stderr", "wb") as errors:
            command = [*limits.prefix, sys.executable, "-m", "headrace", "run", "-q", "--out", str(out)]
            command += ["--json", str(result), str(TRAINING), json.dumps(spec)]
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=_env())
            try:
                if drawn.ended_by:
                    end_once_hung(child, folder / HUNG, drawn.ended_by)
                exit_code = child.wait(timeout=300)
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
            counted = limits.counted()
        said = (folder / "stderr").read_text(errors="replace")[-2000:]
        is_lost = exit_code and not drawn.may_fail
        if is_lost and "memory_bytes" in drawn.limits:
            return {}, {}, counted, exit_code, f"it was ended ({exit_code}): the limit was too small to train in"
        if is_lost or not result.exists():
            raise CouldNotRun(f"{kind} {seed} failed with {exit_code}:\n{said}")
        seconds = json.loads(measured.read_text()) if measured.exists() else {}
        reason = why_not(drawn, seconds, counted, exit_code, hung=(folder / HUNG).exists())
        return json.loads(result.read_text()), seconds, counted, exit_code, reason


def end_once_hung(child: subprocess.Popen[bytes], mark: Path, name: str) -> None:
    """Send a signal some time after a worker has begun to hang, as somebody who has lost patience does."""
    deadline = time.monotonic() + 120
    while not mark.exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(_HANGS_FOR_S)
    child.send_signal(signal.Signals[name])


def _outcome(
    kind: str,
    seed: int,
    drawn: Drawn,
    document: dict[str, Any],
    measured: dict[str, float],
    counted: dict[str, int],
    exit_code: int,
    redrawn: list[str],
) -> Outcome:
    findings = document["findings"]
    expected, among = right_first(drawn, measured)
    parameters = {**drawn.spec, "limits": drawn.limits, "files": drawn.files, "shards": drawn.shards}
    outcome = Outcome(
        kind=kind,
        name=drawn.name,
        seed=seed,
        loader=drawn.spec["loader"],
        expected=sorted(expected),
        among=[sorted(one) for one in among],
        found=[(one["cause"], round(float(one["share"]), 3)) for one in findings],
        verdict=document["verdict"],
        bottleneck=str(findings[0].get("bottleneck") or "") if findings else "",
        wanted_bottleneck=drawn.bottleneck,
        exit_code=exit_code,
        measured={name: round(value, 4) for name, value in measured.items()},
        counted=counted,
        drawn=parameters,
        redrawn=redrawn,
    )
    if not outcome.is_right:
        outcome.findings.extend(
            {key: one[key] for key in ("cause", "share", "evidence", "figures")} for one in findings
        )
    return outcome


def _env() -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[2] / "src")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
