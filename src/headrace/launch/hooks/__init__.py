"""What is timed inside an unchanged script, one subject a module.

- `installing`: which modules are timed once they are imported, and by whom; of frameworks, which methods are what.
- `wrapping`: a function timed from outside, as an event or as a part of a sample.
- `loader`: torch's DataLoader in the training process: epochs, every `next`, waiting for workers, pinning.
- `feeding`: our workers for torch's loaders, for `headrace run --feed`.
- `worker`: torch's workers, and its fetching in the training process: tasks, samples, collation, sending, idling.
- `parts`: what happens inside a sample: reading, decoding, transforms, stages, shards that are opened.
- `step`: the training step: forward, backward, optimizer, evaluation, garbage collections.
- `device`: what the host waits for outside its process: copies, the device, other ranks.
- `interruptions`: what a loop does besides training: checkpoints, what is done with a file that was just saved, logs.
- `replay`: steps on batches that were kept, for `headrace run --replay`.
- `tracebacks`: tracebacks without our frames, and the exceptions that nobody caught.
"""

from .installing import install, install_imported
from .tracebacks import record_exception

__all__ = ["install", "install_imported", "record_exception"]
