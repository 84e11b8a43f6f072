"""A sample that failed, as a value: which one, how, how often tried, and what may be decided about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Self

from .error_text import ErrorText, describe_error
from .samples import OpaqueKey, is_json_key, plain_key
from .words import Said, Text


class FailureKind(Said):
    EXCEPTION = "exception", Text("exception", "抛出异常")
    WORKER_LOST = "worker_lost", Text("its worker died", "worker 进程死亡")
    HANG = "hang", Text("hang", "卡死")


class FaultKind(Said):
    """What can go wrong on purpose."""

    KILL = "kill", Text("worker killed (SIGKILL)", "worker 被杀（SIGKILL）")
    SEGV = "segv", Text("crash in native code (SIGSEGV)", "原生代码崩溃（SIGSEGV）")
    BUS = "bus", Text("truncated mapped file (SIGBUS)", "内存映射文件被截断（SIGBUS）")
    EXIT = "exit", Text("worker leaves (os._exit)", "worker 自行退出（os._exit）")
    ABORT = "abort", Text("abort() in native code", "原生代码 abort()")
    EXCEPTION = "exception", Text("sample raises", "样本抛异常")
    HANG = "hang", Text("sample hangs", "样本卡死")
    STOP = "stop", Text("worker stopped (SIGSTOP)", "worker 被暂停（SIGSTOP）")
    SLOW = "slow", Text("slow sample", "慢样本")
    HOG = "hog", Text("memory hog", "样本狂吃内存")
    SHM_FULL = "shm_full", Text("/dev/shm full", "/dev/shm 写满")
    FD_LIMIT = "fd_limit", Text("file descriptors short", "文件描述符不足")
    FORK = "fork", Text("training process forks, batches held", "训练进程 fork，期间持有 batch")
    INTERRUPT = "interrupt", Text("exception out of next()", "next() 中途抛出异常")


class Decision(Enum):
    """What to do with a sample that failed; an `on_error` function returns one of these, or a sample to use instead."""

    SKIP = "skip"
    RETRY = "retry"
    RAISE = "raise"

    def __repr__(self) -> str:
        return f"headrace.{self.name}"


SKIP: Final = Decision.SKIP
RETRY: Final = Decision.RETRY
RAISE: Final = Decision.RAISE


def utc_now() -> str:
    """Return the time as it is written down: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, kw_only=True)
class SampleFailure:
    """One sample that failed. `None` means not known.

    >>> print(SampleFailure(key=4711, exception="ValueError", message="bad header", file="scan_0031.npz", tries=2))
    sample 4711 (scan_0031.npz): ValueError: bad header, tried 2 times
    """

    key: Any  # the index or key that the sampler gave; None for an iterable data set, whose samples have none
    position: int | None = None  # its place in the epoch's order, on its rank, from 0
    epoch: int = 0
    kind: FailureKind = FailureKind.EXCEPTION
    exception: str = ""  # the name of its type, with its module; empty where nothing was raised
    message: str = ""
    traceback: str = ""
    worker: int | None = None  # None: in the training process
    tries: int = 1
    time: str = field(default_factory=utc_now)
    shard: str | None = None
    offset: int | None = None  # of its first byte in the shard
    file: str | None = None
    rank: int = 0
    num_samples: int | None = None  # of the data set; an index means nothing in a data set of another length

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", plain_key(self.key))
        object.__setattr__(self, "kind", FailureKind(self.kind))
        if self.tries < 1:
            raise ValueError(f"tries={self.tries}: a sample that was never tried has not failed")

    def __str__(self) -> str:
        where = next((f" ({place})" for place in (self.file, self.place) if place), "")
        how = ": ".join(part for part in (self.exception, first_line(self.message)) if part) or self.kind.value
        often = f", tried {self.tries} times" if self.tries > 1 else ""
        named = "a sample" if self.key is None else f"sample {self.key!r}"
        return f"{named}{where}: {how}{often}"

    @property
    def place(self) -> str | None:
        """The shard with its offset, in one text."""
        if self.shard is None or self.offset is None:
            return self.shard
        return f"{self.shard}@{self.offset}"

    @classmethod
    def from_exception(cls, error: BaseException, *, key: Any, **known: Any) -> Self:
        """Return the failure that an exception is; `known` are further fields."""
        return cls.from_text(describe_error(error), key=key, **known)

    @classmethod
    def from_text(cls, said: ErrorText, *, key: Any, **known: Any) -> Self:
        """The same, by what an exception said of itself; its file is one that it names, unless it is known better."""
        told = {"exception": said.type_name, "message": said.message, "traceback": said.traceback, "file": said.file}
        return cls(key=key, **(told | known))

    def as_json(self) -> dict[str, Any]:
        """Return the failure as JSON holds it; what is not known is left out."""
        named = {"key": self.key} if is_json_key(self.key) else {"key_repr": repr(self.key)}
        others = {name: getattr(self, name) for name in _OTHER_FIELDS}
        return named | {name: value for name, value in others.items() if value is not None}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the failure from `as_json`'s form; raise `ValueError` that says what is wrong with it.

        Names that this version does not know are passed over, so that a later one may add some.
        """
        if "key" in document:
            key = document["key"]
        elif isinstance(document.get("key_repr"), str):
            key = OpaqueKey(document["key_repr"])
        else:
            raise ValueError("it names no sample: neither 'key' nor 'key_repr'")
        known = {name: document[name] for name in _OTHER_FIELDS if document.get(name) is not None}
        for name, value in known.items():
            wanted = _FIELD_TYPES[name]
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}, not of type {wanted.__name__}")
        return cls(key=key, **known)


_FIELD_TYPES: dict[str, type] = {
    **dict.fromkeys(("kind", "exception", "message", "traceback", "time", "shard", "file"), str),
    **dict.fromkeys(("position", "epoch", "worker", "tries", "offset", "rank", "num_samples"), int),
}
_OTHER_FIELDS = tuple(field.name for field in fields(SampleFailure) if field.name != "key")


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, without the space around it."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
