"""What `tune="online"` changes while a loader runs.

- `controller`: what to change, from what was seen: pure.
- `tuner`: looks, asks the controller, and does what it says.
"""

from .controller import Controller, TuningWindow
from .tuner import OnlineTuner

__all__ = ["Controller", "OnlineTuner", "TuningWindow"]
