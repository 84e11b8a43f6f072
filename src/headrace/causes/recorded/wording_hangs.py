"""The evidence of hung workers and of starts of shards in sentences, with its figures."""

from __future__ import annotations

from headrace.model import Text, format_seconds, format_share, three_digits

from .shard_starts import ShardStarts
from .stuck_workers import ReplacedWorkers, StuckWorker


def shard_start_evidence(starts: ShardStarts) -> tuple[Text, ...]:
    """Return the sentences that carry waits at the starts of shards."""
    said = [
        Text(
            "{late} late batches were made by tasks that opened a shard: {lost} in all, {typical} each ({worst} at "
            "worst), {share} of the waiting for late batches",
            "有 {late} 个迟到的 batch，其任务中都打开了新的分片（shard）：共等 {lost}，每次约 {typical}（最长 "
            "{worst}），占迟到等待的 {share}",
        ).filled(
            late=starts.num_late,
            lost=format_seconds(starts.lost_s),
            typical=format_seconds(starts.typical_s),
            worst=format_seconds(starts.worst_s),
            share=format_share(starts.of_late),
        ),
        Text(
            "a task that opens a shard takes {with_start} typically, one that does not {without}; {opened} shards were "
            "opened, one every {every} tasks",
            "打开分片的任务通常要 {with_start}，不打开的只要 {without}；共打开 {opened} 个分片，"
            "约每 {every} 个任务一次",
        ).filled(
            with_start=format_seconds(starts.with_start_s),
            without=format_seconds(starts.without_s),
            opened=starts.num_opened,
            every=three_digits(starts.tasks_a_shard),
        ),
    ]
    if starts.slowest:
        said.append(Text("the slowest: {name}", "最慢的是 {name}").filled(name=starts.slowest))
    return tuple(said)


def stuck_worker_evidence(stuck: StuckWorker) -> tuple[Text, ...]:
    """Return the sentences that carry a run that was ended while it waited for a worker."""
    said = [
        Text(
            "when the run was ended, the loop had waited for {waited}, and worker {pid} had been in one task for "
            "{stuck}",
            "运行被终止时，训练循环已经等了 {waited}，worker {pid} 在同一个任务里停了 {stuck}",
        ).filled(waited=format_seconds(stuck.waited_s), pid=stuck.pid, stuck=format_seconds(stuck.stuck_s))
    ]
    if stuck.longest_s > 0:
        said.append(
            Text("the longest task that did end took {longest}", "在此之前，最长的任务也只用了 {longest}").filled(
                longest=format_seconds(stuck.longest_s)
            )
        )
    if stuck.sample_index >= 0:
        said.append(
            Text("the sample that it stood at: {index}", "停在的样本：{index}（索引）").filled(index=stuck.sample_index)
        )
    return tuple(said)


def replaced_workers_evidence(replaced: ReplacedWorkers) -> tuple[Text, ...]:
    """Return the sentence that carries hangs that our loader got over."""
    return (
        Text(
            "{count} times a worker stood still ({worst} at worst) until the loader ended and replaced it; the loop "
            "waited for {lost} meanwhile",
            "有 {count} 次 worker 停住不动（最长 {worst}），直到加载器将其终止并替换；其间训练循环等了 {lost}",
        ).filled(count=replaced.count, worst=format_seconds(replaced.worst_s), lost=format_seconds(replaced.lost_s)),
    )
