"""How a worker gets samples from a map-style data set, with random numbers that depend on their positions alone.

Before a sample runs, the global generators of Python, NumPy and torch, and those that the data set holds, are seeded
from (base seed of the epoch, position of the sample). Seeding the three global ones costs 7 µs, more than a tiny sample
itself: where samples are quick, only those are seeded that the data set uses. A generator that stayed untouched for the
first samples is only looked at after each chunk, and if it moved after all, or its state was asked for (to be put
back), the chunk is run again with seeds.
"""

import contextlib
import ctypes
import functools
import gc
import pickle
import random
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import numpy as np
import numpy.random  # loaded lazily by numpy: here, so that it is not loaded anew in each forked worker

from headrace.model import backoff_s, is_transient

_MASK, _MAX_SEED = (1 << 64) - 1, (1 << 63) - 1
_COLLATION = 0x436F6C6C617465  # sets a collation's seed apart from that of its batch's first sample
# a data set that draws at all draws in nearly every sample; a later first draw costs one chunk run twice
TRIAL_SAMPLES = 16
# from here on, seeding all generators for every sample costs less than 4 % of it
_SLOW_SAMPLE_NS = 200_000
# how far `reachable` walks: objects in all, and of each what it refers to; generators that a data set may hold
_MOST_LOOKED_AT, _MOST_PARTS, _MOST_HELD = 5000, 1000, 64
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def mix_seed(base_seed: int, position: int) -> int:
    """A seed for one sample (splitmix64 over both), the same on every machine, and within the range of torch's own.

    That is 63 bits: `torch.tensor(torch.initial_seed())` is an error beyond.
    """
    z = (base_seed + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) & _MAX_SEED


class _Python:
    """Python's `random` module."""

    getters = (("random", "getstate"),)
    look = staticmethod(random.getstate)
    seed = staticmethod(random.seed)


class _NumPy:
    """NumPy's legacy global generator."""

    getters = (("numpy.random", "get_state"),)

    def look(self) -> Any:
        generator: Any = numpy.random.mtrand.get_bit_generator()
        if type(generator) is not np.random.MT19937:
            return repr(generator.state)
        return ctypes.string_at(generator.ctypes.state_address, 2500)  # its 624 words, and where among them it stands

    def seed(self, seed: int) -> None:
        np.random.seed(seed & 0xFFFFFFFF)


class _Torch:
    """torch's default CPU generator: `manual_seed` of the module walks all devices (100 µs); workers have only this."""

    getters = (("torch", "get_rng_state"), ("torch.random", "get_rng_state"))

    def __init__(self) -> None:
        self._generator: Any = sys.modules["torch"].default_generator
        self.seed = self._generator.manual_seed

    def look(self) -> Any:
        return self._generator.get_state().numpy().tobytes()


