"""`headrace run` on our own loader: its workers write their own events, and what they do is told right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.model import EventKind, LoaderSettings
from headrace.signals.recording import Recording, read_run

SCRIPT = Path(__file__).parent.parent / "own_loader.py"


def run(case: str, backend: str, batches: int, folder: Path) -> tuple[dict[str, Any], Recording]:
    """The findings and the recording of a loop over our loader whose workers do one thing."""
    out, found = folder / "run", folder / "findings.json"
    command = [sys.executable, "-m", "headrace", "run", "-q", "--out", str(out), "--json", str(found), str(SCRIPT)]
    script = [case, backend, str(folder / "ready"), str(batches)]
    done = subprocess.run([*command, *script], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert not (out / "not-timed.txt").exists(), (out / "not-timed.txt").read_text()
    return json.loads(found.read_text()), read_run(out)


CASES = [
    ("decode", "process", 40, {"cpu_decode"}, "on a core", "less to compute for a sample"),
    ("collate", "process", 60, {"collate"}, "`collate_fn` is what takes long", "a cheaper `collate_fn`"),
]
MORE_CASES = [
    ("decode", "thread", 40, {"cpu_decode", "gil"}, "core", ""),
    ("collate", "thread", 60, {"collate"}, "`collate_fn` is what takes long", "a cheaper `collate_fn`"),
    ("read", "process", 40, {"io_latency"}, "stands still for 9", "`io_depth=`"),
    ("read", "thread", 40, {"io_latency"}, "stands still for 9", "`io_depth=`"),
    ("rows", "process", 40, {"ipc_copy"}, "workers sent for", "smaller samples in bytes"),
    ("rows", "thread", 40, {"ipc_copy"}, "workers sent for", "smaller samples in bytes"),
]


@pytest.mark.alone  # on cores that others fill, those are what is told
@pytest.mark.parametrize(
    ("case", "backend", "batches", "bottlenecks", "evidence", "advice"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_CASES)],
)
def test_what_busy_workers_do(
    case: str,
    backend: str,
    batches: int,
    bottlenecks: set[str | None],
    evidence: str,
    advice: str,
    tmp_path: Path,
) -> None:
    found, recording = run(case, backend, batches, tmp_path)
    (finding,) = [one for one in found["findings"] if one["cause"] == "loader_throughput"]
    assert finding["bottleneck"] in bottlenecks, finding
    assert evidence in " ".join(finding["evidence"])
    assert advice in " ".join(finding["fix"])
    assert "import DataLoader" not in json.dumps(found, ensure_ascii=False)
    check_events(recording, case)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_workers_that_wait_for_a_task_are_idle(backend: str, tmp_path: Path) -> None:
    found, recording = run("idle", backend, 10, tmp_path)
    assert found["verdict"] == "compute_bound"
    assert found["findings"] == []
    trained_ns = int(
        recording.events_of(EventKind.WAIT)["start_ns"][-1] - recording.events_of(EventKind.EPOCH)["start_ns"][0]
    )
    assert int(recording.events_of(EventKind.IDLE)["duration_ns"].sum()) > 0.7 * 2 * trained_ns


def check_events(run: Recording, case: str) -> None:
    """Each kind of event that a worker of torch's has, ours has too, and settings are values."""
    workers = {process.pid for process in run.processes if process.role == "worker"}
    kinds = {EventKind(kind) for kind in run.events["kind"][[pid in workers for pid in run.events["pid"]]]}
    expected = {
        EventKind.WORKER_START,
        EventKind.IDLE,
        EventKind.FETCH,
        EventKind.CPU,
        EventKind.SAMPLE,
        EventKind.SEND,
    }
    assert expected <= kinds
    assert (EventKind.COLLATE in kinds) is (case == "collate")
    assert EventKind.OFF_CORE in kinds
    (said,) = run.events_of(EventKind.LOADER)
    assert run.name_of(said["pid"], said["value"]) == "Samples#1"
    settings = LoaderSettings.from_text(run.name_of(said["pid"], said["arg"]))
    assert (settings.is_ours, settings.num_workers) == (True, 2)
    if case == "read":
        names = {run.name_of(part["pid"], part["arg"]) for part in run.events_of(EventKind.PART)}
        assert names == {"read Path.read_bytes"}
