"""Training scripts and configurations looked at without running them.

- `linting`: files and folders, one after the other, each through all rules.
- `rules`: the rules as data: what each says, why it matters and what to write instead.
- `script`: a Python file as its syntax tree, and where the values in it come from.
- `loader_calls`: the calls that make a loader, what each is given, and the loops that run over it.
- `flags`: options of the command line that do not reach the loader as they were given.
- `loaders`: workers, pinned memory, persistent workers, shares of ranks.
- `datasets`: handles, shares of workers and ranks, hidden failures, threads, what is loaded unchecked.
- `loops`: what a training loop does in every step.
- `configs`: the settings of a loader in YAML and in mm-style Python.
"""

from .linting import LintResult, lint
from .rules import RULES, LintFinding, Rule

__all__ = ["RULES", "LintFinding", "LintResult", "Rule", "lint"]