def _kinds() -> dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any], Callable[[Any, int], Any]]]:
    """Kinds of generators that a data set may hold: how to ask for the state of one, to set it, to seed it."""

    def set_state(generator: Any, state: Any) -> None:
        generator.bit_generator.state = state

    kinds: dict[type, Any] = {
        random.Random: (random.Random.getstate, random.Random.setstate, random.Random.seed),
        np.random.RandomState: (
            np.random.RandomState.get_state,
            np.random.RandomState.set_state,
            lambda generator, seed: generator.seed(seed & 0xFFFFFFFF),
        ),
        np.random.Generator: (
            lambda generator: generator.bit_generator.state,
            set_state,
            lambda generator, seed: set_state(generator, type(generator.bit_generator)(seed).state),
        ),
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        kinds[torch.Generator] = (torch.Generator.get_state, torch.Generator.set_state, torch.Generator.manual_seed)
    return kinds


class _Held:
    """A generator that the data set holds, such as that of a random transform."""

    getters = ()

    def __init__(self, generator: Any, number: int) -> None:
        self.generator, self._number = generator, number
        self._get, self._set, self._seed = next(ways for kind, ways in _kinds().items() if isinstance(generator, kind))

    def look(self) -> bytes:
        return pickle.dumps(self._get(self.generator))

    def seed(self, seed: int) -> None:
        self._seed(self.generator, mix_seed(seed, self._number))  # two of them draw different numbers

    def keep(self) -> Callable[[], None]:
        """Remember its state; returns what puts it back."""
        return functools.partial(self._set, self.generator, self._get(self.generator))


def find_generators(dataset: Any) -> list[Any]:
    """The random generators that a data set holds, in itself, in what it is made of, in their classes or modules."""
    kinds, found, classes = tuple(_kinds()), dict[int, Any](), set[type]()
    for one in reachable(dataset, has_globals=True):
        new = [cls for cls in type(one).__mro__ if cls not in classes]
        classes.update(new)
        for value in [one, *(value for cls in new for value in [*vars(cls).values()])]:
            if isinstance(value, kinds) and not isinstance(value, random.SystemRandom):
                found[id(value)] = value
    global_ones = (getattr(random, "_inst", None), getattr(numpy.random.mtrand, "_rand", None))
    torch: Any = sys.modules.get("torch")
    is_ours = [*global_ones, torch.default_generator if torch is not None else None]
    return [one for one in found.values() if not any(one is other for other in is_ours)][:_MOST_HELD]


def reachable(holder: object, *, has_globals: bool = False) -> Iterator[Any]:
    """Something and what it refers to, directly or not: as far as a bounded walk comes, and not into modules.

    `has_globals`: also what functions and methods name in their module, if it is none of an installed library.
    """
    todo, seen = deque([holder]), {id(holder)}
    while todo and len(seen) < _MOST_LOOKED_AT:
        one = todo.popleft()
        yield one
        inside: Iterable[object]
        if isinstance(one, (list, set, frozenset)):  # of millions of paths, perhaps; an iterator's tuple may have holes
            inside = one
        elif isinstance(one, dict):
            inside = one.values()
        elif isinstance(one, FunctionType):
            inside = (one.__closure__, one.__defaults__, *(_named_globals(one) if has_globals else ()))
        else:
            inside = gc.get_referents(one)
            if has_globals:
                inside += [part for cls in type(one).__mro__ for part in vars(cls).values() if _is_own(part)]
        with contextlib.suppress(RuntimeError):  # another thread changes it meanwhile
            for part in islice(inside, _MOST_PARTS):
                is_new = id(part) not in seen and (gc.is_tracked(part) or type(part).__name__ == "Generator")
                if is_new and not _is_closed(part):  # torch's generators are not tracked
                    seen.add(id(part))
                    todo.append(part)


def _is_own(part: object) -> bool:
    """Whether something is a function of no installed library, whose modules lead everywhere."""
    return isinstance(part, FunctionType) and _is_own_file(part.__code__.co_filename)


def _is_own_file(path: str | None) -> bool:
    return bool(path) and not str(path).startswith(_LIBRARIES)


def _named_globals(function: FunctionType) -> Iterator[object]:
    """What a function's code names in its module, and in modules that it names there."""
    codes = [function.__code__] if _is_own(function) else []
    for code in codes:  # it grows
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        for value in (function.__globals__.get(name) for name in code.co_names):
            yield value
            if isinstance(value, ModuleType) and _is_own_file(getattr(value, "__file__", None)):
                yield from (vars(value).get(name) for name in code.co_names)


def _is_closed(part: object) -> bool:
    """Whether nothing of a data set lies behind something: a module, or a proxy of what is gone or not made yet."""
    try:
        return isinstance(part, (type, ModuleType, FrameType, TracebackType))
    except Exception:  # it asks what it stands for
        return True


class SampleSeeds:
    """Seeds what a data set draws from, sample by sample, and notices what it draws from.

    As a context manager it also notices who asks for the state of a generator meanwhile.
    """

    def __init__(
        self,
        dataset: Any = None,
        *,
        trial_samples: int = TRIAL_SAMPLES,
        is_shared: bool = False,
        needs_to_know: bool = False,
        seeds_all: bool = False,
    ) -> None:
        self._dataset, self._held, self._has_looked = dataset, list[_Held](), False
        self._sources: list[Any] = [_Python(), _NumPy()]
        self._used: list[Any] = []
        self._unused: list[Any] = [*self._sources]
        # generators whose state somebody asked for, perhaps to put it back; and the functions for that, as they are
        self._asked_for: set[type] = set()
        self._getters: dict[tuple[str, str], tuple[Callable[..., Any], Callable[..., Any]]] = {}
        self._is_watching = False
        self._trial = trial_samples
        self._is_shared = is_shared  # others use the generators between chunks, so marks do not keep
        self._needs_to_know = needs_to_know  # whether anything draws: then generators are looked at for ever
        self._seeds_all = seeds_all  # however quick: what is asked for at once is a whole batch
        self._has_torch = self._has_begun = self._is_again = self.is_drawing = False
        # what was quickest on trial took by itself: a sample, or samples that were fetched at once; and each of these
        self.least_ns = self.least_each_ns = 1 << 62
        self._began_ns = 0
        self._marks: list[Any] = []

    def __enter__(self) -> None:
        self._is_watching = True
        self._watch(self._sources)

    def __exit__(self, *_: object) -> None:
        self._is_watching = False
        for (module, name), (get, _with) in self._getters.items():
            setattr(sys.modules[module], name, get)

    def _watch(self, sources: Sequence[Any]) -> None:
        for source in sources:
            for place in source.getters:
                if place not in self._getters:
                    get = getattr(sys.modules[place[0]], place[1])
                    self._getters[place] = (get, self._noticing(get, type(source)))
                setattr(sys.modules[place[0]], place[1], self._getters[place][1])

    def _noticing(self, get: Callable[..., Any], kind: type) -> Callable[..., Any]:
        @functools.wraps(get)
        def noticed(*args: Any, **options: Any) -> Any:
            self._asked_for.add(kind)
            return get(*args, **options)

        return noticed

    @property
    def is_on_trial(self) -> bool:
        return self._trial > 0

    @property
    def per_sample(self) -> bool:
        """Whether `begin_sample` has anything to do."""
        return bool(self._used) or self._trial > 0

    def begin_chunk(self) -> None:
        """Remember where the generators stand that nobody drew from so far."""
        if not self._has_looked:
            self._find_held()
        if not self._has_torch and "torch" in sys.modules:
            self._has_torch = True
            self._sources.append(_Torch())
            self._unused.append(self._sources[-1])
            if self._is_watching:
                self._watch(self._sources[-1:])
        if not self.is_on_trial and (self._is_shared or len(self._marks) != len(self._unused)):
            self._mark()

    def _find_held(self) -> bool:
        """Look for generators that the data set holds; whether there are new ones."""
        self._has_looked, known = True, {id(held.generator) for held in self._held}
        found = find_generators(self._dataset) if self._dataset is not None else []
        for generator in [one for one in found if id(one) not in known]:
            self._held.append(_Held(generator, len(self._held)))
            self._sources.append(self._held[-1])
            self._unused.append(self._held[-1])
        return len(self._held) > len(known)

    def keep_held(self) -> list[Callable[[], None]]:
        """Remember the states of the generators that the data set holds; returns what puts them back."""
        return [held.keep() for held in self._held]

    def begin_sample(self, base_seed: int, position: int) -> None:
        seed = mix_seed(base_seed, position)
        for source in self._sources if self._trial else self._used:
            source.seed(seed)
        if self._trial:
            self._mark()
            self._began_ns = time.perf_counter_ns()

    def end_sample(self, count: int = 1) -> None:
        """While on trial: notice which generators `count` samples drew from, and whether it is worth while to look."""
        if not self._trial:
            return
        took_ns = time.perf_counter_ns() - self._began_ns
        self.least_ns = min(self.least_ns, took_ns)
        self.least_each_ns = min(self.least_each_ns, took_ns // max(1, count))
        self._trial -= 1
        self._notice()
        if not self._has_begun:  # some are made with the first sample, which then has drawn from them
            self._has_begun, self._is_again = True, self._find_held()
            self._mark()
        if not self._trial:
            self._find_held()
            if self._seeds_all or (self.least_ns >= _SLOW_SAMPLE_NS and not self._needs_to_know):
                self._used += [source for source in self._unused if source not in self._held]
                self._unused = [source for source in self._unused if source in self._held]
            self._mark()

    def end_chunk(self) -> bool:
        """Whether the chunk drew from a generator that was not seeded, and must run again."""
        again, self._is_again = self._is_again, False
        return again or (not self._trial and self._notice())

    def begin_collation(self, base_seed: int, position: int) -> None:
        """Seed all generators for a collation of the user's own, which may draw too."""
        self.begin_chunk()
        seed = mix_seed(base_seed ^ _COLLATION, position)
        for source in self._sources:
            source.seed(seed)

    def end_collation(self) -> None:
        """What it drew is its own affair: remember where the generators stand now."""
        self._asked_for.clear()
        self._mark()

    def positions(self) -> list[Any]:
        """Where all generators stand; equal twice means that nobody drew in between."""
        return [source.look() for source in self._sources]

    def _mark(self) -> None:
        self._marks = [source.look() for source in self._unused]

    def _notice(self) -> bool:
        looks = [source.look() for source in self._unused]
        if looks == self._marks and not self._asked_for:
            return False
        pairs = zip(self._unused, self._marks, looks, strict=True)
        moved = [s for s, mark, look in pairs if look != mark or type(s) in self._asked_for]
        self._asked_for.clear()
        if moved:
            self.is_drawing = True
            self._used += moved
            self._unused = [s for s in self._unused if s not in moved]
            self._mark()
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


class CannotSplit(Exception):
    """The data set's `__getitems__` only makes sense for a whole batch."""


class Fetcher:
    """Fetches samples by index. One per worker."""

    def __init__(
        self, dataset: Any, *, has_getitems: bool, seeds: SampleSeeds | None, is_patient: bool = False
    ) -> None:
        self._dataset = dataset
        self._has_getitems = has_getitems
        self.seeds = seeds
        self._is_patient = is_patient
        self.last_tries = 1  # of the last sample that was fetched on its own

    def one(self, index: Any, base_seed: int, position: int) -> Any:
        """Fetch one sample of a batch. With patience, an error that may pass by itself is waited for."""
        if not self._is_patient:
            return self._once(index, base_seed, position)
        return self._patiently(lambda: self._once(index, base_seed, position), position)

    def whole_patiently(self, indices: Any, base_seed: int, position: int, *, is_batch: bool) -> Any:
        """What `whole` gives; with patience as in `one`."""
        if not self._is_patient:
            return self.whole(indices, base_seed, position, is_batch=is_batch)
        return self._patiently(lambda: self.whole(indices, base_seed, position, is_batch=is_batch), position)

    def _patiently(self, fetch: Callable[[], Any], position: int) -> Any:
        self.last_tries = 1
        waits = backoff_s(seed=position)
        while True:
            try:
                return fetch()
            except Exception as error:
                wait_s = next(waits, None) if is_transient(error) else None
                if wait_s is None:
                    raise
            self.last_tries += 1
            time.sleep(wait_s)

    def _once(self, index: Any, base_seed: int, position: int) -> Any:
        if self._has_getitems:
            return self._getitems([index], base_seed, position, whole=False)[0]
        return self._plain(index, base_seed, position)

    def _plain(self, index: Any, base_seed: int, position: int) -> Any:
        seeds = self.seeds
        if seeds is None or not seeds.per_sample:
            return self._dataset[index]
        seeds.begin_sample(base_seed, position)
        sample = self._dataset[index]
        seeds.end_sample()
        return sample

    def many(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        """Fetch all at once, for samples that cost next to nothing."""
        if self._has_getitems:
            samples: list[Any] = self._getitems(indices, base_seed, position, whole=False)
            return samples
        return self._one_by_one(indices, base_seed, position)

    def _one_by_one(self, indices: Sequence[Any], base_seed: int, position: int) -> list[Any]:
        if self.seeds is not None and self.seeds.per_sample:
            return [self._plain(index, base_seed, position + offset) for offset, index in enumerate(indices)]
        dataset = self._dataset
        return [dataset[index] for index in indices]

    def whole(self, indices: Any, base_seed: int, position: int, *, is_batch: bool) -> Any:
        """What torch's fetcher gives for a batch (or, without batching, for one index), before collation."""
        if not is_batch:
            return self._plain(indices, base_seed, position)
        if self._has_getitems:
            return self._getitems(indices, base_seed, position, whole=True)
        return self._one_by_one(indices, base_seed, position)

    def _getitems(self, indices: Sequence[Any], base_seed: int, position: int, *, whole: bool) -> Any:
        seeds = self.seeds
        if seeds is not None and seeds.per_sample:
            seeds.begin_sample(base_seed, position)
        samples = self._dataset.__getitems__(list(indices))
        if seeds is not None and seeds.per_sample:
            seeds.end_sample(len(indices))
        if whole:
            return samples
        if seeds is not None and seeds.is_drawing:
            raise CannotSplit("it draws random numbers: they must not depend on how the batch was split")
        if not isinstance(samples, (list, tuple)) or len(samples) != len(indices):
            raise CannotSplit("it did not return a list with one sample per index")
        return samples
