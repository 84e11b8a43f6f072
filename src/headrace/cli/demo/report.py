"""The figures of the demo, as text and as JSON from the same object."""

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.model import format_bytes, three_digits

from ..messages import DemoMessages
from .data import FASTEST_READ_MS, SAMPLE_BYTES, SLOWEST_READ_MS
from .runs import LOADERS, DemoSettings, Run

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 64


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How many times better we are than torch: the median of the rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """All figures of a demo. `None` means that the machine does not tell."""

    settings: DemoSettings
    figures: dict[str, dict[str, float | None]]
    gains: dict[str, Gain | None]
    first_difference: int | None
    num_batches: int
    runs: Sequence[Run]


def _loader_memory_bytes(run: Run) -> int | None:
    if run.peak_memory_bytes is None or run.loop.memory_before_bytes is None:
        return None
    return run.peak_memory_bytes - run.loop.memory_before_bytes


# Each figure: how to take it from a run, how to join the rounds, and whether more of it is better.
_FIGURES: dict[str, tuple[Callable[[Run], float | None], Callable[[list[float]], float], bool]] = {
    "first_batch_s": (lambda run: run.loop.first_batch_s, median, False),
    "wait_median_s": (lambda run: median(run.loop.waits_s), median, False),
    "wait_worst_s": (lambda run: max(run.loop.waits_s), max, False),
    "waiting_share": (lambda run: sum(run.loop.waits_s) / run.loop.loop_s, median, False),
    "samples_per_s": (lambda run: run.loop.samples_per_s, median, True),
    "peak_memory_bytes": (lambda run: run.peak_memory_bytes, max, False),
    "loader_memory_bytes": (_loader_memory_bytes, max, False),
    "page_faults_per_sample": (lambda run: run.loop.page_faults_per_sample, median, False),
}


def summarise(settings: DemoSettings, runs: Sequence[Run]) -> DemoReport:
    """Return the figures of all runs, and whether every batch was the same with both loaders."""
    figures: dict[str, dict[str, float | None]] = {loader: {} for loader in LOADERS}
    gains = {}
    for name, (take, join, more_is_better) in _FIGURES.items():
        values = {loader: [take(run) for run in runs if run.loader == loader] for loader in LOADERS}
        for loader in LOADERS:
            known = [value for value in values[loader] if value is not None]
            figures[loader][name] = join(known) if known else None
        gains[name] = _gain(values["torch"], values["headrace"], more_is_better=more_is_better)
    return DemoReport(
        settings=settings,
        figures=figures,
        gains=gains,
        first_difference=_first_difference([run.loop.checksums for run in runs]),
        num_batches=sum(len(run.loop.checksums) for run in runs if run.loader == "headrace"),
        runs=runs,
    )


def report_json(report: DemoReport) -> dict[str, Any]:
    """Return the document that `headrace demo --json` prints."""
    return {
        "schema": "headrace/demo/1",
        "versions": {
            "headrace": __version__,
            "torch": report.runs[0].loop.torch_version,
            "python": platform.python_version(),
        },
        "machine": {"cores": _num_cores(), "system": f"{platform.system()} {platform.machine()}"},
        "settings": {
            **asdict(report.settings),
            "start_method": report.runs[0].loop.start_method,
            "sample_bytes": SAMPLE_BYTES,
            "simulated_read_ms": [FASTEST_READ_MS, SLOWEST_READ_MS],
        },
        "figures": report.figures,
        "gains": {name: gain and asdict(gain) for name, gain in report.gains.items()},
        "batches_identical": report.first_difference is None,
        "runs": [asdict(run) for run in report.runs],
    }


def report_text(report: DemoReport, words: DemoMessages) -> RenderableType:
    """Return what `headrace demo` prints."""
    settings = report.settings
    facts = words.settings.format(
        samples=settings.samples,
        sample_size=format_bytes(SAMPLE_BYTES),
        batch_size=settings.batch_size,
        workers=settings.workers,
        start_method=report.runs[0].loop.start_method,
        epochs=settings.epochs,
        cores=_num_cores(),
    )
    return Group(
        Text(words.title, style="bold"),
        Text(facts),
        Text(words.slow_disk.format(low_ms=FASTEST_READ_MS, high_ms=SLOWEST_READ_MS)),
        Text(""),
        _table(report, words),
        Text(""),
        *(Text(line) for line in timelines(report, words)),
        Text(""),
        Text(words.measured.format(rounds=settings.rounds)),
        Text(words.next_step),
    )


