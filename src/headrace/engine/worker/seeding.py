"""Random numbers that depend on the sample's position alone.

Before a sample runs, the global generators of Python, NumPy and torch are seeded from (base seed of the epoch,
position of the sample). Seeding all three costs 7 µs, more than a tiny sample itself, so only those are seeded
that the data set draws from: a generator that stayed untouched for the first samples is only looked at after
each chunk (well under a microsecond), and if it moved after all, the chunk is run again with seeds.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.random  # loaded lazily by numpy: here, so that it is not loaded anew in each forked worker

_MASK = (1 << 64) - 1
_COLLATION = 0x436F6C6C617465  # sets a collation's seed apart from that of its batch's first sample
# a data set that draws at all draws in nearly every sample; a later first draw costs one chunk run twice
TRIAL_SAMPLES = 16


def mix_seed(base_seed: int, position: int) -> int:
    """A 64-bit seed for one sample (splitmix64 over both), the same on every machine."""
    z = (base_seed + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class _Python:
    """Python's `random` module."""

    def __init__(self) -> None:
        self.look = _fast_look() or (lambda: hash(random.getstate()))

    def seed(self, seed: int) -> None:
        random.seed(seed)


def _fast_look() -> Callable[[], Any] | None:
    """Read the position word of Python's generator in place: 0.1 µs instead of 9 µs for `getstate`.

    Where the words lie is tried on a generator of our own: other threads may be looking at the global one.
    """
    instance = getattr(random, "_inst", None)
    if type(instance) is not random.Random or sys.implementation.name != "cpython":
        return None
    trial = random.Random(0x5EED)
    trial.random()
    if list(_python_words(trial)) != [trial.getstate()[1][624], *trial.getstate()[1][:624]]:
        return None
    words = _python_words(instance)
    return lambda: (words[0], words[1])


def _python_words(generator: random.Random) -> Any:
    return (ctypes.c_uint32 * 625).from_address(id(generator) + object.__basicsize__)


class _NumPy:
    """NumPy's legacy global generator."""

    def __init__(self) -> None:
        self._rand: Any = np.random.mtrand._rand
        generator = self._rand._bit_generator
        if type(generator).__name__ == "MT19937":
            words = (ctypes.c_uint32 * 625).from_address(generator.ctypes.state_address)
            self.look: Callable[[], Any] = lambda: (words[624], words[0])
        else:
            self.look = lambda: repr(np.random.get_state(legacy=False))

    def seed(self, seed: int) -> None:
        np.random.seed(seed & 0xFFFFFFFF)


class _Torch:
    """torch's default CPU generator."""

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        self._generator = torch.default_generator
        # `manual_seed` of the module walks all devices (100 µs); workers have only this one
        self.look: Callable[[], Any] = _fast_torch_look(self._generator) or self._slow_look

    def _slow_look(self) -> Any:
        # the first words hold where in its state the generator stands
        return self._generator.get_state().numpy()[:32].tobytes()

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)


def _fast_torch_look(generator: Any) -> Callable[[], Any] | None:
    """Read where torch's generator stands in place: `get_state` copies 5 KB, 50 µs for a worker with cold caches.

    The object holds a Mersenne twister: its 624 words, and before them the number of the next one. Their place is
    searched for in a generator of our own, and believed only if it follows two more draws as `get_state` does.
    """
    torch: Any = sys.modules["torch"]
    trial = torch.Generator()
    if type(trial) is not type(generator) or not isinstance(getattr(trial, "_cdata", None), int):
        return None
    trial.manual_seed(0x5EED)
    torch.rand(3, generator=trial)
    number, state = _torch_state(trial)
    # other members lie before the state; reading ends where an object that holds it must end too
    ahead = (ctypes.c_uint32 * 624).from_address(trial._cdata)
    at = next((i for i in range(1, 64) if [*ahead[i : i + 16]] == state[:16]), None)
    if at is None or number != 3 or ahead[at - 1] != number:
        return None
    torch.rand(2, generator=trial)
    number, state = _torch_state(trial)
    if [*_torch_words(trial, at)] != [number, *state] or number != 5:
        return None
    words = _torch_words(generator, at)
    return lambda: (words[0], words[1])


