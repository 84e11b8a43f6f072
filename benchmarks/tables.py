"""Print what was measured: tables of contenders, series of waits, bars."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Result = dict[str, Any]

# measure: heading, factor from the stored unit to the shown one, unit
COLUMNS: dict[str, tuple[str, float, str]] = {
    "samples_per_s": ("samples/s", 1, ""),
    "decode_median_ms": ("decode median", 1, "ms"),
    "difference": ("off by", 1, ""),
    "stage_us": ("a stage", 1, "us"),
    "sample_us": ("a sample", 1, "us"),
    "event_ns": ("an event", 1, "ns"),
    "core_share": ("recorder", 100, "% of a core"),
    "area_mib": ("area", 1, "MiB"),
    "file_mib": ("file", 1, "MiB"),
    "events": ("events", 1, ""),
    "lost": ("lost", 1, ""),
    "epoch_samples_per_s": ("epoch samples/s", 1, ""),
    "batches_per_s": ("batches/s", 1, ""),
    "gb_per_s": ("GB/s", 1, ""),
    "mb_per_s": ("MB/s", 1, ""),
    "members_per_s": ("members/s", 1, ""),
    "shard_ms": ("a shard", 1, "ms"),
    "num_members": ("members", 1, ""),
    "first_sample_ms": ("first sample", 1, "ms"),
    "peak_growth_mib": ("memory grown", 1, "MiB"),
    "first_batch_s": ("first batch", 1e3, "ms"),
    "wait_median_ms": ("wait median", 1, "ms"),
    "wait_p95_ms": ("p95", 1, "ms"),
    "wait_p99_ms": ("p99", 1, "ms"),
    "wait_worst_ms": ("worst", 1, "ms"),
    "wait_worst_over_median": ("worst/median", 1, ""),
    "wait_share": ("waiting", 100, "%"),
    "user_ms_per_sample": ("user/sample", 1, "ms"),
    "system_ms_per_sample": ("system/sample", 1, "ms"),
    "cpu_ms_per_sample": ("cpu/sample", 1, "ms"),
    "cores_used": ("cores", 1, ""),
    "faults_per_sample": ("faults/sample", 1, ""),
    "num_processes": ("processes", 1, ""),
    "peak_pss_bytes": ("peak PSS", 1 / 2**20, "MiB"),
    "peak_held_bytes": ("peak held", 1 / 2**20, "MiB"),
    "peak_shmem_growth_bytes": ("shm", 1 / 2**20, "MiB"),
    "epoch_s": ("epoch", 1, "s"),
    "hits": ("read ahead", 1, ""),
    "self_reads": ("by workers", 1, ""),
    "reads": ("reads", 1, ""),
    "io_depth": ("in flight", 1, ""),
    "close_s": ("close", 1e3, "ms"),
    "share_of_synthetic": ("of synthetic", 100, "%"),
    "synthetic_per_s": ("synthetic/s", 1, ""),
    "ratio": ("ratio", 1, ""),
    "standard_error": ("standard error", 1, ""),
    "num_windows": ("windows", 1, ""),
    "step_ms": ("a step", 1, "ms"),
    "cost_percent": ("time", 1, "%"),
    "cost_low_percent": ("from", 1, "%"),
    "cost_high_percent": ("to", 1, "%"),
    "cpu_cost_percent": ("CPU time", 1, "%"),
    "cpu_cost_low_percent": ("from", 1, "%"),
    "cpu_cost_high_percent": ("to", 1, "%"),
    "task_cost_percent": ("CPU time by task", 1, "%"),
    "task_cost_low_percent": ("from", 1, "%"),
    "task_cost_high_percent": ("to", 1, "%"),
    "batch_added_us": ("CPU added a batch", 1, "us"),
    "added_us": ("added a step", 1, "us"),
    "added_cpu_us": ("CPU added a step", 1, "us"),
    "events_per_step": ("events a step", 1, ""),
    "watcher_core_percent": ("watcher", 1, "% of a core"),
    "recorder_core_percent": ("recorder", 1, "% of a core"),
    "num_looks": ("looks", 1, ""),
    "num_stopped": ("stopped", 1, ""),
    "num_traced": ("traced", 1, ""),
    "start_s": ("start and end", 1, "s"),
    "start_cpu_s": ("its CPU", 1, "s"),
    "kills": ("kills", 1, ""),
    "delay_median_ms": ("delay median", 1, "ms"),
    "delay_worst_ms": ("worst", 1, "ms"),
    "next_batch_worst_ms": ("next batch, worst", 1, "ms"),
    "usual_batch_ms": ("usual", 1, "ms"),
    "repeated_most_ms": ("repeated, most", 1, "ms"),
    "stage_1_per_s": ("stage 1", 1, ""),
    "stage_2_per_s": ("stage 2", 1, ""),
    "stage_3_per_s": ("stage 3", 1, ""),
    "num_workers": ("workers, at last", 1, ""),
}


def print_group(
    names: Mapping[str, str], columns: Sequence[str], rounds: Sequence[Mapping[str, Result]], *, show_waits: bool
) -> None:
    """Print one row for each contender of a group: `names` maps its key to the name shown."""
    rows = [["", *(COLUMNS[column][0] for column in columns)]]
    rows += [[name, *(_cell(column, rounds, key) for column in columns)] for key, name in names.items()]
    print(table(rows))
    if show_waits:
        for key, name in names.items():
            if waits := rounds[-1].get(key, {}).get("waits_ms"):
                print(f"  waits of {name}, 0 to {number(max(waits))} ms:\n    {sparkline(waits)}")


def print_bars(bars: Iterable[Mapping[str, Any]]) -> None:
    """Print what was wanted beside what was measured."""
    rows = [["", "measured", "min - max", "bar", ""]]
    for bar in bars:
        if bar["value"] is None:
            rows.append([bar["title"], "not measured", "", bar["wanted"], ""])
        else:
            least_most = f"{number(bar['min'])} - {number(bar['max'])}"
            rows.append([bar["title"], number(bar["value"]), least_most, bar["wanted"], bar["verdict"]])
    print(f"\nbars\n{table(rows)}")


def middle(rounds: Sequence[Mapping[str, Result]], key: str, measure: str) -> float | None:
    """Return the median over rounds of a measure of one contender."""
    values = [value for results in rounds if (value := results.get(key, {}).get(measure)) is not None]
    return statistics.median(values) if values else None


def sparkline(values: Sequence[float], *, width: int = 96) -> str:
    """Draw a series in one line, the first `width` values of it."""
    blocks = "▁▂▃▄▅▆▇█"
    shown, top = values[:width], max(values) or 1.0
    return "".join(blocks[min(len(blocks) - 1, int(value / top * len(blocks)))] for value in shown)


def _cell(column: str, rounds: Sequence[Mapping[str, Result]], key: str) -> str:
    value = middle(rounds, key, column)
    if value is None:
        return ""
    _, factor, unit = COLUMNS[column]
    if unit == "ms" and 0 < value * factor < 0.1:
        return f"{number(value * factor * 1e3)} us"
    return f"{number(value * factor)} {unit}".strip()


def brief(result: Result, columns: Iterable[str]) -> str:
    """Return the first figures of a result in one line, for progress."""
    shown = [column for column in columns if result.get(column) is not None][:3]
    return ", ".join(f"{COLUMNS[c][0]} {number(result[c] * COLUMNS[c][1])} {COLUMNS[c][2]}".strip() for c in shown)


def number(value: float) -> str:
    """Three digits, no exponent."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: names to the left, figures to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)
