"""What is happening: written by whoever feeds, read by whoever wants to know why.

- `appending`: lines added to a file that several processes and hosts share.
- `quarantine`: the samples that runs over a data set have condemned, in a file.
- `quarantine_lines`: the format of that file, one JSON line a sample.
"""

from .quarantine import Condemned, Quarantine, QuarantineFile, merge_failures, skip_set
from .quarantine_lines import QUARANTINE_SCHEMA, Damage

__all__ = [
    "QUARANTINE_SCHEMA",
    "Condemned",
    "Damage",
    "Quarantine",
    "QuarantineFile",
    "merge_failures",
    "skip_set",
]
