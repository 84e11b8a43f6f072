"""Whether memory gets short: a judgement over recent samples that rises at once and falls slowly."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.model import format_bytes
from headrace.signals.system import Psi

from .memory_sample import MemorySample

_GIB, _MIB = 1 << 30, 1 << 20


class Level(enum.IntEnum):
    """How short memory is."""

    NONE = 0
    TIGHT = 1  # let fewer batches be in flight
    CRITICAL = 2  # and retire workers


class SignKind(enum.Enum):
    """What speaks for a shortage."""

    GROUP_ROOM = "group_room"
    MACHINE_ROOM = "machine_room"
    FILLING = "filling"  # at the present rate the room is gone within seconds
    THROTTLED = "throttled"  # v2 memory.high
    STALLED = "stalled"  # PSI
    SWAPPING = "swapping"


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One piece of evidence: the measured value beside the bound that it passed."""

    kind: SignKind
    level: Level
    source: str
    value: float
    bound: float


@dataclass(frozen=True, kw_only=True)
class PressureLimits:
    """Where memory begins to be short. Rooms are a share of the limit, but never more than so many bytes."""

    tight_room: float = 0.10
    tight_room_bytes: int = 4 * _GIB  # a tenth of half a terabyte is not short
    critical_room: float = 0.04
    critical_room_bytes: int = _GIB
    # looked at only where less than this share is left: a start that fills an empty machine is no danger
    watched_room: float = 0.25
    tight_filling_s: float = 4.0
    critical_filling_s: float = 1.0
    tight_full: float = 0.05  # of the time, every task waited for memory
    critical_full: float = 0.20
    tight_some: float = 0.20
    tight_swap_in_bytes_per_s: float = 4 * _MIB
    critical_swap_in_bytes_per_s: float = 64 * _MIB
    # it stays short until there is this much more room (or so much less stall) than made it short …
    relief: float = 1.5
    # … for so long, then falls by one level
    calm_s: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """The level, since when, and why. `calm_since_s`: since when the facts ask for less than `level`."""

    level: Level = Level.NONE
    since_s: float = 0.0
    calm_since_s: float | None = None
    signs: tuple[Sign, ...] = ()


_DEFAULT_LIMITS = PressureLimits()


def assess(
    samples: Sequence[MemorySample],
    before: Pressure,
    *,
    psi: Sequence[Psi] = (),
    swap_in_bytes_per_s: float = 0.0,
    limits: PressureLimits = _DEFAULT_LIMITS,
) -> Pressure:
    """Judge the newest sample in the light of the earlier ones. Pure: time is what the samples say.

    A higher level holds at once. A lower one follows step by step, each after `calm_s` without any sign of the
    present level, even with the wider bounds of `relief`.
    """
    if not samples:
        return before
    now_s = samples[-1].at_s
    signs = tuple(_signs(samples, psi, swap_in_bytes_per_s, limits, 1.0))
    asked = max((sign.level for sign in signs), default=Level.NONE)
    if asked > before.level:
        return Pressure(level=asked, since_s=now_s, signs=signs)
    if before.level is Level.NONE:
        return Pressure(level=Level.NONE, since_s=before.since_s, signs=signs)
    wider = tuple(_signs(samples, psi, swap_in_bytes_per_s, limits, limits.relief))
    held = max((sign.level for sign in wider), default=Level.NONE)
    if held >= before.level:
        return Pressure(level=before.level, since_s=before.since_s, signs=signs or wider)
    calm_since_s = now_s if before.calm_since_s is None else before.calm_since_s
    if now_s - calm_since_s >= limits.calm_s:
        return Pressure(level=Level(before.level - 1), since_s=now_s, signs=signs)
    return Pressure(level=before.level, since_s=before.since_s, calm_since_s=calm_since_s, signs=signs)


def _signs(
    samples: Sequence[MemorySample], psi: Sequence[Psi], swap_in: float, limits: PressureLimits, ease: float
) -> Iterator[Sign]:
    """Everything that speaks for a shortage; `ease` above 1 widens every bound."""
    last = samples[-1]
    tightest = 1.0  # share of room that is left, where it is least
    for place in range(len(last.groups)):
        memory = last.groups[place]
        limit = memory.limit_bytes or 0
        room = limit - memory.hard_bytes
        tightest = min(tightest, room / max(1, limit))
        yield from _room_signs(SignKind.GROUP_ROOM, memory.group.name, room, limit, limits, ease)
        if memory.throttle_bytes is not None and memory.hard_bytes * ease > memory.throttle_bytes:
            source, value, bound = memory.group.name, memory.hard_bytes, memory.throttle_bytes
            yield Sign(kind=SignKind.THROTTLED, level=Level.TIGHT, source=source, value=value, bound=bound)
        if room < limits.watched_room * limit:
            history = [(s.at_s, s.groups[place].hard_bytes) for s in samples if len(s.groups) > place]
            yield from _filling_signs(memory.group.name, room, history, limits, ease)
    if last.available_bytes is not None and last.total_bytes:
        room = last.available_bytes
        tightest = min(tightest, room / last.total_bytes)
        yield from _room_signs(SignKind.MACHINE_ROOM, "machine", room, last.total_bytes, limits, ease)
        if room < limits.watched_room * last.total_bytes:
            history = [(s.at_s, -s.available_bytes) for s in samples if s.available_bytes is not None]
            yield from _filling_signs("machine", room, history, limits, ease)
    for rate, level in (
        (limits.critical_swap_in_bytes_per_s, Level.CRITICAL),
        (limits.tight_swap_in_bytes_per_s, Level.TIGHT),
    ):
        if swap_in * ease >= rate:
            yield Sign(kind=SignKind.SWAPPING, level=level, source="machine", value=swap_in, bound=rate)
            break
    # With much room left, stalls come from reading the data set through the page cache: that is the disk's matter.
    if tightest < limits.watched_room or swap_in * ease >= limits.tight_swap_in_bytes_per_s:
        yield from _stall_signs(psi, limits, ease)


