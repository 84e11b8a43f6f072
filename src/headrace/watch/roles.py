"""Which process trains, which load for it, which only started them. Pure: from facts and stacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from headrace.model import worker_number
from headrace.signals import ThreadStack

from . import stack_rules as rules
from .stack_reading import Activity, own_frames, read_trainer
from .tree import ProcessFacts
from .worker_reading import is_our_process, worker_threads

_LAUNCHERS = re.compile(
    r"(^|/)(torchrun|deepspeed|horovodrun|mpirun|mpiexec|srun|slurmstepd\S*|accelerate)$|"
    r"^(torch\.distributed\.(run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.\w+)$"
)
_SPAWNED = ("multiprocessing.spawn", "spawn_main")
_FORKSERVER, _TRACKER = "multiprocessing.forkserver", "multiprocessing.resource_tracker"

Stacks = Mapping[int, Sequence[ThreadStack]]


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
        if not is_mp_child or any(rules.function_of(f) == "_wrap" for t in threads for f in own_frames(t.frames)):
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
            main is not None and read_trainer(main.frames).activity in (Activity.OTHER, Activity.UNKNOWN)
        ):
            roles[process.pid] = Role.LAUNCHER


def _ancestors(process: ProcessFacts, by_pid: Mapping[int, ProcessFacts]) -> set[int]:
    found: set[int] = set()
    at = by_pid.get(process.parent_pid)
    while at is not None and at.pid not in found:
        found.add(at.pid)
        at = by_pid.get(at.parent_pid)
    return found
