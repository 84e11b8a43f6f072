"""What a torch user sees: `DataLoader`, torch's own with an engine that does not stall.

- `backend`: threads or processes.
- `batches`: what must be known of collated batches.
- `dataloader`: the class itself.
- `local`: its iterators in the training process.
- `readable`: where a data set says that its samples lie.
- `reading`: reading ahead for a loader.
- `snapshot`: what every iterator of ours can tell.
- `workers`: its iterator over a pool of workers.
"""

from .dataloader import DataLoader

__all__ = ["DataLoader"]
