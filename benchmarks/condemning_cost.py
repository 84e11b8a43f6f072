"""What does a bad sample cost the good ones?

A data set of which one sample in 1000, 100, 50 or 10 raises at once, and none does; good samples a second, on both
paths: samples of a fixed layout into slots, and lists that a collate_fn of the user's puts together. torch has no way
to leave a sample out: its data set catches the error and gives None, and its collate_fn takes the None out, so that its
batches shrink; ours are filled up and stay as large as they were. Samples keep a processor busy for 0.1 ms or 2 ms. At
best a bad sample costs as much as fetching one more: nothing, where it raises at once.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import Bar, Contender, Options, Question, Result, ask
from loaders import MODULES
from loop import batch_len

SHARES = {"none": 0, "1 in 1000": 1000, "1 in 100": 100, "1 in 50": 50, "1 in 10": 10}
CASES = {
    f"{ms:g} ms, {path}": (ms / 1e3, path) for ms in (0.1, 2.0) for path in ("slots", "lists")
}  # seconds of a sample, where it goes
BATCH, WORKERS = 64, 2


class SomeBad:
    """Samples that keep a processor busy; every `one_in`th raises at once."""

    def __init__(self, busy_s: float, one_in: int) -> None:
        self.busy_s, self.one_in = busy_s, one_in

    def __len__(self) -> int:
        return 100_000_000  # no epoch ends while it is measured: what was condemned once costs nothing later

    def __getitem__(self, index: int) -> Any:
        if self.one_in and index % self.one_in == self.one_in // 2:
            raise ValueError(f"sample {index} is broken")
        until = time.perf_counter() + self.busy_s
        while time.perf_counter() < until:
            pass
        return np.full((32, 32), index % 251, np.uint8), index


class NoneWhereBad(SomeBad):
    """What users do with torch's loader."""

    def __getitem__(self, index: int) -> Any:
        try:
            return super().__getitem__(index)
        except ValueError:
            return None


def collate_lists(samples: list[Any]) -> Any:
    import torch

    return [torch.from_numpy(image) for image, _ in samples], torch.tensor([index for _, index in samples])


def without_none(collate: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def collated(samples: list[Any]) -> Any:
        return collate([sample for sample in samples if sample is not None])

    return collated


def contenders(options: Options) -> list[Contender]:
    return [
        Contender(f"{who} {share}", case(group, who, one_in, options), group, needs=MODULES[who])
        for group in CASES
        for share, one_in in SHARES.items()
        for who in ("headrace", "torch")
    ]


def case(group: str, who: str, one_in: int, options: Options) -> Callable[[], Result]:
    busy_s, path = CASES[group]

    def run() -> Result:
        from torch.utils.data import DataLoader as TorchLoader
        from torch.utils.data import default_collate

        from headrace import DataLoader

        logging.basicConfig(filename=os.devnull, level=logging.WARNING)  # each bad sample is told of, nobody reads it
        collate = collate_lists if path == "lists" else None
        loader: Any
        if who == "torch":
            dataset: Any = NoneWhereBad(busy_s, one_in)
            loader = TorchLoader(
                dataset, BATCH, num_workers=WORKERS, collate_fn=without_none(collate or default_collate)
            )
        else:
            dataset = SomeBad(busy_s, one_in)
            loader = DataLoader(
                dataset,
                BATCH,
                num_workers=WORKERS,
                backend="process",
                collate_fn=collate,
                on_error="quarantine",
                max_bad=0.5,
            )
        batches = iter(loader)
        rate_for(batches, 0.3 if options.quick else 1.0)
        return {"samples_per_s": rate_for(batches, options.seconds)}

    return run


def rate_for(batches: Any, seconds: float) -> float:
    """Good samples a second; the clock stops with the last batch."""
    begin, good = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        good += batch_len(next(batches)[1])
    return good / elapsed


def bars(_: Options) -> list[Bar]:
    wanted = {1000: 0.98, 100: 0.95, 50: 0.9, 10: 0.7}
    return [
        Bar(
            f"{group}: {who}, {share} bad / none",
            f"{group}/{who} {share}",
            "samples_per_s",
            over=(f"{group}/{who} none",),
            at_least=wanted[one_in] if who == "headrace" else None,
        )
        for group in CASES
        for share, one_in in SHARES.items()
        if one_in
        for who in ("headrace", "torch")
    ]


QUESTION = Question(doc=__doc__, contenders=contenders, bars=bars, columns=("samples_per_s",), rounds=3, seconds=2.0)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
