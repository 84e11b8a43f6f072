"""How each contender of ours and torch's is made, and the limit without any loader."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

import torch
from torch.utils.data import Dataset

from loop import Plan, drive, rates
from probes import Usage
from workloads import FileSet

# glibc keeps freed pages in place of handing them back: what a loader may do for its workers, as an environment
KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(4 << 30)}


MODULES = {"torch": ("torch",), "headrace": ("headrace.loader",)}  # what a contender of a library needs


def loader_class(library: str) -> type[Any]:
    """Return the `DataLoader` of "torch" or "headrace", imported and ready."""
    if library == "torch":
        from torch.utils.data import DataLoader

        return DataLoader
    import headrace

    return headrace.DataLoader


def feed(
    library: str,
    dataset: Dataset[Any],
    plan: Plan,
    *,
    use: Callable[[Any], object] | None = None,
    prefetch_batches: int | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Drive one library's `DataLoader(dataset, **settings)`; `prefetch_batches` is set by `resize`, ours alone."""
    kind = loader_class(library)

    def make() -> Any:
        loader = kind(dataset, **settings)
        if prefetch_batches is not None:
            loader.resize(prefetch_batches=prefetch_batches)
        return loader

    return drive(make, plan, use=use)


# ------------------------------------------------------------------ the limit: decoding, and nothing else


def _decode_alone(
    dataset: FileSet,
    raws: list[Any],
    start: int,
    ready: Barrier,
    seconds: float,
    warmup_s: float,
    answers: Any,
    copies_into: torch.Tensor | None,
) -> None:
    torch.set_num_threads(1)  # as torch's loader does in its workers
    ready.wait()
    position = start

    def sample_at(position: int) -> None:
        if copies_into is None:
            dataset.decode(raws[position % len(raws)])
            return
        parts = [part.reshape(-1).view(torch.uint8) for part in dataset[position] if isinstance(part, torch.Tensor)]
        begin = position % _NUM_COPIES * sum(part.nbytes for part in parts)
        for part in parts:
            copies_into[begin : begin + part.nbytes] = part
            begin += part.nbytes

    def decode_for(span_s: float) -> tuple[int, float]:
        nonlocal position
        first, begin = position, time.perf_counter()
        while (elapsed_s := time.perf_counter() - begin) < span_s:
            sample_at(position)
            position += 1
        return position - first, elapsed_s

    decode_for(warmup_s)
    before = resource.getrusage(resource.RUSAGE_SELF)
    num, elapsed_s = decode_for(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    answers.put((num, elapsed_s, user_s, system_s, after.ru_minflt - before.ru_minflt))


_NUM_COPIES = 16  # places in shared memory that copies go to, one after the other


def decode_limit(
    dataset: FileSet, *, seconds: float, warmup_s: float, num_processes: int = 2, hands_over: bool = False
) -> dict[str, Any]:
    """Decode samples whose bytes are in memory, in processes that do nothing else: the most a loader can reach.

    With `hands_over`, files are read and each sample is copied once, into shared memory that is used again and again:
    what the processes of a loader cannot do without, whatever else it costs.
    """
    space = None
    if hands_over:
        nbytes = sum(part.nbytes for part in dataset[0] if isinstance(part, torch.Tensor))
        space = torch.zeros(_NUM_COPIES * nbytes, dtype=torch.uint8).share_memory_()
    raws = [dataset.read(index) for index in range(min(dataset.num_in_memory, dataset.num_files))]
    context = multiprocessing.get_context("fork")
    ready, answers = context.Barrier(num_processes), context.SimpleQueue()
    processes = [
        context.Process(
            target=_decode_alone,
            args=(dataset, raws, k * len(raws) // num_processes, ready, seconds, warmup_s, answers, space),
            daemon=True,
        )
        for k in range(num_processes)
    ]
    for process in processes:
        process.start()
    shares = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    num = sum(share[0] for share in shares)
    per_s = sum(share[0] / share[1] for share in shares)  # each by its own clock: no sample is cut in two
    used = Usage(sum(s[2] for s in shares), sum(s[3] for s in shares), sum(s[4] for s in shares), num_processes)
    return rates(num, num, num / per_s, used)