def timelines(report: DemoReport, words: DemoMessages) -> list[str]:
    """Return the waits of the last round as one line of bars a loader, on one scale."""
    last = {run.loader: run.loop.waits_s for run in report.runs}
    worst_s = max(max(waits_s) for waits_s in last.values())
    num_batches = max(len(waits_s) for waits_s in last.values())
    lines = [words.timeline.format(worst=_milliseconds(worst_s))]
    width = max(len(words.torch), len(words.headrace))
    for loader, name in (("torch", words.torch), ("headrace", words.headrace)):
        lines.append(f"  {name:<{width}}  {bars(last[loader][:_MOST_BARS], full=worst_s)}")
    if num_batches > _MOST_BARS:
        lines.append("  " + words.timeline_cut.format(shown=_MOST_BARS, all=num_batches))
    return lines


def bars(values: Sequence[float], *, full: float) -> str:
    """Draw each value as a bar; `full` is the value of the highest one.

    >>> bars([0, 0.5, 1], full=1)
    '▁▅█'
    """
    return "".join(_BARS[min(len(_BARS) - 1, int(value / full * len(_BARS)))] for value in values)


def _table(report: DemoReport, words: DemoMessages) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("")
    table.add_column(words.torch, justify="right")
    table.add_column(words.headrace, justify="right")
    table.add_column(words.comparison)
    rows: list[tuple[str, str, Callable[[float], str], tuple[str, str] | None]] = [
        (words.first_batch, "first_batch_s", _seconds, words.sooner),
        # No ratio: where most waits are short and a few are long, the median is about nothing.
        (words.wait_median, "wait_median_s", _milliseconds, None),
        (words.wait_worst, "wait_worst_s", _milliseconds, words.shorter),
        (words.waiting_share, "waiting_share", _percent, None),
        (words.samples_per_s, "samples_per_s", three_digits, words.faster),
        (words.peak_memory, "peak_memory_bytes", format_bytes, words.less),
        (words.loader_memory, "loader_memory_bytes", format_bytes, words.less),
        (words.page_faults, "page_faults_per_sample", three_digits, words.fewer),
    ]
    for title, name, show, better_or_worse in rows:
        values = [report.figures[loader][name] for loader in LOADERS]
        shown = [words.not_measured if value is None else show(value) for value in values]
        gain = report.gains[name] if better_or_worse else None
        comparison = Text("") if gain is None or better_or_worse is None else _compare(gain, better_or_worse, words)
        table.add_row(title, *shown, comparison)
    if report.first_difference is None:
        same = Text(words.identical_yes.format(batches=report.num_batches), style="green")
    else:
        same = Text(words.identical_no.format(first=report.first_difference), style="bold red")
    table.add_row(words.identical, "", same, "")
    return table


def _compare(gain: Gain, better_or_worse: tuple[str, str], words: DemoMessages) -> Text:
    if three_digits(gain.median) == "1.00":
        return Text(words.same)
    is_better = gain.median > 1
    low, middle, high = sorted(ratio if is_better else 1 / ratio for ratio in (gain.low, gain.median, gain.high))
    said = words.times.format(ratio=three_digits(middle), word=better_or_worse[0 if is_better else 1])
    return Text(f"{said} ({three_digits(low)}–{three_digits(high)})", style="green" if is_better else "yellow")


def _gain(torch: list[float | None], headrace: list[float | None], *, more_is_better: bool) -> Gain | None:
    """Return torch / headrace for what should be small, headrace / torch for what should be large, round by round."""
    ratios = []
    for theirs, ours in zip(torch, headrace, strict=True):
        above, below = (ours, theirs) if more_is_better else (theirs, ours)
        if above is None or below is None or above <= 0 or below <= 0:
            return None
        ratios.append(above / below)
    return Gain(median=median(ratios), low=min(ratios), high=max(ratios))


def _first_difference(checksums: Sequence[Sequence[int]]) -> int | None:
    """Return the number of the first batch, from 1, that was not the same in every run."""
    for number, batch in enumerate(zip(*checksums, strict=False), start=1):
        if len(set(batch)) > 1:
            return number
    lengths = {len(run) for run in checksums}
    return None if len(lengths) == 1 else min(lengths) + 1


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seconds(value: float) -> str:
    return f"{three_digits(value)} s"


def _milliseconds(value: float) -> str:
    return f"{three_digits(1000 * value)} ms"


def _percent(value: float) -> str:
    return f"{three_digits(100 * value)} %"
