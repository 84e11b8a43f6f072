"""Reading ahead for a loader: the sampler's order goes to a reader, a window of batches before the workers need it."""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch.utils.data as torch_data

from headrace.model import ReaderStats, format_bytes
from headrace.storage.media import starting_depth
from headrace.storage.reading import BlockReader, Extent, ReaderSettings, cached_share, source_installed

from .snapshot import say_once

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
_TRIED_SAMPLES = 32
# batches that are asked of the sampler at one time: the first batch must not wait for the plan of the hundredth
_PULL_BATCHES, _MOST_AHEAD = 4, 512
_FILES_AHEAD = 4  # times the depth, in files


@dataclass(frozen=True)
class _Scale:
    """What the first look at the data showed."""

    largest_extent: int
    sample_bytes: int
    cached_share: float


class InitThenRead:
    """The start of a worker: find the reader's blocks, then what the user asked for."""

    def __init__(self, access: BlockAccess, init_fn: Callable[[int], None] | None) -> None:
        self._access, self._init_fn = access, init_fn

    def __call__(self, worker: int) -> None:
        self._access.attach()
        if self._init_fn is not None:
            self._init_fn(worker)


class _Followed:
    """A sampler's iterator, asked some batches before its batches are needed."""

    def __init__(self, indices: Iterator[Any], tell: Callable[[Any], int], *, most: int) -> None:
        self._indices, self._tell, self._most = indices, tell, most
        self._ahead: deque[tuple[Any, int]] = deque()  # batches, and what each brings to read
        self._amount = 0
        self._end: BaseException | None = None  # what the sampler raised, until its turn

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._pull()
        if not self._ahead:
            assert self._end is not None
            end, self._end = self._end, None
            raise end
        batch, amount = self._ahead.popleft()
        self._amount -= amount
        return batch

    def _pull(self) -> None:
        for _ in range(_PULL_BATCHES):
            if self._end is not None or len(self._ahead) >= _MOST_AHEAD:
                return
            if len(self._ahead) > 1 and self._amount >= self._most:
                return
            try:
                batch = next(self._indices)
            except BaseException as error:
                self._end = error
                return
            amount = self._tell(batch)
            self._amount += amount
            self._ahead.append((batch, amount))


