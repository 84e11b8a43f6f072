"""Why training waits or stops: what can be said from signals, logs and messages.

- `logs`: logs as text, from bytes to records of steps.
- `log_run`: logs of a run, streamed, and everything that they tell.
- `crashes`: findings from the messages that stand in a log.
- `stalls`: which steps took much longer than they typically do.
- `periods`: whether slow steps come at equal distances.
- `marks`: which slow steps stand beside a line that says what the loop was doing.
- `data_waits`: what the waits for data say.
- `drift`: whether steps became slower for good.
- `unexplained`: what a distance may be called when nothing explains it.
- `losses`: where the time of a series of steps went.
- `slow_reports`: what reports of slow batches alone say.
- `wording`: the evidence of a loss in sentences.
- `remedies`: what helps against each cause, what cannot, what to measure.
- `postmortem`: from what logs tell to findings.
- `timeline`: where a thread's time went, every moment counted once.
- `recorded`: why a recorded training waits.

What reads logs needs NumPy and is loaded when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .log_run import explain_logs, explain_message
    from .recorded import explain_recording

__all__ = ["explain_logs", "explain_message", "explain_recording"]


def __getattr__(name: str) -> object:
    if name in {"explain_logs", "explain_message"}:
        from . import log_run

        return getattr(log_run, name)
    if name == "explain_recording":
        from . import recorded

        return recorded.explain_recording
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
