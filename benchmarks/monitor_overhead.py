"""What does `headrace.monitor` cost a loop?

One loop over one iterable: in every second window of a tenth of a second it goes through `headrace.monitor(iterable)`,
in the others it does not, and each window is compared with those beside it (95 % interval of the median). A batch costs
nothing, or a fixed amount of work of about 1 ms or 10 ms. "quiet" logs nothing but warnings, as `logging` does by
default; "logged" writes its INFO lines to a file, one for every 50 batches; "bar" feeds a tqdm bar. "neither" switches
nothing: it shows the method's error.
"""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask
from switching import added, cost, measure

WORK = {
    "batches of no work": 0,
    "batches of 1 ms": 1,
    "batches of 10 ms": 10,
}  # thousands of rounds of about a microsecond
CONTENDERS = ("quiet", "logged", "bar", "neither")
_ROUNDS_PER_MS = 1000


def contenders(options: Options) -> list[Contender]:
    return [
        Contender(name, case(name, work, options), group, needs=("headrace", *(("tqdm",) if name == "bar" else ())))
        for group, work in WORK.items()
        for name in CONTENDERS
    ]


def case(name: str, work: int, options: Options) -> Callable[[], Result]:
    def run() -> Result:
        with tempfile.TemporaryFile("w") as log, tempfile.TemporaryFile("w") as screen:
            return run_windows(monitored(name, log, screen), work, options, switches=name != "neither")

    return run


def monitored(name: str, log: Any, screen: Any) -> Iterator[None]:
    """The same endless iterable through a monitor; what it draws or logs goes to files."""
    import headrace

    logger = logging.getLogger("headrace.monitor")
    if name == "logged":
        logger.setLevel(logging.INFO)
        logger.addHandler(logging.StreamHandler(log))
    if name == "bar":
        from tqdm import tqdm

        return iter(headrace.monitor(repeat(None), bar=tqdm(file=screen)))
    return iter(headrace.monitor(repeat(None)))


def run_windows(watched: Iterator[None], work: int, options: Options, *, switches: bool) -> Result:
    plain: Iterator[None] = repeat(None)
    used = [plain]

    def switch(is_on: bool) -> None:
        used[0] = watched if is_on and switches else plain

    def step() -> None:
        # a window holds many batches, so that looking at the clock for it costs a batch of no work next to nothing
        batches = used[0]
        for _ in range(1 if work else 100):
            next(batches)
            for _ in range(work * _ROUNDS_PER_MS):
                sum(_TERMS)

    per_step = 1 if work else 100
    measure(step, switch, seconds=0.5 if options.quick else 2.0, window_s=0.1)  # deques of a monitor fill up
    windows = measure(step, switch, seconds=options.seconds, window_s=0.1)
    steps = [one.step_s / per_step for one in windows]
    return {
        "step_ms": 1e3 * statistics.median(steps[::2]),
        **cost(steps),
        "added_us": 1e6 * added(steps),
        "num_windows": len(windows),
    }


_TERMS = tuple(range(160))


def bars(_: Options) -> list[Bar]:
    found = []
    for group, work in WORK.items():
        for name in CONTENDERS[:-1]:
            found.append(Bar(f"{group}, {name}: added a batch, us", f"{group}/{name}", "added_us"))
            if work:
                title = f"{group}, {name}: added, % of the time"
                found.append(Bar(title, f"{group}/{name}", "cost_percent", at_most=2.0))
        found.append(Bar(f"{group}: the same where nothing is switched, %", f"{group}/neither", "cost_percent"))
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    columns=("step_ms", "added_us", "cost_percent", "cost_low_percent", "cost_high_percent", "num_windows"),
    rounds=1,
    seconds=10.0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