class Reading:
    """One reader for one iterator of a loader."""

    def __init__(self, settings: ReaderSettings, extents_of: ExtentsOf | None, paths_of: PathsOf | None) -> None:
        self._extents_of, self._paths_of = extents_of, paths_of
        self._window_bytes = 2 * settings.most_depth * settings.block_bytes
        self._window_files = _FILES_AHEAD * settings.most_depth
        self._is_batched = True
        self._next_seq = self._first_seq = self._num_delivered = 0
        self.reader = BlockReader(settings)

    @classmethod
    def start(cls, loader: DataLoader[Any], *, budget_bytes: int | None = None) -> Reading | None:
        """Start to read ahead for a loader; None where there is nothing to read ahead, or no gain in it."""
        depth, dataset = loader.io_depth, loader.dataset
        if depth == 0 or loader._is_iterable or not hasattr(os, "memfd_create"):
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
        scale = _Scale(
            max(extent.size for sample in some for extent in sample),
            max(sum(extent.size for extent in sample) for sample in some),
            cached_share(extent for sample in some for extent in sample[:1]),
        )
        why = "as asked for"
        most_depth = depth
        if depth is None:
            depth, why = starting_depth(some[0][0].path)
            if not depth or scale.cached_share > 0.9:
                reason = why if not depth else f"{scale.cached_share:.0%} of it lies in the page cache"
                _log.info("%s: nothing is read ahead (%s); io_depth= insists", loader, reason)
                return None
        assert depth is not None
        num_workers = max(1, loader.num_workers)
        block_bytes = _block_bytes(depth, scale, num_workers)
        if most_depth is None:
            most_bytes = min(_MOST_OWN_BYTES, budget_bytes // 4) if budget_bytes is not None else _MOST_OWN_BYTES
            most_depth = max(depth, min(_MOST_OWN_DEPTH, 8 * depth, most_bytes // block_bytes))
        # what workers hold while they decode comes on top
        leased = 2 * (num_workers + 1) * scale.sample_bytes + 4 * _MIB
        settings = ReaderSettings(
            space_bytes=_round_up(most_depth * block_bytes + leased, _MIB),
            block_bytes=block_bytes,
            depth=depth,
            most_depth=most_depth,
            num_workers=num_workers,
        )
        reading = cls(settings, extents_of, paths_of)
        reading._is_batched = loader._auto_collation
        _log.info(
            "%s: %s are read ahead, %d reads of up to %s in flight (%s)",
            loader,
            "extents" if extents_of is not None else "files",
            depth,
            format_bytes(block_bytes),
            why,
        )
        return reading

    def init_fn(self, init_fn: Callable[[int], None] | None) -> Callable[[int], None] | None:
        """What a worker does first."""
        return InitThenRead(self.reader.access, init_fn) if self._extents_of is not None else init_fn

    # ------------------------------------------------------------------------------------ the order

    def follow(self, indices: Iterator[Any]) -> Iterator[Any]:
        """Pass on what the sampler gives, and tell the reader of it some batches before.

        What the sampler raises comes out where it would have come without us.
        """
        self.reader.passed(self._next_seq - 1)  # nothing that was planned so far will be needed
        self._first_seq, self._num_delivered = self._next_seq, 0
        return _Followed(indices, self._tell, most=self._window)

    @property
    def _window(self) -> int:
        return self._window_bytes if self._extents_of is not None else self._window_files

    def _tell(self, batch: Any) -> int:
        seq = self._next_seq
        self._next_seq += 1
        # a data set that cannot say it will raise where the sample is fetched
        with contextlib.suppress(Exception):
            indices = batch if self._is_batched else (batch,)
            if self._extents_of is not None:
                extents_of = self._extents_of
                return self.reader.plan(seq, [extent for index in indices for extent in extents_of(index)])
            assert self._paths_of is not None
            paths = [path for index in indices for path in self._paths_of(index)]
            self.reader.plan_files(seq, paths)
            return len(paths)
        return 0

    def delivered(self) -> None:
        """One more batch of the epoch has reached the loop."""
        self._num_delivered += 1
        self.reader.passed(self._first_seq + self._num_delivered - 1)

    def during(self, fetch: Callable[[], _T]) -> _T:
        """Fetch in this process, with the reader's blocks at hand."""
        if self._extents_of is None:
            return fetch()
        with source_installed(self.reader.access.source()):
            return fetch()

    # ------------------------------------------------------------------------------------ figures, end

    def stats(self) -> ReaderStats:
        return self.reader.stats()

    def close(self) -> None:
        self.reader.close()


def _paths_of(loader: DataLoader[Any]) -> PathsOf | None:
    if callable(loader.readahead):
        return paths_from(loader.readahead)
    if not loader.readahead:
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
    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        return
    for index in sorted({i * (count - 1) // (_TRIED_SAMPLES - 1) for i in range(_TRIED_SAMPLES)} if count else ()):
        with contextlib.suppress(Exception):
            if extents_of is not None:
                extents = [Extent(*extent) for extent in extents_of(index)]
            else:
                assert paths_of is not None
                extents = [Extent(path, 0, os.stat(path).st_size) for path in paths_of(index)]
            if extents:
                yield extents


def _block_bytes(depth: int, scale: _Scale, num_workers: int) -> int:
    """So large that a few of the largest extents, and a sample for each worker, fit what is in flight."""
    least = _LARGE_BLOCK_BYTES if depth <= _FEW_READS else _BLOCK_BYTES
    need = max(4 * scale.largest_extent, (num_workers + 2) * scale.sample_bytes)
    return min(_MOST_BLOCK_BYTES, max(least, 1 << max(0, -(-need // depth) - 1).bit_length()))


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


ExtentsOf = Callable[[Any], Sequence[Extent]]
PathsOf = Callable[[Any], list[str]]

# where data sets keep their lists of files: torchvision's folders, and what many write themselves
_LISTS = ("samples", "imgs", "files")


def find_extents(dataset: Any) -> ExtentsOf | None:
    """The data set's own `extents(index)`, through torch's Subset and ConcatDataset; None where it has none."""
    found: ExtentsOf | None = _through(dataset, lambda inner: getattr(inner, "extents", None))
    return found


def find_paths(dataset: Any) -> PathsOf | None:
    """The file of each sample, from a list of files that the data set has; None where it has none."""

    def of_lists(inner: Any) -> PathsOf | None:
        lists = (getattr(inner, name, None) for name in _LISTS)
        known = [some for some in lists if isinstance(some, Sequence) and len(some) and _path_in(some[0]) is not None]
        return _paths_in(known[0]) if known else None

    found: PathsOf | None = _through(dataset, of_lists)
    return found


def paths_from(function: Callable[[Any], Any]) -> PathsOf:
    """The user's `readahead=`, which may return a path or several."""

    def paths(index: Any) -> list[str]:
        found = function(index)
        some = [found] if isinstance(found, (str, bytes, os.PathLike)) else found
        return [os.fsdecode(path) for path in some]

    return paths


def _paths_in(listed: Sequence[Any]) -> PathsOf:
    def paths(index: Any) -> list[str]:
        path = _path_in(listed[index])
        return [] if path is None else [path]

    return paths


def _path_in(item: Any) -> str | None:
    first = item[0] if isinstance(item, (tuple, list)) and item else item
    return os.fsdecode(first) if isinstance(first, (str, os.PathLike)) else None


def _through(dataset: Any, find: Callable[[Any], Any]) -> Any:
    """What `find` finds of a data set, or of those that torch's own wrappers hold."""
    found = find(dataset)
    if found is not None:
        return found
    if isinstance(dataset, torch_data.Subset):
        inner, indices = _through(dataset.dataset, find), dataset.indices
        return None if inner is None else lambda index: inner(indices[index])
    if isinstance(dataset, torch_data.ConcatDataset):
        parts, ends = [_through(part, find) for part in dataset.datasets], dataset.cumulative_sizes
        if any(part is None for part in parts):
            return None

        def of_part(index: int) -> Any:
            index = index + ends[-1] if index < 0 else index
            number = bisect_right(ends, index)
            return parts[number](index - (ends[number - 1] if number else 0))

        return of_part
    return None
