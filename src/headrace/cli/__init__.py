"""The commands: parse, call, print. Nothing imports this room.

- `entry`: the `headrace` command: its options, the way to each command.
- `arguments`: what several commands take: a parser, a target, ranges, lengths of time, languages, files to write.
- `terminal`: how a command answers: stdout, stderr, colour, exit codes.
- `chaos`: let faults strike a loader over the user's own data set, and check every sample.
- `config`: the settings that loaders get here, each with its origin.
- `demo`: a small training under `run`, the same one fed, and both side by side.
- `doctor`: does loading work here, the machine and then a target, stage by stage; `quick`, one sample and one batch.
- `explain`: why a training was slow or died, from its log alone.
- `lint`: training scripts and configurations, looked at without running them.
- `plan`: how much memory a loader takes, before anything runs.
- `quarantine`: the samples that runs have condemned, shown, filtered and counted.
- `run`: a training script as it is, timed, and why it waits.
- `shards`: index tar shards, list them, and say what is wrong with them.
- `storage`: what is under a path, and how fast it reads.
- `tune`: which workers and backend feed a training best.
- `watch`: attach to a training that runs already, and say what it waits for.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `headrace` command and return its exit code."""
    try:
        from .entry import run_command  # not above: Ctrl-C may come while it is imported

        return run_command(argv)
    except KeyboardInterrupt:
        print("headrace: interrupted", file=sys.stderr)
        return 130
