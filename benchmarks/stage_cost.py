"""What does a named stage cost?

`with headrace.stage("volume process"): pass`, a million times: where nobody looks (no loader records, no lines are
printed), and where a loader records. An empty context manager of Python's own stands beside it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask


def per_stage(make: Callable[[], AbstractContextManager[Any]], num: int) -> Result:
    """The least of five times, in microseconds: what disturbs it only adds."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(num):
            with make():
                pass
        best = min(best, (time.perf_counter() - start) / num)
    return {"stage_us": best * 1e6}


def contenders(options: Options) -> list[Contender]:
    num = 2_000 if options.quick else 200_000

    def nothing() -> Result:
        return per_stage(contextlib.nullcontext, num)

    def off() -> Result:
        import headrace

        named = headrace.stage
        return per_stage(lambda: named("volume process"), num)

    def on() -> Result:
        import headrace
        from headrace.model import StageTable, record_stages

        named = headrace.stage
        with record_stages(StageTable()):
            return per_stage(lambda: named("volume process", nbytes=1 << 20), num)

    return [
        Contender("an empty context manager", nothing),
        Contender("a stage, nobody looks", off),
        Contender("a stage, recorded", on),
    ]


def bars(_: Options) -> list[Bar]:
    return [
        Bar("a stage where nobody looks, us", "a stage, nobody looks", "stage_us", at_most=1.0),
        Bar("a stage that is recorded, us", "a stage, recorded", "stage_us", at_most=3.0),
    ]


QUESTION = Question(doc=__doc__, contenders=contenders, bars=bars, columns=("stage_us",), rounds=5, seconds=0)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
