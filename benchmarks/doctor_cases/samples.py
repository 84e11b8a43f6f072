"""Samples that are wrong in themselves: shapes, damage, exceptions, sizes; and collations that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case_files import FOLDER, NUM
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

CASES = {
    "shapes_all_differ": {"finds": "shapes_differ", "quick": "shapes_differ"},
    "shapes_differ_at_37": {"finds": "shapes_differ"},
    "grey_pictures_among_them": {"finds": "shapes_differ"},
    "truncated_npz": {"finds": "corrupt_sample"},
    "truncated_jpeg": {"finds": "corrupt_sample"},
    "empty_npz": {"finds": "corrupt_sample"},
    "raises_at_17": {"finds": "corrupt_sample"},
    "raises_always": {"finds": "sample_fails", "quick": "sample_fails"},
    "file_is_missing": {"finds": "sample_fails", "quick": "sample_fails"},
    "collate_raises": {"finds": "collate_fails", "quick": "collate_fails"},
    "collate_raises_in_workers": {"finds": "collate_fails"},
    "fewer_than_a_batch": {"finds": "no_batches", "quick": "no_batches"},
    "none_at_all": {"finds": "no_samples", "quick": "no_samples"},
    "without_a_length": {"finds": "no_length", "quick": "no_length"},
    "leaves_at_17": {"finds": "corrupt_sample"},
    "nothing_at_odd_ones": {"finds": "collate_fails", "also": ["corrupt_sample", "sample_fails"]},
    "objects_of_their_own": {"finds": "collate_fails", "quick": "collate_fails"},
    "eight_gigabytes_a_sample": {"finds": "out_of_memory", "options": ["--memory", "1GiB"]},
    "keeps_what_it_reads": {"finds": "out_of_memory", "options": ["--memory", "1GiB"]},
    "texts_of_any_length": {"finds": ""},
    "padded_by_its_own_collate": {"finds": ""},
    "nested_dictionaries": {"finds": "", "quick": ""},
}


class Made(Dataset[Any]):
    """Samples by a function of their index."""

    def __init__(self, make: Callable[[int], Any], num: int = NUM) -> None:
        self.make, self.num = make, num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> Any:
        if index >= self.num:
            raise IndexError(index)
        return self.make(index)


def _rows_by_index(index: int) -> torch.Tensor:
    return torch.zeros(3, 8 + index)


def _another_at_37(index: int) -> torch.Tensor:
    return torch.zeros(3, 9 if index == 37 else 8)


def _some_grey(index: int) -> torch.Tensor:
    return torch.zeros(1 if index % 9 == 8 else 3, 16, 16)


def _npz(folder: str) -> Callable[[int], Any]:
    return _Reader(FOLDER / folder)


class _Reader:
    """Of NPZ and JPEG files, one a sample."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, index: int) -> torch.Tensor:
        if self.folder.name.startswith("npz"):
            with np.load(self.folder / f"{index:03}.npz") as archive:
                return torch.from_numpy(archive["image"])
        with Image.open(self.folder / f"{index:03}.jpg") as image:
            return torch.from_numpy(np.array(image.convert("RGB")))


def _raises_at_17(index: int) -> torch.Tensor:
    if index == 17:
        raise ValueError("label 93 is not one of the 80 classes")
    return torch.zeros(4)


def _leaves_at_17(index: int) -> torch.Tensor:
    if index == 17:
        raise SystemExit(2)
    return torch.zeros(4)


def _raises(index: int) -> torch.Tensor:
    raise KeyError(f"no annotation for picture {index}")


def _missing(index: int) -> torch.Tensor:
    return torch.from_numpy(np.load(f"/data/not/mounted/{index:05}.npy"))


def _none_at_odd(index: int) -> torch.Tensor | None:
    return torch.zeros(4) if index % 2 == 0 else None


class _Box:
    """What no collation knows."""


def _box(index: int) -> dict[str, Any]:
    return {"image": torch.zeros(4), "box": _Box(), "index": index}


def _huge(index: int) -> torch.Tensor:
    return torch.full((1 << 31,), float(index))


class _Keeper:
    """A cache that nobody empties."""

    def __init__(self) -> None:
        self.kept: list[torch.Tensor] = []

    def __call__(self, index: int) -> torch.Tensor:
        self.kept.append(torch.full((16 << 18,), float(index)))
        return torch.zeros(4)


def _text(index: int) -> dict[str, Any]:
    return {"text": "x" * (index % 11), "label": index}


def _nested(index: int) -> dict[str, Any]:
    return {"views": [torch.zeros(3, 4), torch.ones(2)], "meta": {"index": index, "scale": 0.5}}


def _fail(rows: list[Any]) -> Any:
    raise RuntimeError(f"cannot pad {len(rows)} rows")


def _fail_in_workers(rows: list[Any]) -> Any:
    return _fail(rows) if get_worker_info() is not None else default_collate(rows)


def _pad(rows: list[torch.Tensor]) -> torch.Tensor:
    width = max(row.shape[-1] for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (0, width - row.shape[-1])) for row in rows])


def _loader(make: Callable[[int], Any], **options: Any) -> DataLoader[Any]:
    return DataLoader(Made(make), batch_size=4, num_workers=2, **options)


def shapes_all_differ() -> DataLoader[Any]:
    return _loader(_rows_by_index)


def shapes_differ_at_37() -> DataLoader[Any]:
    return _loader(_another_at_37)


def grey_pictures_among_them() -> DataLoader[Any]:
    return _loader(_some_grey)


def truncated_npz() -> DataLoader[Any]:
    return _loader(_npz("npz_cut"))


def truncated_jpeg() -> DataLoader[Any]:
    return _loader(_Reader(FOLDER / "jpeg_cut"))


def empty_npz() -> DataLoader[Any]:
    return _loader(_npz("npz_empty"))


def raises_at_17() -> DataLoader[Any]:
    return _loader(_raises_at_17)


def raises_always() -> DataLoader[Any]:
    return _loader(_raises)


def file_is_missing() -> DataLoader[Any]:
    return _loader(_missing)


def collate_raises() -> DataLoader[Any]:
    return _loader(_another_at_37, collate_fn=_fail)


def collate_raises_in_workers() -> DataLoader[Any]:
    return _loader(_text, collate_fn=_fail_in_workers)


def fewer_than_a_batch() -> DataLoader[Any]:
    return DataLoader(Made(_text, 3), batch_size=4, num_workers=2, drop_last=True)


def none_at_all() -> Made:
    return Made(_text, 0)


class without_a_length:  # it is the case's name
    def __getitem__(self, index: int) -> Any:
        return _text(index)


def leaves_at_17() -> DataLoader[Any]:
    return _loader(_leaves_at_17)


def nothing_at_odd_ones() -> DataLoader[Any]:
    return _loader(_none_at_odd)


def objects_of_their_own() -> DataLoader[Any]:
    return _loader(_box)


def eight_gigabytes_a_sample() -> DataLoader[Any]:
    return _loader(_huge)


def keeps_what_it_reads() -> DataLoader[Any]:
    return DataLoader(Made(_Keeper(), 4096), batch_size=16, num_workers=2)


def texts_of_any_length() -> DataLoader[Any]:
    return _loader(_text)


def padded_by_its_own_collate() -> DataLoader[Any]:
    return _loader(_rows_by_index, collate_fn=_pad)


def nested_dictionaries() -> DataLoader[Any]:
    return _loader(_nested)
