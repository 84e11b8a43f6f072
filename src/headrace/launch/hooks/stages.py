"""Stages that a data set names, as events: `with headrace.stage("volume process"):`, whichever loader fetches."""

from __future__ import annotations

from headrace.model import EventKind, watch_stages
from headrace.signals.timing import PartFrame, current_sample

from ..tape import tape

_STAGE, _DECODE = int(EventKind.STAGE), int(EventKind.DECODE)


class _Watcher:
    """Writes each stage with all that is inside it, and counts its own time as a part of the sample in hand."""

    def enter(self) -> PartFrame | None:
        sample = current_sample.sample
        return None if sample is None else sample.enter()

    def leave(
        self, entered: PartFrame | None, name: str, start_ns: int, elapsed_ns: int, nbytes: int, *, is_recorded: bool
    ) -> None:
        if not is_recorded:
            kind = _DECODE if name.endswith(" decode") else _STAGE  # our codecs name theirs so
            tape.write(kind, start_ns, elapsed_ns, nbytes, tape.name(name))
        sample = current_sample.sample
        # a generator may leave a stage in another sample than it entered it in: that is no part of this one
        if entered is not None and sample is not None and entered[0] >= sample.start_ns:
            sample.leave(entered, "stage " + name, nbytes)


def watch() -> None:
    """Write the stages of this process."""
    watch_stages(_Watcher())
