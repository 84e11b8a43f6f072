"""A training whose samples read, decode and transform with libraries: `part_training.py FOLDER WORKERS [START]`.

Prints what it trained on, so that a run with and without us can be compared.
"""

import hashlib
import pickle
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import headrace

NUM_SAMPLES = 24
BATCH = 2


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(7)
    picture = rng.integers(0, 255, (96, 128, 3), dtype=np.uint8)
    Image.fromarray(picture).save(folder / "picture.jpg")
    np.savez_compressed(folder / "features.npz", x=rng.random((64, 64), dtype=np.float32))


class Samples(Dataset[torch.Tensor]):
    shrink = cv2.resize  # in C, so not bound to the instance

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = Image.open(self.folder / "picture.jpg").convert("RGB")
        with np.load(self.folder / "features.npz") as features:
            x = features["x"]
        data = np.frombuffer((self.folder / "picture.jpg").read_bytes(), np.uint8)
        with headrace.stage("whole sample") as whole:
            both = cv2.imdecode(data, cv2.IMREAD_COLOR).astype(np.float32) + np.asarray(picture)
            with headrace.stage("inner part"):
                small = self.shrink(both, (64, 64))
                for _ in range(10):  # long enough that samples are timed one by one
                    small = np.sqrt(small + x[:, :, None] + index)
            whole.nbytes = small.nbytes
        return torch.from_numpy(small)


class Stream(IterableDataset[torch.Tensor]):
    """Leaves its stage in another sample than it entered it in."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __iter__(self) -> Any:
        worker = get_worker_info()
        for index in range(worker.id if worker else 0, NUM_SAMPLES, worker.num_workers if worker else 1):
            with headrace.stage("around a yield"):
                yield self.samples[index]


def main(folder: Path, workers: int, start: str) -> None:
    torch.set_num_threads(1)
    prepare(folder)
    samples: Any = Samples(folder)
    if start == "subset":
        samples = torch.utils.data.Subset(samples, range(NUM_SAMPLES))
    if start == "stream":
        samples = Stream(samples)
    method = start if start in {"fork", "spawn", "forkserver"} else "fork"
    loader = DataLoader(
        samples, batch_size=BATCH, num_workers=workers, multiprocessing_context=method if workers else None
    )
    model = torch.nn.Linear(3, 1)
    total = hashlib.sha256()
    for batch in loader:
        model(batch[:, 0, 0]).mean().backward()
        total.update(batch.numpy().tobytes())
    torch.save(model.state_dict(), folder / "model.pt")
    print(total.hexdigest(), sum(len(batch) for batch in [batch]))
    for function in (cv2.resize, cv2.imdecode, np.load, np.fromfile, torch.load, Image.open):
        assert pickle.loads(pickle.dumps(function)) is function
    print(np.load.__name__, cv2.resize.__name__, Image.open.__module__, repr(cv2.resize))
    try:
        np.load(folder / "nothing.npy")
    except FileNotFoundError as error:
        print(type(error).__name__, cv2.imread(str(folder / "nothing.png")) is None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "fork")
