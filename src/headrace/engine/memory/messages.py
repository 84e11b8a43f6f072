"""What goes through the two pipes: 24 bytes of work to whichever worker is free, 32 bytes back for each result.

A pipe delivers a message of this size whole to exactly one reader, keeps the order, wakes one worker and
survives the death of any of them; no lock of ours is involved.
"""

import pickle
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Self, cast

from headrace.errors import HeadraceError
from headrace.model import ErrorText, FailureKind, SampleFailure, describe_error

_WORK = struct.Struct("<qiiii")
_RESULT = struct.Struct("<qqiiii")
WORK_BYTES, RESULT_BYTES = _WORK.size, _RESULT.size


class Task(IntEnum):
    """What a worker is asked to do."""

    CHUNK = 0  # fetch rows [row, row + rows) of a batch
    WHOLE = 1  # fetch a batch in one piece, as torch does
    NEXT = 2  # the next `rows` samples of an iterable data set
    RESTART = 3  # begin an iterable data set anew
    RETIRE = 5  # end this worker
    COLLATE = 6  # all rows are shared, and the worker that should collate them is gone
    LOOK = 7  # nothing: there is something in the urgent pipe
    SKIP = 8  # pass over the first `rows` samples of an iterable data set: a worker that is gone had brought them


class Answer(IntEnum):
    """What a worker says."""

    ROWS = 0  # rows are in the batch's slot; `block` holds their texts, or 0
    SAMPLES = 1  # rows that do not fit the slot, in `block`
    SHARED = 2  # rows are in shared blocks; a worker collates when all are
    COLLATED = 3  # the finished batch, in `block`
    FAILED = 4  # row `row` raised the error in `block`; the chunk's other rows are void
    DROPPED = 5  # a chunk of a cancelled run
    NEEDS_WHOLE = 6  # this batch cannot be split
    LAYOUT = 7  # a new layout is proposed in `block`
    END = 8  # the worker's iterator is exhausted; `row` is 1 where that came right after a failure
    PASSED_OVER = 12  # a sample of an iterable data set failed, with the error in `block`; the next one is asked for


class Work(NamedTuple):
    """A message to workers."""

    seq: int
    row: int
    rows: int
    task: int  # a Task; a plain integer where it came through the pipe
    argument: int = 0  # of a chunk: `tries` and `shift`, joined

    @property
    def tries(self) -> int:
        """How often it was given out before."""
        return self.argument & 255

    @property
    def shift(self) -> int:
        """How many samples were left out between the batch's first one and this chunk: so far ahead of its rows."""
        return self.argument >> 8

    def pack(self) -> bytes:
        return _WORK.pack(*self)

    @classmethod
    def unpack(cls, message: bytes) -> Self:
        return cls._make(_WORK.unpack(message))


class Result(NamedTuple):
    """A message from a worker."""

    seq: int
    block: int
    row: int
    rows: int
    worker: int
    answer: int

    def pack(self) -> bytes:
        return _RESULT.pack(*self)

    @classmethod
    def unpack_all(cls, messages: bytes) -> list[Self]:
        return [*map(cls._make, _RESULT.iter_unpack(messages))]


def join_tries(tries: int, shift: int) -> int:
    """The argument of a chunk."""
    return shift << 8 | min(tries, 255)


@dataclass(frozen=True)
class CaughtError:
    """An exception of user code in a worker, as the training process will raise it: only what always travels."""

    said: ErrorText
    worker: int  # -1: the training process, for an `on_error` function
    pickled: bytes = b""  # its type, or one of our own errors as it is; empty where neither can travel
    is_sample: bool = True  # raised by one sample; otherwise by the collation, or before any sample
    tries: int = 1
    kind: FailureKind = FailureKind.EXCEPTION

    @classmethod
    def from_exception(cls, error: BaseException, worker: int, *, is_sample: bool = True, tries: int = 1) -> Self:
        return cls(describe_error(error), worker, pickle_error(error), is_sample, tries)

    def as_exception(self) -> Exception:
        """The same type with the worker's own traceback in its text, as torch has it."""
        where = f"DataLoader worker process {self.worker}" if self.worker >= 0 else "the training process"
        text = f"Caught {self.said.name} in {where}.\nOriginal {self.said.traceback}"
        try:
            return _rebuild(self.pickled, text)
        except Exception:
            # the type is not known here, or its constructor wants more than a text: the type is lost, its name is not
            return RuntimeError(text)

    def as_failure(self, *, key: Any, **known: Any) -> SampleFailure:
        """The failure of a sample that this is; `known` are further fields."""
        mine = {"kind": self.kind, "worker": self.worker, "tries": self.tries}
        return SampleFailure.from_text(self.said, key=key, **(mine | known))


def pickle_error(error: BaseException) -> bytes:
    """What to raise in another process for an exception: its type, or the whole of one of ours, which says all itself.

    Nothing where that cannot be read back, and for StopIteration, which would end the epoch there in silence.
    """
    kind = type(error)
    if issubclass(kind, StopIteration):
        return b""
    for value in (error, kind) if issubclass(kind, HeadraceError) else (kind,):
        try:
            pickled = pickle.dumps(value)
            pickle.loads(pickled)
            return pickled
        except BaseException:  # foreign code: the type is local, or what the error holds does not travel
            continue
    return b""


def _rebuild(pickled: bytes, text: str) -> Exception:
    """The exception to raise; raises itself where there can be none of that type."""
    kind: Any = pickle.loads(pickled)
    if issubclass(type(kind), HeadraceError):
        return cast(HeadraceError, kind)
    if kind is KeyError:
        return KeyError(_Verbatim(text))
    # some take a message by that name alone: the convention that torch follows too
    error = kind(message=text) if getattr(kind, "message", None) else kind(text)
    if not issubclass(type(error), Exception):
        raise TypeError("its constructor makes something else")
    if text.partition("\n")[0] not in describe_error(error).message:  # it makes another text of it, or fails to
        error.add_note(text)
    return cast(Exception, error)


class _Verbatim(str):
    """A text whose repr is itself, for KeyError shows the repr."""

    def __repr__(self) -> str:
        return self
