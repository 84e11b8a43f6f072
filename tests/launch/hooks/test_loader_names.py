"""Which loaders are one loader: those that a line makes again and again, not those that it makes for several uses."""

import gc
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from headrace import DataLoader as OurLoader
from headrace.launch.hooks.loader import name_of, settings_of


class Rows(TensorDataset):
    """A kind of its own: numbers of names count per kind, in the whole process."""


def rows(length: int) -> Rows:
    return Rows(torch.zeros(length, 1))


def named(loader: Any) -> str:
    return name_of(loader)


def test_one_that_is_made_anew_is_the_one_before() -> None:
    kept = rows(8)
    for data in (lambda: kept, lambda: rows(8), lambda: [1, 2, 3]):
        names = set()
        for _ in range(3):
            names.add(named(DataLoader(data())))  # type: ignore[arg-type]
        assert len(names) == 1
    names = set()
    for _ in range(3):
        loader = DataLoader(rows(9))
        names.add(named(loader))
        assert named(loader) in names  # it stays what it is
    assert len(names) == 1


def test_ours_too_and_after_an_epoch() -> None:
    for cls in (DataLoader, OurLoader):
        names = set()
        for _ in range(3):
            loader = cls(rows(7), batch_size=2)
            names.add(named(loader))
            assert len(list(loader)) == 4
            del loader
            gc.collect()
        assert len(names) == 1


def test_those_of_other_lines_of_other_lengths_or_that_live_at_once_are_others() -> None:
    first = named(DataLoader(rows(5)))
    assert named(DataLoader(rows(5))) != first
    at_once = [DataLoader(rows(6)) for _ in range(2)]
    assert len({*map(named, at_once)}) == 2
    by_split = [[named(DataLoader(rows(length))) for length in (20, 4)] for _ in range(3)]
    assert by_split[0] == by_split[1] == by_split[2]
    assert len(set(by_split[0])) == 2


def test_the_place_is_the_line_of_the_script() -> None:
    loader = DataLoader(rows(3))
    named(loader)
    place = settings_of(loader).place
    assert place.rpartition(":")[0] == __file__
    assert place.rpartition(":")[2].isdigit()
