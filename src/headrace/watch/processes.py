"""Which processes there are at and below one, who trains, who loads for it, who only started them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headrace.model import Text, worker_number
from headrace.signals import ThreadStack
from headrace.signals.system import read_status, read_text

from .reading import TrainerActivity, function_of, is_our_process, own_frames, read_trainer, worker_threads

# What tells a rank; torchrun, Slurm and MPI set one of them before the program starts.
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_KEPT_VARIABLES = {*_RANK_VARIABLES, "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"}
_LAUNCHERS = re.compile(
    r"(^|/)(torchrun|deepspeed|horovodrun|mpirun|mpiexec|srun|slurmstepd\S*|accelerate)$|"
    r"^(torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.\w+)$"
)
_SPAWNED = ("multiprocessing.spawn", "spawn_main")
_FORKSERVER, _TRACKER = "multiprocessing.forkserver", "multiprocessing.resource_tracker"

Stacks = Mapping[int, Sequence[ThreadStack]]
_SYS_PTRACE = 1 << 19


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


@dataclass(frozen=True, kw_only=True)
class _Stat:
    pid: int
    parent_pid: int
    name: str
    state: str
    started: int
    place: tuple[str, str]


class TrainingTree:
    """Reads the tree again and again; what a process has mapped is asked once, as that is dear."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._known: dict[tuple[int, int], ProcessFacts] = {}

    def below(self, pids: Iterable[int]) -> tuple[ProcessFacts, ...]:
        """These processes and all that they started, directly or not; those that have ended are left out."""
        stats = self._stats()
        children: dict[int, list[int]] = {}
        for stat in stats.values():
            children.setdefault(stat.parent_pid, []).append(stat.pid)
        found: dict[int, None] = {}
        todo = list(pids)
        while todo:
            pid = todo.pop()
            if pid in stats and pid not in found:
                found.setdefault(pid)
                todo += children.get(pid, [])
        living = [stats[pid] for pid in sorted(found, key=lambda pid: (stats[pid].started, pid))]
        facts = tuple(self._facts(stat, stats) for stat in living if stat.state not in "ZX")
        self._known = {one.identity: one for one in facts}
        return facts

    def parents_of(self, pid: int) -> tuple[int, ...]:
        """Its parent, that one's parent, and so on."""
        stats, found = self._stats(), []
        while pid in stats and stats[pid].parent_pid > 0:
            pid = stats[pid].parent_pid
            found.append(pid)
        return tuple(found)

    def matching(self, pattern: str) -> tuple[int, ...]:
        """Processes whose command line holds a text, without those whose parent does, and without ourselves."""
        ours = {os.getpid(), *self.parents_of(os.getpid())}
        stats = self._stats()
        hits = {
            pid for pid in stats if pid not in ours and stats[pid].state not in "ZX" and pattern in self._command(pid)
        }
        hits = {pid for pid in hits if not self._is_our_kind(pid)}
        return tuple(sorted(pid for pid in hits if stats[pid].parent_pid not in hits))

    def _is_our_kind(self, pid: int) -> bool:
        words = self._command(pid).split(" ")
        return "watch" in words and any("headrace" in word for word in words)

    def _stats(self) -> dict[int, _Stat]:
        found = {}
        for name in os.listdir(self._proc):
            if not name.isdigit():
                continue
            head, _, tail = read_text(self._proc / name / "stat").rpartition(")")
            fields = tail.split()
            if len(fields) >= 26:
                found[int(name)] = _Stat(
                    pid=int(name),
                    parent_pid=int(fields[1]),
                    name=head.partition("(")[2],
                    state=fields[0],
                    started=int(fields[19]),
                    place=(fields[23], fields[25]),
                )
        return found

    def _facts(self, stat: _Stat, stats: dict[int, _Stat]) -> ProcessFacts:
        folder = self._proc / str(stat.pid)
        known = self._known.get((stat.pid, stat.started))
        if known is not None and known.has_torch and known.name == stat.name:
            return known
        command = tuple(part for part in read_text(folder / "cmdline").split("\0") if part)
        parent = stats.get(stat.parent_pid)
        parts = _mapped(folder)
        return ProcessFacts(
            pid=stat.pid,
            parent_pid=stat.parent_pid,
            started=stat.started,
            name=stat.name,
            command=command,
            uid=_uid(folder),
            is_python=_is_python(command, folder) or "python" in parts,
            is_forked=parent is not None and stat.place == parent.place and stat.place[1] not in ("0", "1"),
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


# ------------------------------------------------------------------------------------------ who is who


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
    _find_children_that_load(processes, by_pid, roles, stacks)
    _find_those_that_only_wait(processes, roles, stacks)
    return roles


def trainer_of(process: ProcessFacts, by_pid: Mapping[int, ProcessFacts], roles: Mapping[int, Role]) -> int | None:
    """The trainer that a process works for: the nearest one above it."""
    seen: set[int] = set()
    at = by_pid.get(process.parent_pid)
    while at is not None and at.pid not in seen:
        if roles.get(at.pid) is Role.TRAINER:
            return at.pid
        seen.add(at.pid)
        at = by_pid.get(at.parent_pid)
    return None


def _alone(process: ProcessFacts, threads: Sequence[ThreadStack]) -> Role:
    """What a process is, without regard to the others."""
    words = process.command_line
    if not process.is_python:
        return Role.OTHER
    if worker_threads(threads) or is_our_process(threads) or _has_workers_name(process):
        return Role.WORKER
    if _TRACKER in words or (_FORKSERVER in words and not process.is_forked):
        return Role.HELPER
    # the first words are the program; what follows is the script's own arguments
    if process.name == "pt_elastic" or any(_LAUNCHERS.search(word) for word in process.command[:4]):
        return Role.LAUNCHER
    return Role.TRAINER if process.has_torch else Role.OTHER


def _has_workers_name(process: ProcessFacts) -> bool:
    """Whether its threads are named as torch (2.6 and later) and we name them."""
    names = (process.name, *process.thread_names)
    return process.name.startswith("pt_data_worker") or any(worker_number(name) is not None for name in names)


def _find_children_that_load(
    processes: Sequence[ProcessFacts], by_pid: Mapping[int, ProcessFacts], roles: dict[int, Role], stacks: Stacks
) -> None:
    """Children that multiprocessing started and whose stacks tell nothing: workers, unless they have workers."""
    parents = {process.parent_pid for process in processes if roles[process.pid] is Role.WORKER}
    for process in processes:
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


def _find_those_that_only_wait(processes: Sequence[ProcessFacts], roles: dict[int, Role], stacks: Stacks) -> None:
    """A process above trainers that does nothing but wait for them has launched them; so has a shell."""
    by_pid = {process.pid: process for process in processes}
    above = {pid for one in processes if roles[one.pid] is Role.TRAINER for pid in _ancestors(one, by_pid)}
    for process in processes:
        if process.pid not in above or roles[process.pid] not in (Role.TRAINER, Role.OTHER):
            continue
        main = next((thread for thread in stacks.get(process.pid, ()) if thread.is_main), None)
        if roles[process.pid] is Role.OTHER or (
            main is not None and read_trainer(main.frames).activity in (TrainerActivity.OTHER, TrainerActivity.UNKNOWN)
        ):
            roles[process.pid] = Role.LAUNCHER


def _ancestors(process: ProcessFacts, by_pid: Mapping[int, ProcessFacts]) -> set[int]:
    found: set[int] = set()
    at = by_pid.get(process.parent_pid)
    while at is not None and at.pid not in found:
        found.add(at.pid)
        at = by_pid.get(at.parent_pid)
    return found


# ------------------------------------------------------------------------------------------ who may not be looked into


@dataclass(frozen=True, kw_only=True)
class Access:
    """What decides whether stacks may be read. Pure values: `explain` works on recorded ones too."""

    our_uid: int
    their_uid: int
    ptrace_scope: int | None  # None: this kernel has no Yama
    may_trace: bool  # CAP_SYS_PTRACE
    in_container: bool
    may_list_files: bool


def read_access(pid: int, *, root: Path = Path("/")) -> Access:
    """Read what holds for us and for the process."""
    status, own = read_status(root / f"proc/{pid}"), read_status(root / "proc/self")
    scope = read_text(root / "proc/sys/kernel/yama/ptrace_scope").strip()
    try:
        os.listdir(root / f"proc/{pid}/fd")
        may_list = True
    except OSError:
        may_list = False
    return Access(
        our_uid=os.geteuid(),
        their_uid=int(status.get("Uid", "-1").split()[0]),
        ptrace_scope=int(scope) if scope.isdigit() else None,
        may_trace=bool(int(own.get("CapEff", "0"), 16) & _SYS_PTRACE),
        in_container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
        may_list_files=may_list,
    )


def explain_refusal(access: Access, pid: int) -> tuple[Text, Text]:
    """Say why stacks are refused, and what to do; the latter is a command that exists."""
    if access.their_uid not in (-1, access.our_uid) and access.our_uid != 0:
        return (
            Text(
                f"the process belongs to user {access.their_uid}, we are user {access.our_uid}",
                f"该进程属于用户 {access.their_uid}，而当前用户是 {access.our_uid}",
            ),
            Text(
                f"run `headrace watch {pid}` as that user, or with sudo",
                f"以该用户身份运行 `headrace watch {pid}`，或加 sudo",
            ),
        )
    if access.ptrace_scope and not access.may_trace:
        wanted = (
            Text(
                "kernel.yama.ptrace_scope is 3: nobody may attach until the machine restarts",
                "kernel.yama.ptrace_scope 为 3：重启之前任何人都不能附加",
            )
            if access.ptrace_scope == 3
            else Text(
                f"kernel.yama.ptrace_scope is {access.ptrace_scope}: only a parent or root may attach",
                f"kernel.yama.ptrace_scope 为 {access.ptrace_scope}：只有父进程或 root 可以附加",
            )
        )
        return wanted, Text(
            f"`sudo headrace watch {pid}`, or `sudo sysctl kernel.yama.ptrace_scope=0` until the next restart",
            f"运行 `sudo headrace watch {pid}`；或执行 `sudo sysctl kernel.yama.ptrace_scope=0`（重启后失效）",
        )
    if access.in_container and not access.may_trace:
        return (
            Text("this container has no CAP_SYS_PTRACE", "容器没有 CAP_SYS_PTRACE 权限"),
            Text(
                "start the container with `--cap-add SYS_PTRACE`, or run headrace on the host, with the pid there",
                "启动容器时加 `--cap-add SYS_PTRACE`；或在宿主机上用宿主机的 pid 运行 headrace",
            ),
        )
    return (
        Text("the system refuses to read the process's memory", "系统拒绝读取该进程的内存"),
        Text(f"`sudo headrace watch {pid}`", f"运行 `sudo headrace watch {pid}`"),
    )
