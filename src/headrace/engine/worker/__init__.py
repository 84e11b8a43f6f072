"""What a worker does: take work, fetch samples, write them into their rows, answer.

- `chunks`: tasks over a map-style data set: a chunk of a batch, or a batch in one piece.
- `events`: what one worker leaves in a recording: its tasks, samples and their parts, collations, what it hands ov…
- `fetch`: how a worker gets samples from a map-style data set, with random numbers that depend on their positions.
- `host`: a process of the loader: one worker in its main thread, or several in threads.
- `own_iterator`: an iterable data set in a worker: the samples of its own iterator, and where it stands.
- `record`: what a worker writes about itself: the sample in hand, times, bytes, page faults.
- `room_for_blocks`: a worker's blocks enter the budget: at once where there is room, else when there is.
- `rows`: samples into rows of batch slots: a batch is bound to one, each sample checked and written once.
- `sharing`: samples that do not lie in their rows, as blocks that whoever brings the last one collates.
- `staging`: named stages in a loader: the table a worker records into, and samples named for the timing lines.
- `workbench`: what the parts of one worker work with: what it is told, its memory, its record, its answers.
- `worker`: one worker: takes work from its pipes and gives it to the part that serves it.
"""

from .fetch import Fetcher, SampleSeeds, mix_seed
from .host import HostPlan, has_green_threads, run_host
from .own_iterator import Steps, say_doubt
from .record import ask_to_go, ask_to_weigh, read_weight, reopen_record, reset_record
from .rows import SMALL_ROW_BYTES
from .staging import named_samples, named_steps
from .workbench import PoolPlan, WorkerPlan

__all__ = [
    "SMALL_ROW_BYTES",
    "Fetcher",
    "HostPlan",
    "PoolPlan",
    "SampleSeeds",
    "Steps",
    "WorkerPlan",
    "ask_to_go",
    "ask_to_weigh",
    "has_green_threads",
    "mix_seed",
    "named_samples",
    "named_steps",
    "read_weight",
    "reopen_record",
    "reset_record",
    "run_host",
    "say_doubt",
]
