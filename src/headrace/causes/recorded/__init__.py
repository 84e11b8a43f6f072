"""Why a recorded training waits: pure functions from events to findings.

- `bad_samples`: which sample a training ended with.
- `ceiling`, `ceiling_wording`: what a perfect loader would bring, measured by a replay.
- `copies`: how much of the host's time in copies to the device was the copy.
- `data_waits`: why the loop waited for data: pool too slow, lock-step, single late batches.
- `diagnosis`: from a recording to findings.
- `ending`: the exceptions that a training ended with.
- `epoch_starts`: what the start of epochs cost.
- `estimates`, `estimate_wording`: what would help, by how much.
- `findings`: what was found, as findings: shares, evidence, fixes, figures.
- `interruptions`: checkpoints, evaluation, logging, garbage collection, copies.
- `launchers`: what torchrun says of the rank that failed first.
- `page_faults`: what fetching memory back from swap cost a process.
- `part_gains`: what a cheaper part of a sample would bring.
- `part_rows`: where the workers' time went, as rows.
- `part_wording`: what a sample's time went into, in sentences.
- `processes`: the processes of a recording, each with its events.
- `ranks`: which rank holds the others up, and which one ended first.
- `sample_parts`: what a sample's time went into.
- `saves`: how long a save holds the loop up in all.
- `shard_starts`: what the starts of shards cost.
- `shortages`: what the system did not give a training: processor time, memory.
- `slow_steps`: slow steps that nothing explains.
- `spread`: means with their error.
- `stuck_workers`: workers that hung.
- `summary`: what is told of a run beside its findings.
- `surroundings`: what the system did meanwhile.
- `trainer`: a training process: where its time went, and its steps.
- `wording`: the evidence in sentences.
- `wording_hangs`: the evidence of hung workers and starts of shards in sentences.
- `workers`: what a loader's workers did.
"""

from .diagnosis import explain_processes, explain_recording
from .processes import ProcessEvents

__all__ = ["ProcessEvents", "explain_processes", "explain_recording"]