def _room_signs(
    kind: SignKind, source: str, room: float, limit: int, limits: PressureLimits, ease: float
) -> Iterator[Sign]:
    critical = min(limits.critical_room * limit, limits.critical_room_bytes)
    tight = min(limits.tight_room * limit, limits.tight_room_bytes)
    for bound, level in ((critical, Level.CRITICAL), (tight, Level.TIGHT)):
        if room < bound * ease:
            yield Sign(kind=kind, level=level, source=source, value=max(0.0, room), bound=bound)
            return


def _filling_signs(
    source: str, room: float, history: Sequence[tuple[float, int]], limits: PressureLimits, ease: float
) -> Iterator[Sign]:
    """How soon the room is gone at the rate of the last two seconds."""
    now_s, now = history[-1]
    earlier = [(at_s, used) for at_s, used in history if 0.2 <= now_s - at_s <= 2.0]
    if not earlier:
        return
    at_s, used = earlier[0]
    rate = (now - used) / (now_s - at_s)
    if rate <= 0:
        return
    left_s = room / rate
    for bound, level in (
        (limits.critical_filling_s, Level.CRITICAL),
        (limits.tight_filling_s, Level.TIGHT),
    ):
        if left_s < bound * ease:
            yield Sign(kind=SignKind.FILLING, level=level, source=source, value=max(0.0, left_s), bound=bound)
            return


def _stall_signs(psi: Sequence[Psi], limits: PressureLimits, ease: float) -> Iterator[Sign]:
    for one in psi:
        found = None
        if one.full_avg10 * ease >= limits.critical_full:
            found = Level.CRITICAL, one.full_avg10, limits.critical_full
        elif one.full_avg10 * ease >= limits.tight_full:
            found = Level.TIGHT, one.full_avg10, limits.tight_full
        elif one.some_avg10 * ease >= limits.tight_some:
            found = Level.TIGHT, one.some_avg10, limits.tight_some
        if found is not None:
            level, value, bound = found
            yield Sign(kind=SignKind.STALLED, level=level, source=one.source, value=value, bound=bound)


_WORDS = {
    "en": {
        SignKind.GROUP_ROOM: "{source}: {bytes} left below the limit",
        SignKind.MACHINE_ROOM: "{source}: {bytes} available",
        SignKind.FILLING: "{source}: full in {value:.1f} s at the present rate",
        SignKind.THROTTLED: "{source}: {bytes} in use, above memory.high, so the kernel slows it down",
        SignKind.STALLED: "{source}: tasks wait for memory {value:.0%} of the time",
        SignKind.SWAPPING: "{source}: {bytes} a second come back from swap",
        None: "no sign of a shortage any more",
    },
    "zh": {
        SignKind.GROUP_ROOM: "{source}：距上限只剩 {bytes}",
        SignKind.MACHINE_ROOM: "{source}：可用内存只剩 {bytes}",
        SignKind.FILLING: "{source}：按当前速度 {value:.1f} 秒后用满",
        SignKind.THROTTLED: "{source}：已用 {bytes}，超过 memory.high，内核正在限速",
        SignKind.STALLED: "{source}：任务有 {value:.0%} 的时间在等内存",
        SignKind.SWAPPING: "{source}：每秒从交换区读回 {bytes}",
        None: "已没有内存紧张的迹象",
    },
}


def describe_pressure(pressure: Pressure, *, language: str = "en") -> str:
    """The evidence of a judgement, the gravest first."""
    words = _WORDS["zh" if language == "zh" else "en"]
    if not pressure.signs:
        return words[None]
    texts = []
    for sign in sorted(pressure.signs, key=lambda sign: -sign.level):
        source = "整机" if language == "zh" and sign.source == "machine" else sign.source
        texts.append(words[sign.kind].format(source=source, bytes=format_bytes(sign.value), value=sign.value))
    return ("；" if language == "zh" else "; ").join(texts)
