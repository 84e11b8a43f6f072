"""Why a process died or hangs, and whether memory gets short: judged from what can be seen outside it.

- `deaths`: why a worker died: one true sentence from recorded facts, with the evidence beside it. Pure.
- `death_watch`: notes, before a worker dies, what is needed to understand its death after it.
- `stuck`: where a worker stands that does not come back: everything that can be seen of it from outside.
- `hangs`: what keeps it from coming back, recognised from such a report, in words. Pure.
- `memory`: what the processes of a loader hold: samples of the last seconds, and what grows.
- `pressure`: whether memory gets short: a judgement over recent samples. Pure.
"""

from .death_watch import DeathWatch
from .deaths import SampleInHand, describe_death
from .hangs import describe_stuck, next_step_for, recognise
from .memory import MemoryWatch, WorkerMemory, find_growth, read_worker_memory
from .pressure import Level, Pressure, PressureLimits, assess, describe_pressure
from .stuck import format_report, look_at

__all__ = [
    "DeathWatch",
    "Level",
    "MemoryWatch",
    "Pressure",
    "PressureLimits",
    "SampleInHand",
    "WorkerMemory",
    "assess",
    "describe_death",
    "describe_pressure",
    "describe_stuck",
    "find_growth",
    "format_report",
    "look_at",
    "next_step_for",
    "read_worker_memory",
    "recognise",
]
