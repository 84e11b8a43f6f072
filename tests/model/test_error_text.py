"""An exception is told as plain, bounded text, whatever its own methods do."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from headrace.knowledge import add_hint
from headrace.model import SampleFailure, describe_error, is_transient
from headrace.model.error_text import type_name
from headrace.signals import QuarantineFile

from ..engine.odd_errors import ODD, StrIsHuge, StrRaises, TracebackRaises, local, nameless, ring


def raised(make: Callable[[], BaseException]) -> BaseException:
    try:
        raise make()
    except BaseException as error:
        return error


@pytest.mark.parametrize(("make", "name", "travels"), ODD, ids=[name for _, name, _ in ODD])
def test_any_exception_is_told(make: Callable[[], BaseException], name: str, travels: bool) -> None:
    error = raised(make)
    said = describe_error(error)
    assert said.name == name
    assert said.type_name.endswith(name)
    assert "in raised" in said.traceback  # where it came from
    assert all(type(text) is str and len(text) < 100_000 for text in (said.name, said.message, said.traceback))
    assert pickle.loads(pickle.dumps(said)) == said
    assert str(said).startswith(name)
    assert is_transient(error) in (True, False)
    add_hint(error)


@pytest.mark.parametrize(("make", "name", "travels"), ODD, ids=[name for _, name, _ in ODD])
def test_any_exception_can_be_written_down(
    make: Callable[[], BaseException], name: str, travels: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = QuarantineFile(tmp_path_factory.mktemp("bad") / "bad.jsonl")
    file.append(SampleFailure.from_exception(raised(make), key=4))
    (condemned,) = file.read().samples
    assert condemned.failure.exception.endswith(name)


def test_what_is_known_is_said() -> None:
    assert describe_error(raised(StrRaises)).message == "(its str() raised AttributeError)"
    assert "characters left out" in describe_error(raised(StrIsHuge)).message
    assert "direct cause" in describe_error(raised(ring)).traceback
    assert "TracebackRaises" in describe_error(raised(TracebackRaises)).traceback
    assert type_name(type(nameless())) == "tests.engine.odd_errors.nameless.<locals>.Nameless"
    assert type_name(type(local())) == "tests.engine.odd_errors.local.<locals>.Local"
    assert type_name(type("Made", (Exception,), {"__module__": 5})) == "Made"
