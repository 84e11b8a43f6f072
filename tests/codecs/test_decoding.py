"""A decoder takes a sample's fields by extension, with our codecs and with users' own functions."""

import pickle
from functools import partial

import numpy as np
import pytest

import headrace
from headrace import codecs
from headrace.errors import DecodeError

from .references import npz_bytes, photo, pil_bytes


def first_byte(data: bytes) -> int:
    return data[0]


def sample() -> dict[str, object]:
    return {
        "__key__": "study_001",
        "jpg": pil_bytes(photo(20, 30), "JPEG"),
        "seg.png": pil_bytes(photo(20, 30)[..., 0], "PNG"),
        "npz": memoryview(npz_bytes({"feat": np.arange(6.0)})),
        "json": b'{"id": 1}',
        "cls": b"7",
        "txt": b"fine",
        "mine": b"\x05",
    }


def test_fields_by_extension() -> None:
    decoder = headrace.decode(*("jpg", "seg.png", "npz", ".JSON"[1:].lower(), "cls", "txt"), mine=first_byte)
    decoded = pickle.loads(pickle.dumps(decoder))(sample())
    assert list(decoded) == ["__key__", "jpg", "seg.png", "npz", "json", "cls", "txt", "mine"]
    assert decoded["__key__"] == "study_001"
    assert decoded["jpg"].shape == (20, 30, 3)
    assert decoded["seg.png"].shape == (20, 30, 3)
    assert np.array_equal(decoded["npz"]["feat"], np.arange(6.0))
    assert (decoded["json"], decoded["cls"], decoded["txt"], decoded["mine"]) == ({"id": 1}, 7, "fine", 5)


def test_ours_with_options() -> None:
    decoder = headrace.decode(jpg=partial(codecs.jpeg, size=(8, 8), layout="chw"), npz=partial(codecs.npz, only="feat"))
    decoded = decoder(sample())
    assert decoded["jpg"].shape == (3, 8, 8)
    assert np.array_equal(decoded["npz"], np.arange(6.0))


def test_errors_name_sample_and_field() -> None:
    broken = {**sample(), "npz": b"not a zip archive at all", "cls": b"cat", "mine": b""}
    with pytest.raises(DecodeError, match=r"study_001\.npz: not a zip"):
        headrace.decode("npz")(broken)
    with pytest.raises(DecodeError, match=r"study_001\.cls: not a class label"):
        headrace.decode("cls")(broken)
    with pytest.raises(IndexError) as caught:
        headrace.decode(mine=first_byte)(broken)
    assert caught.value.__notes__ == ["while decoding study_001.mine"]
    with pytest.raises(DecodeError) as decode_error:
        headrace.decode(npz=partial(codecs.npz, only="feat"))(broken)
    assert decode_error.value.__notes__ == ["while decoding study_001.npz"]
    with pytest.raises(KeyError, match="sample study_001 has no field 'png'"):
        headrace.decode("png")(broken)


def test_unknown_extensions_and_no_functions_are_told() -> None:
    with pytest.raises(ValueError, match="no codec for 'webp'; known are bin, cls, jpeg"):
        headrace.decode("webp")
    with pytest.raises(TypeError, match="give a function"):
        headrace.decode(jpg=3)  # type: ignore[arg-type]
