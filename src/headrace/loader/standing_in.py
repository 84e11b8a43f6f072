"""A script's own torch loader with our workers in the place of torch's: the same batches, for the same draws.

`FedIterator` is what the script gets. It goes over from torch's workers to ours, or back, between two batches: the
script's sampler is asked when torch would ask it, and what it gave and nobody has delivered is known. Whether samples
would be others from another worker is asked before of the first two (`probe_samples`), in a process of its own.
"""

import contextlib
import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils.data as torch_data
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import fetch as torch_fetch
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data.distributed import DistributedSampler

from headrace.engine import SampleSeeds, with_rows
from headrace.errors import BatchTimeout, WorkerHang, WorkerLost
from headrace.model import FeedReason, describe_error, is_from_signal

from .dataloader import DataLoader
from .profiles import Origin, resolve_settings
from .workers import WorkersIterator

# Samplers that draw when a pass begins, or from a generator of their own: how far ahead they are asked changes nothing.
_ASKED_AT_WILL = {
    *(torch_data.SequentialSampler, torch_data.RandomSampler, torch_data.SubsetRandomSampler),
    *(torch_data.WeightedRandomSampler, DistributedSampler, torch_loader._InfiniteConstantSampler),
}
_TORCHS_PREFETCH = 2  # where nobody gave one
_PROBED_SAMPLES = 2  # a data set, or a collation, that draws at all draws in nearly every sample
_PROBE_GRACE_S = 1.0
_TorchsWorkers = torch_loader._MultiProcessingDataLoaderIter


class _Shadow(DataLoader[Any]):
    """Our loader over what a script's loader holds; what is to be warned of, that one has said."""

    _watches_draws = True
    _keeps_batches_whole = True  # as torch does

    def check_worker_number_rationality(self) -> None:
        pass


class _Indices:
    """A script's sampler, asked whenever torch would ask it; what it gave and nobody has delivered is kept."""

    def __init__(self, sampler: Any, ahead: int) -> None:
        self._sampler, self._ahead = sampler, ahead
        self._source: Iterator[Any] = iter(())
        self.kept, self._num_given = deque[Any](), 0  # so many of them to whoever makes the batches
        self._is_over = self.goes_on = False
        self.raised: Exception | None = None  # by the sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> "_Indices":
        if not self.goes_on:
            self.begin()
        return self

    def begin(self) -> None:
        """Begin a pass."""
        self._source, self._is_over = iter(self._sampler), False
        self.kept.clear()
        self._num_given = 0

    def __next__(self) -> Any:
        if self.goes_on:  # whoever asks now begins with what nobody has delivered
            self.goes_on, self._num_given = False, 0
        self._ask_as_torch()
        if self._num_given == len(self.kept):
            self._ask()
        self._num_given += 1
        return self.kept[self._num_given - 1]

    def delivered(self) -> None:
        """A batch has left, or its error."""
        if self._num_given:
            self.kept.popleft()
            self._num_given -= 1
        self._ask_as_torch()

    def _ask_as_torch(self) -> None:
        with contextlib.suppress(StopIteration):
            while not self._is_over and len(self.kept) < self._ahead:
                self._ask()

    def _ask(self) -> None:
        try:
            self.kept.append(next(self._source))
        except Exception as error:
            self._is_over = isinstance(error, StopIteration)
            # an end is not kept: its traceback would keep the iterator whose workers asked, and torch waits long for
            # workers whose iterator is left to the garbage collector
            self.raised = None if self._is_over else error
            raise


@dataclass
class Feeding:
    """What the passes over one loader of a script have in common.

    `told` gets their iterator whenever somebody else makes its batches, with the reason and the iterator that was
    inside before, if any: "begun" with each pass, "measured" behind torch's stretch, "drew" where a sample draws random
    numbers, or what failed in ours.
    """

    told: Callable[["FedIterator", str, Any], None]
    stretch: int = 0  # batches that torch's workers are still to make; none where a pass has come to its end
    tunes: bool = False  # ours adjusts itself where its batches stay the same
    ours: Any = None  # our loader of the last pass, whose tuning goes on


