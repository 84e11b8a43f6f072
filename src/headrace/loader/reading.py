"""Reading ahead for a loader: the sampler's order goes to a reader, a window of batches before the workers need it."""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch.utils.data as torch_data

from headrace.engine import Ending, lies_in_dev_shm, signals_later, usable_processors, with_rows
from headrace.model import format_bytes, is_from_signal
from headrace.storage.media import starting_depth
from headrace.storage.reading import BlockReader, Extent, ReaderSettings, cached_share, source_installed

from .snapshot import cannot_go_on, len_or_none, say_once

if TYPE_CHECKING:
    from headrace.storage.reading import BlockAccess

    from .dataloader import DataLoader

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_MIB = 1 << 20
_BLOCK_BYTES = _MIB
# a hard disk that turns once in 8 ms reads a megabyte in that time: larger reads hide the way to them
_FEW_READS, _LARGE_BLOCK_BYTES = 4, 4 * _MIB
_MOST_BLOCK_BYTES = 256 * _MIB
# what the reader may hold where nobody says how deep to read
_MOST_OWN_BYTES = 512 * _MIB
MOST_DEPTH = 512  # reads in flight that may be asked for; each has a thread
_MOST_OWN_DEPTH = 128
_TUNED_DEPTH = 64  # that tune="online" may grow to, however badly it begins
_TRIED_SAMPLES = 32
# batches that are asked of the sampler at one time: the first batch must not wait for the plan of the hundredth
_PULL_BATCHES, _MOST_AHEAD = 4, 512
_FILES_AHEAD = 4  # times the depth, in files


