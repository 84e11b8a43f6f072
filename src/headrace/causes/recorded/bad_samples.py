"""Which sample a training ended with: the last one of the task whose batch raised. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.model import EventKind

from .processes import ProcessEvents, ends_of, starts_of
from .trainer import is_trainer


def find_bad_sample(processes: Sequence[ProcessEvents]) -> int | None:
    """Return the index of the sample that ended a training; None where it cannot be told.

    An exception in a worker is raised by the `next` that would have brought its batch, whatever the worker did then.
    Our own loader names the sample in its error, and its tasks are not batches.
    """
    for trainer in filter(is_trainer, processes):
        waits = trainer.of(EventKind.WAIT)
        last = waits[int(np.argmax(ends_of(waits)))]
        settings = trainer.loader_settings().get(trainer.names.get(int(last["arg"]), ""))
        if settings is None or settings.is_ours:
            continue
        end = int(last["start_ns"]) + int(last["duration_ns"])
        for process in processes:
            fetches = process.of(EventKind.FETCH)
            number = -1 if process is trainer else int(last["value"])
            made = fetches[(fetches["value"] == number) & (ends_of(fetches) <= end)]
            if not len(made) or (process is trainer and int(ends_of(made)[-1]) < int(last["start_ns"])):
                continue
            task = made[-1]
            samples = process.of(EventKind.SAMPLE)
            inside = (starts_of(samples) >= int(task["start_ns"])) & (
                ends_of(samples) <= int(task["start_ns"]) + int(task["duration_ns"])
            )
            if inside.any() and int(samples["value"][inside][-1]) >= 0:
                return int(samples["value"][inside][-1])
    return None
