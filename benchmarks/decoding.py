"""One sample's work without a loader: how it is done by hand, with Pillow, and by `headrace.codecs`."""

from __future__ import annotations

import gc
import io
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness import Result
from workloads import CT_OUT, DATASETS, LIDAR_FILES, LIDAR_POINTS, decode_ct, decode_lidar, decode_sa1b, load_npz

Decode = Callable[[Any], Any]


def raw_samples(workload: str, size: str) -> list[Any]:
    """Undecoded samples in memory (paths, for the point clouds)."""
    dataset = DATASETS[workload](size)
    return [dataset.read(index) for index in range(min(dataset.num_in_memory, dataset.num_files))]


# ------------------------------------------------------------------ whole samples


def sa1b_by_hand(raw: Any) -> tuple[np.ndarray, ...]:
    image, features = decode_sa1b(raw[0], raw[1])
    return image.numpy(), features.numpy()


def sa1b_with_pillow(raw: Any) -> tuple[np.ndarray, ...]:
    """What most data sets do; Pillow's bilinear smooths first, so its pixels are others."""
    from PIL import Image

    image = Image.open(io.BytesIO(raw[0])).convert("RGB").resize((1024, 1024), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)), load_npz(raw[1])


def sa1b_by_codecs(raw: Any) -> tuple[np.ndarray, ...]:
    from headrace import codecs

    return codecs.jpeg(raw[0], size=(1024, 1024), layout="chw"), codecs.npz(raw[1], "feat")


def ct_by_hand(raw: Any) -> tuple[Any, ...]:
    volume, number, length = decode_ct(*raw)
    return volume.numpy(), number, length


def ct_by_codecs(raw: Any) -> tuple[Any, ...]:
    from headrace import codecs

    volume = codecs.volume(raw[0], clip=(-1000, 1000), size=CT_OUT, normalise=(0, 1000))
    return volume, codecs.json(raw[1])["id"], len(codecs.text(raw[2]))


def lidar_by_hand(raw: Any) -> tuple[np.ndarray]:
    return (decode_lidar(*raw).numpy(),)


def lidar_by_codecs(raw: Any) -> tuple[np.ndarray]:
    from headrace import codecs

    paths, index = raw
    points = codecs.empty((LIDAR_FILES, LIDAR_POINTS, 4), np.float32)
    for k, path in enumerate(paths):
        rng = np.random.default_rng(index * LIDAR_FILES + k)
        codecs.points(path, choose=lambda num, rng=rng: rng.integers(0, num, LIDAR_POINTS), out=points[k])
    return (points,)


# ------------------------------------------------------------------ arrays alone


def stored_again(npz: bytes) -> bytes:
    """The same array in an archive that is not compressed."""
    buffer = io.BytesIO()
    np.savez(buffer, feat=load_npz(npz))
    return buffer.getvalue()


# ------------------------------------------------------------------ measuring


def difference(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The largest difference between two decoded samples."""
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        if np.shape(a) != np.shape(b):
            return float("inf")
        worst = max(worst, float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()))
    return worst


def time_decode(
    decode: Decode,
    raws: list[Any],
    *,
    seconds: float,
    num_threads: int = 1,
    like: Decode | None = None,
    tolerance: float = 0.0,
    batch: int = 1,
) -> Result:
    """Decode for so long, after a warm-up, in so many threads; `like` makes what the result must be.

    `batch` results are held and then dropped together, as a worker does that collates them.
    """
    result: Result = {"num_threads": num_threads}
    if like is not None:
        result["difference"] = max(difference(decode(raw), like(raw)) for raw in raws[:3])
        if result["difference"] > tolerance:
            raise AssertionError(f"another result: off by {result['difference']}, allowed {tolerance}")
    try:
        import cv2

        cv2.setNumThreads(1)
    except ImportError:
        pass
    import torch

    torch.set_num_threads(1)
    rates: list[float] = []
    times: list[float] = []
    ready = threading.Barrier(num_threads)

    def run(number: int) -> None:
        position = number * len(raws) // num_threads
        for span_s, is_measured in ((min(1.0, seconds / 3), False), (seconds, True)):
            ready.wait()
            mine, begin = [], time.perf_counter()
            last = begin
            held: list[Any] = []
            while last - begin < span_s:
                if len(held) == batch:
                    held = []
                held.append(decode(raws[position % len(raws)]))
                position += 1
                now = time.perf_counter()
                mine.append(now - last)
                last = now
            if is_measured:
                rates.append(len(mine) / (last - begin))
                times.extend(mine)

    gc.collect()
    if num_threads == 1:
        run(0)  # in the main thread, where a worker process decodes: malloc keeps other lists for other threads
    else:
        threads = [threading.Thread(target=run, args=(k,)) for k in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(rates) != num_threads:
        raise RuntimeError("a thread failed; its error is above")
    result["samples_per_s"] = sum(rates)
    result["decode_median_ms"] = statistics.median(times) * 1e3
    return result
