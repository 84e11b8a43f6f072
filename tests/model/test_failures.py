"""A failed sample as a value: it says what is known, and comes back from JSON and pickle as it was."""

import json
import pickle
from collections import namedtuple
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.model import FailureKind, SampleFailure, SampleKeys, is_json_key, key_text
from headrace.model.samples import OpaqueKey, plain_key

# Every character, and the lone surrogates that stand for bytes of a file name that is not UTF-8. (Not the upper ones:
# an upper one before a lower one is one character in JSON, and no file name has them.)
any_text = st.text(st.characters(exclude_categories=["Cs"]) | st.integers(0xDC80, 0xDCFF).map(chr))
json_keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)
failures = st.builds(
    SampleFailure,
    key=json_keys | st.binary().map(repr).map(OpaqueKey),
    position=st.none() | st.integers(0, 2**70),
    epoch=st.integers(0, 1000),
    kind=st.sampled_from(FailureKind),
    exception=any_text,
    message=any_text,
    traceback=any_text,
    worker=st.none() | st.integers(0, 64),
    tries=st.integers(1, 10),
    time=st.datetimes().map(lambda when: when.isoformat()),
    shard=st.none() | any_text,
    offset=st.none() | st.integers(0, 2**63),
    file=st.none() | any_text,
    rank=st.integers(0, 4096),
    num_samples=st.none() | st.integers(1, 2**40),
)


@given(failures)
def test_a_failure_comes_back_from_json_as_it_was(failure: SampleFailure) -> None:
    assert SampleFailure.from_json(json.loads(json.dumps(failure.as_json()))) == failure


@given(failures)
def test_a_failure_travels_between_processes(failure: SampleFailure) -> None:
    assert pickle.loads(pickle.dumps(failure)) == failure


@given(json_keys)
def test_a_key_is_compared_as_what_it_is_after_json(key: Any) -> None:
    again = json.loads(json.dumps(plain_key(key)))
    assert key_text(again) == key_text(key)
    assert is_json_key(key)


@given(json_keys, json_keys)
def test_two_keys_have_one_text_only_if_they_are_the_same_in_json(one: Any, other: Any) -> None:
    same = json.dumps(plain_key(one), sort_keys=True) == json.dumps(plain_key(other), sort_keys=True)
    assert (key_text(one) == key_text(other)) == same


class Colour(IntEnum):
    RED = 3


class Name(str, Enum):  # noqa: UP042 - the old way, whose `str` is not its value
    SCAN = "scan_0031"


Crop = namedtuple("Crop", "index size")


def test_what_samplers_give_becomes_plain() -> None:
    table: list[tuple[Any, Any]] = [
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (torch.tensor(3), 3),
        (Colour.RED, 3),
        (Name.SCAN, "scan_0031"),
        (np.str_("scan_0031"), "scan_0031"),
        ([np.int32(3), [1, 2]], (3, (1, 2))),
        (Crop(3, size=np.int64(224)), (3, 224)),
        (np.float64(0.5), 0.5),
        ({"scan": np.int64(3)}, {"scan": 3}),
    ]
    for key, plain in table:
        failure = SampleFailure(key=key)
        assert failure.key == plain
        assert type(failure.key) is type(plain)
        assert SampleFailure.from_json(json.loads(json.dumps(failure.as_json()))) == failure
        assert key in SampleKeys([plain])
        assert plain in SampleKeys([key])


def test_a_key_that_json_cannot_hold_is_named_by_its_repr() -> None:
    for key in (b"scan", float("nan"), {3: "a"}, slice(3, 5), ("a", b"b"), np.arange(3)):
        document = json.loads(json.dumps(SampleFailure(key=key).as_json()))
        assert document["key_repr"] == repr(key)
        assert "key" not in document
        again = SampleFailure.from_json(document)
        assert repr(again.key) == repr(key)
        assert key in SampleKeys([again.key])
        assert repr(key) not in SampleKeys([again.key])  # a text that looks like it is another key


@given(st.lists(json_keys), json_keys)
def test_a_set_of_keys_holds_what_was_put_in(keys: list[Any], other: Any) -> None:
    found = SampleKeys(keys)
    assert all(key in found for key in keys)
    assert len(found) == len({key_text(key) for key in keys}) == len(list(found))
    assert (other in found) == (key_text(other) in {key_text(key) for key in keys})
    assert found == SampleKeys(reversed(keys))


def test_a_failure_is_made_of_an_exception() -> None:
    try:
        open("/nonexistent/scan_0031.npz").close()
    except OSError as error:
        failure = SampleFailure.from_exception(error, key=4711, worker=3, epoch=2)
    assert failure.exception == "FileNotFoundError"
    assert failure.file == "/nonexistent/scan_0031.npz"
    assert "No such file" in failure.message
    assert failure.traceback.startswith("Traceback (most recent call last):")
    assert "test_failures.py" in failure.traceback
    assert (failure.worker, failure.epoch, failure.tries, failure.kind) == (3, 2, 1, "exception")
    assert failure.time.endswith("+00:00")
    assert str(failure).startswith("sample 4711 (/nonexistent/scan_0031.npz): FileNotFoundError: [Errno 2] No such")


def test_the_name_of_an_exception_says_its_module() -> None:
    failure = SampleFailure.from_exception(torch.cuda.OutOfMemoryError("no"), key=0)
    assert failure.exception == "torch.OutOfMemoryError"
    assert failure.file is None


def test_a_failure_says_what_it_knows() -> None:
    lost = SampleFailure(key=("a", 7), kind=FailureKind.WORKER_LOST, shard="train-0007.tar", offset=512, tries=3)
    assert str(lost) == "sample ('a', 7) (train-0007.tar@512): worker_lost, tried 3 times"
    said = SampleFailure(key=1, kind=FailureKind.WORKER_LOST, message="killed by SIGSEGV\nsecond line")
    assert str(said) == "sample 1: killed by SIGSEGV"


def test_a_document_that_is_no_failure_says_why() -> None:
    table: list[tuple[dict[str, Any], str]] = [
        ({}, "names no sample"),
        ({"key_repr": 3}, "names no sample"),
        ({"key": 3, "tries": "two"}, "tries is 'two', not of type int"),
        ({"key": 3, "epoch": True}, "epoch is True"),
        ({"key": 3, "file": ["a"]}, "file is ['a'], not of type str"),
        ({"key": 3, "kind": "tired"}, "'tired'"),
        ({"key": 3, "tries": 0}, "never tried"),
    ]
    for document, said in table:
        with pytest.raises(ValueError, match=r".") as caught:
            SampleFailure.from_json(document)
        assert said in str(caught.value)


def test_names_of_a_later_version_are_passed_over() -> None:
    assert SampleFailure.from_json({"key": 3, "tries": 2, "host": "node7", "file": None}).tries == 2


def test_the_decisions_are_public() -> None:
    assert [repr(decision) for decision in (headrace.SKIP, headrace.RETRY, headrace.RAISE)] == [
        "headrace.SKIP",
        "headrace.RETRY",
        "headrace.RAISE",
    ]
    assert pickle.loads(pickle.dumps(headrace.SKIP)) is headrace.SKIP
