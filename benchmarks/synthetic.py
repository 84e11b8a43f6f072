"""Make the files of the workloads: the same bytes on every machine, written once into a cache folder.

The seeds and the order of the random draws are part of the definition of the work: a changed draw is another
workload, and figures from before and after it must not stand side by side.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SA1B_HEIGHT, SA1B_WIDTH = 1500, 2250
CT_SHAPE = (512, 512, 128)
SMALL_ROW_BYTES = 3072
LIDAR_POINTS_PER_FILE = 131_072
PHOTO_HEIGHT, PHOTO_WIDTH = 375, 500
CT_REPORT = "Findings: no focal consolidation. " * 40


class Recipe(NamedTuple):
    """How one workload is made: an item is a group of files that is written together."""

    num_full: int
    num_quick: int  # enough to prove that a script runs, made in seconds
    paths: Callable[[Path, int], list[Path]]
    make: Callable[[Path, int], None]
    items: Callable[[int], Iterable[int]] = range  # the items of a set of so many samples


def data_folder(size: str = "full") -> Path:
    """Return where the files lie: `HEADRACE_BENCH_DATA`, or a folder in the system's temporary one."""
    root = os.environ.get("HEADRACE_BENCH_DATA") or Path(tempfile.gettempdir(), "headrace-bench")
    return Path(root) if size == "full" else Path(root) / size


def num_samples(workload: str, size: str = "full") -> int:
    recipe = RECIPES[workload]
    return recipe.num_full if size == "full" else recipe.num_quick


def files_of(workload: str, size: str = "full") -> list[Path]:
    """Return every file of a workload, made or not."""
    recipe, folder, num = RECIPES[workload], data_folder(size), num_samples(workload, size)
    return [path for item in recipe.items(num) for path in recipe.paths(folder, item)]


def ensure(workload: str, size: str = "full", *, num_processes: int = 2) -> Path:
    """Make the files that are missing, and return the folder they lie in."""
    recipe, folder, num = RECIPES[workload], data_folder(size), num_samples(workload, size)
    missing = [item for item in recipe.items(num) if not all(path.exists() for path in recipe.paths(folder, item))]
    if missing:
        for parent in {path.parent for item in missing for path in recipe.paths(folder, item)}:
            parent.mkdir(parents=True, exist_ok=True)
        make = partial(recipe.make, folder)
        if len(missing) == 1:
            make(missing[0])
        else:
            # spawn: cv2 and torch threads of the caller must not be forked into the makers
            with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
                list(pool.map(make, missing))
    return folder


def warm(paths: Iterable[Path]) -> int:
    """Read files once, so that the page cache holds them; return the bytes read."""
    total = 0
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(4 << 20):
                total += len(chunk)
    return total


def cool(paths: Iterable[Path]) -> None:
    """Ask the kernel to drop files from the page cache (needs no rights; pages in use stay)."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _write(path: Path, data: bytes | memoryview) -> None:
    """Write under a temporary name and rename, so that a file with the final name is a whole one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
    temporary.rename(path)


def _npz(**arrays: np.ndarray) -> memoryview:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # numpy's stub reads the names as allow_pickle
    return buffer.getbuffer()


def _cv2() -> Any:
    import cv2

    cv2.setNumThreads(1)
    return cv2


# ------------------------------------------------------------------ W1: photographs with feature maps


def _sa1b_paths(folder: Path, item: int) -> list[Path]:
    return [folder / "sa1b" / "loose" / f"{item:06d}.{kind}" for kind in ("jpg", "npz")]


