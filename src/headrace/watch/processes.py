"""Which processes there are at and below one, who trains, who loads for it, who only started them; how they end."""

import os
import re
import select
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from headrace.model import Text, rank_in, worker_number
from headrace.signals import ThreadStack
from headrace.signals.system import ProcessStat, read_all_stats, read_stat, read_status, read_text, walk_tree

from .reading import TrainerActivity, function_of, is_our_process, own_frames, read_trainer, worker_threads

_LAUNCHERS = re.compile(
    r"(^|/)(torchrun|deepspeed|horovodrun|mpirun|mpiexec|srun|slurmstepd\S*|accelerate)$|"
    r"^(torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.\w+)$"
)
_SPAWNED = ("multiprocessing.spawn", "spawn_main")
_FORKSERVER, _TRACKER = "multiprocessing.forkserver", "multiprocessing.resource_tracker"
_WATCH = re.compile(r"(?=.*headrace).*(^| )watch( |$)", re.DOTALL)
_SYS_PTRACE = 1 << 19

Stacks = Mapping[int, Sequence[ThreadStack]]


@dataclass(frozen=True, kw_only=True)
class ProcessFacts:
    """What does not change much in the life of a process."""

    pid: int
    parent_pid: int
    started: int  # in ticks since the machine started: with the pid it names one process for ever
    name: str  # of its first thread, at most 15 characters
    command: tuple[str, ...] = ()
    is_python: bool = False
    is_forked: bool = False  # from its parent, without a new program
    has_torch: bool = False
    is_readable: bool = True  # whether we may see its open files and mappings
    thread_names: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.started

    @property
    def command_line(self) -> str:
        return " ".join(self.command)

    @property
    def worker_numbers(self) -> list[int]:
        """Which workers of our own loader its threads are named after."""
        numbers = map(worker_number, (self.name, *self.thread_names))
        return [number for number in numbers if number is not None]


def is_running(pid: int) -> bool:
    """Whether a process runs: one that has ended and waits for its parent does not."""
    stat = read_stat(pid)
    return stat is not None and not stat.has_ended


def thread_names(pid: int, root: Path = Path("/")) -> dict[int, str]:
    names = {int(path.parent.name): read_text(path).strip() for path in (root / f"proc/{pid}/task").glob("*/comm")}
    return dict(sorted(names.items()))


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
        facts = tuple(self._facts(stat, stats.get(stat.parent)) for stat in living)
        self._known = {one.identity: one for one in facts}
        return facts

    def parents_of(self, pid: int) -> tuple[int, ...]:
        stats, found = read_all_stats(self._root), []
        while pid in stats and stats[pid].parent > 0:
            pid = stats[pid].parent
            found.append(pid)
        return tuple(found)

    def matching(self, pattern: str) -> tuple[int, ...]:
        """Processes whose command line holds a text, without those whose parent does, and without watches."""
        ours = {os.getpid(), *self.parents_of(os.getpid())}
        stats = read_all_stats(self._root)
        living = (pid for pid, stat in stats.items() if pid not in ours and not stat.has_ended)
        commands = {pid: " ".join(self._command(pid)) for pid in living}
        hits = {pid for pid, words in commands.items() if pattern in words and not _WATCH.search(words)}
        return tuple(sorted(pid for pid in hits if stats[pid].parent not in hits))

    def _facts(self, stat: ProcessStat, parent: ProcessStat | None) -> ProcessFacts:
        folder = self._proc / str(stat.pid)
        known = self._known.get((stat.pid, stat.born_ticks))
        if known is not None and known.has_torch and known.name == stat.name:
            return known
        command, mappings = self._command(stat.pid), read_text(folder / "maps")
        return ProcessFacts(
            pid=stat.pid,
            parent_pid=stat.parent,
            started=stat.born_ticks,
            name=stat.name,
            command=command,
            is_python=_is_python(command, folder) or "libpython" in mappings,
            is_forked=stat.is_forked_from(parent),
            has_torch="/libtorch" in mappings or "/torch/_C." in mappings,
            is_readable=os.access(folder / "fd", os.R_OK) or not folder.exists(),
            thread_names=tuple(thread_names(stat.pid, self._root).values()),
            rank=rank_in(dict(part.partition("=")[::2] for part in read_text(folder / "environ").split("\0"))),
        )

    def _command(self, pid: int) -> tuple[str, ...]:
        return tuple(part for part in read_text(self._proc / str(pid) / "cmdline").split("\0") if part)


