"""Threads or processes: the choice of `backend="auto"`."""

from __future__ import annotations

# a second thread that brings this much nearly doubles the rate: the data set releases the interpreter's lock
_THREADS_PAY = 1.8


def choose_backend(asked: str, start_method: str, *, gain: float | None, draws: bool) -> tuple[str, str]:
    """Threads or processes, and why. `gain` is the measured rate of two threads over that of one.

    Under fork, processes start in milliseconds, share the data set's memory and isolate a crash: threads could only
    lose. Otherwise each process imports everything anew and holds a copy, which threads of one process avoid, each
    with its own copy of the data set so that nothing is shared that a process would not share.
    """
    if asked != "auto":
        return asked, "as asked for"
    measured = f"a second thread was measured to bring {gain:.2f}x" if gain is not None else "threads not measured yet"
    if start_method == "fork":
        return "process", f"{measured}; under fork, processes start at once, share memory and isolate crashes"
    if gain is None:
        return "process", measured
    if draws:
        return "process", f"{measured}; the data set draws random numbers, which threads cannot seed by sample"
    if gain >= _THREADS_PAY:
        return "thread", f"{measured}, so one process with threads saves {start_method!r} its imports and copies"
    return "process", f"{measured}, less than {_THREADS_PAY}x"
