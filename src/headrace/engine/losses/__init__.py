"""What becomes of samples that fail and of workers that are lost.

- `allowance`: how many lost workers a loader bears before it gives up.
- `carrying`: rows that are done when their batch is given up, carried over into the batches that are planned anew.
- `claims`: what each worker has in hand, by its own record.
- `collation_losses`: how far the collation of a batch is to blame for workers that were lost.
- `condemned`: the samples that a loader leaves out: found bad by itself, or by an earlier run.
- `homecoming`: whether a batch holds the samples that it is to be delivered with.
- `incidents`: what goes wrong, as events of a recording where there is one: workers lost and hung, samples that fa…
- `judging`: a sample failed: ask the loader's policy, and do what it says.
- `moving_up`: a sample is left out: the later ones move up through the batches in flight, and none is fetched again.
- `recovery`: what a lost worker leaves behind: find what it owed, and put right what it left half done.
- `row_moves`: which rows of a batch change places, so that it holds the samples it is to be delivered with. Pure.
- `rows_again`: rows of a batch are given out once more, or taken out of the hands of all workers.
- `runs`: rows of a batch as runs of neighbours: (first, count).
- `sample_names`: which file a data set means by an index, found without running any of its code.
- `slot_rows`: rows that lie in slots, and texts that lie beside them, change places between batches.
- `streams`: a lost worker of an iterable data set: another one begins anew and passes over what is delivered.
- `sweeping`: work that is in nobody's hands: in no pipe, in no worker's record, and not done.
- `tried_alone`: samples under suspicion, given out one at a time.
"""

from .carrying import Carrying
from .claims import Claim
from .condemned import Condemned
from .homecoming import Homecoming
from .incidents import record_hang, record_loss
from .judging import Judge
from .moving_up import MovingUp
from .recovery import Guilty, Recovery
from .sample_names import name_sample, place_sample
from .slot_rows import SlotRows
from .streams import Streams

__all__ = [
    "Carrying",
    "Claim",
    "Condemned",
    "Guilty",
    "Homecoming",
    "Judge",
    "MovingUp",
    "Recovery",
    "SlotRows",
    "Streams",
    "name_sample",
    "place_sample",
    "record_hang",
    "record_loss",
]
