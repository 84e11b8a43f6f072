"""What a run of chaos found: each round judged against the order that seed and epoch define. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model import FaultKind

from .fault_plan import TAKES_A_TIMEOUT, ChaosSettings, Fault, Subject, expected_delivery

_AFTERMATH_S = 1.0


@dataclass(frozen=True, kw_only=True)
class LeftOutSample:
    index: int
    kind: str
    exception: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RoundFacts:
    """One epoch, as the process under test and the referee saw it."""

    number: int
    order: Sequence[int]
    batch_size: int
    faults: Sequence[Fault]
    strikes: Sequence[tuple[int, float]]  # (fault, when)
    delivered: Sequence[int] = ()
    sizes: Sequence[int] = ()
    wrong: Sequence[int] = ()  # samples whose content is not what a worker made
    waits: Sequence[tuple[float, float]] = ()  # (from, to) of each wait for a batch
    quarantine: Sequence[LeftOutSample] = ()
    left: Sequence[str] = ()
    error: str = ""
    is_hang: bool = False
    stacks: str = ""


@dataclass(frozen=True, kw_only=True)
class RoundVerdict:
    """What was wrong with a round: nothing, if all of it is empty."""

    lost: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()
    out_of_order: int = 0  # places that hold another sample than they should, where none is lost or repeated
    damaged: tuple[int, ...] = ()
    wrongly_condemned: tuple[LeftOutSample, ...] = ()  # though nothing was done to them that condemns
    wrongly_spared: tuple[int, ...] = ()  # delivered, though they fail each time
    batch_sizes: str = ""
    error: str = ""
    is_hang: bool = False
    left: tuple[str, ...] = ()
    own: tuple[LeftOutSample, ...] = ()  # failed by themselves: bad samples of the user's

    @property
    def is_clean(self) -> bool:
        return self == RoundVerdict(own=self.own)


def judge_round(facts: RoundFacts) -> RoundVerdict:
    """Compare what was delivered, sample by sample, with what had to be."""
    if facts.is_hang or facts.error:
        return RoundVerdict(error=facts.error, is_hang=facts.is_hang, left=tuple(facts.left))
    struck = {fault for fault, _ in facts.strikes}
    by_index = {fault.index: fault for fault in facts.faults if fault.is_inside}
    has_to = {fault.index for fault in facts.faults if fault.condemns}
    condemned = {one.index: one for one in facts.quarantine}
    own, innocent = [], []
    for index, one in condemned.items():
        fault = by_index.get(index)
        if fault is None and one.kind == "exception" and not one.exception.endswith("InjectedFault"):
            own.append(one)
        elif index not in has_to and (fault is None or fault.kind not in TAKES_A_TIMEOUT):  # what hung, if only once
            innocent.append(one)
    wanted = expected_delivery(facts.order, frozenset(condemned))
    missing, surplus = Counter(wanted) - Counter(facts.delivered), Counter(facts.delivered) - Counter(wanted)
    places = zip(wanted, facts.delivered, strict=False)
    spared = sorted(index for index in has_to - set(condemned) if by_index[index].number in struck)
    return RoundVerdict(
        lost=tuple(sorted(missing.elements())),
        repeated=tuple(sorted(surplus.elements())),
        out_of_order=0 if missing or surplus else sum(a != b for a, b in places),
        damaged=tuple(facts.wrong),
        wrongly_condemned=tuple(innocent),
        wrongly_spared=tuple(spared),
        batch_sizes=_judge_sizes(facts),
        left=tuple(facts.left),
        own=tuple(own),
    )


def _judge_sizes(facts: RoundFacts) -> str:
    full, rest = divmod(len(facts.order), facts.batch_size)
    wanted = [facts.batch_size] * full + ([rest] if rest else [])
    if list(facts.sizes) == wanted:
        return ""
    first = next((n for n, (a, b) in enumerate(zip(facts.sizes, wanted, strict=False)) if a != b), len(wanted))
    return f"{len(facts.sizes)} batches instead of {len(wanted)}, the first other size at batch {first}"


@dataclass(kw_only=True)
class KindFigures:
    injected: int = 0  # faults that struck at least once
    strikes: int = 0  # how often in all: a sample that always fails strikes at each try
    survived: int = 0
    worst_wait_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ChaosReport:
    """All rounds of a run."""

    settings: ChaosSettings
    subject: Subject
    rounds: Sequence[RoundFacts]
    verdicts: Sequence[RoundVerdict]
    elapsed_s: float
    left: Sequence[str] = ()  # processes that outlived the process under test

    @property
    def is_clean(self) -> bool:
        return all(verdict.is_clean for verdict in self.verdicts) and not self.left

    @property
    def own_failures(self) -> list[LeftOutSample]:
        """Samples of the user's that fail by themselves."""
        return list({one.index: one for verdict in self.verdicts for one in verdict.own}.values())

    def kinds(self) -> dict[FaultKind, KindFigures]:
        """Return the figures of each kind that struck."""
        figures: dict[FaultKind, KindFigures] = {}
        for facts, verdict in zip(self.rounds, self.verdicts, strict=True):
            by_number = {fault.number: fault for fault in facts.faults}
            for number, at_s in facts.strikes:
                fault = by_number[number]
                kind = figures.setdefault(fault.kind, KindFigures())
                kind.strikes += 1
                kind.worst_wait_s = max(kind.worst_wait_s, _worst_wait(facts, fault, at_s))
            for number in {number for number, _ in facts.strikes}:
                figures[by_number[number].kind].injected += 1
                figures[by_number[number].kind].survived += verdict.is_clean
        return {kind: figures[kind] for kind in FaultKind if kind in figures}

    def totals(self) -> dict[str, int]:
        """Return how many samples, faults and problems of each sort there were."""
        kinds = self.kinds().values()
        return {
            "rounds": len(self.rounds),
            "delivered": sum(len(facts.delivered) for facts in self.rounds),
            "quarantined": sum(len(facts.quarantine) for facts in self.rounds),
            "faults": sum(kind.injected for kind in kinds),
            "strikes": sum(kind.strikes for kind in kinds),
            **self.problems(),
        }

    def problems(self) -> dict[str, int]:
        """Return how often each thing that can be wrong was."""
        counts = {name: sum(_count(getattr(one, field)) for one in self.verdicts) for name, field in _FIELDS.items()}
        return {**counts, "leftovers": counts["leftovers"] + len(self.left)}


