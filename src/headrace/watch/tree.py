"""The processes at and below one: who started whom, with which command, with torch in it or not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.signals.system import ProcessStat, read_all_stats, read_text, walk_tree

# What tells a rank; torchrun, Slurm and MPI set one of them before the program starts.
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_KEPT_VARIABLES = {*_RANK_VARIABLES, "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"}


@dataclass(frozen=True, kw_only=True)
class ProcessFacts:
    """What does not change much in the life of a process."""

    pid: int
    parent_pid: int
    started: int  # in ticks since the machine started: with the pid it names one process for ever
    name: str  # of its first thread, at most 15 characters
    command: tuple[str, ...] = ()
    uid: int = 0
    is_python: bool = False
    is_forked: bool = False  # from its parent, without a new program
    has_torch: bool = False
    is_readable: bool = True  # whether we may see its open files and mappings
    thread_names: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.started

    @property
    def rank(self) -> int | None:
        text = next((self.variables[name] for name in _RANK_VARIABLES if name in self.variables), "")
        return int(text) if text.isdigit() else None

    @property
    def command_line(self) -> str:
        return " ".join(self.command)


class TrainingTree:
    """Reads the tree again and again; what a process has mapped is asked once, as that is dear."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._proc = root, root / "proc"
        self._known: dict[tuple[int, int], ProcessFacts] = {}

    def below(self, pids: Iterable[int]) -> tuple[ProcessFacts, ...]:
        """These processes and all that they started, directly or not; those that have ended are left out."""
        stats = read_all_stats(self._root)
        living = [stat for stat in walk_tree(pids, stats) if not stat.has_ended]
        living.sort(key=lambda stat: (stat.born_ticks, stat.pid))
        facts = tuple(self._facts(stat, stats) for stat in living)
        self._known = {one.identity: one for one in facts}
        return facts

    def parents_of(self, pid: int) -> tuple[int, ...]:
        """Its parent, that one's parent, and so on."""
        stats, found = read_all_stats(self._root), []
        while pid in stats and stats[pid].parent > 0:
            pid = stats[pid].parent
            found.append(pid)
        return tuple(found)

    def matching(self, pattern: str) -> tuple[int, ...]:
        """Processes whose command line holds a text, without those whose parent does, and without ourselves."""
        ours = {os.getpid(), *self.parents_of(os.getpid())}
        stats = read_all_stats(self._root)
        hits = {pid for pid in stats if pid not in ours and not stats[pid].has_ended and pattern in self._command(pid)}
        hits = {pid for pid in hits if not self._is_our_kind(pid)}
        return tuple(sorted(pid for pid in hits if stats[pid].parent not in hits))

    def _is_our_kind(self, pid: int) -> bool:
        words = self._command(pid).split(" ")
        return "watch" in words and any("headrace" in word for word in words)

    def _facts(self, stat: ProcessStat, stats: dict[int, ProcessStat]) -> ProcessFacts:
        folder = self._proc / str(stat.pid)
        known = self._known.get((stat.pid, stat.born_ticks))
        if known is not None and known.has_torch and known.name == stat.name:
            return known
        command = tuple(part for part in read_text(folder / "cmdline").split("\0") if part)
        parts = _mapped(folder)
        return ProcessFacts(
            pid=stat.pid,
            parent_pid=stat.parent,
            started=stat.born_ticks,
            name=stat.name,
            command=command,
            uid=_uid(folder),
            is_python=_is_python(command, folder) or "python" in parts,
            is_forked=stat.is_forked_from(stats.get(stat.parent)),
            has_torch="torch" in parts,
            is_readable=_may_list(folder / "fd"),
            thread_names=_thread_names(folder),
            variables=_variables(folder),
        )

    def _command(self, pid: int) -> str:
        return read_text(self._proc / str(pid) / "cmdline").replace("\0", " ").strip()


def _mapped(folder: Path) -> set[str]:
    """Which of Python and torch a process has mapped."""
    text = read_text(folder / "maps")
    found = set()
    if "libpython" in text:
        found.add("python")
    if "/libtorch" in text or "/torch/_C." in text:
        found.add("torch")
    return found


def _is_python(command: tuple[str, ...], folder: Path) -> bool:
    try:
        program = os.path.basename(os.readlink(folder / "exe"))
    except OSError:
        program = ""
    first = os.path.basename(command[0].split(" ")[0]) if command else ""
    return program.startswith(("python", "pypy")) or first.startswith(("python", "pypy"))


def _variables(folder: Path) -> dict[str, str]:
    pairs = (part.partition("=") for part in read_text(folder / "environ").split("\0"))
    return {name: value for name, _, value in pairs if name in _KEPT_VARIABLES}


def _thread_names(folder: Path) -> tuple[str, ...]:
    try:
        tids = sorted(os.listdir(folder / "task"), key=int)
    except OSError:
        return ()
    return tuple(read_text(folder / "task" / tid / "comm").strip() for tid in tids[:64])


def _uid(folder: Path) -> int:
    try:
        return folder.stat().st_uid
    except OSError:
        return -1


def _may_list(folder: Path) -> bool:
    try:
        os.listdir(folder)
    except PermissionError:
        return False
    except OSError:
        return True
    return True
