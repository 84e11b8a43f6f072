"""Errors say what happened, the evidence and the next step, and arrive whole from another process."""

import pickle

import pytest

from headrace import errors
from headrace.errors import (
    BatchTimeout,
    BatchTooLarge,
    CannotLoadTarget,
    DecodeError,
    HeadraceError,
    InternalError,
    NotAQuarantine,
    NotSupported,
    ShardDamaged,
    StaleQuarantine,
    TooManyBad,
    UnusableInput,
    WorkerHang,
    WorkerLost,
)

ALL = [
    *(HeadraceError, WorkerLost, WorkerHang, BatchTooLarge, BatchTimeout, TooManyBad, NotAQuarantine, StaleQuarantine),
    *(NotSupported, ShardDamaged, UnusableInput, DecodeError, CannotLoadTarget, InternalError),
]


def test_every_public_class_is_covered_here() -> None:
    assert sorted(cls.__name__ for cls in ALL) == errors.__all__


def test_str_joins_the_three_parts() -> None:
    error = WorkerLost(
        "worker 3 was killed before it delivered chunk 118",
        signal="SIGKILL",
        memory_limit="46.0 GiB",
        next_step='memory="36GiB" in the loader',
    )
    assert str(error).splitlines() == [
        "worker 3 was killed before it delivered chunk 118",
        "  signal: SIGKILL   memory limit: 46.0 GiB",
        '  try: memory="36GiB" in the loader',
    ]


def test_parts_that_are_missing_take_no_line() -> None:
    assert str(HeadraceError("no batch arrived")) == "no batch arrived"


@pytest.mark.parametrize("cls", ALL)
def test_an_error_survives_pickling_whole(cls: type[HeadraceError]) -> None:
    error = cls("what happened", next_step="do this", worker=3, peak="45.8 GiB")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (copy.what, copy.next_step, copy.evidence) == ("what happened", "do this", {"worker": 3, "peak": "45.8 GiB"})
    assert str(copy) == str(error)


@pytest.mark.parametrize("cls", [WorkerLost, BatchTimeout, TooManyBad, NotSupported])
def test_what_torch_raises_as_runtime_error_is_one(cls: type[HeadraceError]) -> None:
    assert issubclass(cls, RuntimeError)


def test_a_batch_that_does_not_fit_is_a_memory_error() -> None:
    assert issubclass(BatchTooLarge, MemoryError)


def test_a_bug_of_ours_asks_for_a_report() -> None:
    assert "please: report this" in str(InternalError("two chunks in one row"))
    assert "headrace --version" in str(pickle.loads(pickle.dumps(InternalError("two chunks in one row"))))
