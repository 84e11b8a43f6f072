"""The work that every benchmark feeds: what one sample costs, as map-style data sets.

W1 `SA1B` (JPEG + NPZ pairs), W2 `CT` (volumes), W3 `Small` (3 KB rows) and W4 `Lidar` (point-cloud sequences) decode
real files, made on first use by `synthetic.py`. `SlowDisk` and `HeavyTail` only wait, as for a disk. Each data set
is the same object for every loader, is picklable, and may be longer than its files (`length=`): indices wrap round.

    python benchmarks/workloads.py sa1b ct small lidar          # make the files, 2.9 GB, some minutes
    python benchmarks/workloads.py --size quick                 # small sets for CI
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import Dataset

from synthetic import RECIPES, ensure, files_of, num_samples

ENDLESS = 1 << 30  # long enough that no run sees the end of an epoch
CT_OUT = (240, 240, 120)
LIDAR_FILES, LIDAR_POINTS = 8, 16_384


class Workload(NamedTuple):
    """The settings that belong to a data set of files."""

    title: str
    batch_size: int
    paced_step_s: float  # about two thirds of what two cores can supply


WORKLOADS = {
    "sa1b": Workload("W1 JPEG + NPZ pairs", 8, 0.130),
    "ct": Workload("W2 CT volumes", 2, 0.500),
    "small": Workload("W3 small samples", 256, 0.002),
    "lidar": Workload("W4 LiDAR sequences", 4, 0.0115),
}


# ------------------------------------------------------------------ one sample's work, without a loader


def load_npz(data: bytes) -> np.ndarray:
    """Return the first array of an NPZ file held in memory."""
    with np.load(io.BytesIO(data)) as archive:
        array: np.ndarray = archive[archive.files[0]]
        return array


def decode_sa1b(jpg: bytes, npz: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode a photograph to 3x1024x1024 uint8, and load its 256x64x64 float16 feature map."""
    import cv2
    import simplejpeg

    cv2.setNumThreads(1)
    pixels = simplejpeg.decode_jpeg(jpg, "RGB")
    resized = cv2.resize(pixels, (1024, 1024), interpolation=cv2.INTER_LINEAR)
    planes = np.ascontiguousarray(resized.transpose(2, 0, 1))
    return torch.from_numpy(planes), torch.from_numpy(load_npz(npz))


def decode_ct(npz: bytes, meta: bytes, report: bytes) -> tuple[torch.Tensor, int, int]:
    """Clip a volume to +-1000 HU and resample it to 240x240x120 float32."""
    volume = torch.from_numpy(load_npz(npz)).to(torch.float32).clamp_(-1000, 1000)
    resampled = functional.interpolate(volume[None, None], size=CT_OUT, mode="trilinear", align_corners=False)[0, 0]
    return resampled.div_(1000.0), json.loads(meta)["id"], len(report)


def decode_lidar(paths: list[str], index: int) -> torch.Tensor:
    """Draw 16,384 points from each of 8 scans."""
    points = np.empty((LIDAR_FILES, LIDAR_POINTS, 4), np.float32)
    for k, path in enumerate(paths):
        scan = np.fromfile(path, np.float32).reshape(-1, 4)
        chosen = np.random.default_rng(index * LIDAR_FILES + k).integers(0, len(scan), LIDAR_POINTS)
        points[k] = scan[chosen]
    return torch.from_numpy(points)


# ------------------------------------------------------------------ data sets over files


class FileSet(Dataset[Any]):
    """A data set of files. `read` gets an index's bytes, `decode` turns them into the sample."""

    workload: ClassVar[str]
    num_in_memory: ClassVar[int] = 1 << 20  # how many undecoded samples the decode-only limit holds, at most

    def __init__(self, size: str = "full", *, length: int | None = None) -> None:
        self.folder = str(ensure(self.workload, size))
        self.num_files = num_samples(self.workload, size)
        self.length = self.num_files if length is None else length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.decode(self.read(index % self.num_files))

    def read(self, index: int) -> Any:
        raise NotImplementedError

    def decode(self, raw: Any) -> Any:
        raise NotImplementedError


