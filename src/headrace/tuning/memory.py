"""How much memory a configuration takes at its peak, term by term, with torch's loader and with ours. Pure.

The peak is that of a loop slower than its loader: everything ahead is full, and nobody waits. A loop that waits for
data comes close to it with the first filling. What the terms rest on:

- torch sends `prefetch_factor x num_workers` batches ahead, finished or not, and the loop holds one more. A worker that
  makes a batch has all its samples in hand, as tensors of its own, until they are copied into shared memory; at the end
  of the first filling all workers do so at once. Fetching takes its peak once a worker, never once a queued sample.
- ours writes each sample into its row: a worker has one in hand, and keeps the pages of its heap. Batches ahead are as
  many as asked for, else as many as hide the slowest sample, whatever the number of workers; a budget bounds them.
- A forked worker shares the training process's pages until one of them is written: by a garbage collection (torch's
  workers run them over everything; ours have put it aside, so the training process alone copies it, once), and by
  counting references to what the data set holds.
- Pinned copies of torch's loader may be as many as the batches ahead, each a power of two long; our slots are
  page-locked where they are.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from headrace.model import format_bytes

# pages that the code of our engine touches in a worker, beyond what torch's does: measured, Python 3.11
_OWN_CODE_BYTES = 5 << 20
_STEP_S = 0.1  # of a training that nobody has timed yet; it counts where samples are slower than that


class LoaderName(StrEnum):
    """Whose loader."""

    TORCH = "torch"
    HEADRACE = "headrace"


class TermKind(StrEnum):
    """What takes memory."""

    QUEUE = "queue"  # batches ahead, finished or being filled
    LOOP = "loop"  # the batch that the training loop holds
    IN_HAND = "in_hand"  # samples that workers have in hand, and the peak of fetching one
    COLLATION = "collation"  # what a collation of the user's own has made, and has not handed over yet
    INTERPRETER = "interpreter"  # of the workers
    DATASET = "dataset"  # what workers copy of the data set
    PINNED = "pinned"
    READ_AHEAD = "read_ahead"
    VALIDATION = "validation"  # a second loader beside the first
    TRAINING = "training"  # the training process: interpreter, imports, data set; not its model


@dataclass(frozen=True, kw_only=True)
class SampleCost:
    """What a sample and a worker cost, in bytes."""

    sample_bytes: int  # as the data set returns it
    batch_sample_bytes: int  # its part of a collated batch
    fetch_peak_bytes: int  # the most that fetching one takes, what it returns included
    worker_bytes: int  # a worker's interpreter: what it has for itself before any sample
    collected_bytes: int  # what a garbage collection over everything adds to it
    dataset_bytes: int  # what a worker comes to copy of the data set, by counting references
    training_bytes: int  # the training process before it has a loader
    read_ahead_bytes: int = 0  # most that our reader holds, where the data set says where samples lie

    @classmethod
    def of_sample(cls, size: int, *, worker_bytes: int, collected_bytes: int, training_bytes: int) -> Self:
        """Of a sample whose size is all that is known: fetching it takes twice that, its bytes and its arrays."""
        return cls(
            sample_bytes=size,
            batch_sample_bytes=size,
            fetch_peak_bytes=2 * size,
            worker_bytes=worker_bytes,
            collected_bytes=collected_bytes,
            dataset_bytes=0,
            training_bytes=training_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """How a loader is set up, on each rank of a node."""

    batch_size: int
    num_workers: int
    prefetch_factor: int | None = None  # torch's: 2; ours: as far ahead as `own_ahead`
    own_ahead: int = 2  # batches ahead of our loader where no prefetch_factor is asked for
    uses_rows: bool = True  # torch's default collation over samples of one layout: ours writes rows
    budget_bytes: int | None = None  # `memory=` of ours
    pin_memory: bool = False
    val_workers: int = 0  # of a validation loader that lives beside this one
    ranks: int = 1

    def ahead(self, loader: LoaderName) -> int:
        """Batches ahead of the loop."""
        if self.num_workers == 0:
            return 0
        if loader is LoaderName.TORCH:
            return (self.prefetch_factor or 2) * self.num_workers
        return self.own_ahead if self.prefetch_factor is None else self.prefetch_factor * self.num_workers

    def with_own_ahead(self, cost: SampleCost, *, worst_sample_s: float = 0.0) -> "Configuration":
        """Return the same with how many batches ahead ours runs by itself."""
        from headrace.loader import expected_ahead

        rows, workers = self.batch_size, self.num_workers
        ahead = expected_ahead(
            batch_size=rows,
            batch_bytes=rows * cost.batch_sample_bytes,
            num_workers=workers,
            worst_sample_s=worst_sample_s,
            step_s=_STEP_S,
        )
        return replace(self, own_ahead=ahead)


@dataclass(frozen=True)
class Term:
    """One thing that takes memory, and how its size was found."""

    kind: TermKind
    bytes: int
    formula: str


@dataclass(frozen=True)
class MemoryPlan:
    """The terms of one rank, and what all ranks of the node take together."""

    loader: LoaderName
    configuration: Configuration
    terms: tuple[Term, ...]

    @property
    def rank_bytes(self) -> int:
        return sum(term.bytes for term in self.terms)

    @property
    def total_bytes(self) -> int:
        return self.configuration.ranks * self.rank_bytes

    @property
    def shm_bytes(self) -> int:
        """What lies in /dev/shm, of all ranks: torch's batches; ours lie in a file of no mount."""
        if self.loader is LoaderName.HEADRACE or not self.configuration.num_workers:
            return 0
        in_shm = (TermKind.QUEUE, TermKind.LOOP, TermKind.VALIDATION)
        return self.configuration.ranks * sum(term.bytes for term in self.terms if term.kind in in_shm)


