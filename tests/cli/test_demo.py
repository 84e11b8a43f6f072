"""The demo's figures are a function of what its runs measured, and its report is said in both languages."""

from argparse import Namespace
from typing import Any

import pytest

from headrace.cli.demo import print_report, summarise
from headrace.cli.terminal import Terminal

LOOP: dict[str, Any] = {
    "first_batch_s": 0.4,
    "waits_s": [0.0, 0.0, 0.0, 0.4],
    "samples_per_s": 100.0,
    "memory_before_bytes": 200,
    "checksums": [1, 2, 3, 4, 5],
}


def runs(*, ours: dict[str, Any] = LOOP) -> list[dict[str, Any]]:
    return [
        {"loader": loader, "round": number, "loop": loop, "peak_memory_bytes": 300}
        for number in (1, 2)
        for loader, loop in (("torch", LOOP), ("headrace", ours))
    ]


def test_a_ratio_is_ours_to_torchs() -> None:
    summary = summarise(runs(ours={**LOOP, "first_batch_s": 0.1, "samples_per_s": 150.0}))
    assert summary["first_batch_s"]["ratio"] == pytest.approx(0.25)
    assert summary["samples_per_s"]["ratio"] == pytest.approx(1.5)
    assert summary["wait_median_s"] == {"torch": 0.0, "headrace": 0.0, "ratio": None}
    assert summary["loader_memory_bytes"]["torch"] == 100


def test_of_the_rounds_the_worst_wait_counts_and_the_median_of_the_rest() -> None:
    first, second, *others = runs()
    slow = {**LOOP, "waits_s": [0.0, 0.0, 0.0, 0.8], "samples_per_s": 50.0}
    summary = summarise([{**first, "loop": slow}, second, *others])
    assert summary["wait_worst_s"]["torch"] == 0.8
    assert summary["samples_per_s"]["torch"] == 75.0


def test_what_was_not_measured_stays_unknown() -> None:
    summary = summarise([{**run, "peak_memory_bytes": None} for run in runs()])
    for name in ("peak_memory_bytes", "loader_memory_bytes"):
        assert summary[name] == {"torch": None, "headrace": None, "ratio": None}


@pytest.mark.parametrize(
    ("language", "rows", "other"),
    [
        ("en", ("first batch", "wait for a batch, worst", "samples per second", "yes, all 10"), "每秒样本数"),
        ("zh", ("首个 batch 用时", "等待一个 batch，最长", "每秒样本数", "一致，共 10 个"), "samples per second"),
    ],
)
@pytest.mark.parametrize("color", ["always", "never"])
def test_the_report_speaks_one_language(
    language: str, rows: tuple[str, ...], other: str, color: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Namespace(samples=12, batch_size=3, workers=2, lang=language)
    print_report(asked, runs(), Terminal(color=color, verbosity=0))
    printed = capsys.readouterr().out
    for row in rows:
        assert row in printed
    assert other not in printed
    assert ("\x1b[" in printed) == (color == "always")
