"""Why a process died or hangs, and whether memory gets short: judged from what can be seen outside it.

- `deaths`: why a worker died: what is noted before and after it, judged, in one true sentence with its evidence.
- `hangs`: what keeps a worker from coming back: looked at from outside, recognised, and said.
- `memory`: what the processes of a loader hold: samples of the last seconds, and what grows.
- `pressure`: whether memory gets short: a judgement over recent samples. Pure.
"""

from .deaths import DeathFacts, DeathWatch, SampleInHand, describe_death
from .hangs import look_at, recognise
from .memory import MemoryWatch, WorkerMemory, find_growth, read_worker_memory
from .pressure import Level, Pressure, PressureLimits, assess

__all__ = [
    "DeathFacts",
    "DeathWatch",
    "Level",
    "MemoryWatch",
    "Pressure",
    "PressureLimits",
    "SampleInHand",
    "WorkerMemory",
    "assess",
    "describe_death",
    "find_growth",
    "look_at",
    "read_worker_memory",
    "recognise",
]
