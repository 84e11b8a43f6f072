"""What a data set tells of where its samples lie: extents, or the files of a sample."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch.utils.data as torch_data

from headrace.storage.reading import Extent

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
