"""Why a recorded training waits: pure functions from events to findings.

- `ceiling`, `ceiling_wording`: what a perfect loader would bring, measured by a replay.
- `data_waits`: why the loop waited for data: pool too slow, lock-step, single late batches.
- `diagnosis`: from a recording to findings.
- `epoch_starts`: what the start of epochs cost.
- `estimates`, `estimate_wording`: what would help, by how much.
- `interruptions`: checkpoints, evaluation, logging, garbage collection, copies.
- `processes`: the processes of a recording, each with its events.
- `spread`: means with their error.
- `slow_steps`: slow steps that nothing explains.
- `trainer`: a training process: where its time went, and its steps.
- `wording`: the evidence in sentences.
- `workers`: what a loader's workers did.
"""

from .diagnosis import explain_processes, explain_recording
from .processes import ProcessEvents

__all__ = ["ProcessEvents", "explain_processes", "explain_recording"]
