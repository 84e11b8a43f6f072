"""The demo's figures are a function of what its runs measured, and its report is said in both languages."""

from typing import Any

import pytest

from headrace.cli.demo import bars, print_report, summarise
from headrace.cli.terminal import Terminal, speak
from headrace.model import Findings, Verdict

ONE: dict[str, Any] = {
    "first_batch_s": 0.4,
    "waits_s": [0.4, 0.0, 0.0, 0.2],
    "steps_per_s": 10.0,
    "waiting_share": 0.8,
    "peak_memory_bytes": 300 << 20,
    "output": "epoch 0 step 0 loss 0.7\n" * 4,
    "findings": Findings(verdict=Verdict.DATA_BOUND, findings=()),
}


def runs(**ours: Any) -> dict[str, dict[str, Any]]:
    return {"torch": ONE, "headrace": {**ONE, **ours}}


def test_a_ratio_is_ours_to_torchs() -> None:
    summary = summarise(runs(first_batch_s=0.1, steps_per_s=15.0, waits_s=[0.4, 0.1, 0.1, 0.1]))
    assert summary["first_batch_s"]["ratio"] == pytest.approx(0.25)
    assert summary["steps_per_s"]["ratio"] == pytest.approx(1.5)
    assert summary["wait_worst_s"] == {"torch": 0.2, "headrace": 0.1, "ratio": 0.5}  # the first batch is one apart
    assert summary["wait_median_s"] == {"torch": 0.0, "headrace": 0.1, "ratio": None}


def test_what_was_not_measured_stays_unknown() -> None:
    summary = summarise(runs(peak_memory_bytes=None))
    assert summary["peak_memory_bytes"]["ratio"] is None


def test_waits_are_drawn_on_one_scale() -> None:
    assert (bars([0.0, 0.1], 0.2), bars([0.2] * 200, 0.2)) == ("▁▅", "█" * 72)


@pytest.mark.parametrize(
    ("language", "rows", "other"),
    [
        ("en", ("steps per second", "wait for a batch, worst", "yes, all 4", "with torch's DataLoader"), "每秒步数"),
        ("zh", ("每秒步数", "等待一个 batch，最长", "一致，共 4 个", "用 torch 的 DataLoader"), "steps per second"),
    ],
)
@pytest.mark.parametrize("color", ["always", "never"])
def test_the_report_speaks_one_language(
    language: str, rows: tuple[str, ...], other: str, color: str, capsys: pytest.CaptureFixture[str]
) -> None:
    speak(language)
    print_report(runs(), Terminal(color=color, verbosity=0))
    printed = capsys.readouterr().out
    for row in rows:
        assert row in printed
    assert other not in printed
    assert ("\x1b[" in printed) == (color == "always")