def most_read_ahead(budget_bytes: int | None) -> int:
    """Bytes that a reader may come to hold where nobody says how deep to read."""
    return min(_MOST_OWN_BYTES, budget_bytes // 4) if budget_bytes is not None else _MOST_OWN_BYTES


def _attach_then_init(access: BlockAccess, init_fn: Callable[[int], None] | None, worker: int) -> None:
    access.attach()
    if init_fn is not None:
        init_fn(worker)


class _Followed:
    """Gives what a sampler gives, asked some batches before; what it raises comes where it would have come.

    No generator: an exception out of a signal handler would end that for good.
    """

    def __init__(self, indices: Iterator[Any], tell: Callable[[Any], int], *, most: int, is_batched: bool) -> None:
        self._indices, self._tell, self._most, self._is_batched = indices, tell, most, is_batched
        self._ahead: deque[list[Any]] = deque()  # batches, and what each brings to read
        self._in_hand = 0
        self._end: Exception | None = None
        self._is_torn = False  # the sampler was left in the middle of its work

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for _ in range(_PULL_BATCHES):
            is_full = len(self._ahead) >= _MOST_AHEAD or (len(self._ahead) > 1 and self._in_hand >= self._most)
            if is_full or self._is_torn or self._end is not None:
                break
            self._is_torn = True
            try:
                batch = next(self._indices)
                planned = [with_rows(batch) if self._is_batched else batch, 0]
            except Exception as error:
                if is_from_signal(error):
                    raise
                self._end, self._is_torn = error, False
                break
            self._ahead.append(planned)
            self._is_torn = False
            planned[1] = self._tell(planned[0])
            self._in_hand += planned[1]
        if self._ahead:
            batch, amount = self._ahead.popleft()
            self._in_hand -= amount
            return batch
        if self._end is None:
            raise cannot_go_on("the sampler")
        end = self._end
        self._end = end if isinstance(end, StopIteration) else None
        raise end


class Reading:
    """One reader for one iterator of a loader."""

    def __init__(
        self,
        settings: ReaderSettings,
        extents_of: ExtentsOf | None,
        paths_of: PathsOf | None,
        *,
        is_batched: bool,
        owner: object,
    ) -> None:
        self._extents_of, self._paths_of, self._is_batched = extents_of, paths_of, is_batched
        ahead = 2 * settings.block_bytes if extents_of is not None else _FILES_AHEAD
        self._window = settings.most_depth * ahead  # bytes, or files
        self._next_seq = self._first_seq = self._num_delivered = 0
        self.reader = BlockReader(settings)
        self.close = Ending(owner, self.reader.close)

    @classmethod
    def start(cls, loader: DataLoader[Any], owner: object, *, budget_bytes: int | None = None) -> Reading | None:
        """Start to read ahead for an iterator of a loader; None where there is nothing to read, or no gain in it."""
        depth, dataset = loader.io_depth, loader.dataset
        if depth == 0 or loader._is_iterable or lies_in_dev_shm():  # blocks there would fill it
            return None
        extents_of, paths_of = find_extents(dataset), _paths_of(loader)
        if extents_of is None and paths_of is None:
            if depth is not None:
                say_once(
                    f"io_depth={depth} has no effect: {type(dataset).__name__} does not say where its samples lie. "
                    "Give it a method extents(index), or the loader readahead=."
                )
            return None
        if extents_of is not None:
            paths_of = None
        some = list(_some_places(dataset, extents_of, paths_of))
        if not some:
            return None
        largest = max(extent.size for sample in some for extent in sample)
        sample_bytes = max(sum(extent.size for extent in sample) for sample in some)
        # with tune="online" it is where the reader begins
        why, most_depth = "as asked for", None if loader.tune else depth
        if depth is None:
            depth, why = starting_depth(some[0][0].path)
            cached = cached_share(extent for sample in some for extent in sample[:1])
            if not depth or cached > 0.9:
                reason = why if not depth else f"{cached:.0%} of it lies in the page cache"
                _log.info("%s: nothing is read ahead (%s); io_depth= insists", loader, reason)
                return None
        num_workers = max(1, loader.num_workers, 4 * usable_processors() if loader.tune else 0)
        # so large that a few of the largest extents, and a sample for each worker, fit what is in flight
        need = max(4 * largest, (num_workers + 2) * sample_bytes)
        least = _LARGE_BLOCK_BYTES if depth <= _FEW_READS else _BLOCK_BYTES
        block_bytes = min(_MOST_BLOCK_BYTES, max(least, 1 << max(0, -(-need // depth) - 1).bit_length()))
        if most_depth is None:
            growth = max(8 * depth, _TUNED_DEPTH) if loader.tune else 8 * depth
            most_depth = max(depth, min(_MOST_OWN_DEPTH, growth, most_read_ahead(budget_bytes) // block_bytes))
        # what workers hold while they decode comes on top
        leased = 2 * (num_workers + 1) * sample_bytes + 4 * _MIB
        settings = ReaderSettings(
            space_bytes=-(-(most_depth * block_bytes + leased) // _MIB) * _MIB,
            block_bytes=block_bytes,
            depth=depth,
            most_depth=most_depth,
            num_workers=num_workers,
        )
        _log.info(
            "%s: %s are read ahead, %d reads of up to %s in flight (%s)",
            *(loader, "extents" if extents_of is not None else "files", depth, format_bytes(block_bytes), why),
        )
        with signals_later():
            return cls(settings, extents_of, paths_of, is_batched=loader._auto_collation, owner=owner)

    def init_fn(self, init_fn: Callable[[int], None] | None) -> Callable[[int], None] | None:
        return init_fn if self._extents_of is None else partial(_attach_then_init, self.reader.access, init_fn)

    def follow(self, indices: Iterator[Any]) -> Iterator[Any]:
        """Pass on what the sampler gives, and tell the reader of it some batches before."""
        self.reader.passed(self._next_seq - 1)  # nothing that was planned so far will be needed
        self._first_seq, self._num_delivered = self._next_seq, 0
        return _Followed(indices, self._tell, most=self._window, is_batched=self._is_batched)

    def _tell(self, batch: Any) -> int:
        seq = self._next_seq
        self._next_seq += 1
        try:
            indices = batch if self._is_batched else (batch,)
            if self._extents_of is not None:
                extents_of = self._extents_of
                return self.reader.plan(seq, [extent for index in indices for extent in extents_of(index)])
            assert self._paths_of is not None
            paths = [path for index in indices for path in self._paths_of(index)]
            self.reader.plan_files(seq, paths)
            return len(paths)
        except Exception as error:
            if is_from_signal(error):
                raise
            return 0  # a data set that cannot say it will raise where the sample is fetched

    def delivered(self) -> None:
        self._num_delivered += 1
        self.reader.passed(self._first_seq + self._num_delivered - 1)

    def during(self, fetch: Callable[[], _T]) -> _T:
        """Fetch in this process, with the reader's blocks at hand."""
        if self._extents_of is None:
            return fetch()
        with source_installed(self.reader.access.source()):
            return fetch()


def _paths_of(loader: DataLoader[Any]) -> PathsOf | None:
    asked = loader.readahead
    if callable(asked):

        def paths(index: Any) -> list[str]:
            found = asked(index)  # a path, or several
            return [os.fsdecode(path) for path in ([found] if isinstance(found, (str, bytes, os.PathLike)) else found)]

        return paths
    if not asked:
        return None
    found = find_paths(loader.dataset)
    if found is None and find_extents(loader.dataset) is None:
        raise ValueError(
            f"readahead=True: {type(loader.dataset).__name__} has no list of files that is known (samples, imgs or "
            "files); give a function that returns the path, or the paths, of a sample: readahead=lambda index: …"
        )
    return found


def _some_places(dataset: Any, extents_of: ExtentsOf | None, paths_of: PathsOf | None) -> Iterator[list[Extent]]:
    """Where some samples lie, from all over the data set."""
    count = len_or_none(dataset)
    for index in sorted({i * (count - 1) // (_TRIED_SAMPLES - 1) for i in range(_TRIED_SAMPLES)} if count else ()):
        with contextlib.suppress(Exception):
            if extents_of is not None:
                extents = [Extent(*extent) for extent in extents_of(index)]
            else:
                assert paths_of is not None
                extents = [Extent(path, 0, os.stat(path).st_size) for path in paths_of(index)]
            if extents:
                yield extents


ExtentsOf = Callable[[Any], Sequence[Extent]]
PathsOf = Callable[[Any], list[str]]

# where data sets keep their lists of files: torchvision's folders, and what many write themselves
_LISTS = ("samples", "imgs", "files")


def find_extents(dataset: Any) -> ExtentsOf | None:
    """The data set's own `extents(index)`, through torch's Subset and ConcatDataset; None where it has none."""
    return _through(dataset, lambda inner: getattr(inner, "extents", None))


def find_paths(dataset: Any) -> PathsOf | None:
    """The file of each sample, from a list of files that the data set has; None where it has none."""

    def of_lists(inner: Any) -> PathsOf | None:
        lists = (getattr(inner, name, None) for name in _LISTS)
        known = [some for some in lists if isinstance(some, Sequence) and len(some) and _path_in(some[0]) is not None]
        return (lambda index: list(filter(None, [_path_in(known[0][index])]))) if known else None

    return _through(dataset, of_lists)


def _path_in(item: Any) -> str | None:
    first = item[0] if isinstance(item, (tuple, list)) and item else item
    return os.fsdecode(first) if isinstance(first, (str, os.PathLike)) else None


def _through(dataset: Any, find: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """What `find` finds of a data set, or of those that torch's own wrappers hold."""
    found: Callable[[Any], Any] | None = find(dataset)
    if found is not None:
        return found
    if isinstance(dataset, torch_data.Subset):
        inner, indices = _through(dataset.dataset, find), dataset.indices
        return None if inner is None else lambda index: inner(indices[index])
    if isinstance(dataset, torch_data.ConcatDataset):
        parts, ends = [_through(part, find) for part in dataset.datasets], dataset.cumulative_sizes
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None

        def of_part(index: int) -> Any:
            index = index + ends[-1] if index < 0 else index
            number = bisect_right(ends, index)
            return known[number](index - (ends[number - 1] if number else 0))

        return of_part
    return None
