"""What a worker does: take work, fetch samples, write them into their rows, answer.

- `answering`: what a worker says of its rows: counted on the board, told in an answer.
- `borrowing`: samples that lie in shared memory, for a collation of the user's own: what it writes into them or ke…
- `chunks`: a chunk of a batch: its samples fetched, each written into its row.
- `events`: what one worker leaves in a recording: its tasks, samples and their parts, collations, what it hands ov…
- `fetch`: how a worker gets samples from a map-style data set, with the right random seeds.
- `heap`: keep a worker's heap: freed pages stay with the process instead of going back to the kernel.
- `host`: a process of the loader: one worker in its main thread, or several in threads.
- `measuring`: does a second thread nearly double the rate of a data set?
- `own_iterator`: a worker's own iterator over an iterable data set: the next samples, and where it stands.
- `placing`: where a worker's samples go: into a batch's slot, or aside where they do not fit it.
- `plan`: what a worker needs to know of its loader; travels to its process.
- `record`: what a worker writes about itself: the sample in hand, times, bytes, page faults.
- `room_for_blocks`: a worker's blocks enter the budget: at once where there is room, else when there is.
- `rows`: samples into rows of batch slots: each is checked against the layout, and written once.
- `seeding`: random numbers that depend on the sample's position alone.
- `sharing`: samples leave a worker: counted where they lie in their rows, as blocks that the last one collates els…
- `staging`: named stages in a loader: the table a worker records into, and samples named for the timing lines.
- `steps`: the samples of an iterable data set, one after the other: those that fail are passed over, the rest is n…
- `whole_batches`: a batch that one worker fetches in one piece, as torch does: it must not be split.
- `workbench`: all that the parts of one worker work with.
- `worker`: one worker: takes work from its pipes and gives it to the part that serves it.
"""

from .fetch import Fetcher
from .host import HostPlan, run_host
from .measuring import measure_task
from .plan import WorkerPlan
from .record import ask_to_weigh, read_weight
from .rows import SMALL_ROW_BYTES
from .seeding import SampleSeeds, mix_seed
from .staging import named_samples, named_steps
from .steps import Steps, say_doubt

__all__ = [
    "SMALL_ROW_BYTES",
    "Fetcher",
    "HostPlan",
    "SampleSeeds",
    "Steps",
    "WorkerPlan",
    "ask_to_weigh",
    "measure_task",
    "mix_seed",
    "named_samples",
    "named_steps",
    "read_weight",
    "run_host",
    "say_doubt",
]
