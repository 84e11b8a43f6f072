"""The demo's figures are a function of what its runs measured."""

from dataclasses import replace

import pytest

from headrace.cli.demo.loop import DemoSettings, LoopResult
from headrace.cli.demo.report import DemoRun, report_json, summarise, timelines

LOOP = LoopResult(
    first_batch_s=0.4,
    waits_s=[0.0, 0.0, 0.0, 0.4],
    loop_s=0.8,
    samples_per_s=100.0,
    page_faults_per_sample=600.0,
    memory_before_bytes=200,
    checksums=[1, 2, 3, 4, 5],
    start_method="fork",
    torch_version="2.13.0",
)


def runs(*, ours: LoopResult = LOOP) -> list[DemoRun]:
    return [
        DemoRun(loader=loader, round=number, loop=loop, peak_memory_bytes=300)
        for number in (1, 2)
        for loader, loop in (("torch", LOOP), ("headrace", ours))
    ]


def test_a_gain_is_how_many_times_better_we_are() -> None:
    ours = replace(LOOP, first_batch_s=0.1, samples_per_s=150.0, page_faults_per_sample=0.0)
    report = summarise(DemoSettings(), runs(ours=ours))
    assert report.gains["first_batch_s"] is not None
    assert report.gains["first_batch_s"].median == pytest.approx(4)
    assert report.gains["samples_per_s"] is not None
    assert report.gains["samples_per_s"].median == pytest.approx(1.5)
    assert report.gains["page_faults_per_sample"] is None  # nothing can be divided by no faults at all
    assert report.figures["torch"]["waiting_share"] == pytest.approx(0.5)
    assert report.figures["torch"]["loader_memory_bytes"] == 100


def test_what_was_not_measured_stays_unknown() -> None:
    report = summarise(DemoSettings(), [replace(run, peak_memory_bytes=None) for run in runs()])
    assert report.figures["headrace"]["peak_memory_bytes"] is None
    assert report_json(report)["gains"]["loader_memory_bytes"] is None


@pytest.mark.parametrize(
    ("checksums", "first_difference"),
    [([1, 2, 3, 4, 5], None), ([1, 2, 9, 4, 5], 3), ([1, 2, 3, 4], 5), ([1, 2, 3, 4, 5, 6], 6)],
)
def test_a_batch_that_differs_is_named(checksums: list[int], first_difference: int | None) -> None:
    report = summarise(DemoSettings(), runs(ours=replace(LOOP, checksums=checksums)))
    assert report.first_difference == first_difference
    assert report_json(report)["batches_identical"] is (first_difference is None)


def test_the_timeline_shows_the_comb_on_one_scale() -> None:
    report = summarise(DemoSettings(), runs(ours=replace(LOOP, waits_s=[0.1, 0.1, 0.1, 0.1])))
    title, torch, ours = timelines(report, "en")
    assert "400 ms" in title
    assert torch.split() == ["torch", "▁▁▁█"]
    assert ours.split() == ["headrace", "▃▃▃▃"]
