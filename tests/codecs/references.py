"""Files to decode, and what others make of them."""

import io
from typing import Any

import numpy as np

STORED, DEFLATED = 0, 8


def npz_bytes(arrays: dict[str, np.ndarray], method: int = DEFLATED) -> bytes:
    """An archive as numpy writes it."""
    buffer = io.BytesIO()
    (np.savez_compressed if method == DEFLATED else np.savez)(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def npy_bytes(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version, allow_pickle=False)
    return buffer.getvalue()


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A picture that is smooth with some noise, so that a lossy codec has something to do."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / (5 + 3 * k)) * np.cos(y / (7 + k)) for k in range(3)], axis=2)
    return np.clip(128 + 90 * waves + rng.normal(0, 6, waves.shape), 0, 255).astype(np.uint8)


def pil_bytes(pixels: np.ndarray, kind: str, mode: str | None = None, **options: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.fromarray(pixels.squeeze() if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    (image.convert(mode) if mode else image).save(buffer, kind, **options)
    return buffer.getvalue()
