"""What the system did not give a training: processor time under a quota, or memory. Pure.

They look like something else from inside: a throttled decode is a slow decode, a dropped page cache a slow disk. The
kernel's counters decide, and what they account for is taken from the findings that it looked like.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.model import (
    Bottleneck,
    Cause,
    Finding,
    Severity,
    Text,
    format_bytes,
    format_seconds,
    format_share,
    gain_of,
    three_digits,
)

from .surroundings import Surroundings

_LEAST_SHARE = 0.05
_THROTTLED_FROM = 0.2  # of the periods: a quota that is used up now and then costs little
_SWAP_FROM = 1e6  # bytes a second
_REFAULTS_FROM = 5e6  # bytes a second: below, the disk hardly notices
_DATA = {Cause.LOADER_THROUGHPUT, Cause.BATCH_LOCKSTEP, Cause.STRAGGLER_SAMPLE}
_COMPUTES = {Bottleneck.CPU_DECODE, Bottleneck.GIL}


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Something the system did not give, and the share of the time that it cost."""

    cause: Cause
    share: float
    evidence: tuple[Text, ...]
    figures: dict[str, float]
    of_waits: float  # which part of the waits for data it accounts for, 0 to 1,
    of_rest: float  # and which part of everything else


def find_shortages(around: Surroundings, found: list[Finding], *, wait_share: float) -> list[Shortage]:
    """Return the shortages that cost enough to be told; `found` is what the waits look like from inside."""
    shortages = []
    if (throttled := _throttled(around)) is not None:
        shortages.append(throttled)
    if (swapped := _swapping(around, found, wait_share)) is not None:
        shortages.append(swapped)
    elif (pressed := _pressed(around, found, wait_share)) is not None:
        shortages.append(pressed)
    return shortages


def without(found: list[Finding], shortages: list[Shortage]) -> list[Finding]:
    """Return findings with what shortages account for taken out: the same second is not told twice."""
    rest = list(found)
    for shortage in shortages:
        kept = []
        for finding in rest:
            share = finding.share * (1 - (shortage.of_waits if finding.cause in _DATA else shortage.of_rest))
            if share >= _LEAST_SHARE:
                kept.append(replace(finding, share=share, severity=Severity.of_share(share), gain=gain_of(share)))
        rest = kept
    return rest


def _throttled(around: Surroundings) -> Shortage | None:
    share = around.standing_share
    if around.throttled_share is None or around.throttled_share < _THROTTLED_FROM or share < _LEAST_SHARE:
        return None
    said = Text(
        "the control group may use {quota} cores, and in {throttled} of its periods they were used up: what ran "
        "then stood still for {stood} of the time (estimate: throttled time / processes that worked)",
        "所在 cgroup 的 CPU 配额是 {quota} 核，有 {throttled} 的周期配额被用尽：当时在运行的进程都被停住，约占时间的 "
        "{stood}（估算：限流时间 / 有负载的进程数）",
    ).filled(
        quota=three_digits(around.quota_cores or 0.0),
        throttled=format_share(around.throttled_share),
        stood=format_share(share),
    )
    figures = {"throttled_share": around.throttled_share, "throttled_s": around.throttled_s}
    return Shortage(
        cause=Cause.CPU_THROTTLED, share=share, evidence=(said,), figures=figures, of_waits=share, of_rest=share
    )


def _swapping(around: Surroundings, found: list[Finding], wait_share: float) -> Shortage | None:
    """Memory that was fetched back from disk: what that took of the training process itself, and of its waits.

    A wait for data loses the part of it that faults have of the workers' work.
    """
    rate = around.swapped_in_bytes / around.seconds if around.seconds > 0 else 0.0
    if rate < _SWAP_FROM or not around.swapped_bytes:
        return None
    data = next((one for one in found if one.cause in _DATA), None)
    of_waits = in_waits = 0.0
    if data is not None and around.worker_faults.seconds:
        faulting = around.worker_faults.seconds / around.worker_faults.seen_s
        of_waits = faulting / max(faulting, data.figures.get("busy_share", 1.0))
        in_waits = of_waits * min(data.share, wait_share)
    rest = max(0.0, 1 - wait_share)
    itself = min(rest, around.faults.seconds / around.seconds)
    share, of_rest = in_waits + itself, itself / rest if rest else 0.0
    stall = around.memory_stall_s
    stalled = min(1.0, (stall or 0.0) / around.seconds)
    if stalled > share:  # by tasks that no sample tells of
        share, of_waits, of_rest = stalled, stalled, stalled
    if share < _LEAST_SHARE:
        return None
    said = Text(
        "{rate}/s came back from swap, and {swapped} of the training lay there at most. In {seconds} the training "
        "process spent {kernel} in the kernel on that ({no_core} of it without a core) and slept {asleep} for pages "
        "(estimate: its major faults x the disk's time for a read). The kernel's own count of waiting for memory "
        "leaves most of that out: {stall}",
        "每秒从交换区换回 {rate}，训练最多有 {swapped} 被换出。{seconds} 中，训练进程为此在内核里用了 {kernel}（其中 "
        "{no_core} 在等 CPU 核），并睡眠 {asleep} 等待页面换回（估算：主缺页次数 × 磁盘单次读取时间）。内核自己统计的"
        "等内存时间为 {stall}，它不含上述大部分开销",
    ).filled(
        rate=format_bytes(round(rate)),
        swapped=format_bytes(around.swapped_bytes),
        seconds=format_seconds(around.seconds),
        kernel=format_seconds(around.faults.in_kernel_s + around.faults.no_core_s),
        no_core=format_seconds(around.faults.no_core_s),
        asleep=format_seconds(around.faults.asleep_s),
        stall=format_seconds(stall) if stall is not None else "-",
    )
    figures = {
        "swap_in_bytes_per_s": rate,
        "memory_stall_s": stall or 0.0,
        "fault_kernel_s": around.faults.in_kernel_s,
        "fault_no_core_s": around.faults.no_core_s,
        "fault_asleep_s": around.faults.asleep_s,
        "worker_fault_s": around.worker_faults.seconds,
    }
    return Shortage(
        cause=Cause.SWAP,
        share=share,
        evidence=(said, *_limit_text(around)),
        figures=figures,
        of_waits=of_waits,
        of_rest=of_rest,
    )


