"""What does it cost to time the parts of a sample under `headrace run`?

A sample that makes two calls which do nothing is fetched as torch's fetcher does under `headrace run`: not timed at
all, timed as a whole, and with both calls timed as parts of it; and the same two calls where no sample is under way.
Of every eighth short sample the thread's CPU time is asked for, too; of samples from 10 ms on, of each (`long sample`).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask


def _decode(data: bytes) -> bytes:
    return data


def _finish(data: bytes) -> bytes:
    return data


def per_sample(make: Callable[[], Callable[[int], Any]], num: int) -> Result:
    """Return the least of five times, in microseconds: what disturbs it only adds."""
    from headrace.launch.tape import tape
    from headrace.signals.recording import Recorder, close_lane

    with tempfile.TemporaryDirectory() as folder, Recorder(f"{folder}/run") as recorder:
        os.environ.update(recorder.environment)
        tape.say_role("worker")
        fetch = make()
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for index in range(num):
                fetch(index)
            best = min(best, (time.perf_counter() - start) / num)
            recorder.step()
        close_lane()
    return {"sample_us": best * 1e6}


def untimed() -> Callable[[int], Any]:
    return lambda _: _finish(_decode(b"x"))


def as_a_whole() -> Callable[[int], Any]:
    """Return what `headrace run` did before it knew of parts."""
    from headrace.launch.tape import now, tape
    from headrace.model import EventKind

    kind = int(EventKind.SAMPLE)

    def fetch(index: int) -> bytes:
        start = now()
        try:
            return _finish(_decode(b"x"))
        finally:
            tape.write(kind, start, now() - start, index)

    return fetch


def two_parts(*, is_long: bool) -> Callable[[], Callable[[int], Any]]:
    def make() -> Callable[[int], Any]:
        from headrace.launch.hooks.wrapping import timed_part
        from headrace.launch.tape import tape
        from headrace.signals import timing

        decode, finish = timed_part(_decode, "decode one"), timed_part(_finish, "transform another")
        begin, end = timing.begin_sample, timing.end_sample
        if is_long:
            timing._SHORT_NS = 0

        def fetch(index: int) -> bytes:
            clock = begin()
            try:
                done: bytes = finish(decode(b"x"))
                return done
            finally:
                end(clock, index, tape)

        return fetch

    return make


def outside() -> Callable[[int], Any]:
    from headrace.launch.hooks.wrapping import timed_part

    decode, finish = timed_part(_decode, "decode one"), timed_part(_finish, "transform another")
    return lambda _: finish(decode(b"x"))


def contenders(options: Options) -> list[Contender]:
    num = 500 if options.quick else 20_000
    cases = {
        "not timed": untimed,
        "as a whole": as_a_whole,
        "with two parts": two_parts(is_long=False),
        "with two parts, long sample": two_parts(is_long=True),
        "two parts outside of a sample": outside,
    }
    return [Contender(name, partial(per_sample, make, num)) for name, make in cases.items()]


def bars(_: Options) -> list[Bar]:
    return [Bar("a sample with two parts, µs", "with two parts", "sample_us", at_most=6.0)]


QUESTION = Question(doc=__doc__, contenders=contenders, bars=bars, columns=("sample_us",), rounds=5, seconds=0)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
