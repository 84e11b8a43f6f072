"""A recorded run: events in shared memory, drained into a run directory, and read back.

- `area`: the shared memory of a recording: one anonymous file that holds a lane for each process that takes part.
- `event_file`: writing `events.bin`: frames at its end, under its limit, and never half a frame that could be take…
- `frames`: the file of events: a header, then frames, each with its length and its checksum, so that a torn tail i…
- `kept_events`: short events of one thread, written together.
- `lane_drain`: draining the lanes of an area: who writes, what is new, who is gone.
- `lanes`: where a process writes its events: a lane of its own, which a fork exchanges for a new one.
- `recorder`: whoever owns a recording: drains the lanes and samples the system into a run directory, and outlives …
- `recording`: a recorded run, read back: events, processes, samples of the system and facts, whatever died meanwhile.
- `records`: the record of an event: 32 bytes, the same in shared memory and on disk.
- `ring_reader`: reading a lane while it is written: what is new, and exactly how much came too late.
- `run_facts`: what was run, where, and how it ended: `run.json`.
- `sampler`: one look at the system around a training: its processes, its machine, its control groups, its GPUs.
- `system_file`: `system.jsonl`: one look at the system a line. The first line names the fields, the others hold va…
- `thinning`: which events a long recording keeps, so that its file stays under a limit: pure functions of what came.
"""

from .area import Area, attach_from_environment
from .kept_events import KeptEvents
from .lanes import Lane, close_lane, open_lane
from .recorder import Recorder
from .recording import RecordedProcess, Recording, event_dtype, read_run
from .records import record_dtype
from .run_facts import RUN_SCHEMA, RunFacts
from .sampler import SystemSampler
from .system_file import SYSTEM_SCHEMA

__all__ = [
    "RUN_SCHEMA",
    "SYSTEM_SCHEMA",
    "Area",
    "KeptEvents",
    "Lane",
    "RecordedProcess",
    "Recorder",
    "Recording",
    "RunFacts",
    "SystemSampler",
    "attach_from_environment",
    "close_lane",
    "event_dtype",
    "open_lane",
    "read_run",
    "record_dtype",
]
