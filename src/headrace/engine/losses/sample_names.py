"""Which file a data set means by an index, found without running any of its code."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.storage.shards import SamplePlace, Shards

# Names under which data sets keep their files: torchvision's folders, MONAI, mmengine, KITTI and nuScenes kits, and
# what people call them.
_LISTS = (
    *("samples", "imgs", "image_paths", "img_paths", "image_files", "img_files", "images", "paths", "file_paths"),
    *("files", "filenames", "file_names", "file_list", "filelist", "data_list", "data_infos", "items", "volumes"),
    *("scans", "velo_files", "lidar_files", "points_files", "keys", "urls", "data"),
)
_FIELDS = (
    *("path", "file", "filename", "file_name", "image", "img", "img_path", "image_path", "lidar_path"),
    *("url", "key"),
)
_DEEPEST = 8  # wrappers around wrappers: a subset of a concatenation of subsets …


def name_sample(dataset: Any, index: object) -> str | None:
    """The file (or key) of a sample, as the data set's own lists name it; None where none does.

    Only plain attributes and plain containers are looked at: no property, no `__getitem__` of the user's runs.
    """
    found = _unwrap(dataset, index, _DEEPEST)
    if found is None:
        return None
    attributes, place = found[0].__dict__, found[1]
    for name in _LISTS:
        entries = attributes.get(name)
        if isinstance(entries, np.ndarray):
            entries = entries if entries.ndim == 1 and entries.dtype.kind in "US" else ()
        elif not isinstance(entries, (list, tuple)):
            continue
        if -len(entries) <= place < len(entries):
            text = _text_of(entries[place])
            if text is not None:
                return text
    return None


def place_sample(dataset: Any, index: object) -> SamplePlace | None:
    """The key, the shard and the offset of a sample of `Shards`, also in torch's wrappers; None for other data sets.

    No code of the user's runs: the index of the shard is looked at.
    """
    found = _unwrap(dataset, index, _DEEPEST)
    if found is None or not isinstance(found[0], Shards):
        return None
    try:
        return found[0].place(found[1])
    except Exception:  # an index that is gone, or a shard that was changed: the failure itself has to be told
        return None


def _unwrap(dataset: Any, index: object, depth: int) -> tuple[Any, int] | None:
    """The innermost data set and the index there, through torch's Subset and ConcatDataset."""
    if isinstance(index, np.integer):
        index = int(index)
    attributes = getattr(dataset, "__dict__", None)
    if not isinstance(attributes, dict) or not isinstance(index, int) or isinstance(index, bool) or depth == 0:
        return None
    inner, indices = attributes.get("dataset"), attributes.get("indices")
    if inner is not None and isinstance(indices, (list, tuple, range, np.ndarray)):
        if not -len(indices) <= index < len(indices):
            return None
        return _unwrap(inner, indices[index], depth - 1)
    parts, ends = attributes.get("datasets"), attributes.get("cumulative_sizes")
    if isinstance(parts, (list, tuple)) and isinstance(ends, (list, tuple)):
        start = 0
        for part, end in zip(parts, ends, strict=False):
            if start <= index < end:
                return _unwrap(part, index - start, depth - 1)
            start = end
        return None
    if inner is not None and not any(name in attributes for name in _LISTS):
        return _unwrap(inner, index, depth - 1)
    return dataset, index


def _text_of(entry: object) -> str | None:
    """The first path in an entry: itself, the first text of a tuple, or a field with a telling name."""
    if isinstance(entry, bytes):
        entry = entry.decode("utf-8", "replace")
    if isinstance(entry, str):
        return str(entry) or None
    if isinstance(entry, os.PathLike):
        return os.fsdecode(entry)
    if isinstance(entry, Mapping) and type(entry) is dict:
        values: Sequence[object] = [entry[field] for field in _FIELDS if field in entry]
    elif isinstance(entry, (list, tuple)):
        values = entry[:4]
    else:
        return None
    return next((str(os.fspath(v)) for v in values if isinstance(v, (str, os.PathLike)) and v), None)
