"""`headrace run --replay`: for some steps `next` gives batches that were kept, and the real loader stands where it was.

What a step costs then is what it costs with a perfect loader. It changes the training, so it is only done when it is
asked for, and every part of it is an event. `ReplayPlan` says when a batch is kept or given again, `Replay` does it.
"""

import contextlib
import copy
import functools
import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count, cycle
from typing import Any

from headrace.model import EventKind, describe_error, format_bytes, leaves_of, nbytes_of, num_local_ranks, replay_steps

from ..tape import now, tape
from . import step

_REPLAY, _CACHED = int(EventKind.REPLAY), int(EventKind.CACHED)
COPYING, NOT_DONE = -1, -2  # values of a REPLAY event
_MEMORY_SHARE = 0.1  # of what is free: kept batches must not be what makes memory short
_NOTHING = object()
WARM_UP_STEPS = 8  # the first steps of a training choose kernels and fill allocators
KEPT_BATCHES = 8  # batches differ in what a step costs, and each is held in memory


class NextBatch(Enum):
    REAL = auto()
    CACHED = auto()
    REAL_AGAIN = auto()  # the replay ends with this: the loader goes on where it was


@dataclass
class ReplayPlan:
    """When batches are kept, and when they are given again. Pure: no batch, no clock.

    A loop over a loader trains if there was a backward pass or an optimizer step between two of its batches. After some
    of its steps the next batches are kept, then `next` gives them again for so many steps, then everything is as
    before. All is counted in steps, never in seconds or bytes, so that the ranks of one training do the same at the
    same step. `loader` is a name, `iterator` tells one pass over it from the next.
    """

    num_steps: int
    warm_up: int = WARM_UP_STEPS
    num_kept: int = KEPT_BATCHES
    lead: str = ""  # the loader that the steps are counted by, once they are
    served: int = 0
    is_over: bool = False
    _trained: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, int] = field(default_factory=dict)
    _passes: dict[str, Hashable] = field(default_factory=dict)  # of the loaders that are replayed

    def asks(self, loader: str, iterator: Hashable, *, has_trained: bool) -> NextBatch:
        """Take in a `next`; `has_trained`: between the batch before and this call."""
        if self.is_over:
            return NextBatch.REAL
        self._trained[loader] = self._trained.get(loader, 0) + has_trained
        if not self.lead:
            if self._trained[loader] < self.warm_up + self.num_kept or not self._kept.get(loader):
                return NextBatch.REAL
            self.lead = loader
        if not self._kept.get(loader):
            return NextBatch.REAL
        is_same_pass = self._passes.setdefault(loader, iterator) == iterator
        if loader != self.lead:
            return NextBatch.CACHED if is_same_pass else NextBatch.REAL
        if not is_same_pass or self.served >= self.num_steps:
            self.is_over = True
            return NextBatch.REAL_AGAIN
        self.served += 1
        return NextBatch.CACHED

    def is_wanted(self, loader: str) -> bool:
        """Whether the batch that has just come is to be kept."""
        return not self.is_over and not self.lead and self._trained.get(loader, 0) >= self.warm_up

    def kept(self, loader: str) -> None:
        self._kept[loader] = self._kept.get(loader, 0) + 1


def batch_bytes(batch: Any) -> dict[str, int]:
    """Return what the tensors and arrays of a batch hold, by the kind of memory: `cpu`, `cuda`, …"""
    sizes: dict[str, int] = {"cpu": 0}
    for leaf in leaves_of(batch):
        kind = getattr(getattr(leaf, "device", None), "type", "cpu")
        sizes[kind] = sizes.get(kind, 0) + nbytes_of(leaf)
    return sizes


def copy_batch(batch: Any, *, may_be_pinned: bool = False) -> Any:
    """Return a batch of its own: tensors copied, in containers of the same kinds."""
    import torch

    def clone(tensor: torch.Tensor) -> torch.Tensor:
        if may_be_pinned and tensor.device.type == "cpu" and tensor.is_pinned():  # else it gets to the device later
            with contextlib.suppress(RuntimeError):  # no more page-locked memory to be had
                return torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        return tensor.detach().clone()

    tensors = [leaf for leaf in leaves_of(batch) if isinstance(leaf, torch.Tensor)]  # held: the copies go by their ids
    return copy.deepcopy(batch, {id(tensor): clone(tensor) for tensor in tensors})


