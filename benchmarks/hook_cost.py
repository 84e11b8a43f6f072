"""What does one hook of `headrace run` add to a call?

The hook around a function that does nothing, beside that function alone, in turn: medians of single calls, with a lane
that a recorder in another process drains. "hot" calls it again and again; "cold" copies 4 MiB between two calls, as a
training does, so that code and data of the hook have to come back from memory. Times the events of a step, this is what
`run_overhead.py` measures as a whole.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from event_cost import in_lane
from harness import Bar, Contender, Options, Question, Result, ask

HOOKS = ("wait", "backward", "collate", "fetch", "fetch, resources looked at")
_BAR_US = 10.0  # ten of them in a step of 5 ms are 2 %


class Loader:
    """What `next` is called on."""


def hook(name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any], Any]:
    """A function that does nothing with a hook and without, and what to call it with."""
    from headrace.launch.hooks import loader as hooks_loader
    from headrace.launch.hooks import step as hooks_step
    from headrace.launch.hooks import worker as hooks_worker
    from headrace.signals import timing

    def nothing(_: Any) -> None:
        pass

    loader = Loader()
    loader.__dict__.update(_headrace_loader="loader", _headrace_batches=5)
    made: dict[str, Callable[[], Callable[[Any], Any]]] = {
        "wait": lambda: hooks_loader.timed_next(nothing),
        "backward": lambda: hooks_step._timed_backward(nothing),
        "collate": lambda: hooks_worker._timed_collate(nothing),
        "fetch": lambda: hooks_worker._timed_fetch(nothing, lambda: None, lambda: None),
        "fetch, resources looked at": lambda: hooks_worker._timed_fetch(nothing, lambda: None, lambda: None),
    }
    if name == "fetch, resources looked at":
        timing.SHORT_TASK_NS = 0  # no task is short
    return made[name](), nothing, loader


def added_us(name: str, num: int, *, is_cold: bool) -> Result:
    from headrace.launch.tape import tape

    tape.say_role("trainer")
    hooked, plain, argument = hook(name)
    if is_cold:
        import numpy as np

        source, target = np.zeros(1 << 22, np.uint8), np.zeros(1 << 22, np.uint8)
    times: dict[bool, list[int]] = {True: [], False: []}
    clock = time.perf_counter_ns
    for number in range(2 * num):
        if is_cold:
            np.copyto(target, source)
        function = hooked if number % 2 else plain
        start = clock()
        function(argument)
        times[bool(number % 2)].append(clock() - start)
    with_hook, without = (statistics.median(times[is_on]) / 1e3 for is_on in (True, False))
    return {"added_us": with_hook - without, "with_us": with_hook, "without_us": without}


def contenders(options: Options) -> list[Contender]:
    num = 200 if options.quick else 2000

    def case(name: str, *, is_cold: bool) -> Callable[[], Result]:
        return lambda: in_lane(lambda _: added_us(name, num, is_cold=is_cold))

    return [
        Contender(name, case(name, is_cold=group == "cold"), group, needs=("headrace", "torch"))
        for group in ("hot", "cold")
        for name in HOOKS
    ]


def bars(_: Options) -> list[Bar]:
    return [
        Bar(f"{group}: {name}, us", f"{group}/{name}", "added_us", at_most=_BAR_US)
        for group in ("hot", "cold")
        for name in HOOKS
    ]


QUESTION = Question(doc=__doc__, contenders=contenders, bars=bars, columns=("added_us",), rounds=3, seconds=0.0)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
