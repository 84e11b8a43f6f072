"""Does this loader work on this machine, with this data set.

- `chaos`: a loader under faults, each sample checked.
- `checks`: one look: what was looked at, how it went, what is wrong.
- `contents`: what is in a sample or a batch: its form, a digest.
- `lint`: training scripts and configurations, looked at without running them.
- `machine`: is this machine fit for a training that loads data.
- `target`: does this loader work: its stages, each in a process of its own.
"""

from .checks import Check, Outcome

__all__ = ["Check", "Outcome"]
