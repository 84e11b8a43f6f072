"""Why a process died or hangs, and whether memory gets short: judged from what can be seen outside it.

- `death_facts`: what is recorded of a worker's death, and what can be said about it: plain values.
- `death_text`: the pieces of the sentence about a worker's death, put together from facts and words.
- `death_watch`: notes, before a worker dies, what is needed to understand its death after it.
- `death_words`: the sentences about a worker's death, in English and in Chinese.
- `deaths`: why a worker died: one true sentence from recorded facts, with the evidence beside it.
- `hang_words`: the sentences about a worker that does not come back, in English and in Chinese.
- `hangs`: what keeps a worker from coming back, recognised from a report on it. Pure.
- `kernel_log`: what the kernel wrote about a process's death, where its log may be read (root, outside most contai…
- `known_deaths`: which entry of the knowledge base tells of a worker's death, and which of its causes the facts be…
- `memory_growth`: what grows in a worker over time: its heap, pages that a fork shared, or queued data.
- `memory_sample`: what the processes of a loader and their control groups held at one moment.
- `memory_watch`: a short memory of what the processes of a loader held: a ring of samples over the last seconds.
- `pressure`: whether memory gets short: a judgement over recent samples that rises at once and falls slowly.
- `stuck`: where a worker stands that does not come back: everything that can be seen of it from outside.
"""

from .death_facts import SampleInHand
from .death_watch import DeathWatch
from .deaths import describe_death
from .hang_words import describe_stuck, next_step_for
from .hangs import recognise
from .memory_growth import Holdings, Kind, find_growth, read_holdings
from .memory_watch import MemoryWatch
from .pressure import Level, Pressure, PressureLimits, assess, describe_pressure
from .stuck import format_report, look_at

__all__ = [
    "DeathWatch",
    "Holdings",
    "Kind",
    "Level",
    "MemoryWatch",
    "Pressure",
    "PressureLimits",
    "SampleInHand",
    "assess",
    "describe_death",
    "describe_pressure",
    "describe_stuck",
    "find_growth",
    "format_report",
    "look_at",
    "next_step_for",
    "read_holdings",
    "recognise",
]
