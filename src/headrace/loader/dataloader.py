"""`DataLoader`: torch's arguments and ours, what runs them, and how to look at it."""

import errno
import inspect
import logging
import multiprocessing
import os
import resource
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import torch
import torch.utils.data as torch_data
from torch.utils.data import dataloader as torch_loader

from headrace.engine import Condemned, Controller, check_cpus, usable_processors
from headrace.errors import NotSupported
from headrace.model import Count, EpochAccount, ErrorPolicy, LoaderStats, SampleFailure, keeps_stats, parse_bytes

from .batches import count_rows, is_default_collation
from .local import LocalIterator, SeededLocalIterator
from .profiles import with_profile
from .reading import MOST_DEPTH
from .snapshot import empty_stats, len_or_none, say_once
from .workers import WorkersIterator

_log = logging.getLogger(__name__)

_T_co = TypeVar("_T_co", covariant=True)
_BACKENDS = ("auto", "process", "thread")
_LEFT_OUT = type("_LeftOut", (int,), {})(0)  # no workers, as in torch, because nobody said anything
_HAS_IN_ORDER = "in_order" in inspect.signature(torch_data.DataLoader.__init__).parameters


class DataLoader(torch_data.DataLoader[_T_co]):
    """torch's DataLoader with the same arguments and results, and waits that stay even.

    All workers fill the next batch together, sample by sample, straight into reused shared memory. Batches are
    views of that memory and live as long as you hold them. Arguments of our own, by keyword:

    - `memory`: bytes that queued batches may take (int or "8GiB"); default a quarter of what is free.
    - `backend`: "process", "thread" (threads inside one loader process), or "auto": processes.
    - `on_error`: what becomes of a sample that fails. "raise", as torch does; "quarantine" leaves it out, the following
      samples move up, and the end of the epoch is filled with its first ones; or a function of a `SampleFailure` that
      returns `headrace.SKIP`, `RETRY`, `RAISE` or a sample to use instead.
    - `max_bad`: how many samples may fail, a number or a share; by default 10 and a hundredth of those tried.
    - `quarantine_file`: names the samples left out, one JSON line each; `loader.quarantine` has them as values.
    - `skip_quarantined`: such a file of an earlier run (or keys): these samples are left out from the start.
    - `io_depth`: reads in flight, for data sets that say where their samples lie (`extents(index)`): these are read
      ahead in a process of their own, and workers only decode. By default chosen from the storage, and then from
      what is measured; 0 reads nothing ahead.
    - `readahead`: for data sets over loose files, a function from an index to the path (or paths) of its sample, or
      True where the data set has a list (`samples`, `imgs`, `files`): they come into the page cache ahead of time.
    - `device`: copy batches there on a side stream ("cuda"); off by default.
    - `assign`: "free", whichever worker is free takes the next samples; or "fixed": batch i comes from worker i modulo
      `num_workers`, by torch's own workers, for data sets whose random numbers depend on their worker. That is torch's
      loader then: no guard, no statistics.
    - `tune`: "online" adjusts workers, batches ahead and reads in flight while it runs, and says why; `num_workers`,
      `prefetch_factor` and `io_depth` are where it begins. Left out, `num_workers` is measured first, as "auto" does.
    - `keep_stats`: keep times and histograms for `stats()`; on by default, may be changed while it runs.
    - `cpus`: processors that workers run on: a list, "0-7,16", or "numa": those near the GPU that they feed. Only such
      as the process is allowed; the log says where it has no effect. By default, the kernel decides.
    - `profile`: settings by name, for what is not given here: of `headrace.toml`, or "debug", "conservative",
      "balanced" or "aggressive", computed for this machine. `headrace config` shows each value and its origin.

    `num_workers` is torch's: 0, in-process, unless given. "auto" measures the first samples of a map-style data set,
    chooses, and says in the log and in `stats()` what it chose and why.
    """

    _watches_draws = False  # whether it must be known if a sample ever draws

    @with_profile
    def __init__(
        self,
        dataset: torch_data.Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: torch_data.Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: torch_data.Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = _LEFT_OUT,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        memory: int | str | None = None,
        backend: str = "auto",
        on_error: str | Callable[[SampleFailure], Any] = "raise",
        max_bad: int | float | None = None,
        quarantine_file: str | os.PathLike[str] | None = None,
        skip_quarantined: str | os.PathLike[str] | Iterable[Any] | None = None,
        io_depth: int | None = None,
        readahead: bool | Callable[[Any], Any] | None = None,
        device: torch.device | str | None = None,
        assign: str = "free",
        tune: Literal["online"] | None = None,
        keep_stats: bool | None = None,
        cpus: str | Iterable[int] | None = None,
        profile: str | None = None,
    ) -> None:
        if backend not in _BACKENDS:
            raise ValueError(f"backend={backend!r}: choose one of {', '.join(map(repr, _BACKENDS))}")
        if io_depth is not None and (type(io_depth) is not int or not 0 <= io_depth <= MOST_DEPTH):
            raise ValueError(f"io_depth must be a whole number from 0 to {MOST_DEPTH}, got {io_depth!r}")
        if readahead not in (None, True, False) and not callable(readahead):
            raise TypeError(f"readahead must be True, or a function from an index to paths, got {readahead!r}")
        if isinstance(num_workers, (str, type(None))) and num_workers != "auto":
            raise TypeError(f'num_workers must be a whole number or "auto", got {num_workers!r}')
        if assign not in ("free", "fixed"):
            raise ValueError(f"assign={assign!r}: choose 'free' or 'fixed'")
        if assign == "fixed" and not (num_workers != "auto" and on_error == "raise" and backend != "thread"):
            raise ValueError(
                "assign='fixed' is torch's loader: it goes with no on_error=, backend='thread' or \"auto\""
            )
        if tune is not None:
            _check_tunable(tune, dataset, num_workers, is_left_out=num_workers is _LEFT_OUT, assign=assign)
            num_workers = "auto" if num_workers is _LEFT_OUT else num_workers
        if str(timeout) == "nan":
            raise ValueError("timeout must be a number of seconds, 0 for none, got nan")
        check_cpus(cpus)
        policy = ErrorPolicy.of(on_error, max_bad)
        if memory is not None:
            parse_bytes(memory)
        self.assign, self.tune, self.profile = assign, tune, profile
        self._controller = Controller() if tune is not None else None
        self.memory, self.backend, self.on_error = memory, backend, on_error
        self.io_depth, self.readahead, self.cpus = io_depth, readahead, cpus
        self.device = None if device is None else torch.device(device)
        self._keep_stats = keeps_stats() if keep_stats is None else keep_stats
        self._is_chosen = num_workers == "auto"
        self._is_decided = not self._is_chosen
        self._workers_reason = f"num_workers={num_workers}"
        if num_workers == "auto":
            _check_measurable(dataset)
            num_workers = usable_processors()  # until it is measured: whoever asks a loader expects a number
            self._workers_reason = "to be measured on the first samples"
        self._asked_prefetch_factor = prefetch_factor
        self._asked_ahead: int | None = None
        self._histogram: Any = None  # sample times of earlier epochs
        self._live: weakref.WeakSet[LocalIterator | WorkersIterator] = weakref.WeakSet()
        self._last_stats: LoaderStats | None = None
        self._local_account: Callable[[], EpochAccount] | None = None  # of samples fetched in the training process
        extra: dict[str, Any] = {"in_order": in_order} if _HAS_IN_ORDER else {}
        super().__init__(
            *(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last),
            *(timeout, worker_init_fn, multiprocessing_context, generator),
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **extra,
        )
        self.in_order = in_order
        length = None if self._is_iterable else len_or_none(dataset)
        self._condemned = Condemned(policy, path=quarantine_file, skip=skip_quarantined, num_samples=length)

    def __getstate__(self) -> dict[str, Any]:
        """What goes into a copy, or to another process: all but the iterators, which are this one's."""
        return {**self.__dict__, "_iterator": None, "_live": None, "_local_account": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _live=weakref.WeakSet())

    def __iter__(self) -> Any:
        if isinstance(self._iterator, WorkersIterator) and not self._iterator.is_ours:
            self._iterator = None  # persistent workers of the process that this one was forked from
        return super().__iter__()

    def _get_iterator(self) -> Any:
        is_pipe = isinstance(self.dataset, (torch_data.IterDataPipe, torch_data.MapDataPipe))
        if is_pipe:
            say_once("data pipes run in torch's own loader: Headrace does not speed them up")
        if is_pipe or self.assign == "fixed":
            return super()._get_iterator()
        if self._is_chosen and self.num_workers and multiprocessing.current_process().daemon:
            if self.timeout or self.worker_init_fn is not None:
                raise NotSupported(
                    "timeout= and worker_init_fn= need workers, and a daemonic process may have none",
                    next_step="leave them out, or load in a process that is no daemon",
                )
            self._decide(0, "in-process: a daemonic process may have no workers")
            _log.info('%s: num_workers="auto" chose %s', self, self._workers_reason)
        if self.num_workers == 0:
            guards = self._condemned.is_active and not self._is_iterable
            return SeededLocalIterator(self) if self._is_chosen or guards else LocalIterator(self)
        if not self._is_chosen and self.tune is None:
            self.check_worker_number_rationality()
        try:
            return WorkersIterator(self)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise NotSupported(
                "the limit on open files leaves no room for the workers' pipes",
                limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                next_step="a larger `ulimit -n`, fewer workers, or num_workers=0",
            ) from error

    @property
    def _uses_slots(self) -> bool:
        return self._auto_collation and is_default_collation(self.collate_fn)

    @property
    def _has_getitems(self) -> bool:
        return bool(getattr(self.dataset, "__getitems__", None))

    @property
    def _keeps_batches_whole(self) -> bool:
        """Whether `__getitems__` gets whole batches: a collation of the user's own may need what it returns."""
        return not self._uses_slots

    @property
    def _is_iterable(self) -> bool:
        return bool(self._dataset_kind == torch_loader._DatasetKind.Iterable)

    def _decide(self, num_workers: int, reason: str) -> None:
        """The number of workers is chosen, for this epoch and the next ones."""
        self.num_workers, self._workers_reason, self._is_decided = num_workers, reason, True

    def _tune_on(self, before: "DataLoader[Any]") -> None:
        """Begin where the tuning of another loader over the same samples has come to: one that stood in earlier."""
        self._controller, self._asked_ahead = before._controller, before._asked_ahead
        if before._is_decided:
            self._decide(before.num_workers, before._workers_reason)

    def _keep(self, stats: LoaderStats, histogram: Any = None) -> None:
        """Remember how an epoch went: its figures, and the sample times of all so far."""
        self._last_stats = stats
        self._histogram = self._histogram if histogram is None else histogram

    def _count_samples(self, batch: Any) -> int:
        return count_rows(batch, otherwise=self.batch_size or 1) if self._auto_collation else 1

    @property
    def keep_stats(self) -> bool:
        """Whether workers keep times and histograms for `stats()`; may be changed while a loop iterates."""
        return self._keep_stats

    @keep_stats.setter
    def keep_stats(self, value: bool) -> None:
        self._keep_stats = bool(value)
        for iterator in self._running():
            iterator.keep_stats(self._keep_stats)

    def _running(self) -> list[WorkersIterator]:
        return [it for it in self._live if isinstance(it, WorkersIterator) and it.is_open and it.is_ours]

    def resize(self, *, num_workers: int | None = None, prefetch_batches: int | None = None) -> None:
        """Change the number of workers, or of batches ahead, while a loop iterates or before the next one.

        No sample is lost, repeated or reordered. Workers that go finish what they have in hand.
        """
        for name, value in (("num_workers", num_workers), ("prefetch_batches", prefetch_batches)):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a whole number above 0, got {value!r}")
        running = self._running()
        if num_workers is not None and running and self._is_iterable:
            raise NotSupported(
                "the workers of an IterableDataset each own a part of the data: their number is fixed while it is read",
                next_step="call resize before the epoch starts",
            )
        if self.num_workers == 0 and running == [] and prefetch_batches is not None and num_workers is None:
            raise ValueError("prefetch_batches needs workers: this loader has num_workers=0")
        for iterator in running:  # before anything is changed: there may be no room for so many
            iterator.resize(num_workers, prefetch_batches)
        if prefetch_batches is not None:
            self._asked_ahead = prefetch_batches
        if num_workers is not None:
            self._decide(num_workers, "set by resize()")
            self._is_chosen = False
            if self.prefetch_factor is None:
                self.prefetch_factor = 2

    @property
    def quarantine(self) -> tuple[SampleFailure, ...]:
        """The samples that this loader has left out because they failed, in the order in which that was found."""
        return tuple(self._condemned.failures)

    def stats(self) -> LoaderStats:
        """A frozen snapshot of what this loader is doing, or of how the last epoch ended."""
        running = [iterator for iterator in self._live if iterator.is_open]
        if running:
            return max(running, key=lambda iterator: iterator.opened_at).snapshot()
        return self._last_stats or empty_stats(self)

    def __repr__(self) -> str:
        known = f"{Count(self.num_workers):worker(s)}" if self.num_workers else "in-process"
        workers = known if self._is_decided else "workers to be measured"
        profile = f", profile {self.profile}" if self.profile else ""
        return f"<headrace.DataLoader of {type(self.dataset).__name__}: batch {self.batch_size}, {workers}{profile}>"


