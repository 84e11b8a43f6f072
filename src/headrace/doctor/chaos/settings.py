"""What a run of chaos is asked for, and what one round of it is told: plain values that travel as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .fault_plan import ALL_KINDS, FaultKind

PRACTICE = "headrace.doctor.chaos.data:practice"


@dataclass(frozen=True, kw_only=True)
class ChaosSettings:
    """How `run_chaos` runs. Times in seconds, sizes in samples."""

    target: str = PRACTICE  # module:attribute or file.py:attribute
    kinds: tuple[FaultKind, ...] = ALL_KINDS
    num_faults: int = 40
    seed: int = 0
    seconds: float | None = None  # go on with new rounds until then, whatever num_faults says
    num_workers: int | None = None  # None: what the given loader has, else 4
    backend: str = "process"
    start_method: str | None = None  # None: the platform's
    batch_size: int | None = None  # None: what the given loader has, else 8
    timeout_s: float = 3.0  # past this age a sample counts as hanging
    most_samples: int = 1000  # of the data set, in a round
    faults_a_round: int = 20
    always_share: float = 0.25  # of the faults that condemn: each time the sample is fetched, not only the first time

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(FaultKind(kind) for kind in self.kinds))
        if not self.kinds:
            raise ValueError("no kind of fault is left to draw from")
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s={self.timeout_s}: a sample has to be given some time")

    @property
    def slow_s(self) -> float:
        """How long a slow sample takes: much, but not so much that it counts as hanging."""
        return min(1.0, self.timeout_s / 4)

    @property
    def patience_s(self) -> float:
        """How long nothing at all may come before the loader counts as hanging.

        A sample that always hangs is tried a few times; starting a worker that imports torch takes seconds, too.
        """
        return 15.0 + 8 * self.timeout_s

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ChaosSettings:
        return cls(**{**document, "kinds": tuple(document["kinds"])})


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the process under test found the target to be."""

    num_samples: int
    batch_size: int
    num_workers: int
    is_default: bool  # the default collation: samples can be found again in their batch
    start_method: str
    dataset: str
    skipped: Mapping[str, str]  # kinds of fault that cannot happen here: why
