"""Whether a loader's samples would be others from another worker: asked of its first two, in a process of its own.

The process has copies of everything (a fork, or what the loader's start method makes), so neither the sampler nor a
random generator of the training moves, and nothing that the data set prints is seen.
"""

import os
from typing import Any

import torch
from torch.utils.data._utils import fetch as torch_fetch
from torch.utils.data._utils import worker as torch_worker

from headrace.engine import SampleSeeds
from headrace.model import FeedReason

_SAMPLES = 2  # a data set, or a collation, that draws at all draws in nearly every sample
_GRACE_S = 1.0


def probe_samples(loader: Any, *, timeout_s: float = 20.0) -> FeedReason:
    """Return whether a map-style torch loader may be fed, or why not, by the first two samples of its next pass."""
    context = loader.multiprocessing_context or torch.multiprocessing.get_context()
    ours, theirs = context.Pipe(duplex=False)
    parts = (loader.dataset, loader._index_sampler, loader.collate_fn, loader.worker_init_fn)
    process = context.Process(
        target=_probe, args=(theirs, *parts, loader._auto_collation, loader.num_workers), name="headrace-probe"
    )
    process.daemon = True
    try:
        process.start()
        theirs.close()
        return FeedReason(ours.recv()) if ours.poll(timeout_s) else FeedReason.PROBE_LATE
    except EOFError:  # it died
        return FeedReason.PROBE_FAILED
    finally:
        ours.close()
        if process.pid is not None:
            process.join(_GRACE_S if process.exitcode is None else 0)
            if process.is_alive():
                process.kill()
            process.join()
            process.close()


class _Watched:
    """A worker's info; who asks which worker it is may make another sample in another one."""

    def __init__(self, dataset: Any, num_workers: int) -> None:
        self.dataset, self.num_workers, self.was_asked = dataset, num_workers, False
        self.rng, self.worker_method = None, "multiprocessing"

    @property
    def id(self) -> int:
        self.was_asked = True
        return 0

    @property
    def seed(self) -> int:
        self.was_asked = True
        return int(torch.default_generator.initial_seed())


def _probe(
    answer: Any, dataset: Any, sampler: Any, collate: Any, init_fn: Any, is_batched: bool, num_workers: int
) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    torch.set_num_threads(1)  # as torch's workers do
    found = FeedReason.PROBE_FAILED
    try:
        info: Any = _Watched(dataset, num_workers)
        torch_worker._worker_info = info
        if init_fn is not None:
            init_fn(0)
        first = next(iter(sampler))
        fetcher = torch_fetch._MapDatasetFetcher(dataset, is_batched, collate, False)
        places: tuple[Any, ...] = (torch, torch.random)
        for place in places:
            place.initial_seed = lambda: info.seed
        try:
            draws = _draws(fetcher, first[:_SAMPLES] if is_batched else first, (dataset, collate), info)
        except Exception:
            if not is_batched:
                raise
            draws = _draws(fetcher, first, (dataset, collate), info)  # what makes sense for a whole batch only
        found = FeedReason.ASKS_WORKER if info.was_asked else FeedReason.DRAWS if draws else FeedReason.FED
    except BaseException:  # whatever it is, torch's own loader will say it
        pass
    finally:
        answer.send(found.value)
        answer.close()


def _draws(fetcher: Any, indices: Any, holders: Any, info: _Watched) -> bool:
    """Fetch what torch's worker would fetch; whether a generator moved meanwhile, or was asked for its state."""
    seeds, info.was_asked = SampleSeeds(holders, trial_samples=1 << 30), False
    with seeds:
        seeds.begin_chunk()
        seeds.begin_sample(0, 0)
        fetcher.fetch(indices)
        seeds.end_sample()
    return seeds.end_chunk() or seeds.is_drawing
