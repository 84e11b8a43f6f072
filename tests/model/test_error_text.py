"""An exception is told as plain, bounded text, whatever its own methods do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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


FROM_A_PIPE = """
import os, sys
from headrace.model import describe_error
os.mkfifo(sys.argv[1])  # nobody writes to it: who opens it waits for ever
try:
    try:
        exec(compile("1 / 0", sys.argv[1], "exec"))
    except ZeroDivisionError as error:
        raise ValueError("bad") from error
except ValueError as error:
    print(describe_error(error).traceback)
"""


def test_the_source_of_a_frame_is_read_only_where_it_is_a_plain_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FROM_A_PIPE, str(tmp_path / "script")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True).stdout
    assert f'File "{tmp_path}/script", line 1, in <module>' in said
    assert "ZeroDivisionError: division by zero" in said
    os.unlink(tmp_path / "script")
