"""Why a recorded training waits: pure functions from events to findings.

- `processes`: the processes of a recording, each with its events, and the time that those take.
- `trainer`: a training process: where its time went, what each pass over a loader was for, its steps and saves.
- `workers`: what a loader's workers did, and which of them hung.
- `data_waits`: why the loop waited for data: pool too slow, lock-step, single late batches, starts of shards.
- `parts`: what a sample's time went into.
- `interruptions`: checkpoints, evaluation, logging, collections, copies, starts of epochs, slow steps.
- `host`: whether the host kept the device busy, and whose time it lost.
- `ceiling`: what a perfect loader would bring, measured by a replay.
- `estimates`: what would help, by how much.
- `surroundings`: what the system did meanwhile, whose cores they were, and what it did not give.
- `ending`: what a training ended with, and which rank first.
- `diagnosis`: from a recording to findings and facts: its steps, its ranks, the table of times.
"""

from .diagnosis import explain_processes, explain_recording, forecast_recording
from .estimates import WorkerForecast
from .processes import ProcessEvents

__all__ = ["ProcessEvents", "WorkerForecast", "explain_processes", "explain_recording", "forecast_recording"]