def _check_tunable(tune: Any, dataset: Any, num_workers: Any, *, is_left_out: bool, assign: str) -> None:
    """Refuse `tune=` where nothing could be adjusted, or where that would change what the loop gets."""
    if tune != "online":
        raise ValueError(f"tune={tune!r}: there is 'online', or None")
    next_step = "leave tune= out"
    if isinstance(dataset, (torch_data.IterDataPipe, torch_data.MapDataPipe)) or assign == "fixed":
        what = "a data pipe" if assign != "fixed" else "assign='fixed'"
        raise NotSupported(f"{what} runs in torch's own loader, whose workers cannot be adjusted", next_step=next_step)
    if isinstance(dataset, torch_data.IterableDataset):
        raise NotSupported(
            'tune="online" cannot adjust the workers of an IterableDataset: each owns a part of the data, so their '
            "number decides which samples come together in a batch",
            dataset=type(dataset).__name__,
            next_step=f"{next_step}, and choose num_workers= yourself",
        )
    if num_workers == 0 and not is_left_out:
        raise NotSupported(
            "num_workers=0 fetches samples in the training process, where there is nothing to adjust",
            next_step='num_workers="auto", or a number to begin with',
        )


def _check_measurable(dataset: Any) -> None:
    """Refuse "auto" where a number of workers would be a guess."""
    if isinstance(dataset, torch_data.IterableDataset):
        # nothing shows from outside whether it splits: that it asks for its worker may be for a seed, and the samples
        # of two workers may differ by what they draw
        raise NotSupported(
            'num_workers="auto" cannot choose for an IterableDataset: one that does not split itself comes whole '
            "from every worker",
            dataset=type(dataset).__name__,
            next_step="num_workers=0, or a number if its __iter__ splits by torch.utils.data.get_worker_info()",
        )
    if isinstance(dataset, torch_data.MapDataPipe):
        raise NotSupported(
            "a data pipe runs in torch's own loader, where no number of workers can be measured",
            dataset=type(dataset).__name__,
            next_step="num_workers=0, or a number",
        )
