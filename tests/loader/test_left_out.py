"""Samples that are left out while batches are in flight: the later ones move up, each whole and in its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset

from headrace import RETRY, SKIP, DataLoader, SampleFailure, TooManyBad

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SIZE = 120
BACKENDS = ["process", "thread"]


class Rows(Dataset[Any]):
    """An array, a number and a random one; some samples raise."""

    has_text = False

    def __init__(self, bad: set[int], size: int = SIZE) -> None:
        self.bad, self.size = bad, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        number = int(index)
        if number in self.bad:
            raise ValueError(f"sample {number} is broken")
        sample = {"x": np.full((3, 100), number, np.float32), "y": number}
        return {**sample, "name": f"sample {number}"} if self.has_text else sample


class RowsWithTexts(Rows):
    """With a text beside the array: it lies in a block beside the slot."""

    has_text = True


class Drawing(Rows):
    """Each sample draws, from a generator that is seeded by its place in the order."""

    def __getitem__(self, index: Any) -> Any:
        return {**super().__getitem__(index), "drawn": torch.rand(2)}


def as_list(samples: list[Any]) -> list[Any]:
    """Changes its samples in place, as some collations do: who collated one twice would give it out wrong."""
    for sample in samples:
        sample["x"] += 1000
    return [(sample["x"], sample["y"]) for sample in samples]


def as_pairs(samples: list[Any]) -> list[Any]:
    return [(sample["x"] + 1000, sample["y"]) for sample in samples]


def keys_of(batch: Any) -> list[int]:
    """The keys of a batch, each compared with what lies beside it."""
    if isinstance(batch, list):
        assert all((np.asarray(x) == y + 1000).all() for x, y in batch)
        return [y for _, y in batch]
    keys: list[int] = batch["y"].tolist()
    assert (batch["x"] == batch["y"][:, None, None]).all()
    if "name" in batch:
        assert list(batch["name"]) == [f"sample {key}" for key in keys]
    return keys


def expected(bad: set[int], size: int = SIZE) -> list[int]:
    good = [index for index in range(size) if index not in bad]
    return good + (good * size)[: size - len(good)]


def run(loader: DataLoader[Any]) -> list[int]:
    batches = [keys_of(batch) for batch in loader]
    assert len(batches) == len(loader)
    assert {len(batch) for batch in batches[:-1]} <= {loader.batch_size}
    return [key for batch in batches for key in batch]


@settings(max_examples=25)
@given(
    bad=st.sets(st.integers(0, SIZE - 1), max_size=25),
    batch_size=st.sampled_from([1, 2, 7, 16, 50]),
    num_workers=st.integers(1, 3),
    backend=st.sampled_from(BACKENDS),
    kind=st.sampled_from(["slots", "texts", "general"]),
    prefetch_factor=st.sampled_from([None, 1, 4]),
)
def test_the_later_ones_move_up(
    bad: set[int], batch_size: int, num_workers: int, backend: str, kind: str, prefetch_factor: int | None
) -> None:
    loader = DataLoader(
        (RowsWithTexts if kind == "texts" else Rows)(bad),
        batch_size,
        num_workers=num_workers,
        backend=backend,
        collate_fn=as_list if kind == "general" else None,
        prefetch_factor=prefetch_factor,
        on_error="quarantine",
        max_bad=SIZE,
    )
    assert run(loader) == expected(bad)
    assert sorted(failure.key for failure in loader.quarantine) == sorted(bad)
    account = loader.stats().account
    assert (account.given_out, account.quarantined, account.in_flight) == (SIZE, len(bad), 0)


@pytest.mark.parametrize("kind", ["slots", "general"])
def test_what_is_drawn_does_not_depend_on_when_a_sample_was_found_bad(kind: str) -> None:
    bad = {3, 4, 5, 17, 40, 41, 77, 119}

    def drawn(**options: Any) -> list[list[float]]:
        loader = DataLoader(
            Drawing(bad),
            8,
            num_workers=2,
            on_error="quarantine",
            max_bad=SIZE,
            collate_fn=list if kind == "general" else None,
            generator=torch.Generator().manual_seed(7),
            **options,
        )
        if kind == "general":
            return [sample["drawn"].tolist() for batch in loader for sample in batch]
        return [row for batch in loader for row in batch["drawn"].tolist()]

    assert drawn() == drawn(skip_quarantined=sorted(bad))


class Names:
    """A sampler whose keys are no plain integers."""

    def __iter__(self) -> Any:
        return iter([np.int64(index) for index in range(SIZE)])

    def __len__(self) -> int:
        return SIZE


def test_keys_that_are_pickled_are_replaced_as_well() -> None:
    bad = {0, 1, 30, 64, 118}
    sampler: Any = Names()
    loader = DataLoader(
        RowsWithTexts(bad), 6, sampler=sampler, num_workers=2, on_error="quarantine", max_bad=SIZE, prefetch_factor=4
    )
    assert run(loader) == expected(bad)


@pytest.mark.parametrize("collate", [None, as_list], ids=["slots", "general"])
def test_a_sample_that_is_tried_again_in_a_batch_that_waits_for_others(collate: Any) -> None:
    """Some are left out, some tried once more and left out then, while both touch the same batches."""
    bad = {2, 9, 10, 11, 29, 30, 52, 53, 90}

    def decide(failure: SampleFailure) -> Any:
        return RETRY if failure.key % 2 == 0 and failure.tries < 2 else SKIP

    loader = DataLoader(
        Rows(bad), 4, num_workers=2, collate_fn=collate, on_error=decide, max_bad=SIZE, prefetch_factor=3
    )
    assert run(loader) == expected(bad)
    tries = {failure.key: failure.tries for failure in loader.quarantine}
    assert tries == {key: 2 if key % 2 == 0 else 1 for key in bad}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("collate", [None, as_pairs], ids=["slots", "general"])
def test_a_worker_dies_while_samples_move_up(backend: str, collate: Any) -> None:
    loader = DataLoader(
        Deadly({5, 6, 21, 60}, {7, 22}),
        8,
        num_workers=2,
        backend=backend,
        collate_fn=collate,
        on_error="quarantine",
        max_bad=SIZE,
    )
    assert run(loader) == expected({5, 6, 7, 21, 22, 60})


class Deadly(Rows):
    """Some samples raise, others take their worker with them, each time."""

    def __init__(self, bad: set[int], deadly: Sequence[int] | set[int]) -> None:
        super().__init__(bad)
        self.deadly = deadly

    def __getitem__(self, index: Any) -> Any:
        if index in self.deadly:
            os._exit(3)
        return super().__getitem__(index)


def test_an_error_behind_a_sample_that_was_left_out_is_raised_in_its_turn() -> None:
    def decide(failure: SampleFailure) -> Any:
        if failure.key == 41:
            raise LookupError("stop here")
        return SKIP

    loader = DataLoader(Rows({12, 41}), 4, num_workers=2, on_error=decide, prefetch_factor=4)
    got: list[int] = []
    with pytest.raises(LookupError, match="stop here"):
        got.extend(key for batch in loader for key in keys_of(batch))
    assert got == [key for key in range(41) if key != 12][: len(got)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_without_a_good_sample_is_an_error(num_workers: int) -> None:
    """What `drop_last` drops is no part of the epoch, so it cannot fill a batch."""
    loader = DataLoader(
        Rows(set(range(8)), 12), 8, drop_last=True, num_workers=num_workers, on_error="quarantine", max_bad=12
    )
    with pytest.raises(TooManyBad, match="every sample of the epoch is left out"):
        run(loader)
    assert len(loader.quarantine) == 8
