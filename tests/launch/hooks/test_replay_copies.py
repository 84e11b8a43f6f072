"""A batch that is given again is the batch that came, whatever the training did to it meanwhile."""

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import numpy as np
import torch

from headrace.launch.hooks.replay import batch_bytes, copy_batch

Pair = namedtuple("Pair", "image label")


class Odd:
    """An object of a kind that nobody knows."""

    def __init__(self, value: int) -> None:
        self.values = [value]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and other.values == self.values

    __hash__ = None  # type: ignore[assignment]


def make() -> dict[str, Any]:
    return {
        "image": torch.arange(6.0).reshape(2, 3),
        "pair": Pair(torch.ones(2), 3),
        "list": [torch.zeros(1), "text", None, 1.5],
        "array": np.arange(4),
        "mapping": OrderedDict(a=torch.ones(1)),
        "user": UserDict(ids=torch.ones(2, dtype=torch.int64)),
        "odd": Odd(7),
    }


def assert_whole(batch: dict[str, Any]) -> None:
    expected = make()
    assert list(batch) == list(expected)
    assert torch.equal(batch["image"], expected["image"])
    assert isinstance(batch["pair"], Pair)
    assert torch.equal(batch["pair"].image, torch.ones(2))
    assert batch["list"][1:] == ["text", None, 1.5]
    assert batch["array"].tolist() == [0, 1, 2, 3]
    assert isinstance(batch["mapping"], OrderedDict)
    assert isinstance(batch["user"], UserDict)
    assert torch.equal(batch["user"]["ids"], torch.ones(2, dtype=torch.int64))
    assert batch["odd"] == Odd(7)


def test_what_the_training_does_to_a_batch_stays_with_it() -> None:
    kept = copy_batch(make())
    for _ in range(3):
        batch = copy_batch(kept)
        assert_whole(batch)
        batch["image"].mul_(2)
        batch["image"].numpy()[:] = 7  # torch does not count what is written through an array
        batch["user"]["ids"][0] = 5
        batch["array"][:] = 9
        batch["odd"].values.append(1)
        batch["list"].append("more")
        batch["user"]["extra"] = 1
        batch["image"].requires_grad_()
        del batch["pair"]


def test_the_original_stays_the_trainings_own() -> None:
    batch = make()
    kept = copy_batch(batch)
    batch["image"].zero_()
    assert_whole(kept)


def test_sizes_are_of_tensors_and_arrays_by_where_they_lie() -> None:
    batch = {"a": torch.zeros(3), "b": [np.zeros(2), "text"], "c": torch.zeros(5, device="meta")}
    assert batch_bytes(batch) == {"cpu": 28, "meta": 20}


def test_tensors_of_inference_mode_are_given_too() -> None:
    with torch.inference_mode():
        kept = copy_batch([torch.ones(2)])
    assert torch.equal(copy_batch(kept)[0], torch.ones(2))
