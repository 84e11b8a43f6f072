"""Why training waits or stops: what can be said from signals, logs and messages.

- `logs`: logs as text, from bytes to records of steps.
- `steps`: a series of steps: which were slow, at which distances, and where the time went.
- `recorded`: why a recorded training waits.
- `log_findings`: logs of a run, streamed, and what they tell as findings.
- `slow_reports`: what reports of slow batches alone say.
- `crashes`: findings from the messages that stand in a log.
- `remedies`: what helps against each cause, what cannot, what to measure.

What reads logs needs NumPy and is loaded when it is first used; so is what a recording needs. `remedies` needs neither.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .crashes import signal_finding
    from .log_findings import explain_logs, explain_message
    from .recorded import explain_recording
    from .remedies import LOOP_MAKES_DATA, CauseAdvice, advice_on, bottleneck_fix, make_finding

__all__ = [
    "LOOP_MAKES_DATA",
    "CauseAdvice",
    "advice_on",
    "bottleneck_fix",
    "explain_logs",
    "explain_message",
    "explain_recording",
    "make_finding",
    "signal_finding",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    crashes="signal_finding",
    log_findings="explain_logs explain_message",
    recorded="explain_recording",
    remedies="LOOP_MAKES_DATA CauseAdvice advice_on bottleneck_fix make_finding",
)