def _torch_words(generator: Any, at: int) -> Any:
    return (ctypes.c_uint32 * 625).from_address(generator._cdata + 4 * (at - 1))


def _torch_state(generator: Any) -> tuple[int, list[int]]:
    """Number of the next word, and the words, from the form in which torch saves them."""
    words = generator.get_state().numpy().view(np.uint64)
    return int(words[2]), [int(word) for word in words[3:627]]


class SampleSeeds:
    """Seeds what a data set draws from, sample by sample, and notices what it draws from."""

    def __init__(self, *, trial_samples: int = TRIAL_SAMPLES, is_shared: bool = False) -> None:
        self._sources: dict[str, Any] = {"random": _Python(), "numpy": _NumPy()}
        self._used: list[Any] = []
        self._unused: list[Any] = list(self._sources.values())
        self._trial = trial_samples
        self._is_shared = is_shared  # others use the generators between chunks, so marks do not keep
        self._marks: list[Any] = []

    def _adopt_torch(self) -> None:
        if "torch" not in self._sources and "torch" in sys.modules:
            self._sources["torch"] = source = _Torch()
            self._unused.append(source)

    @property
    def is_drawing(self) -> bool:
        return bool(self._used)

    def begin_chunk(self) -> None:
        """Remember where the generators stand that nobody drew from so far."""
        if "torch" not in self._sources:
            self._adopt_torch()
        if not self._trial and (self._is_shared or len(self._marks) != len(self._unused)):
            self._marks = [source.look() for source in self._unused]

    @property
    def per_sample(self) -> bool:
        """Whether `begin_sample` has anything to do."""
        return bool(self._used) or self._trial > 0

    def begin_sample(self, base_seed: int, position: int) -> None:
        """Seed for one sample."""
        seed = mix_seed(base_seed, position)
        for source in self._used:
            source.seed(seed)
        if self._trial:
            for source in self._unused:
                source.seed(seed)
            self._marks = [source.look() for source in self._unused]

    def begin_collation(self, base_seed: int, position: int) -> None:
        """Seed all generators for a collation of the user's own, which may draw too."""
        self._adopt_torch()
        seed = mix_seed(base_seed ^ _COLLATION, position)
        for source in self._sources.values():
            source.seed(seed)
        self._marks = [source.look() for source in self._unused]

    def end_collation(self) -> None:
        """What it drew is its own affair: remember where the generators stand now."""
        self._marks = [source.look() for source in self._unused]

    def positions(self) -> list[Any]:
        """Where all generators stand; equal twice means that nobody drew in between."""
        return [source.look() for source in self._sources.values()]

    def end_sample(self) -> None:
        """While on trial: notice which generators the sample drew from."""
        if self._trial:
            self._trial -= 1
            self._notice()

    def end_chunk(self) -> bool:
        """Whether the chunk drew from a generator that was not seeded, and must run again."""
        return not self._trial and self._notice()

    def _notice(self) -> bool:
        looks = [source.look() for source in self._unused]
        if looks == self._marks:
            return False
        moved = [s for s, mark, look in zip(self._unused, self._marks, looks, strict=True) if look != mark]
        if moved:
            self._used += moved
            self._unused = [s for s in self._unused if s not in moved]
            self._marks = [source.look() for source in self._unused]
        return bool(moved)


def seed_worker(base_seed: int, worker: int) -> None:
    """Seed the generators as torch's workers do, so that `worker_init_fn` and iterable data sets see the same."""
    seed = base_seed + worker
    random.seed(seed)
    torch: Any = sys.modules.get("torch")
    if torch is None:
        np.random.seed(mix_seed(base_seed, worker) & 0xFFFFFFFF)
        return
    torch.manual_seed(seed)
    generate = getattr(sys.modules.get("torch.utils.data._utils.worker"), "_generate_state", None)
    if generate is not None:
        np.random.seed(generate(base_seed, worker))