def with_replay(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `__next__` that takes part in the replay; the same function where none was asked for."""
    if not replay_steps():
        return original

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        replay = _replay_of(os.getpid())  # a fork begins anew
        batch = replay.ask(self)
        if batch is _NOTHING:
            batch = original(self)
            replay.came(self, batch)
        return batch

    return __next__


class Replay:
    """The replay of this process: keeps, gives, and writes down what it does."""

    def __init__(self, num_steps: int, *, room_bytes: dict[str, int] | None = None) -> None:
        self._plan = ReplayPlan(num_steps)
        self._numbers = count()
        self._kept: dict[str, list[Any]] = {}
        self._turns: dict[str, Iterator[tuple[int, Any]]] = {}
        self._may_be_pinned = False
        self._room_bytes = {} if room_bytes is None else room_bytes
        self._started_ns = 0

    def ask(self, iterator: Any) -> Any:
        """Return a batch that was kept, or `_NOTHING` where the loader is to give one."""
        if self._plan.is_over:
            return _NOTHING
        state = iterator.__dict__
        loader, worked = state.get("_headrace_loader", "loader"), step.num_worked()
        number = state.setdefault("_headrace_pass", next(self._numbers))
        has_trained = worked > state.get("_headrace_worked", worked)
        state["_headrace_worked"] = worked
        answer = self._plan.asks(loader, number, has_trained=has_trained)
        if answer is NextBatch.CACHED:
            return self._give(loader)
        if answer is NextBatch.REAL_AGAIN:
            self._end(iterator, loader)
        return _NOTHING

    def came(self, iterator: Any, batch: Any) -> None:
        loader = iterator.__dict__.get("_headrace_loader", "loader")
        if self._plan.is_over or not self._plan.is_wanted(loader):
            return
        start = now()
        try:
            reason = self._keep(iterator, loader, batch)
        except Exception as error:  # a kind of batch that cannot be copied
            reason = f"a batch could not be copied: {describe_error(error)}"
        if reason:
            self._plan.is_over = True
            self._kept.clear()
            tape.write(_REPLAY, start, 0, NOT_DONE, tape.name(reason))
        else:
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
        self._may_be_pinned |= bool(getattr(iterator, "_pin_memory", False))
        kept.append(copy_batch(batch, may_be_pinned=self._may_be_pinned))
        self._plan.kept(loader)
        return ""

    def _give(self, loader: str) -> Any:
        start = now()
        self._started_ns = self._started_ns or start
        number, kept = next(self._turns.setdefault(loader, cycle(enumerate(self._kept[loader]))))
        batch = copy_batch(kept, may_be_pinned=self._may_be_pinned)
        tape.write(_CACHED, start, now() - start, number, tape.name(loader))
        return batch

    def _end(self, iterator: Any, loader: str) -> None:
        if start := self._started_ns:
            tape.write(_REPLAY, start, now() - start, batches_ahead(iterator), tape.name(loader))
        self._kept.clear()
        self._turns.clear()


@functools.cache
def _replay_of(_pid: int) -> Replay:
    return Replay(replay_steps())


def batches_ahead(iterator: Any) -> int:
    """Return how many batches a loader has ready or under way: the next ones after a pause say nothing of its rate."""
    outstanding = getattr(iterator, "_tasks_outstanding", None)
    if isinstance(outstanding, int):  # torch's
        return outstanding
    if not hasattr(iterator, "snapshot"):
        return 0
    stats = iterator.snapshot()  # ours
    return int(stats.batches_ready + stats.batches_in_flight)


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
    if kind == "cpu":
        from headrace.signals.system import read_room

        return int(max(0, read_room()[0]) * _MEMORY_SHARE) // num_local_ranks()
    if kind == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0] * _MEMORY_SHARE)
    return 0  # of other devices nobody tells how much is free
