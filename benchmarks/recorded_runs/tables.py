"""The results as tables: the confusion matrix, what was wrong, what was drawn again, as the page of the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from .one_run import NOTHING
from .verifying import MEASURED

Run = dict[str, Any]  # an `Outcome` as it stands in a result file

_HEAD = """# How often the first cause is right

Written by [`benchmarks/run_score.py`](../../benchmarks/run_score.py): real trainings, drawn at random (workers,
batch, step, torch's loader or ours, how much of the cause), each with a cause injected for real, under `headrace
run`. A row is what was injected, a column the cause that was named first; of `loader_throughput` and `batch_lockstep`
either is right, for they are one cause in two shapes. `mixture` is two causes at once: the one that cost more must
come first, and both must be found.
"""
_SHARES = """## How much is told, and how much was lost

What was lost is measured by the training itself, on its own clock, as a share of the time that it trained; what is
told is the share of the findings with the injected cause. Of a mixture each of the two counts. `cpu_quota` and
trainings that end for their cause measure no such share. The time of which we tell shares begins with the first
`iter(loader)`, that of the training with its first batch: in eight seconds, workers that take three to start make a
share smaller by a quarter (`epoch_start`, and less so `oversubscribed` and `ipc_copy`).
"""
_RULES = """## What makes a training count

Whether the injected cause came about is not for the diagnosis to say. The training measures on its own clock what it
waited for data and what it spent on saving, evaluating, logging and so on, and the driver reads the kernel's counters
of its control group: pages of files that were read again (`memory_short`: a quarter of the disk's rate or more),
periods in which a quota was used up (`cpu_quota`: a quarter or more), bytes that came back from swap (2 MB/s or
more). What was injected must have cost 12 % of the time or more; a training without a cause must have waited for less
than 5 %. One that is not what its label says is drawn again with other parameters. Of a mixture, the cause that cost
more by the training's clock must come first (within 3 % of the time of each other: either).
"""
_CAUSES = """## Every cause and its kind

| cause | kinds |
| --- | --- |
| `loader_throughput`, `batch_lockstep` | `cpu_decode`, `oversubscribed` (each worker with 8 or 16 threads), `slow_collate`, `gil`, `ipc_copy`, `io_bandwidth`, `io_latency` |
| `straggler_sample` | `straggler_worker`, `rare_heavy` |
| `shard_boundary` | `shard_boundary`: tar shards fetched whole from a slow disk, or a store that answers late |
| `epoch_start` | `epoch_start`: spawned workers, short epochs |
| `worker_lost`, `worker_hang`, `corrupt_sample` | `worker_dies`; `worker_hang` (ended by torch's `timeout`, SIGINT or SIGTERM); `corrupt_sample` (one array cut or damaged among 200) |
| `checkpoint`, `evaluation`, `logging`, `gc` | `checkpoint`, `evaluation`, `chatty_logging`, `garbage` |
| `swap`, `memory_pressure`, `cpu_throttled` | `swapping`, `memory_short`, `cpu_quota`, by control groups |
| `shm_full`, `fd_limit` | `shm_small`, `fd_limit` |
| `h2d_copy` | `copies`, on a GPU only: without one there is no copy. Pinning is in the table of times and no cause of its own |
| `compute` | `compute`: a compute-bound run has no finding |
| `unknown` | `hidden`: the loop sleeps where nobody times it |
"""  # noqa: E501  # rows of a table


def matrix(runs: Sequence[Run]) -> str:
    """The confusion matrix: injected kind against the cause that came first."""
    firsts = sorted({_first(one) for one in runs})
    lines = [
        "| injected | right | " + " | ".join(f"`{name}`" if name != NOTHING else "none" for name in firsts) + " |",
        "| --- | --- |" + " --- |" * len(firsts),
    ]
    for kind in dict.fromkeys(one["kind"] for one in runs):
        mine = [one for one in runs if one["kind"] == kind]
        counts = Counter(map(_first, mine))
        cells = " | ".join(str(counts[name]) if counts[name] else "" for name in firsts)
        lines.append(f"| {kind} | {sum(one['is_right'] for one in mine)}/{len(mine)} | {cells} |")
    return "\n".join(lines)


def shares(run: Run) -> list[tuple[float, float]]:
    """What was lost to each cause that was injected, by the training's own clock, and what was told of it; 0 to 1."""
    train_s = run["measured"].get("train_s", 0.0)
    if run["exit_code"] or not train_s:
        return []
    found = []
    for causes in run["among"] or [run["expected"]]:
        name = next((MEASURED[cause] for cause in causes if cause in MEASURED), None)
        if name is not None:
            told = sum(share for cause, share in run["found"] if cause in causes)
            found.append((run["measured"].get(name, 0.0) / train_s, told))
    return found


def share_table(runs: Sequence[Run]) -> str:
    """What was lost and what was told, of each kind that measures it."""
    lines = ["| injected | lost | told | told less lost, median and furthest |", "| --- | --- | --- | --- |"]
    for kind in dict.fromkeys(one["kind"] for one in runs):
        mine = [pair for one in runs if one["kind"] == kind for pair in shares(one)]
        if not mine:
            continue
        lost, told = zip(*mine, strict=True)
        off = [100 * (b - a) for a, b in mine]
        lines.append(
            f"| {kind} | {_range(lost)} | {_range(told)} | {median(off):+.1f}, {max(off, key=abs):+.1f} points |"
        )
    return "\n".join(lines)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0%} to {max(values):.0%}" if len(values) > 1 else f"{values[0]:.0%}"


def summary(runs: Sequence[Run]) -> list[str]:
    """The counts in sentences."""
    right, limits = sum(one["is_right"] for one in runs), [one for one in runs if one["wanted_bottleneck"]]
    share = f" ({right / len(runs):.1%})" if runs else ""
    lines = [f"Right: {right} of {len(runs)}{share}."]
    quiet = [one for one in runs if not one["expected"]]
    if quiet:
        lines.append(f"Without a cause: {sum(bool(one['found']) for one in quiet)} of {len(quiet)} had a finding.")
    if limits:
        named = sum(one["bottleneck"] == one["wanted_bottleneck"] for one in limits)
        lines.append(f"Bottleneck named right where one was injected: {named} of {len(limits)}.")
    ours = [one for one in runs if one["loader"] == "headrace"]
    lines.append(f"With our own loader: {sum(one['is_right'] for one in ours)} of {len(ours)}.")
    return lines


def wrong_ones(runs: Iterable[Run]) -> list[str]:
    """What was said instead, of each that was wrong."""
    return [
        f"{one['kind']} {one['seed']} ({one['name']}, {one['loader']}): "
        f"{', '.join(f'{cause} {share:.0%}' for cause, share in one['found'][:4]) or 'no finding'}; "
        f"wanted first: {' or '.join(one['expected']) or 'no finding'}"
        + (f", and all of {', '.join(' or '.join(causes) for causes in one['among'])}" if one["among"] else "")
        for one in runs
        if not one["is_right"]
    ]


def page(runs: Sequence[Run], left_out: dict[str, str], machines: Sequence[str]) -> str:
    """The page of the reference."""
    redrawn = [f"{one['kind']}: {why}" for one in runs for why in one["redrawn"]]
    lines = [_HEAD, matrix(runs), "", *summary(runs), "", *(f"- machine: {one}" for one in machines)]
    lines += [f"- left out: {kind} ({why})" for kind, why in left_out.items()]
    wrong = wrong_ones(runs)
    if wrong:
        lines += ["", "Wrong:", "", *(f"- {one}" for one in wrong)]
    lines += ["", _SHARES, share_table(runs), "", _RULES]
    if redrawn:
        counts = Counter(redrawn)
        lines += [f"Drawn again here ({len(redrawn)}):", ""]
        lines += [f"- {text}" + (f" ({count} times)" if count > 1 else "") for text, count in counts.items()]
        lines.append("")
    lines.append(_CAUSES)
    return "\n".join(lines).rstrip() + "\n"


def _first(run: Run) -> str:
    return run["found"][0][0] if run["found"] else NOTHING
