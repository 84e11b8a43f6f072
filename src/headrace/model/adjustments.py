"""What a loader changes of itself while it runs (`tune="online"`), and why: as a sentence, and as an event."""

from dataclasses import dataclass
from enum import Enum

from .words import Text, format_share, three_digits


class Lever(Enum):
    WORKERS = Text("workers", "worker 数")
    AHEAD = Text("batches ahead", "预取 batch 数")
    DEPTH = Text("reads in flight", "并发读取数")


class AdjustmentReason(Enum):
    """Why. The names are in recordings: they never change their meaning."""

    WAITS = Text("the loop waits {wait} of its time, and the machine has room", "等数据占 {wait}，机器还有余量")
    STARVED = Text("the loop waits {wait} of its time while workers are idle", "等数据占 {wait}，worker 却没有活干")
    CONTENDED = Text("workers wait for a core: fewer may do as much", "worker 在等 CPU 核心：更少的也许一样快")
    PAST_KNEE = Text("more bring nothing: fewer may do as much", "再多也没有用：更少的也许一样快")
    SPARE = Text("nothing waits, and fewer suffice", "没有等待，更少的就够")
    ENOUGH = Text("nothing waits with so many", "这么多就没有等待")
    HELPED = Text("that gives {gain} times the samples a second", "每秒样本数是之前的 {gain} 倍")
    AS_GOOD = Text("fewer give as much: {gain} times the samples a second", "更少的一样快：每秒样本数 {gain} 倍")
    NO_GAIN = Text("back, for that gave {gain} times the samples a second", "改回去：那样每秒样本数只有 {gain} 倍")
    MISSED = Text("back, for with fewer the loop waits {wait} of its time", "改回去：更少时等数据占 {wait}")
    MEMORY = Text("memory gets short", "内存开始紧张")
    SETTLED = Text(
        "nothing tried gives more, though the loop waits {wait} of its time", "试过的都不会更快，尽管等数据占 {wait}"
    )
    CHANGED = Text(
        "samples a second are {gain} times what they were: all is tried anew", "每秒样本数变为 {gain} 倍：重新尝试"
    )
    BYTES = Text("what workers wait for bytes, and what more reads bring", "按等待读取的时间和增加读取的效果")


_MOVED = Text("{lever} {before} → {after}: {why}", "{lever} {before} → {after}：{why}")
_STAYED = Text("{lever} stay {after}: {why}", "{lever}保持 {after}：{why}")
_FIELD, _MOST = 16, (1 << 15) - 1


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """One decision: from how many to how many (the same where it stays), and what it rests on."""

    lever: Lever
    before: int
    after: int
    reason: AdjustmentReason
    wait_share: float = 0.0  # of the loop's time
    gain: float = 1.0  # samples a second, over those before
    at_s: float = 0.0  # since the loader was first iterated over

    def said(self) -> Text:
        """Return it as a sentence.

        >>> Adjustment(lever=Lever.WORKERS, before=2, after=4, reason=AdjustmentReason.WAITS, wait_share=0.6).said().en
        'workers 2 → 4: the loop waits 60 % of its time, and the machine has room'
        """
        why = self.reason.value.filled(wait=format_share(self.wait_share), gain=three_digits(self.gain))
        form = _STAYED if self.before == self.after else _MOVED
        return form.filled(lever=self.lever.value, before=self.before, after=self.after, why=why)

    def as_event(self) -> tuple[int, str]:
        """Return it as the value and the name of an event: four numbers of 16 bits, shares and gains in thousandths."""
        numbers = (self.before, self.after, round(1000 * self.wait_share), round(1000 * self.gain))
        value = sum(max(0, min(_MOST, number)) << place * _FIELD for place, number in enumerate(numbers))
        return value, f"{self.lever.name} {self.reason.name}"

    @classmethod
    def from_event(cls, value: int, name: str) -> "Adjustment | None":
        """Read what `as_event` wrote; None for what a later version may have written.

        >>> told = Adjustment(lever=Lever.AHEAD, before=2, after=4, reason=AdjustmentReason.STARVED, wait_share=0.25)
        >>> Adjustment.from_event(*told.as_event()) == told
        True
        """
        lever, _, reason = name.partition(" ")
        if lever not in Lever.__members__ or reason not in AdjustmentReason.__members__:
            return None
        before, after, wait, gain = (value >> place * _FIELD & _MOST for place in range(4))
        return cls(
            lever=Lever[lever],
            before=before,
            after=after,
            reason=AdjustmentReason[reason],
            wait_share=wait / 1000,
            gain=gain / 1000,
        )
