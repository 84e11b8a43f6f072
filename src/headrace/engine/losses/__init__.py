"""What becomes of samples that fail and of workers that are lost.

- `losses`: both of one feed: what the policy says of a sample, batches planned anew without it, and how far iterable
  data sets have come.
- `condemned`: the samples that a loader leaves out: found bad by itself, or by an earlier run.
- `recovery`: what a lost worker leaves behind: find what it owed, and put right what it left half done.
- `rows_again`: rows are given out once more: lost ones, those under suspicion, what is in nobody's hands.
- `sample_names`: which file a data set means by an index, found without running any of its code.
"""

from .condemned import Condemned, record_incident
from .losses import Losses
from .recovery import Guilty, Recovery
from .rows_again import Claim
from .sample_names import name_sample, place_sample

__all__ = ["Claim", "Condemned", "Guilty", "Losses", "Recovery", "name_sample", "place_sample", "record_incident"]
