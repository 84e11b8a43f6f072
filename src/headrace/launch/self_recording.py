"""A recording of this very process, for `headrace.monitor(record=…)`: a thread drains, the program's end ends it.

What is imported already is timed as under `headrace run`; processes that are forked or started later take part. After a
kill of the whole process the directory can be read up to the last half second.
"""

import atexit
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

from headrace.errors import UnusableInput
from headrace.model import find_rank, recording_place

from .command import leave_python_path, new_run_directory, with_site
from .tape import tape

_log = logging.getLogger("headrace.monitor")


class SelfRecording:
    """The recording of this process; there is at most one at a time."""

    def __init__(self, directory: Path) -> None:
        from headrace.signals.recording import Recorder, RunFacts

        from .hooks import install_imported

        self.directory = directory
        self._pid = os.getpid()
        facts = replace(RunFacts.here([sys.executable, *sys.argv]), trainer_pid=self._pid)
        self._recorder: Recorder | None = Recorder(directory, facts=facts)
        self._variables = {**self._recorder.environment, "HEADRACE_RUN_DIR": str(directory.resolve())}
        os.environ.update(self._variables, PYTHONPATH=with_site(os.environ.get("PYTHONPATH")))
        atexit.register(self.end)  # before the hooks: what they write at the end is written by then
        tape.start_over()
        install_imported()
        tape.say_role("trainer")
        self._recorder.start()

    def __repr__(self) -> str:
        return f"SelfRecording({str(self.directory)!r}, {self._recorder!r})"

    @property
    def is_on(self) -> bool:
        """Whether it records, in the process that began it."""
        return self._recorder is not None and self._pid == os.getpid()

    def end(self) -> None:
        """Write down the rest and be gone; safe to call twice, and in a fork of the process."""
        if not self.is_on:
            return
        recorder, self._recorder = self._recorder, None
        atexit.unregister(self.end)
        from headrace.signals.recording import close_lane

        for name, value in self._variables.items():
            if os.environ.get(name) == value:
                del os.environ[name]
        leave_python_path()
        tape.write_kept()
        close_lane()
        tape.start_over()
        assert recorder is not None
        ended_by = getattr(sys, "last_type", None) or SystemExit  # what ended the script; at a prompt it ends nothing
        is_error = not hasattr(sys, "ps1") and not issubclass(ended_by, (KeyboardInterrupt, SystemExit))
        try:
            recorder.close(exit_code=1 if is_error else None)
        except OSError as error:  # a full disk: the training's own end is not to fail by it
            _log.warning("the recording in %s has no end: %s", self.directory, error)


_current: SelfRecording | None = None


def record_here(directory: str | os.PathLike[str] | None) -> SelfRecording | None:
    """Record this process from now on; None where somebody else does already, such as `headrace run`."""
    global _current
    if _current is not None and _current.is_on:
        if directory is not None and _of_rank(Path(directory)).resolve() != _current.directory.resolve():
            raise UnusableInput(
                f"this process is recorded in {_current.directory} already",
                asked_for=directory,
                next_step=f"record={str(_current.directory)!r} or record=True here too: loaders share a recording",
            )
        return _current
    if recording_place():
        _log.info("this process is recorded already: record= adds nothing")
        return None
    name = Path(sys.argv[0] if sys.argv else "").stem
    chosen = _of_rank(Path(directory) if directory is not None else new_run_directory(name))
    _current = SelfRecording(chosen)
    _log.info("recording into %s; `headrace run --report %s` reads it", chosen, chosen)
    return _current


def _of_rank(directory: Path) -> Path:
    """Return a directory of this rank's own: the ranks of a training run the same line."""
    rank = find_rank()
    return directory.with_name(f"{directory.name}-rank{rank}") if rank else directory