# what can be wrong, and what of a verdict says so
_FIELDS = {
    **{name: name for name in ("lost", "repeated", "out_of_order", "damaged", "wrongly_condemned", "wrongly_spared")},
    "wrong_batch_sizes": "batch_sizes",
    "errors": "error",
    "hangs": "is_hang",
    "leftovers": "left",
}


def _count(found: tuple[object, ...] | str | int) -> int:
    return len(found) if isinstance(found, tuple) else found if isinstance(found, int) else bool(found)


def _worst_wait(facts: RoundFacts, fault: Fault, at_s: float) -> float:
    """How long the loop waited because of a fault.

    One that struck a sample holds up the batch that the sample belongs to. One from outside holds up whatever was in
    the worker's hands: the longest wait that began before it or soon after it, and ended after it.
    """
    if fault.is_inside:
        condemned = {one.index for one in facts.quarantine}
        before = sum(other not in condemned for other in facts.order[: list(facts.order).index(fault.index)])
        waits = facts.waits[before // facts.batch_size :][:1]  # of the batch that it came in, or would have come in
    else:
        waits = [wait for wait in facts.waits if wait[1] > at_s and wait[0] < at_s + _AFTERMATH_S]
    return max((end - begin for begin, end in waits), default=0.0)


def num_struck(rounds: Sequence[RoundFacts]) -> int:
    return sum(len({fault for fault, _ in facts.strikes}) for facts in rounds)