def _layered_noise(rng: np.random.Generator, octaves: list[tuple[int, float]], channels: int) -> np.ndarray:
    """Sum noise of several grain sizes: what makes a JPEG as large as a photograph's."""
    cv2, height, width = _cv2(), SA1B_HEIGHT, SA1B_WIDTH
    total = np.zeros((height, width, channels), np.float32)
    for grain, amplitude in octaves:
        shape = (max(2, height // grain), max(2, width // grain), channels)
        coarse = rng.standard_normal(shape).astype(np.float32)
        fine = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
        total += amplitude * fine.reshape(height, width, channels)
    return total


def _make_sa1b(folder: Path, item: int) -> None:
    cv2 = _cv2()
    rng = np.random.default_rng(1000 + item)
    texture = 0.7 + 0.6 * rng.random()
    colour = [(500, 40), (120, 22), (32, 11), (8, 5 * texture), (3, 4.5 * texture)]
    canvas = 128 + _layered_noise(rng, colour, 3)
    canvas += _layered_noise(rng, [(2, 3 * texture)], 1)
    image = np.clip(canvas, 0, 255).astype(np.uint8)
    for _ in range(40):
        shade = tuple(int(value) for value in rng.integers(0, 256, 3))
        x, y = int(rng.integers(0, SA1B_WIDTH)), int(rng.integers(0, SA1B_HEIGHT))
        reach = int(rng.integers(10, 180))
        if rng.random() < 0.5:
            cv2.circle(image, (x, y), reach, shade, int(rng.integers(1, 8)), cv2.LINE_AA)
        else:
            cv2.rectangle(image, (x, y), (x + reach, y + reach // 2), shade, int(rng.integers(1, 6)))
    _, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 85])

    # a feature map as an image encoder gives it: smooth in space, noisy in the mantissa, so it hardly compresses
    coarse = rng.standard_normal((256, 16, 16)).astype(np.float32)
    smooth = np.stack([cv2.resize(plane, (64, 64), interpolation=cv2.INTER_LINEAR) for plane in coarse])
    features = (smooth * 0.05 + 0.01 * rng.standard_normal(smooth.shape)).astype(np.float16)

    jpg_path, npz_path = _sa1b_paths(folder, item)
    _write(npz_path, _npz(feat=features))
    _write(jpg_path, encoded.tobytes())


# ------------------------------------------------------------------ W2: CT volumes


def _ct_paths(folder: Path, item: int) -> list[Path]:
    return [folder / "ct" / "loose" / f"{item:04d}.{kind}" for kind in ("npz", "json", "txt")]


def _make_ct(folder: Path, item: int) -> None:
    cv2 = _cv2()
    rng = np.random.default_rng(5000 + item)
    height, width, depth = CT_SHAPE
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    centre_x, centre_y = width / 2 + rng.normal(0, 10), height / 2 + rng.normal(0, 10)
    radius_x, radius_y = 190 + rng.normal(0, 10), 140 + rng.normal(0, 10)
    in_view = (x - width / 2) ** 2 + (y - height / 2) ** 2 < (width / 2) ** 2
    volume = np.empty(CT_SHAPE, np.int16)
    for z in range(depth):
        swell = 1 + 0.05 * np.sin(z / 20)
        distance = ((x - centre_x) / (radius_x * swell)) ** 2 + ((y - centre_y) / (radius_y * swell)) ** 2
        body = distance < 1
        coarse = rng.standard_normal((24, 24)).astype(np.float32)
        tissue = 40 + 25 * cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
        slab = np.full((height, width), -1000, np.float32)
        slab[body] = tissue[body]
        for side in (-0.45, 0.45):
            across = (x - centre_x - side * radius_x) / (0.3 * radius_x)
            slab[across**2 + ((y - centre_y) / (0.55 * radius_y)) ** 2 < 1] = -820  # lung
        slab[(distance > 0.92) & body] = -90  # fat
        slab[((x - centre_x) / 22) ** 2 + ((y - centre_y - 0.7 * radius_y) / 22) ** 2 < 1] = 600  # spine
        noise = rng.standard_normal((height, width)).astype(np.float32)
        # noise in tissue and air, none outside the field of view: that is what lets a CT compress to 0.4
        slab += np.where(body, 16 * noise, np.where(in_view, 9 * noise, 0))
        volume[:, :, z] = np.clip(np.round(slab), -1024, 3071)

    npz_path, json_path, txt_path = _ct_paths(folder, item)
    meta = {"id": item, "spacing": [0.75, 0.75, 1.5], "slope": 1, "intercept": 0}
    _write(npz_path, _npz(volume=volume))
    _write(json_path, json.dumps(meta).encode())
    _write(txt_path, CT_REPORT.encode())


# ------------------------------------------------------------------ W3: small rows, W4: point clouds


def _small_paths(folder: Path, _num_rows: int) -> list[Path]:
    return [folder / "small" / "x.npy"]


def _make_small(folder: Path, num_rows: int) -> None:
    rows = np.random.default_rng(7).integers(0, 256, (num_rows, SMALL_ROW_BYTES), dtype=np.uint8)
    buffer = io.BytesIO()
    np.save(buffer, rows)
    _write(_small_paths(folder, num_rows)[0], buffer.getbuffer())


def _lidar_paths(folder: Path, item: int) -> list[Path]:
    return [folder / "lidar" / f"{item:04d}.bin"]


def _make_lidar(folder: Path, item: int) -> None:
    points = np.random.default_rng(9000 + item).standard_normal((LIDAR_POINTS_PER_FILE, 4)).astype(np.float32)
    _write(_lidar_paths(folder, item)[0], points.tobytes())


# ------------------------------------------------------------------ photographs for a GPU machine, which has no cv2


def _photo_paths(folder: Path, item: int) -> list[Path]:
    return [folder / "photos" / f"{item:04d}.jpg"]


def _make_photo(folder: Path, item: int) -> None:
    import torch
    from torch.nn import functional
    from torchvision.io import encode_jpeg

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(item)
    canvas = torch.zeros(1, 3, PHOTO_HEIGHT, PHOTO_WIDTH)
    for cells, amplitude in ((8, 80.0), (32, 50.0), (128, 25.0), (PHOTO_WIDTH // 3, 10.0)):
        coarse = torch.randn(1, 3, cells, cells, generator=generator)
        canvas += amplitude * functional.interpolate(coarse, (PHOTO_HEIGHT, PHOTO_WIDTH), mode="bilinear")
    image = (canvas[0] + 128).clamp(0, 255).to(torch.uint8)
    _write(_photo_paths(folder, item)[0], encode_jpeg(image, quality=85).numpy().tobytes())


RECIPES = {
    "sa1b": Recipe(600, 16, _sa1b_paths, _make_sa1b),
    "ct": Recipe(24, 2, _ct_paths, _make_ct),
    "small": Recipe(60_000, 4_096, _small_paths, _make_small, lambda num: [num]),
    "lidar": Recipe(300, 16, _lidar_paths, _make_lidar),
    "photos": Recipe(256, 64, _photo_paths, _make_photo),
}
