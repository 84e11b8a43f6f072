"""Which fault strikes which sample or which batch: drawn from a seed, so that a run can be repeated. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice


class FaultKind(StrEnum):
    """What can go wrong on purpose."""

    KILL = "kill"
    SEGV = "segv"
    BUS = "bus"
    EXIT = "exit"
    ABORT = "abort"
    EXCEPTION = "exception"
    HANG = "hang"
    STOP = "stop"
    SLOW = "slow"
    HOG = "hog"
    SHM_FULL = "shm_full"
    FD_LIMIT = "fd_limit"


ALL_KINDS = tuple(FaultKind)

# a worker does not come back from these
DEADLY = frozenset({FaultKind.KILL, FaultKind.SEGV, FaultKind.BUS, FaultKind.EXIT, FaultKind.ABORT})
# a sample that does this each time it is fetched must end in the quarantine
CONDEMNING = DEADLY | {FaultKind.EXCEPTION, FaultKind.HANG}
# these come from outside the sample, too: to some worker, at some moment
FROM_OUTSIDE = frozenset({FaultKind.KILL, FaultKind.STOP})
# these strike the whole process or the machine
OF_THE_MACHINE = frozenset({FaultKind.SHM_FULL, FaultKind.FD_LIMIT})
# the loader has to wait for these to be noticed
TAKES_A_TIMEOUT = frozenset({FaultKind.HANG, FaultKind.STOP})

_SHARE_OUTSIDE = 0.4
# of the faults that a worker does not survive, where the collation is the user's own
_SHARE_IN_COLLATION = 0.4
# how often a sample that is always deadly takes a worker with it before it is condemned
_LOSSES_OF_ALWAYS = 3
# a loader that loses worker after worker and delivers nothing gives up, and rightly: a plan stays below that, even if
# all of it strikes while the loop waits for one slow sample
_MOST_LOSSES = 16
_MOST_CONDEMNED = 0.2  # of a round's samples


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. Inside: it strikes whoever fetches `index`. Outside: it comes when `batch` has been delivered.

    In the collation: it strikes whoever collates the batch of `index`, once the user's function is through.
    """

    number: int
    kind: FaultKind
    index: int = -1
    batch: int = -1
    always: bool = False  # each time the sample is fetched; else only the first time
    in_collation: bool = False

    @property
    def is_inside(self) -> bool:
        return self.index >= 0

    @property
    def condemns(self) -> bool:
        """Whether the sample has to end in the quarantine."""
        return self.always and self.kind in CONDEMNING

    @property
    def losses(self) -> int:
        """How many workers it will cost, at most."""
        if self.kind in DEADLY or self.kind in TAKES_A_TIMEOUT:
            return _LOSSES_OF_ALWAYS if self.always else 1
        return 0


def epoch_order(seed: int, epoch: int, num_samples: int, most: int) -> list[int]:
    """Return the order of an epoch: which samples, one after the other, as seed and epoch define it.

    >>> epoch_order(1, 0, 5, 5) == epoch_order(1, 0, 5, 5), sorted(epoch_order(1, 0, 5, 5))
    (True, [0, 1, 2, 3, 4])
    """
    return random.Random(f"headrace-chaos/order/{seed}/{epoch}").sample(range(num_samples), min(most, num_samples))


def draw_faults(
    kinds: Sequence[FaultKind],
    *,
    most: int,
    seed: int,
    epoch: int,
    order: Sequence[int],
    batch_size: int,
    always_share: float = 0.25,
    with_collation: bool = False,
) -> list[Fault]:
    """Return up to `most` faults for an epoch, each kind about as often as the others.

    Fewer where so many would be a crash loop. `with_collation`: the collation is the user's own, and may be struck too.
    """
    draw = random.Random(f"headrace-chaos/faults/{seed}/{epoch}")
    num_batches = len(order) // batch_size
    losses_left = min(_MOST_LOSSES, num_batches)
    condemned_left = int(len(order) * _MOST_CONDEMNED)
    free = list(order)
    draw.shuffle(free)
    wanted: list[FaultKind] = []
    while len(wanted) < most:
        wanted += draw.sample(list(kinds), len(kinds))
    faults: list[Fault] = []
    for kind in wanted[:most]:
        is_outside = kind in OF_THE_MACHINE or (kind in FROM_OUTSIDE and draw.random() < _SHARE_OUTSIDE)
        is_deadly = kind in DEADLY or kind in TAKES_A_TIMEOUT
        in_collation = with_collation and is_deadly and not is_outside and draw.random() < _SHARE_IN_COLLATION
        always = (
            not is_outside
            and not in_collation
            and kind in CONDEMNING
            and condemned_left > 0
            and draw.random() < always_share
        )
        if not is_outside and not free:
            continue
        place = {"batch": draw.randrange(max(1, num_batches - 1))} if is_outside else {"index": free[-1]}
        fault = Fault(number=len(faults), kind=kind, always=always, in_collation=in_collation, **place)
        if fault.losses > losses_left:
            continue
        losses_left -= fault.losses
        condemned_left -= fault.condemns
        if not is_outside:
            free.pop()
        faults.append(fault)
    return faults


def expected_delivery(order: Sequence[int], condemned: frozenset[int]) -> list[int]:
    """Return what an epoch has to deliver: its order without the condemned, filled up with its first good samples.

    >>> expected_delivery([4, 2, 0, 3, 1], frozenset({2}))
    [4, 0, 3, 1, 4]
    """
    good = [index for index in order if index not in condemned]
    return good + list(islice(cycle(good), len(order) - len(good)))
