"""What a run of chaos is asked for, and which fault strikes what: drawn from a seed, to be repeated. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from headrace.model import FaultKind

# a worker does not come back from these
DEADLY = frozenset({FaultKind.KILL, FaultKind.SEGV, FaultKind.BUS, FaultKind.EXIT, FaultKind.ABORT})
# a sample that does this each time it is fetched must end in the quarantine
CONDEMNING = DEADLY | {FaultKind.EXCEPTION, FaultKind.HANG}
FROM_OUTSIDE = frozenset({FaultKind.KILL, FaultKind.STOP})  # too: to some worker, at some moment
OF_THE_MACHINE = frozenset({FaultKind.SHM_FULL, FaultKind.FD_LIMIT})  # or of the whole process
OF_THE_LOOP = frozenset({FaultKind.FORK, FaultKind.INTERRUPT})  # the training process does them to itself
TAKES_A_TIMEOUT = frozenset({FaultKind.HANG, FaultKind.STOP})  # to be noticed

PRACTICE = "headrace.doctor.chaos.faulty_dataset:PracticeSamples"

_SHARE_OUTSIDE = 0.4
_SHARE_IN_COLLATION = 0.4  # of the faults that a worker does not survive, where the collation is the user's own
_LOSSES_OF_ALWAYS = 3  # how often a sample that is always deadly takes a worker with it before it is condemned
# a loader that loses worker after worker and delivers nothing gives up, and rightly: a plan stays below that, even if
# all of it strikes while the loop waits for one slow sample
_MOST_LOSSES = 16
_MOST_CONDEMNED = 0.2  # of a round's samples
_MOST_HELD = 4


@dataclass(frozen=True, kw_only=True)
class ChaosSettings:
    """How `run_chaos` runs. Times in seconds, sizes in samples."""

    target: str = PRACTICE  # as `load_target` takes it
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    num_faults: int = 40
    seed: int = 0
    seconds: float | None = None  # go on with new rounds until then, whatever num_faults says
    num_workers: int | None = None  # None: what the given loader has, else 4
    backend: str = "process"
    start_method: str | None = None  # None: the platform's
    batch_size: int | None = None  # None: what the given loader has, else 8
    timeout_s: float = 3.0  # past this age a sample counts as hanging
    most_samples: int = 1000  # of the data set, in a round
    faults_a_round: int = 20
    always_share: float = 0.25  # of the faults that condemn: each time the sample is fetched, not only the first time

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(FaultKind(kind) for kind in self.kinds))

    @property
    def slow_s(self) -> float:
        """How long a slow sample takes: much, but not so much that it counts as hanging."""
        return min(1.0, self.timeout_s / 4)

    @property
    def patience_s(self) -> float:
        """How long nothing at all may come before the loader counts as hanging."""
        # a sample that always hangs is tried a few times; starting a worker that imports torch takes seconds, too
        return 15.0 + 8 * self.timeout_s


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the process under test found the target to be."""

    num_samples: int
    batch_size: int
    num_workers: int
    is_default: bool  # the default collation: samples can be found again in their batch
    start_method: str
    dataset: str
    skipped: Mapping[str, str]  # kinds of fault that cannot happen here: why


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
    num_held: int = 0  # batches that the training process holds across its fork, the last one that came among them

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


Plan = tuple[list[int], list[Fault]]


def plan_round(settings: ChaosSettings, subject: Subject, number: int, most_faults: int) -> Plan:
    """Return the order and the faults of a round: the same for the referee and for the process under test.

    Each kind of fault comes about as often as the others; fewer come where so many would be a crash loop.
    """
    draw = random.Random(f"headrace-chaos/order/{settings.seed}/{number}")
    order = draw.sample(range(subject.num_samples), min(settings.most_samples, subject.num_samples))
    draw = random.Random(f"headrace-chaos/faults/{settings.seed}/{number}")
    kinds = [kind for kind in settings.kinds if kind.value not in subject.skipped]
    num_batches = len(order) // subject.batch_size
    losses_left = min(_MOST_LOSSES, num_batches)
    condemned_left = int(len(order) * _MOST_CONDEMNED)
    free = list(order)
    draw.shuffle(free)
    wanted: list[FaultKind] = []
    while len(wanted) < most_faults:
        wanted += draw.sample(kinds, len(kinds))
    faults: list[Fault] = []
    for kind in wanted[:most_faults]:
        is_outside = kind in OF_THE_MACHINE | OF_THE_LOOP or (kind in FROM_OUTSIDE and draw.random() < _SHARE_OUTSIDE)
        is_deadly = kind in DEADLY or kind in TAKES_A_TIMEOUT
        may_collate = not subject.is_default and is_deadly and not is_outside
        in_collation = may_collate and draw.random() < _SHARE_IN_COLLATION
        may_condemn = not is_outside and not in_collation and kind in CONDEMNING and condemned_left > 0
        always = may_condemn and draw.random() < settings.always_share
        if not is_outside and not free:
            continue
        place = {"batch": draw.randrange(max(1, num_batches - 1))} if is_outside else {"index": free[-1]}
        if kind is FaultKind.FORK:
            place["num_held"] = draw.randint(1, _MOST_HELD)
        fault = Fault(number=len(faults), kind=kind, always=always, in_collation=in_collation, **place)
        if fault.losses > losses_left:
            continue
        losses_left -= fault.losses
        condemned_left -= fault.condemns
        if not is_outside:
            free.pop()
        faults.append(fault)
    return order, faults


def expected_delivery(order: Sequence[int], condemned: frozenset[int]) -> list[int]:
    """Return what an epoch has to deliver: its order without the condemned, filled up with its first good samples.

    >>> expected_delivery([4, 2, 0, 3, 1], frozenset({2}))
    [4, 0, 3, 1, 4]
    """
    good = [index for index in order if index not in condemned]
    return good + list(islice(cycle(good), len(order) - len(good)))
