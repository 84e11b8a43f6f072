"""All kinds of trainings, by name."""

from __future__ import annotations

from . import data_kinds, drawing, loop_kinds, mixtures, system_kinds

KINDS: dict[str, drawing.Kind] = {
    one.__name__: one
    for one in (
        *(loop_kinds.healthy, loop_kinds.compute, data_kinds.cpu_decode, data_kinds.oversubscribed),
        *(data_kinds.slow_collate, data_kinds.gil, data_kinds.ipc_copy, data_kinds.io_bandwidth),
        *(data_kinds.io_latency, data_kinds.straggler_worker, data_kinds.rare_heavy, data_kinds.shard_boundary),
        *(data_kinds.epoch_start, loop_kinds.checkpoint, loop_kinds.evaluation, loop_kinds.chatty_logging),
        *(loop_kinds.garbage, loop_kinds.hidden, system_kinds.cpu_quota, system_kinds.memory_short),
        *(system_kinds.swapping, system_kinds.shm_small, system_kinds.fd_limit, system_kinds.worker_dies),
        *(system_kinds.worker_hang, system_kinds.corrupt_sample, data_kinds.copies, mixtures.mixture),
    )
}


def draw(kind: str, seed: int, *, seconds: float, attempt: int = 0) -> drawing.Drawn:
    """Return the training of a seed."""
    return drawing.draw(KINDS, kind, seed, seconds=seconds, attempt=attempt)