class FedIterator(torch_loader._BaseDataLoaderIter):
    """The iterator of a script's loader: one of ours or of torch's inside, which takes the place of the other."""

    inner: Any = None
    is_ours: bool  # whether our workers make the batches now

    def __init__(self, loader: Any, feeding: Feeding) -> None:
        self._feeding = feeding
        # as it is now, and not the loader itself: that one holds this, where its workers are persistent
        self._parts = dict(vars(loader))
        self._is_iterable = loader._dataset_kind == torch_loader._DatasetKind.Iterable
        self._is_exact = not self._is_iterable and bool(getattr(loader, "in_order", True))
        factor, sampler = loader.prefetch_factor or _TORCHS_PREFETCH, loader._index_sampler
        self._indices = _Indices(sampler, factor * loader.num_workers)
        innermost = sampler.sampler if type(sampler) is torch_data.BatchSampler else sampler
        self._is_at_will = type(innermost) in _ASKED_AT_WILL
        if self._is_iterable and loader.persistent_workers:  # its workers' generators go on from pass to pass
            feeding.stretch = 0
        self._has_failed, self.is_ours, self._has_drawn = False, not feeding.stretch, False
        with _draws_undone(loader):
            self._open()
        feeding.told(self, "begun", None)

    def _open(self, **others: Any) -> None:
        parts = self._parts | others
        self.inner = self._ours(parts)._get_iterator() if self.is_ours else self._torchs(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def _is_measured(self) -> bool:
        """Whether torch's stretch is over, and ours may go on."""
        return not (self.is_ours or self._has_failed or self._feeding.stretch)

    def __next__(self) -> Any:
        if self._is_measured and self._is_exact and self._indices.kept:
            self._go_over("measured")
        try:
            batch = next(self.inner)
        except StopIteration:
            self._feeding.stretch = 0
            raise
        except Exception as error:
            if not self._is_failure(error):
                if not self.is_ours or error is self.inner._feed.raised:
                    self._indices.delivered()
                raise
            self._go_over(str(describe_error(error)))
            return self.__next__()
        self._indices.delivered()
        if not self.is_ours:
            self._feeding.stretch = max(0, self._feeding.stretch - 1)
        elif not self._has_drawn and self.inner._feed.figures.draws:
            self._has_drawn = True
            self._feeding.told(self, "drew", None)
        return batch

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin another pass with persistent workers."""
        if self._is_measured:
            self._indices.begin()
            self._go_over("measured")
            return
        try:
            if isinstance(self.inner, WorkersIterator) and not self.inner.is_open:  # its workers were lost
                self._open()
            else:
                self.inner._reset(loader, first_iter)
        except Exception as error:
            if not self._is_failure(error):
                raise
            self._go_over(str(describe_error(error)))
        else:
            self._feeding.told(self, "begun", None)

    def _is_failure(self, error: Exception) -> bool:
        """Whether an error is ours: no sample, collation or sampler raised it, and torch's workers would not either."""
        if not (self.is_ours and self._is_exact) or isinstance(error, (BatchTimeout, WorkerHang, WorkerLost)):
            return False
        feed = self.inner._feed
        theirs = (feed.raised, feed.losses.fatal, self._indices.raised)
        return not any(error is one for one in theirs) and not is_from_signal(error)

    def _go_over(self, why: str) -> None:
        """Let the other kind of workers go on behind the last batch that was delivered."""
        before = self.inner
        with contextlib.suppress(Exception):  # it may be what has failed
            before._shutdown_workers()
        self.is_ours, self._indices.goes_on = not self.is_ours, True
        # torch would not draw another base seed here, from whichever generator
        generator = torch.Generator().manual_seed(int(before._base_seed))
        try:
            self._open(generator=generator)
        except Exception as error:
            if not self.is_ours:
                raise
            self.is_ours, self._indices.goes_on, why = False, True, str(describe_error(error))
            self._open(generator=generator)
        self._has_failed |= not self.is_ours
        self.inner._num_yielded = before._num_yielded
        self._feeding.told(self, why, before)

    def _torchs(self, parts: dict[str, Any]) -> Any:
        name = "sampler" if parts["batch_sampler"] is None else "batch_sampler"
        return _TorchsWorkers(_plain(parts if self._is_iterable else parts | {name: self._indices}))

    def _ours(self, parts: dict[str, Any]) -> _Shadow:
        """Return our loader: with the settings of a profile or the environment where they change no batch."""
        names = ("collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator", "num_workers")
        options = {name: parts[name] for name in (*names, "persistent_workers", "pin_memory_device")}
        options["multiprocessing_context"] = _plain(parts).multiprocessing_context
        options["in_order"] = parts.get("in_order", True)
        if self._is_iterable:
            options |= {"batch_size": parts["batch_size"], "drop_last": parts["drop_last"]}
        elif parts["batch_sampler"] is None:
            options |= {"batch_size": None, "sampler": self._indices}
        else:
            options["batch_sampler"] = self._indices
        if not self._is_at_will:
            options |= {"prefetch_factor": parts["prefetch_factor"], "io_depth": 0}
        elif parts["prefetch_factor"] != _TORCHS_PREFETCH:
            options["prefetch_factor"] = parts["prefetch_factor"]
        if self._is_at_will and self._is_exact:
            for name, one in resolve_settings().items():
                is_given = one.origin is not Origin.DEFAULT and name in ("num_workers", "prefetch_factor")
                if is_given and one.value not in (0, "auto"):  # in-process, or perhaps: not what was asked to be fed
                    options.pop(name, None)
            options["tune"] = "online" if self._feeding.tunes else None
        shadow, before = _Shadow(parts["dataset"], **options), self._feeding.ours
        if shadow.tune is not None and before is not None:
            shadow._tune_on(before)
        shadow._IterableDataset_len_called = parts["_IterableDataset_len_called"]
        self._feeding.ours = shadow
        return shadow


def _plain(parts: dict[str, Any]) -> Any:
    """Return a loader of torch's own class with what a script's holds."""
    plain = object.__new__(torch_data.DataLoader)
    plain.__dict__.update(parts, _iterator=None)
    return plain


@contextlib.contextmanager
def _draws_undone(loader: Any) -> Iterator[None]:
    """Put the generators that a loader may draw from back to where they stand, if it cannot begin."""
    held = (torch.default_generator, loader.generator, getattr(loader.sampler, "generator", None))
    states = [(one, one.get_state()) for one in held if isinstance(one, torch.Generator)]
    python, legacy = random.getstate(), np.random.get_state()
    try:
        yield
    except BaseException:
        for generator, state in states:
            generator.set_state(state)
        random.setstate(python)
        np.random.set_state(legacy)
        raise


# ------------------------------------------------------------------------------------ whether a loader may be fed


def probe_samples(loader: Any, *, timeout_s: float = 20.0) -> FeedReason:
    """Return whether a map-style torch loader may be fed, or why not, by the first two samples of its next pass."""
    context = loader.multiprocessing_context or torch.multiprocessing.get_context()
    ours, theirs = context.Pipe(duplex=False)
    parts = (loader.dataset, loader._index_sampler, loader._auto_collation, loader.collate_fn)
    args = (theirs, *parts, loader.worker_init_fn, loader.num_workers)
    process = context.Process(target=_probe, args=args, name="headrace-probe", daemon=True)
    try:
        process.start()
        theirs.close()
        return FeedReason(ours.recv()) if ours.poll(timeout_s) else FeedReason.PROBE_LATE
    except EOFError:  # it died
        return FeedReason.PROBE_FAILED
    finally:
        ours.close()
        if process.pid is not None:
            process.join(_PROBE_GRACE_S)
            process.kill()
            process.join()
            process.close()


class _Watched:
    """A worker's info; who asks which worker it is may make another sample in another one."""

    def __init__(self, dataset: Any, num_workers: int) -> None:
        self.dataset, self.num_workers, self.was_asked = dataset, num_workers, False
        self.rng, self.worker_method = None, "multiprocessing"

    @property
    def id(self) -> int:
        self.was_asked = True
        return 0

    @property
    def seed(self) -> int:
        self.was_asked = True
        return int(torch.default_generator.initial_seed())


def _probe(
    answer: Any, dataset: Any, sampler: Any, is_batched: bool, collate: Any, init_fn: Any, num_workers: int
) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    torch.set_num_threads(1)  # as torch's workers do
    found = FeedReason.PROBE_FAILED
    try:
        info: Any = _Watched(dataset, num_workers)
        torch_worker._worker_info = info
        if init_fn is not None:
            init_fn(0)
        first = next(iter(sampler))
        first = with_rows(first) if is_batched else first
        fetcher = torch_fetch._MapDatasetFetcher(dataset, is_batched, collate, False)
        vars(torch)["initial_seed"] = vars(torch.random)["initial_seed"] = lambda: info.seed
        # the whole batch where some samples of it make no sense
        for indices in (first[:_PROBED_SAMPLES], first) if is_batched else (first,):
            with contextlib.suppress(Exception):
                seeds, info.was_asked = SampleSeeds((dataset, collate), trial_samples=1 << 30), False
                with seeds:
                    seeds.begin_chunk()
                    seeds.begin_sample(0, 0)
                    fetcher.fetch(indices)
                    seeds.end_sample()
                draws = seeds.end_chunk() or seeds.is_drawing
                found = FeedReason.ASKS_WORKER if info.was_asked else FeedReason.DRAWS if draws else FeedReason.FED
                break
    except BaseException:  # whatever it is, torch's own loader will say it
        pass
    finally:
        answer.send(found.value)
        answer.close()
