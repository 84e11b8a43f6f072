"""The commands: parse, call, print. Nothing imports this room.

- `entry`: the `headrace` command: its options, the way to each command.
- `arguments`: parsers of arguments that several commands take.
- `exits`: what the exit code of a command says.
- `terminal`: what goes to stdout and what to stderr, with or without colour.
- `messages`: the sentences of the commands in English and Chinese.
- `explain`: `headrace explain`, parse and print.
- `chaos`: `headrace chaos`, parse and print.
- `chaos_messages`: its sentences.
- `chaos_text`: what it found, as text and as JSON.
- `demo`: `headrace demo`, parse and print.
- `demo_data`: the data set of the demo.
- `demo_loop`: one measured run of the demo's training loop, in a process of its own.
- `demo_memory`: the memory of a tree of processes.
- `demo_run`: all runs of the demo, torch's loader and ours in turn.
- `demo_report`: the figures of the demo as text and as JSON.
- `quarantine`: `headrace quarantine`, parse and print.
- `quarantine_choice`: which failures of a quarantine are asked for.
- `quarantine_messages`: its sentences in English and Chinese.
- `quarantine_report`: the condemned samples as text and as JSON.
- `run`: `headrace run`, parse, run and report.
- `run_live`, `run_status_line`, `run_screen`: what it shows while the script runs.
- `run_messages`: its sentences in English and Chinese.
- `run_replay`: its options and news of a replay.
- `run_report`: what a run directory tells.
- `shards`: `headrace shards`, parse and print.
- `shards_messages`: its sentences in English and Chinese.
- `shards_text`: what it found, as text and as JSON.
- `storage`: `headrace storage`, parse and print.
- `storage_messages`: its sentences in English and Chinese.
- `storage_report`: what it found, as text and as JSON.
- `watch`: `headrace watch`, parse and print.
- `watch_messages`: its sentences in English and Chinese.
- `watch_text`: what it sees, as a screen and as lines.
"""

from .entry import main

__all__ = ["main"]
