"""Pressure rises at once, falls slowly, and never without evidence."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.forensics.memory import MemorySample
from headrace.forensics.pressure import Level, Pressure, SignKind, assess
from headrace.signals.system import GroupMemory, MemoryGroup, PressureSample

GIB, MIB = 1 << 30, 1 << 20
GROUP = MemoryGroup(2, Path("/job"))


def at(
    time_s: float, hard: float, *, limit: int = 8 * GIB, cache: int = 0, high: int | None = None, available: int = 0
) -> MemorySample:
    memory = GroupMemory(
        group=GROUP,
        limit_bytes=limit,
        throttle_bytes=high,
        used_bytes=int(hard) + cache,
        inactive_file_bytes=cache // 2,
        active_file_bytes=cache - cache // 2,
        peak_bytes=None,
    )
    total = 64 * GIB if available else None
    return MemorySample(
        at_s=time_s, own_bytes={}, groups=(memory,), available_bytes=available or None, total_bytes=total
    )


def stalled(full: float, some: float = 0.0) -> PressureSample:
    return PressureSample(
        resource="memory", scope="group", some_avg10=some, full_avg10=full, some_total_s=0, full_total_s=0
    )


def level(samples: list[MemorySample], **also: object) -> Level:
    return assess(samples, Pressure(), **also).level  # type: ignore[arg-type]


def test_room_decides() -> None:
    assert level([at(0, 4 * GIB)]) is Level.NONE
    assert level([at(0, 7.3 * GIB)]) is Level.TIGHT
    assert level([at(0, 7.8 * GIB)]) is Level.CRITICAL
    assert level([at(0, 9 * GIB)]) is Level.CRITICAL


def test_cache_is_room() -> None:
    assert level([at(0, GIB, cache=7 * GIB)]) is Level.NONE


def test_a_tenth_of_a_large_machine_is_not_short() -> None:
    assert level([at(0, 490 * GIB, limit=512 * GIB)]) is Level.NONE
    assert level([at(0, 509 * GIB, limit=512 * GIB)]) is Level.TIGHT


def test_the_machine_counts_like_a_group() -> None:
    assert level([at(0, 0, available=GIB // 2)]) is Level.CRITICAL
    assert level([at(0, 0, available=30 * GIB)]) is Level.NONE


def test_filling_fast_counts_before_the_room_is_gone() -> None:
    slow = [at(t / 4, 6.1 * GIB + t * 10 * MIB) for t in range(9)]
    fast = [at(t / 4, 6.1 * GIB + t * 120 * MIB) for t in range(9)]
    assert level(slow) is Level.NONE
    assert level(fast) is Level.TIGHT
    pressure = assess(fast, Pressure())
    assert [sign.kind for sign in pressure.signs] == [SignKind.FILLING]
    empty = [at(t / 4, t * 500 * MIB) for t in range(9)]  # a start fills an empty machine: no danger
    assert level(empty) is Level.NONE


def test_throttling_is_tight() -> None:
    assert level([at(0, 3 * GIB, high=2 * GIB)]) is Level.TIGHT
    assert level([at(0, 1 * GIB, high=2 * GIB)]) is Level.NONE


def test_stalls_count_where_room_is_small_or_swap_is_read() -> None:
    assert level([at(0, 2 * GIB)], psi=[stalled(0.5)]) is Level.NONE  # the page cache's matter
    assert level([at(0, 6.5 * GIB)], psi=[stalled(0.08)]) is Level.TIGHT
    assert level([at(0, 6.5 * GIB)], psi=[stalled(0.0, some=0.3)]) is Level.TIGHT
    assert level([at(0, 6.5 * GIB)], psi=[stalled(0.3)]) is Level.CRITICAL
    assert level([at(0, 2 * GIB)], psi=[stalled(0.3)], swap_in_bytes_per_s=5 * MIB) is Level.CRITICAL


def test_swap_in_counts_alone() -> None:
    assert level([at(0, GIB)], swap_in_bytes_per_s=MIB) is Level.NONE
    assert level([at(0, GIB)], swap_in_bytes_per_s=8 * MIB) is Level.TIGHT
    assert level([at(0, GIB)], swap_in_bytes_per_s=80 * MIB) is Level.CRITICAL


def test_it_falls_one_level_at_a_time_after_calm() -> None:
    pressure = assess([at(0, 7.9 * GIB)], Pressure())
    seen = {}
    for second in range(1, 40):
        pressure = assess([at(second, 2 * GIB)], pressure)
        seen[second] = pressure.level
    assert seen[10] is Level.CRITICAL
    assert seen[11] is Level.TIGHT
    assert seen[21] is Level.TIGHT
    assert seen[22] is Level.NONE
    assert seen[39] is Level.NONE


def test_between_the_bounds_it_stays_as_it_is() -> None:
    between = 8 * GIB * (1 - 0.12)  # 12 % left: more than makes it tight, less than relieves it
    assert level([at(0, between)]) is Level.NONE
    pressure = assess([at(0, 7.4 * GIB)], Pressure())
    for second in range(1, 100):
        pressure = assess([at(second, between)], pressure)
    assert pressure.level is Level.TIGHT


def test_a_new_sign_ends_the_calm() -> None:
    pressure = assess([at(0, 7.4 * GIB)], Pressure())
    for second in range(1, 30):
        hard = 7.4 * GIB if second % 8 == 0 else 2 * GIB
        pressure = assess([at(second, hard)], pressure)
        assert pressure.level is Level.TIGHT


def test_it_says_why_in_both_languages() -> None:
    pressure = assess([at(0, 7.9 * GIB, available=3 * GIB)], Pressure(), psi=[stalled(0.08)])
    assert pressure.said() == (
        "cgroup v2: 102 MiB left below the limit; machine: 3.00 GiB available; "
        "cgroup v2: tasks wait for memory 8% of the time"
    )
    assert pressure.said("zh") == (
        "cgroup v2：距上限只剩 102 MiB；整机：可用内存只剩 3.00 GiB；cgroup v2：任务有 8% 的时间在等内存"
    )
    assert Pressure().said() == "no sign of a shortage any more"


def test_no_samples_change_nothing() -> None:
    before = Pressure(level=Level.TIGHT)
    assert assess([], before) is before


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 1e9)), min_size=1, max_size=60),
    st.sampled_from(["en", "zh"]),
)
def test_a_level_above_none_has_evidence_or_is_cooling_down(
    steps: list[tuple[float, float, float]], tongue: str
) -> None:
    pressure, ring = Pressure(), []
    for second, (share, full, swap_in) in enumerate(steps):
        ring.append(at(float(second), share * 8 * GIB))
        before = pressure
        pressure = assess(ring[-10:], before, psi=[stalled(full)], swap_in_bytes_per_s=swap_in)
        assert pressure.level >= before.level - 1
        if pressure.level > before.level:
            assert max(sign.level for sign in pressure.signs) == pressure.level
        if pressure.level < before.level:
            assert before.calm_since_s is not None
            assert second - before.calm_since_s >= 10
        if pressure.level and not pressure.signs:
            assert pressure.calm_since_s is not None or pressure.level < before.level
        assert pressure.said(tongue)
