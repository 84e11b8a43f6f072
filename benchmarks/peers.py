"""Adapters for other loaders that run the same data set object in threads: Grain, torchdata.nodes, SPDL.

Each is given the data set, the batch size and the number of threads, and yields the batches that torch's loader
yields, in the same order. They are optional (`pip install -r benchmarks/requirements-peers.txt`); what is not installed
is skipped and said.

    python benchmarks/peers.py            # do the adapters that are installed give torch's batches?
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler, default_collate

from workloads import DATASETS


def grain_threads(dataset: Dataset[Any], batch_size: int, num_threads: int) -> Iterable[Any]:
    """Samples in threads; the batch is stacked by whoever asks for it, which is Grain's usual pipeline."""
    import grain

    options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=2 * batch_size)
    samples = grain.MapDataset.source(_Source(dataset)).to_iter_dataset(options)
    batches: Iterable[Any] = samples.batch(batch_size, batch_fn=default_collate)
    return batches


def grain_batches(dataset: Dataset[Any], batch_size: int, num_threads: int) -> Iterable[Any]:
    """Whole batches in threads: the stacking leaves the loop's thread, the granularity is torch's."""
    import grain

    options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=2 * num_threads)
    source = grain.MapDataset.source(_Source(dataset)).batch(batch_size, batch_fn=default_collate)
    batches: Iterable[Any] = source.to_iter_dataset(options)
    return batches


class _Source:
    """A torch data set as Grain's random-access source: the length and `__getitem__`, with plain ints."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]  # torch's Dataset promises no length

    def __getitem__(self, index: int) -> Any:
        return self._dataset[int(index)]


def torchdata_nodes(dataset: Dataset[Any], batch_size: int, num_threads: int) -> Iterable[Any]:
    """Samples in threads, in order; batches are stacked in the prefetcher's thread."""
    from torchdata import nodes

    indices = nodes.SamplerWrapper(SequentialSampler(dataset))  # type: ignore[arg-type]
    samples = nodes.ParallelMapper(
        indices, dataset.__getitem__, num_workers=num_threads, in_order=True, method="thread"
    )
    stacked = nodes.Mapper(nodes.Batcher(samples, batch_size, drop_last=False), default_collate)
    batches: Iterable[Any] = nodes.Loader(nodes.Prefetcher(stacked, prefetch_factor=2))
    return batches


def spdl_threads(dataset: Dataset[Any], batch_size: int, num_threads: int) -> Iterable[Any]:
    """Samples in a pipeline of threads, in order; batches are stacked in a stage of their own."""
    from spdl.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(range(len(dataset)))  # type: ignore[arg-type]
        .pipe(dataset.__getitem__, concurrency=num_threads, output_order="input")
        .aggregate(batch_size)
        .pipe(default_collate)
        .add_sink(2)
        .build(num_threads=num_threads + 1)  # one more for the stacking, or it would take a decoder's place
    )
    return _Pipeline(pipeline)


class _Pipeline:
    """An SPDL pipeline that starts when it is iterated and stops when it is closed."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._is_running = False

    def __iter__(self) -> Iterator[Any]:
        self._pipeline.start()
        self._is_running = True
        return iter(self._pipeline.get_iterator(timeout=60))

    def close(self) -> None:
        if self._is_running:
            self._is_running = False
            self._pipeline.stop()


class Peer(NamedTuple):
    make: Callable[[Dataset[Any], int, int], Iterable[Any]]
    needs: tuple[str, ...]


PEERS = {
    "grain 2 threads": Peer(grain_threads, ("grain",)),
    "grain 2 threads, whole batches": Peer(grain_batches, ("grain",)),
    "torchdata.nodes 2 threads": Peer(torchdata_nodes, ("torchdata",)),
    "spdl 2 threads": Peer(spdl_threads, ("spdl",)),
}


def feed_peer(name: str, dataset: Dataset[Any], batch_size: int, plan: Any, num_threads: int = 2) -> dict[str, Any]:
    """Drive a peer as `loaders.feed` drives torch's loader and ours."""
    from loop import drive

    peer = PEERS[name]
    for module in peer.needs:
        importlib.import_module(module)
    torch.set_num_threads(1)  # threads beside the loop: torch's own would only crowd them
    return drive(lambda: peer.make(dataset, batch_size, num_threads), plan)


def _is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    return len(left) == len(right) and all(_is_equal(a, b) for a, b in zip(left, right, strict=True))


def main() -> int:
    """Compare the first batches of every installed peer with torch's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["full", "quick"], default="quick")
    parser.add_argument("--quick", dest="size", action="store_const", const="quick", help="--size quick")
    parser.add_argument("--batches", type=int, default=4)
    options = parser.parse_args()
    num_wrong = 0
    for workload, kind in DATASETS.items():
        batch_size = 2 if workload == "ct" else 4
        dataset = kind(options.size, length=batch_size * options.batches + 1)
        expected = list(DataLoader(dataset, batch_size))
        for name, peer in PEERS.items():
            if any(importlib.util.find_spec(module) is None for module in peer.needs):
                print(f"{workload}: {name}: skipped, {', '.join(peer.needs)} not installed")
                continue
            batches = list(peer.make(dataset, batch_size, 2))
            is_right = len(batches) == len(expected) and all(map(_is_equal, batches, expected))
            print(f"{workload}: {name}: {'equal' if is_right else 'DIFFERENT'}")
            num_wrong += not is_right
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
