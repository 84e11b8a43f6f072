"""What `headrace run --replay` says before, during and after: it changes the training, so also with `-q`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from headrace.model import EventKind

from .messages import RunMessages

DEFAULT_STEPS = 64  # some rounds over eight kept batches; a second or two of most trainings
_FEWEST_STEPS = 16


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a replay."""
    parser.add_argument(
        "--replay",
        action="store_true",
        help=f"measure the ceiling: after some steps the training gets cached batches for {DEFAULT_STEPS} steps. This "
        "changes the training: throw its weights away",
    )
    parser.add_argument(
        "--replay-steps", type=_steps, metavar="N", default=None, help="the same, for N steps (at least 16)"
    )


def steps_of(args: argparse.Namespace) -> int:
    """Return for how many steps cached batches are asked for; 0: not at all."""
    return args.replay_steps or (DEFAULT_STEPS if args.replay else 0)


def _steps(text: str) -> int:
    if not text.isdigit() or int(text) < _FEWEST_STEPS:
        raise argparse.ArgumentTypeError(f"a number of steps, {_FEWEST_STEPS} or more, not {text!r}")
    return int(text)


class ReplayNews:
    """Says when a process begins to train on cached batches and when it has stopped to."""

    def __init__(self, words: RunMessages, num_steps: int, *, is_held: bool) -> None:
        self._words, self._num_steps, self._is_held = words, num_steps, is_held
        self._begun: set[int] = set()
        self._lines: list[str] = []  # held back as long as a screen is shown
        if num_steps:
            self._say(words.replay_before.format(steps=num_steps), at_once=True)

    def __repr__(self) -> str:
        return f"ReplayNews(steps={self._num_steps}, processes={len(self._begun)})"

    def observe(self, pid: int, records: Any) -> None:
        """Take in what a process has recorded."""
        if not self._num_steps:
            return
        kinds, values = records["kind"], records["value"]
        if pid not in self._begun and (kinds == int(EventKind.CACHED)).any():
            self._begun.add(pid)
            self._say(self._words.replay_begins.format(pid=pid, steps=self._num_steps))
        if ((kinds == int(EventKind.REPLAY)) & (values >= 0)).any():
            self._say(self._words.replay_ends.format(pid=pid))

    def release(self) -> None:
        """Say what was held back, and what is left of it all."""
        self._is_held = False
        lines, self._lines = self._lines, []
        for line in lines:
            self._say(line)
        if self._begun:
            self._say(self._words.replay_after)

    def _say(self, line: str, *, at_once: bool = False) -> None:
        if self._is_held and not at_once:
            self._lines.append(line)
        else:
            print(f"headrace: {line}", file=sys.stderr, flush=True)
