"""`headrace run --replay`: for some steps `next` gives batches that were kept, and the real loader stands where it was.

What a step costs then is what it costs with a perfect loader. It changes the training, so it is only done when it is
asked for, and every part of it is an event.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from itertools import count
from typing import Any

from headrace.model import EventKind, describe_error, format_bytes, num_local_ranks, replay_steps

from ..tape import now, tape
from . import step as hooks_step
from .batch_copies import KeptBatch, WriteMarks, batch_bytes
from .replay_plan import Answer, ReplayPlan

_REPLAY, _CACHED = int(EventKind.REPLAY), int(EventKind.CACHED)
COPYING, NOT_DONE = -1, -2  # values of a REPLAY event
_MEMORY_SHARE = 0.1  # of what is free: kept batches must not be what makes memory short
_NOTHING = object()


def with_replay(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `__next__` that takes part in the replay; the same function where none was asked for."""
    if not replay_steps():
        return original

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        batch = _replay().ask(self)
        if batch is not _NOTHING:
            return batch
        batch = original(self)
        _replay().came(self, batch)
        return batch

    return __next__


class Replay:
    """The replay of this process: keeps, gives, and writes down what it does."""

    def __init__(self, num_steps: int, *, room_bytes: dict[str, int] | None = None) -> None:
        self._plan = ReplayPlan(num_steps)
        self._numbers = count()
        self._kept: dict[str, list[tuple[int, KeptBatch]]] = {}
        self._turn: dict[str, int] = {}
        self._room_bytes = {} if room_bytes is None else room_bytes
        self._given: dict[str, WriteMarks] = {}  # of the last real batch of each loader
        self._copies = False  # the training writes into its batches
        self._started_ns = 0

    def __repr__(self) -> str:
        return f"Replay(steps={self._plan.num_steps}, served={self._plan.served}, over={self._plan.is_over})"

    def ask(self, iterator: Any) -> Any:
        """Return a batch that was kept, or `_NOTHING` where the loader is to give one."""
        if self._plan.is_over:
            return _NOTHING
        state = iterator.__dict__
        loader, worked = state.get("_headrace_loader", "loader"), hooks_step.num_worked()
        number = state.setdefault("_headrace_pass", next(self._numbers))
        has_trained = worked > state.get("_headrace_worked", worked)
        state["_headrace_worked"] = worked
        if (marks := self._given.pop(loader, None)) is not None and marks.are_written:
            self._copies = True
        answer = self._plan.asks(loader, number, has_trained=has_trained)
        if answer is Answer.CACHED:
            return self._give(loader)
        if answer is Answer.REAL_AGAIN:
            self._end(iterator, loader)
        return _NOTHING

    def came(self, iterator: Any, batch: Any) -> None:
        """Keep a real batch, if it is wanted."""
        loader = iterator.__dict__.get("_headrace_loader", "loader")
        if self._plan.is_over or not self._plan.is_wanted(loader):
            return
        start = now()
        try:
            reason = self._keep(iterator, loader, batch)
        except Exception as error:  # a kind of batch that cannot be copied
            reason = f"a batch could not be copied: {describe_error(error)}"
        if reason:
            self._plan.give_up()
            self._kept.clear()
            tape.write(_REPLAY, start, 0, NOT_DONE, tape.name(reason))
        else:
            self._given[loader] = WriteMarks(batch)
            tape.write(_REPLAY, start, now() - start, COPYING, tape.name(loader))

    def _keep(self, iterator: Any, loader: str, batch: Any) -> str:
        """Keep a batch; return why there can be no replay, where there can be none."""
        kept = self._kept.setdefault(loader, [])
        if not kept and (reason := _apart()):
            return reason
        sizes = batch_bytes(batch)
        for kind, size in sizes.items():
            room = self._room_bytes.setdefault(kind, _room_bytes(kind))
            # Ranks must agree on the number of steps: one that has kept a batch goes on with those it has, and where
            # there are several ranks the first batch is kept whatever it takes.
            if size > room and kept:
                return ""
            if size > room and _num_ranks() < 2:
                return (
                    f"a batch holds {format_bytes(size)} ({kind}), and a tenth of what is free is {format_bytes(room)}"
                )
        for kind, size in sizes.items():
            self._room_bytes[kind] -= size
        kept.append((len(kept), KeptBatch(batch, may_be_pinned=bool(getattr(iterator, "_pin_memory", False)))))
        self._plan.kept(loader)
        return ""

    def _give(self, loader: str) -> Any:
        start = now()
        if not self._started_ns:
            self._started_ns = start
        kept = self._kept[loader]
        if not self._copies and any(one.is_written for _, one in kept):
            self._copies = True
        whole = [one for one in kept if not one[1].is_written] or kept[-1:]
        turn = self._turn.get(loader, 0)
        self._turn[loader] = turn + 1
        number, one = whole[turn % len(whole)]
        batch = one.give(as_copy=self._copies or len(kept) == 1)  # the only one must not be lost
        tape.write(_CACHED, start, now() - start, number, tape.name(loader))
        return batch

    def _end(self, iterator: Any, loader: str) -> None:
        if self._started_ns:
            start = self._started_ns
            tape.write(_REPLAY, start, now() - start, batches_ahead(iterator), tape.name(loader))
        self._kept.clear()


_state: dict[int, Replay] = {}  # by process: a fork begins anew


def _replay() -> Replay:
    replay = _state.get(os.getpid())
    if replay is None:
        replay = _state[os.getpid()] = Replay(replay_steps())
    return replay


def batches_ahead(iterator: Any) -> int:
    """Return how many batches a loader has ready or under way: the next ones after a pause say nothing of its rate."""
    outstanding = getattr(iterator, "_tasks_outstanding", None)
    if isinstance(outstanding, int):  # torch's
        return outstanding
    snapshot = getattr(iterator, "snapshot", None)
    if snapshot is not None:  # ours
        stats = snapshot()
        return int(stats.batches_ready + stats.batches_in_flight)
    return 0


def _num_ranks() -> int:
    import torch.distributed as ranks

    return ranks.get_world_size() if ranks.is_available() and ranks.is_initialized() else 1


def _apart() -> str:
    """Return why the ranks of a training may not agree on the number of steps; empty where they do.

    A rank that makes more steps than the others waits for them for ever. Those that one torchrun has started on this
    machine all have the same environment; of others nothing is known here.
    """
    ranks = _num_ranks()
    if ranks > 1 and ranks != num_local_ranks():
        return f"{ranks} ranks, of which {num_local_ranks()} by torchrun on this machine: the others might not replay"
    return ""


def _room_bytes(kind: str) -> int:
    """Return how much memory of a kind kept batches may take."""
    if kind == "cpu":
        return int(_free_bytes() * _MEMORY_SHARE) // num_local_ranks()
    if kind == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0] * _MEMORY_SHARE)
    return 0  # of other devices nobody tells how much is free


def _free_bytes() -> int:
    """Return how much memory is free: the least of the machine's and of the control groups'."""
    from headrace.signals.system import memory_groups, read_limits, read_machine

    machine = read_machine()
    free = [machine.available_bytes] if machine is not None else []
    for group in read_limits(memory_groups()):
        droppable = group.inactive_file_bytes + group.active_file_bytes
        free.append(max(0, (group.limit_bytes or 0) - group.used_bytes + droppable))
    return min(free, default=0)
