"""What the starts of shards cost: late batches in whose making a shard was opened. Pure.

A late batch at a shard's start looks like a straggler, and shards of one size look like workers in lock-step. Two
things decide: the late batches are those in whose task a shard was opened, and such tasks take much longer than the
others. Where every task opens one, or opening is quick, shards are not what is waited for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import Cause, EventKind, Finding, Text, format_seconds, format_share, three_digits

from ..remedies import make_finding
from ..steps import Cost, cost_of
from .processes import ProcessEvents, covering, ends_of, starts_of
from .trainer import LoaderWaits

_FEWEST = 3  # tasks that open a shard: fewer are no pattern
_MOST_OF_TASKS = 0.5  # where more tasks than that open one, that is how samples are read
_TIMES_LONGER = 2.0
_LONGER_S = 0.02
_MOST_OF_LATE = 0.6  # of the waiting for late batches
_COVERED = 0.5  # of a wait, where batches cannot be told apart


def find_shard_starts(
    loader: LoaderWaits, workers: Sequence[ProcessEvents], is_late: NDArray[np.bool_], train_s: float
) -> Finding | None:
    """Return what starts of shards cost the loop; None where it does not wait for them."""
    # `is_late` tells of the batches but the first of each epoch which came late.
    later = loader.batch > 0
    if not is_late.any() or not any(len(worker.of(EventKind.SHARD_OPEN)) for worker in workers):
        return None
    tasks, opened, names = _tasks(workers)
    length_s = tasks["duration_ns"] / 1e9
    is_later = starts_of(tasks) >= int(loader.end_ns[0])  # what began before belongs to the epoch's start
    opens, others = (opened > 0) & is_later, (opened == 0) & is_later
    if opens.sum() < _FEWEST or not others.any() or opens.sum() > _MOST_OF_TASKS * is_later.sum():
        return None
    with_start_s, without_s = float(np.median(length_s[opens])), float(np.median(length_s[others]))
    if with_start_s < max(_TIMES_LONGER * without_s, without_s + _LONGER_S):
        return None
    wait_s = loader.wait_s[later]
    at_start = _begin_shards(loader, tasks, opened > 0, later, is_late)
    of_late = float(wait_s[at_start].sum() / wait_s[is_late].sum())
    if at_start.sum() < _FEWEST or of_late < _MOST_OF_LATE:
        return None
    cost = Cost(**cost_of(wait_s[at_start]))
    evidence = [
        Text(
            "{count} late batches were made by tasks that opened a shard: {lost} in all, {typical} each ({worst} at "
            "worst), {share} of the waiting for late batches",
            "有 {count} 个迟到的 batch，其任务中都打开了新的分片（shard）：共等 {lost}，每次约 {typical}（最长 "
            "{worst}），占迟到等待的 {share}",
        ).filled(share=format_share(of_late), **cost.blanks),
        Text(
            "a task that opens a shard takes {with_start} typically, one that does not {without}; "
            "{opened:shard(s) (was|were)} opened, one every {every} tasks",
            "打开分片的任务通常要 {with_start}，不打开的只要 {without}；共打开 {opened} 个分片，约每 {every} "
            "个任务一次",
        ).filled(
            with_start=format_seconds(with_start_s),
            without=format_seconds(without_s),
            opened=int(opened.sum()),
            every=three_digits(len(tasks) / float(opened.sum())),
        ),
    ]
    if slowest := names[int(np.argmax(np.where(opens, length_s, 0.0)))]:
        evidence.append(Text("the slowest: {name}", "最慢的是 {name}").filled(name=slowest))
    figures = {"lost_s": cost.lost_s, "count": float(cost.count)}
    return make_finding(Cause.SHARD_BOUNDARY, cost.lost_s / train_s, evidence, figures=figures)


def _tasks(workers: Sequence[ProcessEvents]) -> tuple[NDArray[Any], NDArray[np.int64], list[str]]:
    """Return all tasks in the order of their ends, how many shards each opened, and the name of its first shard."""
    tasks, opened, names = [], [], []
    for worker in workers:
        fetches, openings = worker.of(EventKind.FETCH), worker.of(EventKind.SHARD_OPEN)
        first, last = (np.searchsorted(starts_of(openings), edge(fetches)) for edge in (starts_of, ends_of))
        args = [int(openings["arg"][low]) if high > low else 0 for low, high in zip(first, last, strict=True)]
        tasks.append(fetches)
        opened.append(last - first)
        names += [worker.names.get(arg, "") for arg in args]
    whole = np.concatenate(tasks)
    order = np.argsort(ends_of(whole), kind="stable")
    return whole[order], np.concatenate(opened)[order], [names[place] for place in order]


def _begin_shards(
    loader: LoaderWaits,
    tasks: NDArray[Any],
    opens: NDArray[np.bool_],
    later: NDArray[np.bool_],
    is_late: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return which of the late batches were made by a task that opened a shard."""
    starts, ends, batch = loader.start_ns[later], loader.end_ns[later], loader.batch[later]
    if loader.settings.is_ours:
        # several tasks fill a batch: the loop waited at a shard's start if such a task covers the wait
        covered = covering(tasks[opens]).between(starts, ends)
        return np.asarray(is_late & (covered >= _COVERED * np.maximum(ends - starts, 1)))
    by_batch = np.argsort(tasks["value"], kind="stable")  # of each number one task an epoch, in the order of their ends
    numbers, task_ends = tasks["value"][by_batch], ends_of(tasks)[by_batch]
    found = np.zeros(len(batch), bool)
    for place in np.flatnonzero(is_late):
        low, high = np.searchsorted(numbers, [batch[place], batch[place] + 1])
        made = low + np.searchsorted(task_ends[low:high], ends[place], side="right") - 1  # the last before it came
        found[place] = made >= low and bool(opens[by_batch[made]])
    return found
