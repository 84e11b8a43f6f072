"""A recorded run: events in shared memory, drained into a run directory, and read back.

- `area`: the shared memory of a recording: a lane of records for each process that takes part.
- `lanes`: where a process writes its events: a lane of its own, which a fork exchanges for a new one.
- `recorder`: whoever owns a recording: drains the lanes and samples the system into a run directory.
- `event_file`: `events.bin`: a header, then frames, each with its length and its checksum.
- `thinning`: which events a long recording keeps, so that its file stays under a limit. Pure.
- `system_samples`: looks at the system around a training, and `system.jsonl`, which keeps them.
- `run_facts`: what was run, where, and how it ended: `run.json`.
- `recording`: a recorded run, read back, whatever died meanwhile.

Names are loaded when they are first used: writing an event needs no NumPy.
"""

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from .lanes import KeptEvents, Lane, close_lane, open_lane
    from .recorder import Recorder
    from .recording import Recording, event_dtype, read_run
    from .run_facts import RUN_FILE, RunFacts
    from .system_samples import SystemSampler

__all__ = [
    "RUN_FILE",
    "KeptEvents",
    "Lane",
    "Recorder",
    "Recording",
    "RunFacts",
    "SystemSampler",
    "close_lane",
    "event_dtype",
    "open_lane",
    "read_run",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    lanes="KeptEvents Lane close_lane open_lane",
    recorder="Recorder",
    recording="Recording event_dtype read_run",
    run_facts="RUN_FILE RunFacts",
    system_samples="SystemSampler",
)