class SA1B(FileSet):
    """W1: (image uint8 3x1024x1024, features float16 256x64x64, index)."""

    workload = "sa1b"
    num_in_memory = 64

    def __init__(self, size: str = "full", *, length: int | None = None) -> None:
        # the codecs are loaded before workers are forked, as in a training script that imports them at its top
        import cv2  # noqa: F401
        import simplejpeg  # noqa: F401

        super().__init__(size, length=length)

    def read(self, index: int) -> tuple[bytes, bytes, int]:
        stem = f"{self.folder}/sa1b/loose/{index:06d}"
        return Path(stem + ".jpg").read_bytes(), Path(stem + ".npz").read_bytes(), index

    def decode(self, raw: tuple[bytes, bytes, int]) -> tuple[torch.Tensor, torch.Tensor, int]:
        jpg, npz, index = raw
        image, features = decode_sa1b(jpg, npz)
        return image, features, index


class CT(FileSet):
    """W2: (volume float32 240x240x120, id, length of the report)."""

    workload = "ct"
    num_in_memory = 8

    def read(self, index: int) -> tuple[bytes, bytes, bytes]:
        stem = f"{self.folder}/ct/loose/{index:04d}"
        return tuple(Path(stem + ending).read_bytes() for ending in (".npz", ".json", ".txt"))  # type: ignore[return-value]

    def decode(self, raw: tuple[bytes, bytes, bytes]) -> tuple[torch.Tensor, int, int]:
        return decode_ct(*raw)


class Lidar(FileSet):
    """W4: (points float32 8x16384x4, index). The read is part of the decode: numpy reads the scans itself."""

    workload = "lidar"

    def read(self, index: int) -> tuple[list[str], int]:
        scans = [(index * LIDAR_FILES + k) % self.num_files for k in range(LIDAR_FILES)]
        return [f"{self.folder}/lidar/{scan:04d}.bin" for scan in scans], index

    def decode(self, raw: tuple[list[str], int]) -> tuple[torch.Tensor, int]:
        paths, index = raw
        return decode_lidar(paths, index), index


