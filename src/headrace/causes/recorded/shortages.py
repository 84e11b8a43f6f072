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


def find_shortages(around: Surroundings, found: list[Finding], *, wait_share: float) -> list[Shortage]:
    """Return the shortages that cost enough to be told; `found` is what the waits look like from inside."""
    shortages = []
    if (throttled := _throttled(around)) is not None:
        shortages.append(throttled)
    if (swapped := _swapping(around)) is not None:
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
            share = finding.share * (1 - shortage.share)
            if shortage.cause is Cause.MEMORY_PRESSURE and finding.cause in _DATA:
                share = max(0.0, finding.share - shortage.share)
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
    return Shortage(cause=Cause.CPU_THROTTLED, share=share, evidence=(said,), figures=figures)


def _swapping(around: Surroundings) -> Shortage | None:
    rate = around.swapped_in_bytes / around.seconds if around.seconds > 0 else 0.0
    if rate < _SWAP_FROM or not around.swapped_bytes:
        return None
    stall = around.memory_stall_s
    share = min(1.0, stall / around.seconds) if stall is not None else 0.0
    if share < _LEAST_SHARE:
        return None
    said = Text(
        "{rate}/s came back from swap, {swapped} of the training lay there at most, and memory was waited for during "
        "{stall} of {seconds}",
        "每秒从交换区换回 {rate}，训练最多有 {swapped} 被换出；{seconds} 中有 {stall} 在等内存",
    ).filled(
        rate=format_bytes(round(rate)),
        swapped=format_bytes(around.swapped_bytes),
        stall=format_seconds(stall or 0.0),
        seconds=format_seconds(around.seconds),
    )
    figures = {"swap_in_bytes_per_s": rate, "memory_stall_s": stall or 0.0}
    return Shortage(cause=Cause.SWAP, share=share, evidence=(said, *_limit_text(around)), figures=figures)


def _pressed(around: Surroundings, found: list[Finding], wait_share: float) -> Shortage | None:
    """Memory that is short without swap: files that were just read are dropped, and read again."""
    stall = around.memory_stall_s or 0.0
    share = min(1.0, stall / around.seconds) if around.seconds > 0 else 0.0
    rate = around.refault_bytes_per_s
    swap_rate = around.swapped_in_bytes / around.seconds if around.seconds > 0 else 0.0
    if around.limit_bytes is None and rate < _REFAULTS_FROM and swap_rate < _SWAP_FROM:
        return None  # the machine has enough: others waited, under a limit of their own
    data = next((one for one in found if one.cause in _DATA and one.bottleneck not in _COMPUTES), None)
    read = 0.0
    if data is not None:
        read = data.figures.get("read_bytes_per_s", 0.0) * max(1.0, data.figures.get("num_workers", 1.0))
    # Without a limit of our own the count is the machine's: only tasks that read can have waited for it.
    if rate >= _REFAULTS_FROM and data is not None and (read > 0 or around.limit_bytes is not None):
        again = min(1.0, rate / read) if read > 0 else 1.0
        share = max(share, again * min(data.share, wait_share or data.share))
    if share < _LEAST_SHARE:
        return None
    said = Text(
        "{rate}/s of files were read again that had been in memory shortly before: there was no room to keep them. "
        "Memory itself was waited for during {stall} of {seconds}",
        "每秒有 {rate} 的文件内容刚被挤出内存又要重新读入：放不下。直接等内存的时间为 {seconds} 中的 {stall}",
    ).filled(rate=format_bytes(round(rate)), stall=format_seconds(stall), seconds=format_seconds(around.seconds))
    figures = {"refault_bytes_per_s": rate, "memory_stall_s": stall}
    return Shortage(cause=Cause.MEMORY_PRESSURE, share=share, evidence=(said, *_limit_text(around)), figures=figures)


def _limit_text(around: Surroundings) -> tuple[Text, ...]:
    if around.limit_bytes is None:
        return ()
    return (
        Text(
            "the control group holds {used} at most, its limit is {limit}", "所在 cgroup 最多用到 {used}，上限 {limit}"
        ).filled(used=format_bytes(around.most_used_bytes), limit=format_bytes(around.limit_bytes)),
    )