def peak_memory(cost: SampleCost, configuration: Configuration, loader: LoaderName) -> MemoryPlan:
    """Return what a loader takes at its peak, term by term.

    >>> cost = SampleCost.of_sample(5 << 20, worker_bytes=2 << 20, collected_bytes=40 << 20, training_bytes=200 << 20)
    >>> plan = peak_memory(cost, Configuration(batch_size=8, num_workers=4), LoaderName.TORCH)
    >>> [(str(term.kind), term.formula) for term in plan.terms][:3]
    [('queue', '4 x 2 x 8 x 5.00 MiB'), ('loop', '8 x 5.00 MiB'), ('in_hand', '4 x (7 x 5.00 MiB + 10.0 MiB)')]
    """
    terms = [*_batches(cost, configuration, loader), *_workers(cost, configuration, loader)]
    if configuration.val_workers:
        beside = replace(configuration, num_workers=configuration.val_workers, val_workers=0)
        inner = sum(term.bytes for term in (*_batches(cost, beside, loader), *_workers(cost, beside, loader)))
        terms.append(Term(TermKind.VALIDATION, inner, f"{configuration.val_workers} workers, as above"))
    terms.append(Term(TermKind.TRAINING, cost.training_bytes, format_bytes(cost.training_bytes)))
    return MemoryPlan(loader, configuration, tuple(term for term in terms if term.bytes))


def _batches(cost: SampleCost, configuration: Configuration, loader: LoaderName) -> list[Term]:
    """What is ahead of the loop, and in its hands."""
    rows, workers, ahead = configuration.batch_size, configuration.num_workers, configuration.ahead(loader)
    is_ours, budget = loader is LoaderName.HEADRACE and workers > 0, configuration.budget_bytes
    batch_bytes = rows * cost.batch_sample_bytes
    batch = f"{rows} x {format_bytes(cost.batch_sample_bytes)}"
    lies = 1 if configuration.uses_rows else 3  # times that a batch of ours lies in its budget
    if is_ours and budget is not None:
        ahead = max(1, min(ahead, budget // max(1, lies * batch_bytes) - 1))
    factors = f"{workers} x {ahead // workers}" if workers and ahead % workers == 0 else str(ahead)
    terms = [Term(TermKind.QUEUE, ahead * batch_bytes, f"{factors} x {batch}")]
    terms.append(Term(TermKind.LOOP, batch_bytes, batch))
    if workers and not configuration.uses_rows:
        # ours: its samples as blocks, and blocks that workers keep for the next ones; torch's workers each
        # collate into memory of their own before that is copied into shared memory
        copies = (lies - 1) * (ahead + 1) if is_ours else workers
        terms.append(Term(TermKind.COLLATION, copies * batch_bytes, f"{copies} x {batch}"))
    if configuration.pin_memory and not is_ours:
        pinned = 1 << max(0, math.ceil(math.log2(max(1, batch_bytes))))
        extra = (ahead + 1) * (pinned - batch_bytes) + batch_bytes  # and one that is being copied lies in both
        formula = f"{ahead + 1} x ({format_bytes(pinned)} - {format_bytes(batch_bytes)}) + {format_bytes(batch_bytes)}"
        terms.append(Term(TermKind.PINNED, extra, formula))
    return terms


def _workers(cost: SampleCost, configuration: Configuration, loader: LoaderName) -> list[Term]:
    """What workers have for themselves; without any, what the training process has in hand."""
    rows, workers, sample = configuration.batch_size, configuration.num_workers, cost.sample_bytes
    peak = max(cost.fetch_peak_bytes, sample)
    whole_batch, formula = (rows - 1) * sample + peak, f"{rows - 1} x {format_bytes(sample)} + {format_bytes(peak)}"
    if not workers:
        return [Term(TermKind.IN_HAND, whole_batch, formula)]
    if loader is LoaderName.TORCH:
        own, once = cost.worker_bytes + cost.collected_bytes, 0
        terms = [Term(TermKind.IN_HAND, workers * whole_batch, f"{workers} x ({formula})")]
    else:
        own, once = cost.worker_bytes + _OWN_CODE_BYTES, cost.collected_bytes
        terms = [Term(TermKind.IN_HAND, workers * peak, f"{workers} x {format_bytes(peak)}")]
        most = cost.read_ahead_bytes
        terms.append(Term(TermKind.READ_AHEAD, most, f"<= {format_bytes(most)}"))
    formula = f"{workers} x {format_bytes(own)}" + (f" + {format_bytes(once)}" if once else "")
    terms.append(Term(TermKind.INTERPRETER, workers * own + once, formula))
    copied = cost.dataset_bytes
    terms.append(Term(TermKind.DATASET, workers * copied, f"{workers} x {format_bytes(copied)}"))
    return terms
