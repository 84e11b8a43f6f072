"""What the system did not give: found where the kernel's counters say so, and taken from what it looked like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.causes.recorded.surroundings import Surroundings, find_shortages, read_surroundings
from headrace.causes.remedies import make_finding
from headrace.model import Bottleneck, Cause, Confidence, Finding, Severity, Text
from headrace.signals.system import (
    CpuGroupSample,
    DiskSample,
    MachineSample,
    MemoryGroupSample,
    PressureSample,
    ProcessSample,
    SystemSample,
)

SECOND = 1_000_000_000
MEGABYTE = 1_000_000


def machine(**values: int) -> MachineSample:
    known: dict[str, Any] = dict.fromkeys(MachineSample._fields, 0)
    return MachineSample(**(known | values))


def process(pid: int, cpu_s: float, **values: float | None) -> ProcessSample:
    known: dict[str, Any] = dict.fromkeys(ProcessSample._fields, 0)
    known |= {"pid": pid, "name": "python", "state": "R", "wait_channel": "", "cpu_user_s": cpu_s}
    return ProcessSample(**(known | values))


def disk(reads: int, read_s: float) -> DiskSample:
    known: dict[str, Any] = dict.fromkeys(DiskSample._fields, 0)
    return DiskSample(**(known | {"name": "vda", "reads": reads, "read_s": read_s}))


def memory_group(**values: int | None) -> MemoryGroupSample:
    known: dict[str, Any] = dict.fromkeys(MemoryGroupSample._fields, 0)
    return MemoryGroupSample(**(known | {"limit_bytes": None} | values))


def stalls(seconds: float, scope: str = "machine", resource: str = "memory") -> PressureSample:
    return PressureSample(resource, scope, 0.0, 0.0, seconds, seconds)


def data_finding(share: float, bottleneck: Bottleneck | None = None, **figures: float) -> Finding:
    return Finding(
        cause=Cause.LOADER_THROUGHPUT,
        share=share,
        severity=Severity.of_share(share),
        confidence=Confidence.CERTAIN,
        evidence=(Text("it waits", "它在等"),),
        fix=(),
        bottleneck=bottleneck,
        figures=figures,
    )


def quota(periods: int, throttled: int, throttled_s: float) -> CpuGroupSample:
    return CpuGroupSample(2, 0, 0.5, periods, throttled, throttled_s)


def test_a_quota_that_is_used_up_is_named_and_not_called_a_slow_decode() -> None:
    first = SystemSample(
        at_ns=0, machine=machine(), processes=(process(1, 0), process(2, 0)), cpu_groups=(quota(0, 0, 0),)
    )
    last = SystemSample(
        at_ns=10 * SECOND,
        machine=machine(),
        processes=(process(1, 2.5), process(2, 2.5)),
        cpu_groups=(quota(100, 100, 15.0),),
    )
    around = read_surroundings([first, last], 0, 10 * SECOND, cores=2)
    assert around is not None
    assert around.num_working == 2
    found = [data_finding(0.5, Bottleneck.CPU_DECODE)]
    (shortage,), (rest,) = find_shortages(around, found, wait_share=0.5)
    assert (shortage.cause, round(shortage.share, 2)) == (Cause.CPU_THROTTLED, 0.75)
    assert around.standing_share == pytest.approx(1 - 0.5 / 2)  # each tenth of a second: 25 ms of two, then nothing
    assert rest.share == pytest.approx(0.125)
    assert "0.500 cores" in shortage.evidence[0].en


def test_a_quota_that_is_met_now_and_then_is_nothing() -> None:
    first = SystemSample(at_ns=0, machine=machine(), cpu_groups=(quota(0, 0, 0),))
    last = SystemSample(at_ns=10 * SECOND, machine=machine(), cpu_groups=(quota(100, 10, 0.5),))
    around = read_surroundings([first, last], 0, 10 * SECOND, cores=2)
    assert around is not None
    assert find_shortages(around, [data_finding(0.5)], wait_share=0.5)[0] == []


def test_swap_needs_pages_that_come_back_and_waiting_for_them() -> None:
    def samples(pages: int, stall_s: float, swapped: int) -> list[SystemSample]:
        group = memory_group(swap_bytes=swapped, limit_bytes=1 << 30, used_bytes=1 << 30)
        return [
            SystemSample(at_ns=0, machine=machine(), pressures=(stalls(5.0),), memory_groups=(group,)),
            SystemSample(
                at_ns=10 * SECOND,
                machine=machine(swap_in_pages=pages),
                pressures=(stalls(5.0 + stall_s),),
                memory_groups=(group,),
            ),
        ]

    def causes(*values: Any) -> list[Cause]:
        around = read_surroundings(samples(*values), 0, 10 * SECOND, cores=2)
        assert around is not None
        return [one.cause for one in find_shortages(around, [], wait_share=0.0)[0]]

    assert causes(100_000, 3.0, 1 << 28) == [Cause.SWAP]
    assert causes(100_000, 0.1, 1 << 28) == []  # cheap: nobody waited
    assert causes(100_000, 3.0, 0) == [Cause.MEMORY_PRESSURE]  # another job's pages; ours waited for memory
    assert causes(0, 0.0, 1 << 28) == []  # swapped out long ago, and not missed


_FAULTS = 60_000
_TRAINER, _WORKER = 1, 2


def swapping(trainer: dict[str, float], worker: dict[str, float] | None = None, **changed: float) -> list[SystemSample]:
    """Ten seconds in which 2 GB came back from swap, 70 us for a read of eight pages; PSI saw 2.5 s of it."""
    moved = {"swap_in_pages": 500_000, "swap_out_pages": 500_000, "major_faults": _FAULTS}
    moved |= {name: int(value) for name, value in changed.items() if name in moved}
    group = memory_group(swap_bytes=1 << 28, limit_bytes=1 << 30, used_bytes=1 << 30)
    grown = {_TRAINER: trainer, _WORKER: worker or {}}
    return [
        SystemSample(
            at_ns=at * SECOND,
            machine=machine(**{name: value * at // 10 for name, value in moved.items()}),
            processes=tuple(
                process(pid, 0.0, **{name: value * at / 10 for name, value in values.items()})
                for pid, values in grown.items()
            ),
            disks=(disk(_FAULTS * at // 10, _FAULTS * 70e-6 * at / 10),),
            pressures=(stalls(0.25 * at), stalls(changed.get("io_s", 4.5) * at / 10, resource="io")),
            memory_groups=(group,),
        )
        for at in range(11)
    ]


def lost_to_swap(samples: list[SystemSample], found: list[Finding], wait_share: float) -> list[tuple[str, float]]:
    """What is told, and the rest of what was found."""
    around = read_surroundings(samples, 0, 10 * SECOND, cores=2, trainer_pid=_TRAINER, worker_pids={_WORKER})
    assert around is not None
    shortages, rest = find_shortages(around, found, wait_share=wait_share)
    return [(one.cause.value, round(one.share, 3)) for one in (*shortages, *rest)]


def test_swap_costs_what_faults_take_of_the_training_and_not_only_what_the_kernel_calls_a_stall() -> None:
    faulting = {"major_faults": _FAULTS, "voluntary_switches": _FAULTS, "cpu_system_s": 4.5, "cpu_user_s": 1.0}
    assert lost_to_swap(swapping(faulting), [], 0.0) == [("swap", 0.87)]  # 4.5 s in the kernel, 60,000 x 70 us asleep
    # nobody waited for disks for longer than this
    assert lost_to_swap(swapping(faulting, io_s=1.0), [], 0.0) == [("swap", 0.55)]
    # compressed memory answers without sleep
    awake = faulting | {"voluntary_switches": 0}
    assert lost_to_swap(swapping(awake), [], 0.0) == [("swap", 0.45)]
    # what it does in the kernel besides: 8 MB/s are no reason for four seconds and a half
    few = swapping(faulting, swap_in_pages=20_000, swap_out_pages=0, io_s=0.0)
    assert lost_to_swap(few, [], 0.0) == [("swap", 0.25)]  # what the kernel counted
    # on cores that are busy with something else: all that it waits for one after a sleep, three quarters of the rest
    crowded = faulting | {"cpu_system_s": 3.0, "run_delay_s": 2.0, "involuntary_switches": _FAULTS}
    assert lost_to_swap(swapping(crowded), [], 0.0) == [("swap", 0.895)]  # 3 s, 1.75 s of the 2, 4.2 s
    # eight threads that fault at once cost the wall clock once
    many = {"major_faults": 8 * _FAULTS, "voluntary_switches": _FAULTS, "cpu_system_s": 36.0, "cpu_user_s": 12.0}
    assert lost_to_swap(swapping(many, swap_in_pages=4_000_000, io_s=0.0), [], 0.0) == [("swap", 0.75)]


def test_the_faults_of_workers_are_lost_in_waits_and_those_of_the_training_elsewhere() -> None:
    idle: dict[str, float] = {"cpu_user_s": 3.0}
    faulting = {"major_faults": _FAULTS, "voluntary_switches": _FAULTS, "cpu_system_s": 3.8, "cpu_user_s": 2.0}
    waits = data_finding(0.6, busy_share=1.0)
    saves = make_finding(Cause.CHECKPOINT, 0.2, (Text("it saves", "它在保存"),), figures={})
    # the worker spends 8 s of 10 on faults, so 0.8 of the waits are due to them; saves go on as before
    assert lost_to_swap(swapping(idle, faulting), [waits, saves], 0.6) == [
        ("swap", 0.48),
        ("loader_throughput", 0.12),
        ("checkpoint", 0.2),
    ]
    # in the training process itself: of the 0.4 that are no waits it takes three quarters, of saves too
    own = faulting | {"cpu_system_s": 3.0}
    assert lost_to_swap(swapping(own, io_s=0.0), [waits, saves], 0.6) == [
        ("swap", 0.3),
        ("loader_throughput", 0.6),
        ("checkpoint", 0.05),
    ]


def test_reads_that_find_their_file_in_memory_do_not_make_a_shortage_smaller() -> None:
    """A task that reads 100 MB/s, half of it from disk, and all of that again: the disk is what it waits for."""

    def told(disk_bytes: int, io_s: float, blocked: float = 0.96) -> list[tuple[str, float]]:
        samples = [
            SystemSample(
                at_ns=at * SECOND,
                machine=machine(),
                processes=(process(_WORKER, 0.0, read_bytes=disk_bytes * at // 10),),
                pressures=(stalls(io_s * at / 10, resource="io"),),
                memory_groups=(
                    memory_group(limit_bytes=1 << 30, used_bytes=1 << 30, refault_pages=500 * MEGABYTE * at // 40960),
                ),
            )
            for at in (0, 10)
        ]
        around = read_surroundings(samples, 0, 10 * SECOND, cores=2)
        assert around is not None
        found = [
            data_finding(0.66, Bottleneck.IO_BANDWIDTH, read_bytes_per_s=100e6, task_blocked_share=blocked),
            make_finding(Cause.CHECKPOINT, 0.2, (Text("it saves", "它在保存"),), figures={}),
        ]
        shortages, rest = find_shortages(around, found, wait_share=0.66)
        return [(one.cause.value, round(one.share, 2)) for one in (*shortages, *rest)]

    saves = ("checkpoint", 0.2)
    assert told(500 * MEGABYTE, 8.0) == [("memory_pressure", 0.66), saves]
    assert told(1000 * MEGABYTE, 8.0) == [("memory_pressure", 0.48), ("loader_throughput", 0.18), saves]  # half is new
    assert told(500 * MEGABYTE, 8.0, blocked=0.3) == [("memory_pressure", 0.3), ("loader_throughput", 0.36), saves]
    assert told(500 * MEGABYTE, 1.0) == [("memory_pressure", 0.1), ("loader_throughput", 0.56), saves]  # it sleeps


def test_files_that_are_read_again_explain_a_slow_disk() -> None:
    def samples(pages: int) -> list[SystemSample]:
        groups = [memory_group(limit_bytes=1 << 30, used_bytes=1 << 30, refault_pages=n) for n in (0, pages)]
        return [
            SystemSample(at_ns=at, machine=machine(), memory_groups=(group,))
            for at, group in zip((0, 10 * SECOND), groups, strict=True)
        ]

    found = [data_finding(0.4, Bottleneck.IO_BANDWIDTH, read_bytes_per_s=50e6)]
    around = read_surroundings(samples(120_000), 0, 10 * SECOND, cores=2)
    assert around is not None
    (shortage,), rest = find_shortages(around, found, wait_share=0.4)
    assert (shortage.cause, shortage.confidence) == (Cause.MEMORY_PRESSURE, Confidence.CERTAIN)
    assert shortage.share == pytest.approx(0.4 * (120_000 * 4096 / 10) / 50e6)
    assert rest == []
    decoding = [data_finding(0.4, Bottleneck.CPU_DECODE, read_bytes_per_s=50e6)]
    assert find_shortages(around, decoding, wait_share=0.4)[0] == []  # the cores are what is waited for
    pages = [machine(refault_pages=count) for count in (0, 120_000)]  # of whoever else runs here
    elsewhere = [SystemSample(at_ns=at, machine=one) for at, one in zip((0, 10 * SECOND), pages, strict=True)]
    unlimited = read_surroundings(elsewhere, 0, 10 * SECOND, cores=2)
    assert unlimited is not None
    assert find_shortages(unlimited, [data_finding(0.4)], wait_share=0.4)[0] == []  # tasks that read nothing
    (machines,), _ = find_shortages(unlimited, found, wait_share=0.4)
    assert machines.confidence is Confidence.LIKELY  # others may have waited
    waits = [
        SystemSample(at_ns=at, machine=machine(), pressures=(stalls(s),)) for at, s in ((0, 0.0), (10 * SECOND, 3.0))
    ]
    theirs = read_surroundings(waits, 0, 10 * SECOND, cores=2)
    assert theirs is not None
    assert theirs.memory_stall_s == pytest.approx(3.0)
    assert find_shortages(theirs, [data_finding(0.4)], wait_share=0.4)[0] == []  # others, under a limit of their own
    few = read_surroundings(samples(100), 0, 10 * SECOND, cores=2)
    assert few is not None
    assert find_shortages(few, found, wait_share=0.4)[0] == []


@given(
    shares=st.lists(st.floats(0.0, 1.0), max_size=4),
    throttled=st.floats(0.2, 1.0),
    throttled_s=st.floats(0, 40),
    stall=st.floats(0, 10),
    swapped_in=st.integers(0, 1 << 34),
    refaults=st.integers(0, 1 << 34),
)
def test_no_second_is_told_twice(
    shares: list[float], throttled: float, throttled_s: float, stall: float, swapped_in: int, refaults: int
) -> None:
    total = sum(shares) or 1.0
    found = [data_finding(share / max(1.0, total)) for share in shares]
    around = Surroundings(
        seconds=10.0,
        throttled_share=throttled,
        throttled_s=throttled_s,
        quota_cores=1.0,
        num_working=2,
        swapped_in_bytes_per_s=swapped_in / 10,
        swapped_bytes=1,
        memory_stall_s=stall,
        refault_bytes_per_s=refaults / 10,
        limit_bytes=None,
        most_used_bytes=0,
        kills=None,
    )
    shortages, rest = find_shortages(around, found, wait_share=sum(one.share for one in found))
    assert all(0 <= one.share <= 1 for one in (*shortages, *rest))
    assert sum(one.share for one in rest) <= sum(one.share for one in found) + 1e-9
    if len(shortages) == 1:
        assert sum(one.share for one in rest) + shortages[0].share <= 1 + 1e-9


def test_one_sample_says_nothing() -> None:
    assert read_surroundings([SystemSample(at_ns=0, machine=machine())], 0, SECOND, cores=2) is None
