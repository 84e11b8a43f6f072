"""Why training waits or stops: what can be said from signals, logs and messages.

- `logs`: logs as text, from bytes to records of steps.
- `steps`: a series of steps: which were slow, at which distances, and where the time went.
- `recorded`: why a recorded training waits.
- `log_run`: logs of a run, streamed, and everything that they tell.
- `crashes`: findings from the messages that stand in a log.
- `slow_reports`: what reports of slow batches alone say.
- `postmortem`: from what logs tell to findings.
- `remedies`: what helps against each cause, what cannot, what to measure.
- `wording`: the evidence of a loss in sentences.

What reads logs needs NumPy and is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .log_run import explain_logs, explain_message
    from .recorded import explain_recording

__all__ = ["explain_logs", "explain_message", "explain_recording"]

__getattr__, __dir__ = lazy_names(
    __name__, {"log_run": "explain_logs explain_message", "recorded": "explain_recording"}
)