def _is_python(command: tuple[str, ...], folder: Path) -> bool:
    try:
        program = os.path.basename(os.readlink(folder / "exe"))
    except OSError:
        program = ""
    first = os.path.basename(command[0].split(" ")[0]) if command else ""
    return program.startswith(("python", "pypy")) or first.startswith(("python", "pypy"))


class Role(Enum):
    """What a process is in a training."""

    TRAINER = "trainer"
    WORKER = "worker"
    LAUNCHER = "launcher"
    HELPER = "helper"  # multiprocessing's own: resource tracker, fork server
    OTHER = "other"


def assign_roles(processes: Sequence[ProcessFacts], stacks: Stacks) -> dict[int, Role]:
    """Give every process its role. Stacks decide where there are any; else names, commands and who forked whom."""
    by_pid = {process.pid: process for process in processes}
    roles = {process.pid: _alone(process, stacks.get(process.pid, ())) for process in processes}
    _find_children_that_load(by_pid, roles, stacks)
    _find_those_that_only_wait(by_pid, roles, stacks)
    return roles


def crews_of(processes: Sequence[ProcessFacts], roles: Mapping[int, Role]) -> dict[int, list[ProcessFacts]]:
    """The workers of each trainer: of the nearest one above them."""
    by_pid = {process.pid: process for process in processes}
    crews: dict[int, list[ProcessFacts]] = {pid: [] for pid, role in roles.items() if role is Role.TRAINER}
    for process in processes:
        trainer = next((pid for pid in _ancestors(process, by_pid) if pid in crews), None)
        if trainer is not None and roles[process.pid] is Role.WORKER:
            crews[trainer].append(process)
    return crews


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who is who at one moment."""

    processes: tuple[ProcessFacts, ...]
    roles: dict[int, Role]
    crews: dict[int, list[ProcessFacts]]  # the workers of each trainer, in the order in which they were started

    def of(self, role: Role) -> tuple[ProcessFacts, ...]:
        return tuple(process for process in self.processes if self.roles[process.pid] is role)


def cast_of(processes: tuple[ProcessFacts, ...], stacks: Stacks) -> Cast:
    roles = assign_roles(processes, stacks)
    return Cast(processes=processes, roles=roles, crews=crews_of(processes, roles))


def _alone(process: ProcessFacts, threads: Sequence[ThreadStack]) -> Role:
    """What a process is, without regard to the others."""
    words = process.command_line
    if not process.is_python:
        return Role.OTHER
    # torch (2.6 and later) and we name the threads of workers
    has_its_name = process.name.startswith("pt_data_worker") or process.worker_numbers
    if worker_threads(threads) or is_our_process(threads) or has_its_name:
        return Role.WORKER
    if _TRACKER in words or (_FORKSERVER in words and not process.is_forked):
        return Role.HELPER
    # the first words are the program; what follows is the script's own arguments
    if process.name == "pt_elastic" or any(_LAUNCHERS.search(word) for word in process.command[:4]):
        return Role.LAUNCHER
    return Role.TRAINER if process.has_torch else Role.OTHER


def _find_children_that_load(by_pid: Mapping[int, ProcessFacts], roles: dict[int, Role], stacks: Stacks) -> None:
    """Children that multiprocessing started and whose stacks tell nothing: workers, unless they have workers."""
    parents = {process.parent_pid for process in by_pid.values() if roles[process.pid] is Role.WORKER}
    for process in by_pid.values():
        if roles[process.pid] is not Role.TRAINER or process.pid in parents:
            continue
        parent = by_pid.get(process.parent_pid)
        if parent is None or not parent.is_python:
            continue
        is_mp_child = process.is_forked or any(word in process.command_line for word in _SPAWNED)
        threads = stacks.get(process.pid, ())
        if not is_mp_child or any(function_of(f) == "_wrap" for t in threads for f in own_frames(t.frames)):
            continue  # a program of its own, or a rank that `torch.multiprocessing.spawn` started
        if not threads:
            roles[process.pid] = Role.WORKER
        elif roles.get(parent.pid) is Role.TRAINER:
            roles[process.pid] = Role.OTHER  # a child of the user's own: its stack says that it is no loader worker


def _find_those_that_only_wait(by_pid: Mapping[int, ProcessFacts], roles: dict[int, Role], stacks: Stacks) -> None:
    """A process above trainers that does nothing but wait for them has launched them; so has a shell."""
    above = {pid for one in by_pid.values() if roles[one.pid] is Role.TRAINER for pid in _ancestors(one, by_pid)}
    for process in by_pid.values():
        if process.pid not in above or roles[process.pid] not in (Role.TRAINER, Role.OTHER):
            continue
        main = next((thread for thread in stacks.get(process.pid, ()) if thread.is_main), None)
        if roles[process.pid] is Role.OTHER or (
            main is not None and read_trainer(main.frames).activity in (TrainerActivity.OTHER, TrainerActivity.UNKNOWN)
        ):
            roles[process.pid] = Role.LAUNCHER


def _ancestors(process: ProcessFacts, by_pid: Mapping[int, ProcessFacts]) -> list[int]:
    """The nearest first."""
    found: list[int] = []
    at = by_pid.get(process.parent_pid)
    while at is not None and at.pid not in found:
        found.append(at.pid)
        at = by_pid.get(at.parent_pid)
    return found


def explain_refusal(pid: int, *, our_uid: int | None = None, root: Path = Path("/")) -> tuple[str, str]:
    """Say why the stacks of a process are refused, and what to do; the latter is a command that exists."""
    ours = os.geteuid() if our_uid is None else our_uid
    theirs = int(read_status(root / f"proc/{pid}").get("Uid", "-1").split()[0])
    if theirs not in (-1, ours) and ours != 0:
        why = f"the process belongs to user {theirs}, we are user {ours}"
        return why, f"run `headrace watch {pid}` as that user, or with sudo"
    if not int(read_status(root / "proc/self").get("CapEff", "0"), 16) & _SYS_PTRACE:
        scope = read_text(root / "proc/sys/kernel/yama/ptrace_scope").strip()  # "": this kernel has no Yama
        if scope not in ("", "0"):
            who = "nobody may attach until the machine restarts" if scope == "3" else "only a parent or root may attach"
            what = f"`sudo headrace watch {pid}`, or `sudo sysctl kernel.yama.ptrace_scope=0` until the next restart"
            return f"kernel.yama.ptrace_scope is {scope}: {who}", what
        if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
            what = "start the container with `--cap-add SYS_PTRACE`, or run headrace on the host, with the pid there"
            return "this container has no CAP_SYS_PTRACE", what
    return "the system refuses to read the process's memory", f"`sudo headrace watch {pid}`"


@dataclass(frozen=True, kw_only=True)
class End:
    """How a process ended; without a status where nobody but its parent could know."""

    pid: int
    status: int | None = None  # as `wait` gives it

    @property
    def signal_number(self) -> int | None:
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None

    @property
    def exit_code(self) -> int | None:
        return os.WEXITSTATUS(self.status) if self.status is not None and os.WIFEXITED(self.status) else None

    def text(self) -> Text:
        """Say it in a few words that follow the name of the process."""
        if self.signal_number is not None:
            try:
                name = signal.Signals(self.signal_number).name
            except ValueError:
                name = str(self.signal_number)
            return Text(f"was ended by signal {name}", f"被信号 {name} 终止")
        if self.exit_code is not None:
            return Text(f"ended with exit code {self.exit_code}", f"已结束，退出码 {self.exit_code}")
        return Text("has ended (how, only its parent knows)", "已结束（结束方式只有它的父进程知道）")


class EndWatch:
    """Holds on to processes, so that their ends are noticed at once and told afterwards."""

    def __init__(self) -> None:
        self._fds: dict[int, int | None] = {}  # None: this kernel (before 5.3) has no descriptors of processes

    def hold(self, pid: int) -> None:
        if pid in self._fds:
            return
        try:
            self._fds[pid] = os.pidfd_open(pid)
        except ProcessLookupError:
            pass
        except (OSError, AttributeError):
            self._fds[pid] = None

    def wait(self, timeout_s: float) -> tuple[End, ...]:
        """Wait until one of them ends, at most so long; return those that have, and let them go."""
        poller = select.poll()
        for fd in self._fds.values():
            if fd is not None:
                poller.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)}
        gone = [pid for pid, fd in self._fds.items() if (not is_running(pid) if fd is None else fd in ready)]
        ends = tuple(End(pid=pid, status=_exit_status(pid)) for pid in gone)
        self._let_go(gone)
        return ends

    def close(self) -> None:
        self._let_go([*self._fds])

    def _let_go(self, pids: Iterable[int]) -> None:
        for fd in map(self._fds.pop, pids):
            if fd is not None:
                os.close(fd)


def _exit_status(pid: int) -> int | None:
    """How a process ended, as `wait` gives it, while its parent has not asked; None where we are not told."""
    stat = read_stat(pid)
    if stat is None or not stat.has_ended:
        return None
    try:
        is_told = os.geteuid() in (0, os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        is_told = False
    return stat.exit_status if is_told or stat.exit_status else None  # others are told 0 always
