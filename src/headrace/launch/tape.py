"""Where the hooks of a process write: its lane, opened at the first event and again after a fork.

Hooks call `tape.write(kind, start_ns, duration_ns, value, arg)`, or for what is done again and again `tape.keep`, which
is cheaper and may be somewhat later. Whether a worker has a task in hand is marked at once (`tape.mark_task`): that
tells one that is stuck. Where no lane can be had, they do nothing. What could not be timed is left in writing (`note`).
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model import Text

if TYPE_CHECKING:
    from headrace.signals.recording import KeptEvents, Lane

now = time.monotonic_ns
Write = Callable[..., None]
_NOTES = "not-timed.txt"
_FIRST_EVENTS = 512  # of a process that are written at once: one that is killed after a few steps has those at least


class Tape:
    """The events of this process."""

    write: Write
    keep: Write
    mark_task: Callable[[int], None]
    names: dict[str, int]  # those that were asked for

    def __init__(self) -> None:
        self.num_epochs = self.num_waits = 0  # that hooks have written: whoever wraps a loader need not write them too
        self.start_over()
        os.register_at_fork(after_in_child=self.start_over)

    def start_over(self) -> None:
        """Forget the lane, for the next event to open one: a recording has begun or ended, or this is a fork."""
        self._role = ""
        self._lane: Lane | None = None
        self._kept: KeptEvents | None = None
        self.names = {}
        self.write, self.keep, self.mark_task = self._open_and_write, self._open_and_keep, _nowhere

    def __repr__(self) -> str:
        return f"Tape(role={self._role!r}, lane={self._lane!r})"

    def say_role(self, role: str) -> None:
        """Say what this process is; whoever says it first decides."""
        if not self._role:
            self._role = role
            self.write = self._open_and_write
            self._open()

    def write_kept(self) -> None:
        if self._kept is not None:
            self._kept.write()

    def name(self, text: str) -> int:
        """Return the number by which a record may name a text."""
        number = self.names.get(text)
        if number is None:
            self._open()
            number = self._lane.name(text) if self._lane is not None else 0
            self.names[text] = number
        return number

    @property
    def has_lane(self) -> bool:
        """Whether a lane is open; opens none."""
        return self._lane is not None

    def _open_and_write(self, *event: int) -> None:
        self._open()
        self.write(*event)

    def _open_and_keep(self, *event: int) -> None:
        self._open()
        self.keep = self._open_and_write
        if self._lane is not None:
            from headrace.signals.recording import KeptEvents

            # a worker's pages come one by one: hundreds of workers would hold a megabyte each from the start
            self._kept = KeptEvents(self._lane, first=_FIRST_EVENTS, populates=self._role != "worker")
            self.keep = self._kept.keep
        self.write(*event)

    def _open(self) -> None:
        if self.write != self._open_and_write:
            return
        self.write = _nowhere  # opening must not come here again, whatever it does
        from headrace.signals.recording import open_lane

        try:
            self._lane = open_lane(self._role)
        except Exception as error:
            note(f"no lane to write to: {type(error).__name__}: {error}")
        if self._lane is not None:
            self.write, self.mark_task = self._lane.write, self._lane.mark_task


def _nowhere(*_: int) -> None:
    pass


def note(problem: str) -> None:
    """Leave a line about something that is not timed where the report will look for it."""
    folder = os.environ.get("HEADRACE_RUN_DIR") or os.devnull
    with contextlib.suppress(OSError), open(os.path.join(folder, _NOTES), "a", encoding="utf-8") as notes:
        notes.write(f"{os.getpid()}\t{' '.join(problem.split())}\n")


def read_notes(directory: Path) -> tuple[Text, ...]:
    """Return a sentence for each thing that could not be timed, however many processes say so."""
    try:
        lines = (directory / _NOTES).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    said = Text("not timed, in {count:process(es)}: {problem}", "未能计时（{count} 个进程）：{problem}")
    counts = Counter(line.partition("\t")[2] or line for line in lines)
    return tuple(said.filled(count=count, problem=problem) for problem, count in counts.items())


tape = Tape()
