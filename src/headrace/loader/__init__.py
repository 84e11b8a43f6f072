"""What a torch user sees: `DataLoader`, torch's own with an engine that does not stall.

- `batches`: what must be known of collated batches.
- `dataloader`: the class itself.
- `local`: its iterators in the training process.
- `probing`: whether samples would be others from another worker.
- `reading`: reading ahead for a loader, where its data set says that samples lie.
- `snapshot`: a loader's figures before it has an iterator, and what iterators say of it.
- `standing_in`: a script's own torch loader with our workers in the place of torch's.
- `workers`: its iterator over a pool of workers.
"""

from .dataloader import DataLoader
from .probing import Dependence, probe_samples
from .standing_in import FedIterator, TorchsTurn

__all__ = ["DataLoader", "Dependence", "FedIterator", "TorchsTurn", "probe_samples"]
