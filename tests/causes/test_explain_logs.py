"""Stored logs of real trainings, and logs drawn at random, get the cause that was injected; healthy ones get none."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from headrace.causes import explain_logs
from headrace.model import Findings

from .logs_drawn import KINDS, DrawnLog, draw_log
from .runs_drawn import CAUSES, draw_run

STORED = Path(__file__).parent / "stored_logs"
LABELS = json.loads((STORED / "labels.json").read_text(encoding="utf-8"))


def first_cause(findings: Findings) -> str:
    return findings.findings[0].cause.value if findings.findings else ""


def explain(files: list[bytes], folder: Path) -> Findings:
    paths = []
    for number, content in enumerate(files):
        path = folder / f"{number}.log"
        path.write_bytes(content)
        paths.append(str(path))
    return explain_logs(paths)


def drawn(seed: int) -> DrawnLog:
    rng = random.Random(seed)
    run = draw_run(rng, CAUSES[seed % len(CAUSES)])
    return draw_log(rng, run, rng.choice([kind for kind in KINDS.values() if kind.name != "slow_reports"]))


@pytest.mark.parametrize("name", LABELS)
def test_a_real_log_gets_its_injected_cause(name: str) -> None:
    findings = explain_logs([str(STORED / f"{name}.log.gz")])
    assert first_cause(findings) in LABELS[name]["right"]


def test_every_package_and_every_cause_is_among_the_real_logs() -> None:
    packages = {name.rsplit("-", 1)[0] for name in LABELS}
    assert packages >= {"mmengine", "lightning", "transformers", "ultralytics", "accelerate", "tqdm", "plain"}
    causes = {cause for label in LABELS.values() for cause in label["right"]}
    assert causes >= {"batch_lockstep", "straggler_sample", "loader_throughput", "checkpoint", "evaluation", "logging"}
    assert causes >= {"epoch_start", "unknown", ""}


def _score(first: int, count: int, folder: Path) -> tuple[float, list[int]]:
    right, false = 0, []
    for seed in range(first, first + count):
        log = drawn(seed)
        got = first_cause(explain(log.files, folder))
        right += got in log.right
        if log.cause in {"", "compute"} and got:
            false.append(seed)
    return right / count, false


def test_drawn_logs_get_their_cause_and_healthy_ones_none(tmp_path: Path) -> None:
    share, false = _score(0, 96, tmp_path)
    assert share >= 0.95
    assert false == []


@pytest.mark.slow
def test_more_drawn_logs_get_their_cause_and_healthy_ones_none(tmp_path: Path) -> None:
    share, false = _score(10_000, 480, tmp_path)
    assert share >= 0.95
    assert false == []


def test_shares_are_shares_and_findings_come_in_their_order(tmp_path: Path) -> None:
    for seed in range(24, 48):
        findings = explain(drawn(seed).files, tmp_path).findings
        shares = [finding.share for finding in findings]
        assert shares == sorted(shares, reverse=True)
        assert all(0 <= share <= 1 for share in shares)
        assert all(finding.evidence for finding in findings)


def test_a_log_of_any_length_takes_bounded_memory(tmp_path: Path) -> None:
    """Records are thinned to evenly spread windows, and the pattern is still found."""
    from headrace.causes.logs.fields import StepLine
    from headrace.causes.logs.reader import MOST_RECORDS, StepStore

    store = StepStore("timed")
    for step in range(3 * MOST_RECORDS):
        store.add(step, StepLine(step, took_s=0.1, at_s=0.1 * step))
    assert MOST_RECORDS / 4 <= len(store) < MOST_RECORDS
    assert store.num_seen == 3 * MOST_RECORDS
    steps, blocks = np.asarray(store.column("step")), np.asarray(store.column("block"))
    for block in np.unique(blocks):
        assert (np.diff(steps[blocks == block]) == 1).all()  # a stretch is whole


def test_gzip_and_plain_are_the_same(tmp_path: Path) -> None:
    content = gzip.decompress((STORED / "plain-slow_pool.log.gz").read_bytes())
    plain, packed = explain([content], tmp_path), explain_logs([str(STORED / "plain-slow_pool.log.gz")])
    assert plain.findings == packed.findings
    utf16 = explain([content.decode().encode("utf-16")], tmp_path)  # what PowerShell's `>` writes
    assert utf16.findings == packed.findings
