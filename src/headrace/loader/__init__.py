"""What a torch user sees: `DataLoader`, torch's own with an engine that does not stall.

- `batches`: what must be known of collated batches.
- `dataloader`: the class itself.
- `local`: its iterators in the training process.
- `reading`: reading ahead for a loader, where its data set says that samples lie.
- `snapshot`: a loader's figures before it has an iterator, and what iterators say of it.
- `workers`: its iterator over a pool of workers.
"""

from .dataloader import DataLoader

__all__ = ["DataLoader"]
