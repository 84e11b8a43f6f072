"""A small training with one thing wrong with it, as a script: `training.py CASE`. Causes are large on purpose."""

import gc
import logging
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

STEP_S = 0.01


class Samples(Dataset[torch.Tensor]):
    def __init__(self, case: str, length: int = 80) -> None:
        self.case, self.length = case, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.case == "slow_pool":
            time.sleep(10 * STEP_S)
        elif self.case == "decode":
            end = time.process_time() + 5 * STEP_S
            while time.process_time() < end:
                pass
        elif self.case == "straggler" and index % 25 == 11:
            time.sleep(150 * STEP_S)
        elif self.case == "raises" and index == 5:
            raise ValueError("sample 5 is bad")
        return torch.full((4,), float(index))


class SlowHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(10 * STEP_S)


def main(case: str) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    logger = logging.getLogger("training")
    if case == "interrupted":
        logger.addHandler(SlowHandler())
    context = "spawn" if case == "spawn" else None
    # With two, the bad batch may come before or after the other's: torch then raises at another line.
    workers = {"decode": 0, "raises": 1}.get(case, 2)
    many = [[index] for index in range(3_000_000)] if case == "gc" else []
    loader = DataLoader(
        Samples("slow_pool" if case == "spawn" else case, 48 if case in {"slow_pool", "spawn"} else 80),
        batch_size=2,
        num_workers=workers,
        multiprocessing_context=context,
    )
    for _ in range(3 if case == "epochs" else 1):
        for step, batch in enumerate(loader):
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(5 * STEP_S if case == "healthy" else STEP_S)
            if case == "interrupted" and step % 10 == 5:
                torch.save({"state": _Slow()}, os.devnull)
            if case == "interrupted" and step % 20 == 10:
                model.eval()
                with torch.no_grad():
                    model(batch)
                    time.sleep(30 * STEP_S)
                model.train()
            if case == "gc":
                gc.collect()
            if case == "interrupted" and step % 4 == 2:
                logger.error("step %d", step)
    print("trained", len(loader), len(many) and 1)


class _Slow:
    """A state that takes long to be saved."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        time.sleep(30 * STEP_S)
        return (dict, ())


if __name__ == "__main__":
    main(sys.argv[1])
