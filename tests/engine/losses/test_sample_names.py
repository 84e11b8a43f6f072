"""A sample's file is found where data sets keep their lists, and no code of the user's runs for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import ConcatDataset, Dataset, Subset

from headrace.engine.losses.sample_names import name_sample


class Files(Dataset[Any]):
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> object:
        raise AssertionError("naming a sample must not fetch it")

    @property
    def samples(self) -> object:
        raise AssertionError("naming a sample must not run a property")


@pytest.mark.parametrize(
    "attributes",
    [
        {"paths": ["a", "b.npz", "c"]},
        {"imgs": [("a", 0), ("b.npz", 1), ("c", 0)]},  # torchvision's ImageFolder
        {"files": [Path("a"), Path("b.npz"), Path("c")]},
        {"files": np.array(["a", "b.npz", "c"])},
        {"data_list": [{}, {"img_path": "b.npz", "label": 3}, {}]},
        {"images": [b"a", b"b.npz", b"c"]},
        {"data": [0.5, "b.npz", 0.5]},
        {"paths": [], "files": ["a", "b.npz"]},  # a list that is too short is not the one
    ],
)
def test_a_file_is_named(attributes: dict[str, Any]) -> None:
    (size,) = {len(value) for value in attributes.values() if len(value) > 0}
    for index in (1, np.int64(1), 1 - size):
        assert name_sample(Files(**attributes), index) == "b.npz"


def test_through_subsets_and_concatenations() -> None:
    first, second = Files(paths=["a", "b", "c"]), Files(paths=["d", "e", "f"])
    both = Subset(ConcatDataset([first, Subset(second, [2, 0])]), [4, 3, 0])
    assert [name_sample(both, index) for index in range(3)] == ["d", "f", "a"]
    assert name_sample(both, 3) is None


def test_what_is_not_named_is_none() -> None:
    unnamed = [
        (Files(), 1),
        (Files(paths=["a"]), 7),
        (Files(paths=["a", "b"]), "key"),
        (Files(paths=["a", "b"]), True),
        (Files(data=np.zeros((3, 3))), 1),
        (Files(items={"a": 1}), 1),
        (object(), 1),
        (range(5), 1),
    ]
    for dataset, index in unnamed:
        assert name_sample(dataset, index) is None, (vars(dataset) if isinstance(dataset, Files) else dataset, index)


def test_a_data_set_that_holds_itself_ends() -> None:
    dataset = Files()
    dataset.__dict__["dataset"] = dataset
    assert name_sample(dataset, 0) is None