def _pressed(around: Surroundings, found: list[Finding], wait_share: float) -> Shortage | None:
    """Memory that is short without swap: files that were just read are dropped, and read again."""
    stall = around.memory_stall_s or 0.0
    share = min(1.0, stall / around.seconds) if around.seconds > 0 else 0.0
    of_waits = of_rest = share
    rate = around.refault_bytes_per_s
    swap_rate = around.swapped_in_bytes / around.seconds if around.seconds > 0 else 0.0
    if around.limit_bytes is None and rate < _REFAULTS_FROM and swap_rate < _SWAP_FROM:
        return None  # the machine has enough: others waited, under a limit of their own
    data = next((one for one in found if one.cause in _DATA and one.bottleneck not in _COMPUTES), None)
    again = _read_again(around, data) if data is not None else 0.0
    if data is not None and again:
        # Without these reads a task takes so much less, and what the loop gains it no longer waits.
        lost = min(data.share, wait_share or data.share, again * data.figures.get("task_blocked_share", data.share))
        if around.disk_stall_s is not None:
            lost = min(lost, around.disk_stall_s / around.seconds)
        if lost >= share:
            share, of_waits, of_rest = lost, lost / data.share, 0.0
    if share < _LEAST_SHARE:
        return None
    said = Text(
        "{rate}/s of files were read again that had been in memory shortly before ({again} of what came from disks): "
        "there was no room to keep them. Memory itself was waited for during {stall} of {seconds}",
        "每秒有 {rate} 的文件内容刚被挤出内存又要重新读入（占从磁盘读取量的 {again}）：放不下。直接等内存的时间为 "
        "{seconds} 中的 {stall}",
    ).filled(
        rate=format_bytes(round(rate)),
        again=format_share(again),
        stall=format_seconds(stall),
        seconds=format_seconds(around.seconds),
    )
    figures = {"refault_bytes_per_s": rate, "read_again_share": again, "memory_stall_s": stall}
    return Shortage(
        cause=Cause.MEMORY_PRESSURE,
        share=share,
        evidence=(said, *_limit_text(around)),
        figures=figures,
        of_waits=of_waits,
        of_rest=of_rest,
    )


def _read_again(around: Surroundings, data: Finding) -> float:
    """Return which part of the reads that took time would not have been without the shortage, 0 to 1.

    Reads that find their file in memory take none, so what counts is what came from disks. Where that is not known, or
    how long disks were waited for, all that tasks read stands for it.
    """
    rate = around.refault_bytes_per_s
    read = data.figures.get("read_bytes_per_s", 0.0) * max(1.0, data.figures.get("num_workers", 1.0))
    # Without a limit of our own the count is the machine's: only tasks that read can have waited for it.
    if rate < _REFAULTS_FROM or (read <= 0 and around.limit_bytes is None):
        return 0.0
    if around.disk_read_bytes and around.disk_stall_s is not None:
        read = around.disk_read_bytes / around.seconds
    return min(1.0, rate / read) if read > 0 else 1.0


def _limit_text(around: Surroundings) -> tuple[Text, ...]:
    if around.limit_bytes is None:
        return ()
    return (
        Text(
            "the control group holds {used} at most, its limit is {limit}", "所在 cgroup 最多用到 {used}，上限 {limit}"
        ).filled(used=format_bytes(around.most_used_bytes), limit=format_bytes(around.limit_bytes)),
    )
