"""Real trainings that spend their time in one known way: `python trainings.py SCENARIO READY_FILE`.

Each writes READY_FILE once it has taken its first step, and then goes on for ever: what is seen of it from then on
is what its name says. `hang`, `goes_on` and `ends` are for those who watch.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

READY = ""


def ready() -> None:
    if READY:
        Path(READY).touch()


class Samples(Dataset):
    """Samples that cost what the scenario says."""

    def __init__(self, cost: str = "none", shape: int = 16) -> None:
        self.cost, self.shape = cost, shape
        self.path = READY + ".npz"
        if cost == "read":
            Path(self.path).write_bytes(os.urandom(64 << 20))

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.cost == "decode":
            return self.decode(index)
        if self.cost == "sleep":
            time.sleep(0.2)
        if self.cost == "read":
            return self.load(index)
        return torch.zeros(self.shape)

    def decode(self, index: int) -> torch.Tensor:
        ends = time.perf_counter() + 0.05
        value = 0
        while time.perf_counter() < ends:
            value += sum(range(1000))
        return torch.full((self.shape,), float(value % 7))

    def load(self, index: int) -> torch.Tensor:
        with open(self.path, "rb", 0) as file:
            while file.read(1 << 20):
                pass
        return torch.zeros(self.shape)


def slow_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    ends = time.perf_counter() + 0.2
    while time.perf_counter() < ends:
        torch.stack(samples)
    return torch.stack(samples)


class Model(torch.nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).sum()


def train(loader: object, seconds: float = 0.0) -> None:
    """A loop whose step takes about so long, in torch."""
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(256, 512)
    for _batch in loader:  # type: ignore[attr-defined]
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
        ready()


def endless() -> Iterator[int]:
    while True:
        yield 0


def torch_loader(cost: str, **options: object) -> DataLoader[torch.Tensor]:
    settings: dict[str, object] = {"batch_size": 4, "num_workers": 2, "persistent_workers": True, **options}
    if not settings["num_workers"]:
        del settings["persistent_workers"]
    return DataLoader(Samples(cost), **settings)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------- scenarios


def fork() -> None:
    train(torch_loader("decode"))


def sleep() -> None:
    train(torch_loader("sleep", batch_size=2))


def spawn() -> None:
    train(torch_loader("decode", multiprocessing_context="spawn"))


def forkserver() -> None:
    train(torch_loader("decode", multiprocessing_context="forkserver"))


def in_process() -> None:
    train(torch_loader("decode", num_workers=0))


def reading() -> None:
    train(torch_loader("read"))


def collating() -> None:
    train(torch_loader("none", collate_fn=slow_collate))


def compute() -> None:
    train(torch_loader("none"), seconds=0.2)


def checkpoint() -> None:
    state = {"weights": torch.zeros(20_000_000)}
    with tempfile.TemporaryDirectory() as folder:
        for _ in endless():
            torch.save(state, f"{folder}/last.pt")
            ready()


class Trainer:
    """Named as the trainers of well-known frameworks name their parts."""

    def fit(self) -> None:
        self._inner_training_loop()

    def _inner_training_loop(self) -> None:
        for _ in endless():
            self.evaluate()

    def evaluate(self) -> None:
        self.evaluation_loop(torch_loader("none"))

    def evaluation_loop(self, loader: DataLoader[torch.Tensor]) -> None:
        model, x = Model(), torch.randn(256, 512)
        for count, _batch in enumerate(loader):
            with torch.no_grad():
                for _ in range(20):
                    model(x)
            ready()
            if count > 10_000:
                return


def evaluation() -> None:
    Trainer().fit()


def evaluation_waits() -> None:
    def validate_one_epoch(loader: DataLoader[torch.Tensor]) -> None:
        train(loader)

    validate_one_epoch(torch_loader("sleep", batch_size=2))


def logs() -> None:
    logger = logging.getLogger("training")
    with tempfile.NamedTemporaryFile() as file:
        logger.addHandler(logging.FileHandler(file.name))
        for _ in endless():
            for number in range(1000):
                logger.warning("step %d loss %f", number, 0.5)
            file.truncate(0)
            ready()


def garbage() -> None:
    kept = [[i] for i in range(1_500_000)]
    for _ in endless():
        gc.collect()
        ready()
    del kept


class BackgroundLoader:
    """A loader of the user's own: a thread that fills a queue."""

    def __init__(self) -> None:
        import queue

        self.queue: queue.Queue[torch.Tensor] = queue.Queue(2)
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self) -> None:
        samples = Samples("sleep")
        for index in range(10_000_000):
            self.queue.put(samples[index])

    def __iter__(self) -> BackgroundLoader:
        return self

    def __next__(self) -> torch.Tensor:
        return self.queue.get()


def own_loader() -> None:
    train(BackgroundLoader())


def in_a_thread() -> None:
    """The loop runs in another thread, as under Ray; the main one waits for it."""
    thread = threading.Thread(target=fork, daemon=True)
    thread.start()
    thread.join()


def _rank(rank: int, path: str) -> None:
    global READY
    READY = path
    torch.set_num_threads(1)
    train(endless(), seconds=0.2)


def spawned_ranks() -> None:
    torch.multiprocessing.spawn(_rank, args=(READY,), nprocs=2)


# ---------------------------------------------------------------------------------------- to be watched


class Hanging(Samples):
    """The first worker waits for a lock, the second for a FIFO; the others are quick."""

    def __init__(self, fifo: str) -> None:
        super().__init__("none")
        self.fifo = fifo

    def __getitem__(self, index: int) -> torch.Tensor:
        info = torch.utils.data.get_worker_info()
        if info is not None and info.id == 0 and index >= 8:
            self.wait_for_lock()
        if info is not None and info.id == 1 and index >= 8:
            self.read_fifo()
        if info is not None and info.id == 2:
            Path(READY + ".quick").write_text(str(os.getpid()))
        return torch.zeros(4)

    def wait_for_lock(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def read_fifo(self) -> None:
        with open(self.fifo, "rb", 0) as file:
            file.read(1)


def hang() -> None:
    fifo = READY + ".fifo"
    os.mkfifo(fifo)
    keep_open = os.open(fifo, os.O_RDWR)  # else opening it would be the wait
    train(DataLoader(Hanging(fifo), batch_size=2, num_workers=3))
    os.close(keep_open)


def goes_on() -> None:
    """Its loader dies with a worker, and it only sleeps then."""
    try:
        train(torch_loader("sleep", batch_size=2, num_workers=3))
    except RuntimeError:
        time.sleep(600)


def ends() -> None:
    loader = iter(torch_loader("sleep", batch_size=2))
    for count in range(10_000):
        next(loader)
        ready()
        if os.path.exists(READY + ".stop") and count > 2:
            del loader
            sys.exit(3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    READY = sys.argv[2] if len(sys.argv) > 2 else ""
    globals()[sys.argv[1]]()
