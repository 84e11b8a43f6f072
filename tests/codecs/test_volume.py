"""Volumes come out as torch makes them step by step, to 1e-5 of their range."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from headrace import codecs
from headrace.errors import DecodeError

from .references import DEFLATED, STORED, npy_bytes, npz_bytes

SIDES = st.tuples(*[st.integers(1, 40)] * 3)


def reference(stored: np.ndarray, crop: Any, clip: Any, size: Any, normalise: Any) -> np.ndarray:
    cut = stored[tuple(slice(*part) for part in crop)] if crop else stored
    values = torch.from_numpy(np.ascontiguousarray(cut, dtype=np.float32))
    if clip:
        values = values.clamp(*clip)
    if size:
        values = functional.interpolate(values[None, None], size=size, mode="trilinear", align_corners=False)[0, 0]
    if normalise:
        values = (values - normalise[0]) / normalise[1]
    return values.numpy()


@given(
    shape=SIDES,
    size=st.none() | SIDES,
    dtype=st.sampled_from(["i2", "u2", ">i2", "u1", "i4", "f4", "f8", "f2", "?"]),
    clip=st.sampled_from([None, (-100, 100), (-50.5, 120.25), (-1e6, 1e6)]),
    normalise=st.sampled_from([None, (0, 100), (10.5, 40)]),
    crops=st.none() | st.tuples(*[st.tuples(st.integers(0, 10), st.integers(11, 50))] * 3),
    order=st.sampled_from("CF"),
    seed=st.integers(0, 9),
)
@settings(max_examples=200)
def test_is_torchs(
    shape: Any, size: Any, dtype: str, clip: Any, normalise: Any, crops: Any, order: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    stored = np.asarray(rng.integers(-128, 128, shape) * rng.integers(0, 2, shape), order="C").astype(dtype)
    stored = np.asarray(stored, order=order)
    if crops is not None and any(start >= side for (start, _), side in zip(crops, shape, strict=True)):
        with pytest.raises(ValueError, match="cannot make a volume"):
            codecs.volume(stored, crop=crops, size=size)
        return
    expected = reference(stored, crops, clip, size, normalise)
    ours = codecs.volume(stored, crop=crops, clip=clip, size=size, normalise=normalise)
    spread = max(1.0, float(np.abs(stored.astype(np.float64)).max())) / (normalise[1] if normalise else 1)
    assert ours.dtype == np.float32
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() <= 1e-5 * spread
    out = np.empty(expected.shape, np.float32)
    assert codecs.volume(stored, crop=crops, clip=clip, size=size, normalise=normalise, out=out) is out
    assert np.array_equal(out, ours)


@pytest.mark.parametrize("size", [(48, 48, 24), (200, 30, 300), (100, 100, 9), (3, 140, 64)])
def test_slabs_meet_without_a_seam(size: tuple[int, int, int]) -> None:
    stored = np.random.default_rng(0).integers(-1024, 3071, (130, 140, 64)).astype(np.int16)
    expected = reference(stored, None, (-1000, 1000), size, (0, 1000))
    ours = codecs.volume(stored, clip=(-1000, 1000), size=size, normalise=(0, 1000))
    assert np.abs(ours - expected).max() <= 1e-5


def test_no_float_copy_of_the_volume_exists() -> None:
    import tracemalloc

    stored = np.zeros((256, 256, 128), np.int16)  # 16.8 MB; as float32 it would be 33.6
    codecs.release()
    tracemalloc.start()
    try:
        codecs.volume(stored, clip=(-1000, 1000), size=(64, 64, 64), normalise=(0, 1000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        codecs.release()
    assert peak < 14 << 20


def test_a_window_is_clipped_and_scaled() -> None:
    stored = np.linspace(-1000, 1000, 27).reshape(3, 3, 3).astype(np.int16)
    ours = codecs.volume(stored, window=(40, 400))
    assert np.allclose(ours, (np.clip(stored, -160, 240) + 160) / 400, atol=1e-6)
    with pytest.raises(ValueError, match="not both"):
        codecs.volume(stored, window=(40, 400), clip=(0, 1))


@pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4", "i8", "f2", "f8"])
def test_whole_numbers_are_rounded_and_held(dtype: str) -> None:
    stored = np.array([-70000.6, -1.5, -0.4, 0.6, 254.7, 300.2, 1e20, 2.5], np.float64).reshape(2, 2, 2)
    ours = codecs.volume(stored, dtype=dtype)
    assert ours.dtype == dtype
    if np.dtype(dtype).kind == "f":
        with np.errstate(over="ignore"):
            assert np.array_equal(ours, stored.astype(np.float32).astype(dtype))
        return
    info = np.iinfo(dtype)
    expected = np.clip(np.rint(stored.astype(np.float32).astype(np.float64)), float(info.min), float(info.max))
    assert np.allclose(ours.astype(np.float64), expected, rtol=1e-6)


def test_no_number_spreads_to_its_neighbours_only() -> None:
    stored = np.random.default_rng(0).normal(size=(9, 10, 60)).astype(np.float32)
    stored[4, 5, 30] = np.nan
    size = (9, 10, 50)
    expected = reference(stored, None, None, size, None)
    ours = codecs.volume(stored, size=size)
    assert np.array_equal(np.isnan(ours), np.isnan(expected))
    assert np.allclose(ours, expected, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_from_files(method: int) -> None:
    stored = np.random.default_rng(0).integers(-1000, 1000, (20, 21, 22)).astype(np.int16)
    expected = codecs.volume(stored, size=(10, 10, 10))
    data = npz_bytes({"volume": stored}, method)
    assert np.array_equal(codecs.volume(data, size=(10, 10, 10)), expected)
    assert np.array_equal(codecs.volume(npy_bytes(stored), size=(10, 10, 10)), expected)
    two = npz_bytes({"volume": stored, "mask": stored})
    assert np.array_equal(codecs.volume(two, member="volume", size=(10, 10, 10)), expected)
    with pytest.raises(ValueError, match=r"holds 2 arrays \(volume, mask\)"):
        codecs.volume(two)
    with pytest.raises(DecodeError, match=r"x\.bin: not a volume"):
        codecs.volume(b"something else", name="x.bin")


def test_a_result_is_never_memory_that_is_used_again() -> None:
    first = np.full((4, 4, 4), 7, np.float32)
    second = np.full((4, 4, 4), 9, np.float32)
    results = [codecs.volume(npz_bytes({"v": v})) for v in (first, second)]
    assert np.array_equal(results[0], first)
    assert np.array_equal(results[1], second)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"clip": (3, 1)}, "lower bound"),
        ({"normalise": (0, 0)}, "std above 0"),
        ({"crop": [None, None]}, "three parts"),
        ({"crop": [slice(0, 4, 2), None, None]}, "every value"),
        ({"size": (0, 1, 1)}, "cannot make"),
        ({"out": np.empty((1, 1, 1), np.float32)}, "out has shape"),
    ],
)
def test_misuse_is_told(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        codecs.volume(np.zeros((4, 4, 4), np.int16), **options)
