"""What the user named (a script, a module, a command) as a command line, and how its Python processes are reached."""

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from headrace.errors import UnusableInput

_SITE = str(Path(__file__).parent / "site")  # at the head of PYTHONPATH it reaches whatever Python is started


def command_of(words: Sequence[str], *, module: Sequence[str] | None = None) -> tuple[list[str], str]:
    """Return the command line for `train.py …`, `-m module …` or any other program, and a name for its directory.

    A file that is no program of its own, or ends in `.py`, is run by this Python.

    >>> argv, name = command_of((), module=("torch.utils.collect_env",))
    >>> argv[1:], name
    (['-m', 'torch.utils.collect_env'], 'collect_env')
    """
    if module:
        return [sys.executable, "-m", *module], module[0].rpartition(".")[2]
    words = list(words[1:] if words and words[0] == "--" else words)
    if not words:
        next_step = "headrace run train.py, or headrace run -- torchrun train.py"
        raise UnusableInput("nothing to run was named", next_step=next_step)
    first = words[0]
    if first.endswith((".py", ".pyc", ".pyz")) or os.path.isfile(os.path.join(first, "__main__.py")):
        if not os.path.exists(first):
            next_step = "the path of the script, as `python` would take it"
            raise UnusableInput(f"there is no script {first!r}", folder=os.getcwd(), next_step=next_step)
        return [sys.executable, *words], Path(first).stem
    if shutil.which(first) is None:
        raise UnusableInput(
            f"{first!r} is neither a script nor a program that can be found",
            folder=os.getcwd(),
            next_step="headrace run train.py, headrace run -m package.train, or headrace run -- torchrun train.py",
        )
    scripts = [word for word in words[1:] if word.endswith(".py")]
    return words, Path(scripts[0] if scripts else first).stem


def new_run_directory(name: str) -> Path:
    """Return where the recording of a run goes if nobody says: `headrace-runs/NAME-TIME`, one that is not there yet."""
    name = re.sub(r"[^\w.-]+", "_", name) or "run"
    stem = Path("headrace-runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (stem.with_name(f"{stem.name}-{number}") for number in count(2))
    return next(directory for directory in chain([stem], others) if not directory.exists())


def with_site(path: str | None) -> str:
    """Return a PYTHONPATH that begins with our folder."""
    # the rest as it is: an empty entry in it means the working directory
    return os.pathsep.join([_SITE, path] if path else [_SITE])


def leave_python_path() -> None:
    """Take our folder out of PYTHONPATH again; what the script did to the rest of it stays."""
    path = os.environ.pop("PYTHONPATH", "")
    if path not in ("", _SITE):
        os.environ["PYTHONPATH"] = path.removeprefix(_SITE + os.pathsep)
