"""Every error that Headrace raises on purpose.

    HeadraceError                what happened, the evidence, what to do next
    ├── WorkerLost               a worker died before it delivered              (also a RuntimeError)
    ├── WorkerHang               a worker stood still at one sample             (also a RuntimeError)
    ├── BatchTooLarge            one batch does not fit the memory budget       (also a MemoryError)
    ├── BatchTimeout             no batch arrived within `timeout=`             (also a RuntimeError)
    ├── TooManyBad               more samples failed than `max_bad=` allows     (also a RuntimeError)
    ├── NotAQuarantine           a file that should be a quarantine is not one  (also a ValueError)
    ├── StaleQuarantine          a quarantine of a data set of another length   (also a ValueError)
    ├── CannotLoadTarget         `file.py:name` names nothing usable            (also a ValueError)
    ├── NotSupported             this combination cannot work, here or at all   (also a RuntimeError)
    ├── ShardDamaged             a sample whose shard is damaged where it lies  (also a ValueError)
    ├── UnusableInput            a file or text that was given cannot be worked on
    ├── DecodeError              bytes that are not what they claim to be       (also a ValueError)
    └── InternalError            a bug of ours, with a request to report it

A class exists when a caller would handle it differently. Those that are also a `RuntimeError` stand where
torch's loader raises a plain `RuntimeError`, so that an existing `except RuntimeError` still catches them.
Misuse of the API is a `TypeError` or a `ValueError`, as everywhere in Python. Each is `headrace.NAME`, and says so.

>>> print(HeadraceError("worker 3 was killed", signal="SIGKILL", limit="46.0 GiB", next_step="memory='36GiB'"))
worker 3 was killed
  signal: SIGKILL   limit: 46.0 GiB
  try: memory='36GiB'
"""

from typing import ClassVar

__all__ = [
    "BatchTimeout",
    "BatchTooLarge",
    "CannotLoadTarget",
    "DecodeError",
    "HeadraceError",
    "InternalError",
    "NotAQuarantine",
    "NotSupported",
    "ShardDamaged",
    "StaleQuarantine",
    "TooManyBad",
    "UnusableInput",
    "WorkerHang",
    "WorkerLost",
]

_REPORT_IT = "report this with its full text and with what `headrace --version` prints"


class HeadraceError(Exception):
    """Base of every error raised on purpose; `str()` joins its three parts."""

    _ask: ClassVar[str] = "try"

    def __init__(self, what: str, *, next_step: str = "", **evidence: object) -> None:
        super().__init__(what)  # args == (what,), so it survives pickling between processes
        self.what, self.next_step, self.evidence = what, next_step, evidence

    def __str__(self) -> str:
        lines = [self.what]
        if self.evidence:
            facts = (f"{name.replace('_', ' ')}: {value}" for name, value in self.evidence.items())
            lines.append("  " + "   ".join(facts))
        if self.next_step:
            lines.append(f"  {self._ask}: {self.next_step}")
        return "\n".join(lines)


class WorkerLost(HeadraceError, RuntimeError):
    """A worker died before it delivered what it owed."""


class WorkerHang(HeadraceError, RuntimeError):
    """A worker stood still at one sample, far longer than any other took, and again after it was replaced."""


class BatchTooLarge(HeadraceError, MemoryError):
    """One batch does not fit the memory budget; nothing was allocated for it."""


class BatchTimeout(HeadraceError, RuntimeError):
    """No batch arrived within the loader's `timeout`."""


class TooManyBad(HeadraceError, RuntimeError):
    """More samples failed than `max_bad` allows: the source is broken, not a few samples."""


class NotAQuarantine(HeadraceError, ValueError):
    """A file that should be a quarantine holds something else; nothing was written to it."""


class StaleQuarantine(HeadraceError, ValueError):
    """A quarantine names indices of a data set of another length, where they may be other samples."""


class CannotLoadTarget(HeadraceError, ValueError):
    """What a user named as `file.py:name`, `pkg.mod:name` or shards cannot be had, or is of no use here."""


class NotSupported(HeadraceError, RuntimeError):
    """What was asked for cannot work with this data set, platform or combination of arguments."""


class ShardDamaged(HeadraceError, ValueError):
    """A sample that has lost bytes to the damage of its shard; `evidence` names the shard and the offset."""


class UnusableInput(HeadraceError):
    """What was given as input cannot be read, or holds nothing that could be worked on."""


class DecodeError(HeadraceError, ValueError):
    """Bytes that are damaged, cut short or not what they claim to be; `str()` names what was read."""


class InternalError(HeadraceError):
    """A promise of Headrace to itself is broken: a bug of ours."""

    _ask = "please"

    def __init__(self, what: str, *, next_step: str = _REPORT_IT, **evidence: object) -> None:
        super().__init__(what, next_step=next_step, **evidence)


for _name in __all__:
    globals()[_name].__module__ = "headrace"  # what tracebacks show is what users catch
