"""What comes to its end whatever signal handlers raise meanwhile, and what becomes of the signals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from headrace.engine import Ending, signals_later
from headrace.engine import uninterrupted as uninterrupted_module


class Rung(Exception):
    """What a signal handler raises."""


@pytest.fixture(autouse=True)
def ring() -> Iterator[Callable[..., None]]:
    def raise_it(number: int, _: object) -> None:
        raise Rung(number)

    numbers = (signal.SIGALRM, signal.SIGUSR1)
    before = [signal.signal(number, raise_it) for number in numbers]
    yield raise_it
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def run_on() -> None:
    """Go on in Python, as a loop does: what interrupts the main thread from another one ends no sleep."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        time.sleep(0.001)


def test_all_signals_that_came_meanwhile_are_handled_after_it() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # the last line is the one
        with signals_later() as came:
            for number in (signal.SIGALRM, signal.SIGINT, signal.SIGALRM):
                signal.raise_signal(number)
            with signals_later():  # inside of another one it changes nothing
                assert came == {signal.SIGALRM, signal.SIGINT}
            done.append("all")
    with pytest.raises(Rung):
        run_on()
    assert done == ["all"]


def test_handlers_are_the_users_again_even_where_one_raises_on_the_way_out(ring: Callable[..., None]) -> None:
    for _ in range(2):
        for number in (signal.SIGALRM, signal.SIGUSR1):
            with pytest.raises(Rung), signals_later():
                signal.raise_signal(number)
            assert signal.getsignal(signal.SIGALRM) is signal.getsignal(signal.SIGUSR1) is ring
    with signals_later():
        uninterrupted_module._depth = 0  # as while the user's are put back
        with pytest.raises(Rung):
            signal.raise_signal(signal.SIGALRM)
        uninterrupted_module._depth = 1
    assert signal.getsignal(signal.SIGALRM) is ring


def test_a_forked_child_has_the_users_handlers() -> None:
    with signals_later():
        pid = os.fork()
        if pid == 0:
            try:
                signal.raise_signal(signal.SIGALRM)
            except Rung:
                os._exit(7)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


class Owner:
    pass


def test_what_has_no_owner_any_more_is_closed_and_a_signal_in_between_is_not_lost() -> None:
    closed: list[str] = []

    def close() -> None:
        signal.raise_signal(signal.SIGALRM)
        closed.append("it")

    owner = Owner()
    ending = Ending(owner, close)
    with pytest.raises(Rung):  # noqa: PT012  # it comes a moment after the callback
        del owner
        run_on()
    assert closed == ["it"]
    ending()
    assert closed == ["it"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_an_exception_kept_from_its_end_the_next_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    owner = Owner()
    Ending(owner, lambda: closed.append("first"))
    with monkeypatch.context() as patch:
        patch.setattr(uninterrupted_module, "signals_later", lambda **_: (_ for _ in ()).throw(Rung))
        del owner
    assert closed == []
    owner = Owner()
    ending = Ending(owner, lambda: closed.append("second"))
    assert closed == ["first"]
    ending()
    assert closed == ["first", "second"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_signal_strikes_as_it_gets_an_ending_is_closed_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    owner = Owner()
    Ending(owner, lambda: signal.raise_signal(signal.SIGALRM))
    with monkeypatch.context() as patch:
        patch.setattr(uninterrupted_module, "signals_later", lambda **_: (_ for _ in ()).throw(Rung))
        del owner  # its end is left to the next one that is made
    owner = Owner()
    with pytest.raises(Rung):
        Ending(owner, lambda: closed.append("it"))
    del owner
    assert closed == ["it"]
