"""The samples that a loader leaves out: found bad by itself, or by an earlier run."""

import logging
import os
import time
from collections.abc import Iterable
from typing import Any

from headrace.errors import NotSupported, TooManyBad
from headrace.knowledge import hint_for
from headrace.model import (
    RAISE,
    SKIP,
    BadTally,
    ErrorPolicy,
    EventKind,
    SampleFailure,
    SampleKeys,
    key_text,
    language,
    write_step,
)
from headrace.signals import QuarantineFile, skip_set
from headrace.signals.recording import open_lane

_log = logging.getLogger(__name__)


class Condemned:
    """What is left out, why, and when that is too much. Lives as long as its loader."""

    def __init__(
        self,
        policy: ErrorPolicy,
        *,
        path: str | os.PathLike[str] | None = None,
        skip: str | os.PathLike[str] | Iterable[Any] | None = None,
        num_samples: int | None = None,
    ) -> None:
        self.policy = policy
        self._file = QuarantineFile(path) if path is not None else None
        if self._file is not None:
            self._file.check()
        self._skipped = skip_set(skip, num_samples=num_samples) if skip is not None else SampleKeys()
        self._out: set[str] = set()
        self._hinted: set[str] = set()
        self._tally = BadTally(policy, num_samples)
        self.num_samples = num_samples
        self.failures: list[SampleFailure] = []

    @property
    def is_active(self) -> bool:
        """Whether samples may be left out, so that an epoch must be planned sample by sample."""
        return not self.policy.raises_at_once or bool(self._skipped)

    def is_out(self, key: Any) -> bool:
        return key in self._skipped or (bool(self._out) and key_text(key) in self._out)

    def pass_over(self, failure: SampleFailure) -> bool:
        """Leave out a sample of an iterable data set, which has no key to ask for again; False: it is to be raised."""
        decision = self.policy.judge(failure)
        if decision is RAISE:
            return False
        if decision is not SKIP:
            what = "a sample of an IterableDataset cannot be tried again or replaced"
            raise NotSupported(what, sample=failure, next_step="headrace.SKIP or headrace.RAISE from on_error=")
        self.condemn(failure)
        return True

    def _hint(self, failure: SampleFailure) -> str:
        """What the knowledge base says of such a failure, said once an entry: a broken disk fails a thousand times."""
        hint = hint_for(failure.traceback or f"{failure.exception}: {failure.message}")
        if hint is None or hint.entry_id in self._hinted:
            return ""
        self._hinted.add(hint.entry_id)
        return f"\n{hint.of(language())}"

    def good(self, count: int) -> None:
        self._tally.good(count)

    def condemn(self, failure: SampleFailure, *, is_replaced: bool = False) -> None:
        """Leave a sample out from now on (or count one that was replaced). Raises where there are too many."""
        if not is_replaced:
            if failure.key is not None:  # a sample of an iterable data set has none
                text = key_text(failure.key)
                if text in self._out:
                    return
                self._out.add(text)
            self.failures.append(failure)
            record_incident(EventKind.BAD_SAMPLE, failure.key if type(failure.key) is int else -1)
            if self._file is not None:
                try:
                    self._file.append(failure)
                except OSError as error:  # a full disk ends no training
                    step = write_step(error, self._file.path)
                    missing = "%s cannot be written (%s)%s. It is in loader.quarantine and here alone: %s"
                    said = error.strerror or error, f": {step}" if step else ""
                    _log.error(missing, self._file.path, *said, failure)
            _log.warning("left out: %s%s", failure, self._hint(failure))
        too_many = self._tally.bad()
        if too_many is not None:
            raise TooManyBad(
                f"too many samples fail: {too_many}",
                limit=self.policy.limit_text,
                last=str(failure),
                next_step="look at the last one's traceback in loader.quarantine; is the path right, is the disk "
                "mounted? A larger max_bad= (a number, or a share such as 0.05) lets more of them pass",
            )


def record_incident(kind: EventKind, value: int, *, lasted_s: float = 0.0) -> None:
    """Write an event that ends now; `value` is the process of a worker, or the key of a sample, -1 for no number."""
    lane = open_lane()
    if lane is not None:
        duration_ns = int(lasted_s * 1e9)
        lane.write(kind, time.perf_counter_ns() - duration_ns, duration_ns, value)