class Small(FileSet):
    """W3: (row uint8 3072, label), from one memory-mapped file."""

    workload = "small"

    def __init__(self, size: str = "full", *, length: int | None = None) -> None:
        super().__init__(size, length=length)
        self._rows: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        if self._rows is None:
            self._rows = np.load(f"{self.folder}/small/x.npy", mmap_mode="r")
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}  # a memory map would be pickled as its contents

    def read(self, index: int) -> int:
        return index

    def decode(self, raw: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(np.array(self.rows[raw])), raw % 10


class SmallBatched(Small):
    """W3 fetched a batch at a time: a list of samples that are rows of one block, for `default_collate`."""

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        wrapped = np.asarray(indices) % self.num_files
        block = torch.from_numpy(self.rows.take(wrapped, axis=0))
        return list(zip(block.unbind(), (wrapped % 10).tolist(), strict=True))


class SmallBlock(Small):
    """W3 fetched a batch at a time and collated already: needs `collate_fn=keep_batch`."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        wrapped = np.asarray(indices) % self.num_files
        return [torch.from_numpy(self.rows.take(wrapped, axis=0)), torch.from_numpy(wrapped % 10)]


def keep_batch(batch: Any) -> Any:
    """The `collate_fn` of a data set whose `__getitems__` returns whole batches."""
    return batch


class Photos(FileSet):
    """500x375 JPEGs held in memory: (image uint8 3x224x224, label). Needs torchvision alone, for a GPU machine."""

    workload = "photos"

    def __init__(self, size: str = "full", *, length: int | None = None) -> None:
        super().__init__(size, length=length)
        self.encoded = [
            torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) for path in files_of("photos", size)
        ]

    def read(self, index: int) -> tuple[torch.Tensor, int]:
        return self.encoded[index], index

    def decode(self, raw: tuple[torch.Tensor, int]) -> tuple[torch.Tensor, int]:
        from torchvision.io import ImageReadMode, decode_jpeg

        encoded, index = raw
        image = decode_jpeg(encoded, ImageReadMode.RGB)
        # uint8 and channels-last: the path of torch's resize that is vectorised
        rows = image[None].contiguous(memory_format=torch.channels_last)
        return functional.interpolate(rows, (224, 224), mode="bilinear", antialias=False)[0], index % 1000


DATASETS: dict[str, type[FileSet]] = {"sa1b": SA1B, "ct": CT, "small": Small, "lidar": Lidar}


# ------------------------------------------------------------------ data sets that only wait, or do nothing


def spread(index: int) -> float:
    """Return a number in [0, 1) that is random to look at and depends on the index alone (splitmix64)."""
    z = (index + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return (z ^ z >> 31) / 2**64


class SlowDisk(Dataset[Any]):
    """A sample blocks for 20 to 40 ms, fixed by its index and the seed, and costs next to no CPU.

    With `payload` a sample has the layout of W1 (5 MiB), each byte freshly written; without it is 64 bytes.
    """

    def __init__(
        self, *, min_s: float = 0.020, max_s: float = 0.040, payload: bool = False, length: int = ENDLESS, seed: int = 0
    ) -> None:
        self.min_s, self.max_s, self.payload, self.length, self.seed = min_s, max_s, payload, length, seed

    def __len__(self) -> int:
        return self.length

    def delay_s(self, index: int) -> float:
        return self.min_s + (self.max_s - self.min_s) * spread(index + (self.seed << 40))

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        time.sleep(self.delay_s(index))
        if self.payload:
            image = torch.full((3, 1024, 1024), index % 251, dtype=torch.uint8)
            features = torch.full((256, 64, 64), index % 251, dtype=torch.float16)
            return image, features, index
        return torch.full((16,), index % 4093, dtype=torch.float32), index


class HeavyTail(SlowDisk):
    """A slow disk on which one sample in every 400, at a place that looks random, takes a second."""

    def __init__(self, *, one_in: int = 400, slow_s: float = 1.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.one_in, self.slow_s = one_in, slow_s

    def delay_s(self, index: int) -> float:
        group, place = divmod(index, self.one_in)
        if place == int(spread(~group) * self.one_in):
            return self.slow_s
        return super().delay_s(index)

    @property
    def mean_s(self) -> float:
        usual_s = (self.min_s + self.max_s) / 2
        return usual_s + (self.slow_s - usual_s) / self.one_in


class Prepared(Dataset[Any]):
    """Samples of W1's layout (5 MiB) that exist already: what is left is the loader's own copying."""

    def __init__(self, *, num_distinct: int = 4, length: int = ENDLESS) -> None:
        self.length = length
        self.samples = [
            (torch.full((3, 1024, 1024), k, dtype=torch.uint8), torch.full((256, 64, 64), k, dtype=torch.float16))
            for k in range(num_distinct)
        ]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.samples[index % len(self.samples)]


class Drawing(Dataset[Any]):
    """A small sample that draws `draws` ("nothing", "random", "numpy" or "torch") once."""

    def __init__(self, draws: str = "nothing", *, length: int = ENDLESS) -> None:
        self.draws, self.length = draws, length
        self.row = torch.zeros(64)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        match self.draws:
            case "nothing":
                return self.row, 0.5
            case "random":
                return self.row, random.random()
            case "numpy":
                return self.row, float(np.random.random())
            case "torch":
                return self.row, float(torch.rand(()))
        raise ValueError(f"draws must be nothing, random, numpy or torch, not {self.draws!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*RECIPES, []], help="which to make (sa1b ct small lidar)")
    parser.add_argument("--size", choices=["full", "quick"], default="full")
    parser.add_argument("--quick", dest="size", action="store_const", const="quick", help="--size quick")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    for name in options.workloads or WORKLOADS:
        start = time.perf_counter()
        folder = ensure(name, options.size, num_processes=options.processes)
        files = files_of(name, options.size)
        total_mb = sum(path.stat().st_size for path in files) / 1e6
        print(f"{name}: {len(files)} files, {total_mb:,.0f} MB in {folder}")
        print(f"  took {time.perf_counter() - start:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
