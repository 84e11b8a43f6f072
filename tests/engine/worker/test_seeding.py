"""Random numbers depend on the sample's position alone, whatever it draws from and however chunks were cut."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import DataLoader
from headrace.engine.local import LocalFetcher
from headrace.engine.worker.fetch import TRIAL_SAMPLES, CannotSplit, Fetcher, SampleSeeds, mix_seed, seed_worker

DRAWS: dict[str, Callable[[], Any]] = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "random.shuffle": lambda: random.sample(range(50), 50),
    "numpy": np.random.rand,
    "numpy normal": np.random.standard_normal,
    "numpy many": lambda: np.random.randint(0, 9, 624).tolist(),
    "torch": lambda: torch.rand(()).item(),
    "torch normal": lambda: torch.randn(3).tolist(),
}


@pytest.fixture(autouse=True)
def _generators_as_they_were() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


class Drawing:
    """Draws from the named generators, each only from a certain index on."""

    def __init__(self, first_draws: dict[str, int]) -> None:
        self.first_draws = first_draws

    def __getitem__(self, index: int) -> list[Any]:
        return [DRAWS[name]() for name, first in self.first_draws.items() if index >= first]


def run(dataset: Any, cuts: list[int], count: int, base_seed: int, *, seeds: SampleSeeds | None = None) -> list[Any]:
    """Fetch samples 0..count in chunks as a worker does."""
    seeds = seeds or SampleSeeds()
    fetcher = Fetcher(dataset, has_getitems=False, seeds=seeds)
    samples: list[Any] = []
    position = 0
    while position < count:
        size = min(cuts[len(samples) % len(cuts)], count - position)
        indices = range(position, position + size)
        seeds.begin_chunk()
        with seeds:
            some = fetcher.many(indices, base_seed, position)
        if seeds.end_chunk():
            some = fetcher.many(indices, base_seed, position)
        samples += some
        position += size
    return samples


firsts = st.dictionaries(st.sampled_from(sorted(DRAWS)), st.sampled_from([0, 3, TRIAL_SAMPLES + 5, 35]), max_size=3)
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(first_draws=firsts, one=cuts, other=cuts, base_seed=st.integers(0, 2**63 - 1))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_samples_do_not_depend_on_the_chunks(
    first_draws: dict[str, int], one: list[int], other: list[int], base_seed: int
) -> None:
    dataset = Drawing(first_draws)
    assert run(dataset, one, 40, base_seed) == run(dataset, other, 40, base_seed)


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_each_generator_is_noticed_and_varies_by_position_and_seed(name: str) -> None:
    seeds = SampleSeeds()
    dataset = Drawing({name: 0})
    samples = run(dataset, [4], 40, 11, seeds=seeds)
    assert seeds.is_drawing
    assert len({repr(sample) for sample in samples}) == 40
    assert run(dataset, [4], 40, 12) != samples
    assert run(dataset, [4], 40, 11) == samples


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_a_generator_that_looked_unused_and_moves_makes_the_chunk_run_again(name: str) -> None:
    seeds = SampleSeeds()
    dataset = Drawing({name: 30})
    run(dataset, [5], 30, 5, seeds=seeds)
    assert not seeds.is_drawing
    assert not seeds.per_sample
    late = run(dataset, [5], 40, 5)[30:]
    fetcher = Fetcher(dataset, has_getitems=False, seeds=seeds)
    seeds.begin_chunk()
    fetcher.many(range(30, 35), 5, 30)
    assert seeds.end_chunk()
    assert fetcher.many(range(30, 35), 5, 30) == late[:5]


def _forked() -> float:
    with torch.random.fork_rng(devices=[]):
        return float(torch.rand(()))


def _put_back_by_hand() -> float:
    state = random.getstate()
    value = random.random()
    random.setstate(state)
    return value


def _put_back_numpy() -> float:
    state = np.random.get_state()
    value = np.random.rand()
    np.random.set_state(state)
    return value


class PutsBack:
    """Draws, from a certain index on, and leaves the generator as it was."""

    def __init__(self, draw: Callable[[], float], first: int, seconds: float) -> None:
        self.draw, self.first, self.seconds = draw, first, seconds

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> float:
        time.sleep(self.seconds)
        return self.draw() if index >= self.first else 0.0


@pytest.mark.parametrize("seconds", [0.0, 0.0005], ids=["quick", "slow"])
@pytest.mark.parametrize("first", [0, 40])
@pytest.mark.parametrize("draw", [_forked, _put_back_by_hand, _put_back_numpy])
def test_draws_that_put_the_generator_back_depend_on_the_position_alone(
    draw: Callable[[], float], first: int, seconds: float
) -> None:
    dataset = PutsBack(draw, first, seconds)
    seen = []
    for num_workers, batch_size in ((1, 8), (2, 3)):
        torch.manual_seed(3)
        loader = DataLoader(dataset, batch_size=batch_size, num_workers=num_workers)
        seen.append(torch.cat(list(loader)).tolist())
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 96 - first + (first > 0)
    local = LocalFetcher(dataset, list, is_batched=True, has_getitems=False, is_default_collation=False)
    samples = [sample for at in range(0, 96, 8) for sample in local.fetch(list(range(at, at + 8)), 77, at)]
    assert samples == run(dataset, [5], 96, 77)


def test_a_data_set_without_draws_is_never_run_twice() -> None:
    seeds = SampleSeeds()
    seen: list[int] = []

    class Plain:
        def __getitem__(self, index: int) -> int:
            seen.append(index)
            return index

    run(Plain(), [1, 7], 60, 3, seeds=seeds)
    assert seen == list(range(60))
    assert not seeds.is_drawing


def test_getitems_that_draws_must_not_be_split() -> None:
    class Many:
        def __getitems__(self, indices: list[int]) -> list[float]:
            return [random.random() for _ in indices]

    seeds = SampleSeeds()
    fetcher = Fetcher(Many(), has_getitems=True, seeds=seeds)
    seeds.begin_chunk()
    with pytest.raises(CannotSplit):
        fetcher.many([1, 2], 0, 0)
    first = fetcher.whole([1, 2, 3], 0, 0, is_batch=True)
    assert fetcher.whole([1, 2, 3], 0, 0, is_batch=True) == first
    assert fetcher.whole([1, 2, 3], 0, 3, is_batch=True) != first


# a first draw after the trial moves the loop's generator once: only then is it known that it must be kept
early = st.dictionaries(st.sampled_from(sorted(DRAWS)), st.sampled_from([0, 3]), max_size=3)


@given(first_draws=early, one=cuts)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_in_process_gives_what_workers_give_and_leaves_the_loops_generators_alone(
    first_draws: dict[str, int], one: list[int]
) -> None:
    dataset = Drawing(first_draws)
    local = LocalFetcher(dataset, list, is_batched=True, has_getitems=False, is_default_collation=False)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    ours = [sample for at in range(0, 40, 8) for sample in local.fetch(list(range(at, at + 8)), 77, at)]
    after = random.random(), np.random.rand(), torch.rand(()).item()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    assert after == (random.random(), np.random.rand(), torch.rand(()).item())
    assert ours == run(dataset, one, 40, 77)


def test_seeds_of_neighbours_have_little_in_common() -> None:
    seeds = [mix_seed(base, position) for base in range(30) for position in range(-3, 100)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)  # `torch.tensor` takes no larger ones
    flips = [bin(a ^ b).count("1") for a, b in pairwise(seeds)]
    assert 28 < sum(flips) / len(flips) < 36


def test_workers_start_from_the_seeds_that_torch_gives_them() -> None:
    from torch.utils.data._utils.worker import _generate_state

    seed_worker(123, 2)
    ours = random.random(), np.random.rand(), torch.rand(()).item()
    random.seed(125)
    torch.manual_seed(125)
    np.random.seed(_generate_state(123, 2))
    assert ours == (random.random(), np.random.rand(), torch.rand(()).item())
