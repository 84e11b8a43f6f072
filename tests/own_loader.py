"""Loops over our loader whose workers spend their time in one known way: `own_loader.py CASE BACKEND READY [BATCHES]`.

Each goes on for ever once it has written READY, or for so many batches.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headrace

IS_SCRIPT = Path(sys.argv[0]).name == Path(__file__).name  # pytest imports it too, to look for examples
CASE, BACKEND, READY = sys.argv[1:4] if IS_SCRIPT else ("", "", "")
BATCHES = int(sys.argv[4]) if IS_SCRIPT and len(sys.argv) > 4 else 0


def spend(seconds: float) -> None:
    """Compute, and not in Python alone."""
    end = time.perf_counter() + seconds
    block = np.ones((200, 200), np.float32)
    while time.perf_counter() < end:
        block = np.tanh(block @ block / 200)


class Samples:
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        if CASE == "decode":
            spend(0.02)
        if CASE == "rows":
            return BIG
        if CASE == "room":
            return MIDDLE
        if CASE == "read":
            return self.read()
        return np.zeros(8, np.float32)

    def read(self) -> Any:
        """From a server that answers after 50 ms, as slow storage does: no cache of the kernel is in between."""
        with socket.create_connection(("127.0.0.1", SERVER.getsockname()[1])) as answer:
            answer.recv(32)
        return np.frombuffer(Path(READY + ".data").read_bytes(), np.uint8)


class AtOnce(Samples):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        spend(0.05)
        return [self[index] for index in indices]


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            spend(0.02)
            yield np.zeros(8, np.float32)


class SlowToPickle:
    """Goes into shared memory by pickling, which takes long."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        spend(0.05)
        return (list, ())


def slow_collation(samples: list[Any]) -> Any:
    spend(0.1)
    return np.stack(samples)


def slow_to_pickle(samples: list[Any]) -> Any:
    return SlowToPickle()


def slow_init(worker: int) -> None:
    Path(READY).touch()
    spend(600.0)


def answer_slowly() -> None:
    def answer(client: socket.socket) -> None:
        time.sleep(0.05)
        with client:
            client.sendall(bytes(32))

    while True:
        threading.Thread(target=answer, args=(SERVER.accept()[0],), daemon=True).start()


SERVER: Any = socket.create_server(("127.0.0.1", 0)) if CASE == "read" else None
BIG = np.zeros((64, 1024, 1024), np.uint8)
MIDDLE = np.zeros((2 << 20,), np.uint8)


def main() -> None:
    torch.set_num_threads(1)
    if CASE == "read":
        Path(READY + ".data").write_bytes(bytes(65536))
        threading.Thread(target=answer_slowly, daemon=True).start()
    dataset: Any = {"items": AtOnce, "iterable": Stream}.get(CASE, Samples)()
    settings: dict[str, Any] = {}
    if CASE in {"collate", "send"}:
        settings["collate_fn"] = {"collate": slow_collation, "send": slow_to_pickle}[CASE]
    if CASE == "init":
        settings["worker_init_fn"] = slow_init
    if CASE == "room":
        settings |= {"memory": "20MiB", "collate_fn": np.stack, "prefetch_factor": 8}
    batch_size = {"rows": 2, "items": 8}.get(CASE, 4)
    loader = headrace.DataLoader(dataset, batch_size=batch_size, num_workers=2, backend=BACKEND, **settings)
    held = []
    for number, batch in enumerate(loader):
        if CASE == "room":
            held.append(batch)  # the loop holds what the workers need
        if number >= 4:
            Path(READY).touch()
        if BATCHES and number >= BATCHES:
            return
        if CASE == "idle" or (CASE == "room" and number >= 4):
            time.sleep(0.5 if CASE == "idle" else 600.0)


if __name__ == "__main__":
    main()
