"""Runs the user's command for each alarm, without ever waiting for it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
import time

from .look import SCHEMA, Alarm

_LOG = logging.getLogger(__name__)
_AT_ONCE = 4  # a command that hangs must not pile up
_PATIENCE_S = 5.0


class AlertCommand:
    """A shell command that gets each alarm in its environment and as JSON on stdin."""

    def __init__(self, command: str, *, language: str = "en") -> None:
        self._command, self._language = command, language
        self._running: list[subprocess.Popen[bytes]] = []
        self.num_started = self.num_left_out = 0

    def __enter__(self) -> AlertCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, alarm: Alarm, watched: str) -> None:
        """Start the command; left out, and counted, while several still run."""
        self._running = [process for process in self._running if process.poll() is None]
        if len(self._running) >= _AT_ONCE:
            self.num_left_out += 1
            _LOG.warning("alarm %s: the alert command is left out, %d of it still run", alarm.kind, _AT_ONCE)
            return
        document = {"schema": SCHEMA, "event": "alarm", "watched": watched, **alarm.as_json(self._language)}
        environment = {
            **os.environ,
            "HEADRACE_ALARM": alarm.kind,
            "HEADRACE_ALARM_PID": "" if alarm.pid is None else str(alarm.pid),
            "HEADRACE_ALARM_TEXT": alarm.what.of(self._language),
            "HEADRACE_ALARM_WATCHED": watched,
        }
        with tempfile.TemporaryFile() as given:  # a pipe could fill up and hold us
            given.write(json.dumps(document, ensure_ascii=False).encode())
            given.seek(0)
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._command],
                    stdin=given,
                    stdout=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                _LOG.warning("the alert command does not start: %s", error)
                return
        self._running.append(process)
        self.num_started += 1

    def close(self) -> None:
        """Give those that still run a few seconds, then leave them: they are the user's."""
        deadline = time.monotonic() + _PATIENCE_S
        for process in self._running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.returncode = 0  # not ours to end, and no complaint of Popen about it
        self._running.clear()
