"""What goes through the two pipes: 24 bytes of work to whichever worker is free, 32 bytes back for each result.

A pipe delivers a message of this size whole to exactly one reader, keeps the order, wakes one worker and
survives the death of any of them; no lock of ours is involved.
"""

from __future__ import annotations

import struct
import traceback
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, NoReturn

from ..errors import HeadraceError

_WORK = struct.Struct("<qiiii")
_RESULT = struct.Struct("<qqiiii")
WORK_BYTES, RESULT_BYTES = _WORK.size, _RESULT.size


class Task(IntEnum):
    """What a worker is asked to do."""

    CHUNK = 0  # fetch rows [row, row + rows) of a batch
    WHOLE = 1  # fetch a batch in one piece, as torch does
    NEXT = 2  # the next `rows` samples of an iterable data set
    RESTART = 3  # begin an iterable data set anew
    MEASURE = 4  # does a second thread nearly double the rate?
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
    END = 8  # the worker's iterator is exhausted
    RESTARTED = 9
    MEASURED = 10
    RETIRED = 11
    PASSED_OVER = 12  # a sample of an iterable data set failed, with the error in `block`; the next one is asked for


class Work(NamedTuple):
    """A message to workers."""

    seq: int
    row: int
    rows: int
    task: int  # a Task; a plain integer where it came through the pipe
    argument: int = 0  # of a chunk: which try it is, and how far its samples lie ahead of their rows (`join_tries`)

    def pack(self) -> bytes:
        return _WORK.pack(*self)


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


MOST_SHIFT = (1 << 23) - 1  # what is left of 32 bits


def join_tries(tries: int, shift: int) -> int:
    """The argument of a chunk: earlier tries, and the samples left out between the batch's first one and this chunk."""
    return shift << 8 | min(tries, 255)


def split_tries(argument: int) -> tuple[int, int]:
    return argument & 255, argument >> 8


def unpack_work(message: bytes) -> Work:
    return Work(*_WORK.unpack(message))


def unpack_results(messages: bytes) -> list[Result]:
    return [Result(*fields) for fields in _RESULT.iter_unpack(messages)]


@dataclass(frozen=True)
class CaughtError:
    """An exception of user code in a worker, as the training process will raise it."""

    kind: type[BaseException]
    text: str
    worker: int
    error: HeadraceError | None = None  # one of ours says all itself
    is_sample: bool = True  # raised by one sample; otherwise by the collation, or before any sample
    tries: int = 1
    message: str = ""
    file: str | None = None

    @classmethod
    def from_exception(
        cls, error: BaseException, worker: int, *, is_sample: bool = True, tries: int = 1
    ) -> CaughtError:
        ours = error if isinstance(error, HeadraceError) else None
        text = "".join(traceback.format_exception(error))
        filename = getattr(error, "filename", None)
        file = filename if isinstance(filename, str) else None
        return cls(type(error), text, worker, ours, is_sample, tries, str(error), file)

    def as_plain(self) -> CaughtError:
        """The same with a type that travels anywhere, where the text is what matters."""
        return replace(self, kind=RuntimeError, error=None, message=f"{self.kind.__name__}: {self.message}")

    def reraise(self) -> NoReturn:
        """Raise the same type with the worker's own traceback in its text, as torch does."""
        if self.error is not None:
            raise self.error
        text = f"Caught {self.kind.__name__} in DataLoader worker process {self.worker}.\nOriginal {self.text}"
        if self.kind is KeyError:
            raise KeyError(_Verbatim(text))
        if getattr(self.kind, "message", None):
            raise self.kind(message=text)  # type: ignore[call-arg]  # the convention that torch follows too
        try:
            error = self.kind(text)
        except Exception:
            # its constructor wants more than a text: the type is lost, the text is not
            raise RuntimeError(text) from None
        raise error


class _Verbatim(str):
    """A text whose repr is itself, for KeyError shows the repr."""

    def __repr__(self) -> str:
        return self
