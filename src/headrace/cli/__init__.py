"""The commands: parse, call, print. Nothing imports this room.

- `entry`: the `headrace` command: its options, the way to each command.
- `arguments`: what several commands take: the parser of a command, ranges, lengths of time, the language.
- `terminal`: how a command answers: stdout, stderr, colour, exit codes.
- `chaos`: let faults strike a loader over the user's own data set, and check every sample.
- `demo`: one training loop with torch's loader and with ours, side by side.
- `explain`: why a training was slow or died, from its log alone.
- `quarantine`: the samples that runs have condemned, shown, filtered and counted.
- `run`: a training script as it is, timed, and why it waits.
- `shards`: index tar shards, list them, and say what is wrong with them.
- `storage`: what is under a path, and how fast it reads.
- `watch`: attach to a training that runs already, and say what it waits for.
"""

from .entry import main

__all__ = ["main"]
