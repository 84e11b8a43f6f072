"""One look of the doctor: what was looked at, how it went, and where it failed, what is wrong."""

from dataclasses import dataclass
from enum import Enum

from headrace.model import Finding, Text


class Outcome(Enum):
    """How a look went."""

    PASS = "pass"
    WARN = "warn"  # it works, and will cost time or safety
    FAIL = "fail"
    SKIP = "skip"  # what it needs failed before, or is not here


@dataclass(frozen=True, kw_only=True)
class Check:
    """One look: at the machine, or one stage of a target's test."""

    name: str  # for scripts: "cores", "shm", "sample", "workers_fork"
    title: Text
    outcome: Outcome
    says: Text  # what was seen, with units
    seconds: float | None = None
    problem: str = ""  # what is wrong, for scripts: "unpicklable", "shared_handle"; empty where nothing is
    finding: Finding | None = None  # of WARN and FAIL

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return it as it stands in the document, beside the findings."""
        return {
            "name": self.name,
            "title": self.title.of(language),
            "outcome": self.outcome.value,
            "says": self.says.of(language),
            "seconds": None if self.seconds is None else round(self.seconds, 4),
            "problem": self.problem or None,
        }
