"""Data sets with random generators of their own: what they draw depends on the position of the sample alone."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from headrace import DataLoader


class Transform:
    """As random transforms are written: with a generator that is an attribute, or its class's."""

    shared = np.random.RandomState(3)

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __call__(self) -> float:
        generator = self.generator
        if isinstance(generator, torch.Generator):
            return float(torch.rand((), generator=generator, dtype=torch.float64))
        return float(generator.random() if not isinstance(generator, np.random.RandomState) else generator.rand())


class Shared(Transform):
    def __call__(self) -> float:
        return float(self.shared.rand())


_OF_MODULE = np.random.default_rng(3)


def _draw() -> float:
    return float(_OF_MODULE.random())


class OfModule(Transform):
    def __call__(self) -> float:
        return _draw()


class Augmented(Dataset[Any]):
    """Nested as in a `Compose`; every `late`-th draw only from there on."""

    def __init__(self, transforms: list[Transform], late: int = 0) -> None:
        self.pipeline = {"compose": [(transform,) for transform in transforms]}
        self.late = late

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> list[float]:
        return [transform() if index >= self.late else 0.0 for (transform,) in self.pipeline["compose"]]


class Lazy(Augmented):
    """Makes its generator with its first sample."""

    def __getitem__(self, index: int) -> list[float]:
        if not hasattr(self, "rng"):
            self.rng = np.random.default_rng()
        return [float(self.rng.random())]


def seed_by_worker(_: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)


class Initialised(Augmented):
    def __getitem__(self, index: int) -> list[float]:
        return [float(self.rng.random())]


MAKERS: dict[str, Callable[[], Transform]] = {
    "Generator": lambda: Transform(np.random.default_rng()),
    "Philox": lambda: Transform(np.random.Generator(np.random.Philox())),
    "RandomState": lambda: Transform(np.random.RandomState()),
    "Random": lambda: Transform(random.Random()),
    "torch": lambda: Transform(torch.Generator()),
    "class": lambda: Shared(None),
    "module": lambda: OfModule(None),
}


def drawn(dataset: Dataset[Any], num_workers: Any, batch_size: int, **options: Any) -> list[list[float]]:
    torch.manual_seed(11)
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=num_workers, **options)
    return [row for batch in loader for row in torch.stack(batch, 1).tolist()]


@pytest.mark.parametrize("late", [0, 40])
@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_drawn_does_not_depend_on_the_run_or_the_workers(kind: str, late: int) -> None:
    seen = [
        drawn(Augmented([MAKERS[kind](), MAKERS[kind]()], late), num_workers, batch_size)
        for num_workers, batch_size in ((1, 8), (2, 3), ("auto", 8))
    ]
    assert seen[0] == seen[1] == seen[2]
    assert len({row[0] for row in seen[0]}) == 96 - late + bool(late)
    if kind not in ("class", "module"):
        assert all(one != other for one, other in seen[0][late:])


def test_one_that_is_made_with_the_first_sample_or_by_the_worker() -> None:
    assert drawn(Lazy([]), 1, 8) == drawn(Lazy([]), 2, 3)
    options = {"worker_init_fn": seed_by_worker}
    assert drawn(Initialised([]), 1, 8, **options) == drawn(Initialised([]), 2, 3, **options)


def test_in_the_process_the_loops_own_copy_stays_as_it_was() -> None:
    generator = np.random.default_rng(5)
    drawn(Augmented([Transform(generator)]), "auto", 8)
    assert generator.random() == np.random.default_rng(5).random()


def test_a_data_set_of_millions_is_not_walked() -> None:
    dataset = Augmented([MAKERS["Generator"]()])
    dataset.paths = [(str(i),) for i in range(300_000)]  # type: ignore[attr-defined]
    assert drawn(dataset, 1, 8) == drawn(dataset, 2, 3)


def test_fixed_assignment_is_torchs() -> None:
    class Where(Dataset[int]):
        def __len__(self) -> int:
            return 48

        def __getitem__(self, index: int) -> int:
            info = get_worker_info()
            assert info is not None
            return info.id

    batches = [batch.tolist() for batch in DataLoader(Where(), batch_size=4, num_workers=2, assign="fixed")]
    assert batches == [[number % 2] * 4 for number in range(12)]
    with pytest.raises(ValueError, match="on_error"):
        DataLoader(Where(), num_workers=2, assign="fixed", on_error="quarantine")
    with pytest.raises(ValueError, match="assign='round'"):
        DataLoader(Where(), num_workers=2, assign="round")


class Unmade:
    """A proxy of what is made when it is asked for, and here cannot be made yet."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise LookupError("asked for outside of a request")


class Referring(Augmented):
    """Refers to what is gone, as what was made with a trainer may, and to what is not made yet."""

    def __init__(self, transforms: list[Transform]) -> None:
        self.parents = [weakref.proxy(Transform(None)), Unmade()]
        super().__init__(transforms)


@pytest.mark.parametrize("num_workers", [1, 0])
def test_what_a_data_set_refers_to_need_not_be_there(num_workers: int) -> None:
    def drawn() -> list[Any]:
        torch.manual_seed(5)
        made = Referring([Transform(np.random.default_rng(7))])
        return [batch[0].tolist() for batch in DataLoader(made, 8, num_workers=num_workers, on_error="quarantine")]

    assert drawn() == drawn()
    assert len(drawn()) == 12
