"""Copies to the device: how long the host was held up by them, and how much of that was the copy. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import EventKind, Text, copied_ns, format_seconds, format_share, is_copy_timed

from .processes import ends_of, starts_of
from .trainer import Trainer, coverage

_SOME = 0.1  # of the time: less than that does not change what is said


@dataclass(frozen=True, kw_only=True)
class CopyTimes:
    """What the copies of a training took, in sum."""

    host_s: float  # in the calls
    copied_s: float  # of that, as far as is known
    untimed_s: float  # of what was copied: by the host's clock alone

    @property
    def waited_s(self) -> float:
        """Return how long the calls waited for the device before they copied."""
        return self.host_s - self.copied_s

    @property
    def is_bound(self) -> bool:
        """Whether what is said of the copies is an upper bound."""
        return self.untimed_s > _SOME * self.copied_s


def read_copies(trainer: Trainer) -> CopyTimes:
    """Return what the copies of the thread that trains took."""
    events = trainer.process.of(EventKind.H2D, thread=trainer.thread)
    hidden = coverage([span for span in trainer.spans if span.is_opaque])
    is_outside = hidden.between(starts_of(events), ends_of(events)) == 0  # an evaluation's are evaluation
    events = events[is_outside & (starts_of(events) >= trainer.train_start_ns)]
    host_ns = copy_ns = untimed_ns = 0
    for duration, arg in zip(events["duration_ns"].tolist(), events["arg"].tolist(), strict=True):
        host_ns += duration
        copy_ns += copied_ns(duration, arg)
        untimed_ns += 0 if is_copy_timed(duration, arg) else duration
    return CopyTimes(host_s=host_ns / 1e9, copied_s=copy_ns / 1e9, untimed_s=untimed_ns / 1e9)


def copy_evidence(copies: CopyTimes) -> tuple[Text, ...]:
    """Return what is to be said of the host's time in copies beside the copies themselves."""
    said: list[Text] = []
    if copies.waited_s > _SOME * copies.copied_s:
        said.append(
            Text(
                "the calls held the host up for {host} in all; in {waited} of that they waited for what the device had "
                "yet to compute, which is no copy and not counted here",
                "这些调用共让主机停了 {host}，其中 {waited} 是在等设备算完手头的任务：那不是拷贝，不计在内",
            ).filled(host=format_seconds(copies.host_s), waited=format_seconds(copies.waited_s))
        )
    if copies.is_bound:
        said.append(
            Text(
                "an upper bound: for {share} of that time no CUDA events tell the copy from the wait before it, and a "
                "copy that blocks first waits for what the device has yet to compute",
                "这是上限：其中 {share} 的时间没有 CUDA 事件可把拷贝与之前的等待分开，"
                "而阻塞的拷贝会先等设备算完手头的任务",
            ).filled(share=format_share(copies.untimed_s / copies.copied_s))
        )
    return tuple(said)
