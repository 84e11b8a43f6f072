"""Whether memory gets short: a judgement over recent samples that rises at once and falls slowly."""

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.model import Text, format_bytes
from headrace.signals.system import PressureSample

from .memory import MemorySample

_GIB, _MIB = 1 << 30, 1 << 20
_NO_SIGN = Text("no sign of a shortage any more", "已没有内存紧张的迹象")


class Level(enum.IntEnum):
    NONE = 0
    TIGHT = 1  # let fewer batches be in flight
    CRITICAL = 2  # and retire workers


class SignKind(enum.Enum):
    """What speaks for a shortage, said."""

    GROUP_ROOM = Text("{source}: {bytes} left below the limit", "{source}：距上限只剩 {bytes}")
    MACHINE_ROOM = Text("{source}: {bytes} available", "{source}：可用内存只剩 {bytes}")
    FILLING = Text("{source}: full in {value:.1f} s at the present rate", "{source}：按当前速度 {value:.1f} 秒后用满")
    THROTTLED = Text(
        "{source}: {bytes} in use, above memory.high, so the kernel slows it down",
        "{source}：已用 {bytes}，超过 memory.high，内核正在限速",
    )
    STALLED = Text(  # PSI
        "{source}: tasks wait for memory {value:.0%} of the time", "{source}：任务有 {value:.0%} 的时间在等内存"
    )
    SWAPPING = Text("{source}: {bytes} a second come back from swap", "{source}：每秒从交换区读回 {bytes}")


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One piece of evidence, and the level that it speaks for."""

    kind: SignKind
    level: Level
    source: str
    value: float


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
    """The level, and why. `calm_since_s`: since when the facts ask for less than `level`."""

    level: Level = Level.NONE
    calm_since_s: float | None = None
    signs: tuple[Sign, ...] = ()

    def said(self, language: str = "en") -> str:
        """The evidence of a judgement, the gravest first."""
        texts = []
        for sign in sorted(self.signs, key=lambda sign: -sign.level):
            source = "整机" if language == "zh" and sign.source == "machine" else sign.source
            said = sign.kind.value.of(language)
            texts.append(said.format(source=source, bytes=format_bytes(sign.value), value=sign.value))
        return Text("; ", "；").of(language).join(texts) or _NO_SIGN.of(language)


_DEFAULT_LIMITS = PressureLimits()


def assess(
    samples: Sequence[MemorySample],
    before: Pressure,
    *,
    psi: Sequence[PressureSample] = (),
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
    if asked > before.level or before.level is Level.NONE:
        return Pressure(level=asked, signs=signs)
    wider = tuple(_signs(samples, psi, swap_in_bytes_per_s, limits, limits.relief))
    held = max((sign.level for sign in wider), default=Level.NONE)
    if held >= before.level:
        return Pressure(level=before.level, signs=signs or wider)
    calm_since_s = now_s if before.calm_since_s is None else before.calm_since_s
    if now_s - calm_since_s >= limits.calm_s:
        return Pressure(level=Level(before.level - 1), signs=signs)
    return Pressure(level=before.level, calm_since_s=calm_since_s, signs=signs)


def _signs(
    samples: Sequence[MemorySample], psi: Sequence[PressureSample], swap_in: float, limits: PressureLimits, ease: float
) -> Iterator[Sign]:
    """Everything that speaks for a shortage; `ease` above 1 widens every bound."""
    for kind, source, value, critical, tight in _measured(samples, psi, swap_in, limits, ease):
        is_low = kind in (SignKind.GROUP_ROOM, SignKind.MACHINE_ROOM, SignKind.FILLING)
        for level, bound in ((Level.CRITICAL, critical), (Level.TIGHT, tight)):
            if value < bound * ease if is_low else value * ease >= bound:
                yield Sign(kind=kind, level=level, source=source, value=max(0.0, value))
                break


def _measured(
    samples: Sequence[MemorySample], psi: Sequence[PressureSample], swap_in: float, limits: PressureLimits, ease: float
) -> Iterator[tuple[SignKind, str, float, float, float]]:
    """(what, of whom, the value, the critical bound, the tight one) of all that is to be judged."""
    last = samples[-1]
    rooms: list[tuple[SignKind, str, int, int, list[tuple[float, int]], int | None]] = []
    for place, memory in enumerate(last.groups):
        limit, history = memory.limit_bytes or 0, [s for s in samples if len(s.groups) > place]
        used = [(s.at_s, s.groups[place].hard_bytes) for s in history]
        room, throttle = limit - memory.hard_bytes, memory.throttle_bytes
        rooms.append((SignKind.GROUP_ROOM, memory.group.name, room, limit, used, throttle))
    if last.available_bytes is not None and last.total_bytes:
        used = [(s.at_s, -s.available_bytes) for s in samples if s.available_bytes is not None]
        rooms.append((SignKind.MACHINE_ROOM, "machine", last.available_bytes, last.total_bytes, used, None))
    for kind, source, room, limit, used, throttle in rooms:
        critical = min(limits.critical_room * limit, limits.critical_room_bytes)
        yield kind, source, room, critical, min(limits.tight_room * limit, limits.tight_room_bytes)
        if throttle is not None:
            yield SignKind.THROTTLED, source, used[-1][1], math.inf, throttle
        if room < limits.watched_room * limit and (left_s := _left_s(room, used)) is not None:
            yield SignKind.FILLING, source, left_s, limits.critical_filling_s, limits.tight_filling_s
    is_watched = any(room < limits.watched_room * limit for _, _, room, limit, _, _ in rooms)
    much = limits.tight_swap_in_bytes_per_s
    yield SignKind.SWAPPING, "machine", swap_in, limits.critical_swap_in_bytes_per_s, much
    # With much room left, stalls come from reading the data set through the page cache: that is the disk's matter.
    if is_watched or swap_in * ease >= much:
        for one in psi:
            source = "machine" if one.scope == "machine" else "cgroup v2"
            if one.full_avg10 * ease >= limits.tight_full:
                yield SignKind.STALLED, source, one.full_avg10, limits.critical_full, limits.tight_full
            else:
                yield SignKind.STALLED, source, one.some_avg10, math.inf, limits.tight_some


def _left_s(room: float, history: Sequence[tuple[float, int]]) -> float | None:
    """How soon the room is gone at the rate of the last two seconds; None where it does not shrink."""
    now_s, now = history[-1]
    earlier = next(((at_s, used) for at_s, used in history if 0.2 <= now_s - at_s <= 2.0), None)
    if earlier is None or now <= earlier[1]:
        return None
    return room * (now_s - earlier[0]) / (now - earlier[1])
