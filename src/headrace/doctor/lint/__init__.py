"""Training scripts and configurations looked at without running them.

- `linting`: files and folders, one after the other, each through all rules.
- `script`: a Python file as its syntax tree: where the values in it come from, and what its loaders are given.
- `settings`: options that do not reach the loader as they were given; settings in configurations.
- `loaders`: workers, pinned memory, persistent workers, shares of ranks; what a training loop does in every step.
- `datasets`: handles, shares of workers and ranks, hidden failures, threads, what is loaded unchecked.
"""

from .linting import RULES, LintFinding, LintResult, Rule, lint

__all__ = ["RULES", "LintFinding", "LintResult", "Rule", "lint"]
