"""Does this loader work on this machine, with this data set.

- `chaos`: a loader under faults, each sample checked.
- `lint`: training scripts and configurations, looked at without running them.
"""
