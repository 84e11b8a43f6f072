"""NIfTI is read as nibabel reads it: voxels, scaling, affine, byte order, both versions, packed or not."""

import gzip
import struct
from pathlib import Path

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import codecs
from headrace.errors import DecodeError

DTYPES = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "f4", "f8", "c8"]


@st.composite
def images(draw: st.DrawFn) -> nibabel.Nifti1Image:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5).map(tuple))
    dtype = np.dtype(draw(st.sampled_from(DTYPES))).newbyteorder(draw(st.sampled_from("<>")))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    data = (rng.integers(0, 100, shape)).astype(dtype)
    kind = draw(st.sampled_from([nibabel.Nifti1Image, nibabel.Nifti2Image]))
    affine = draw(st.sampled_from([None, "full", "rotated"]))
    matrix = None
    if affine == "full":
        matrix = np.vstack([rng.normal(size=(3, 4)), [0, 0, 0, 1]])
    elif affine == "rotated":
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = turn * [0.7, 0.8, 2.5], rng.normal(size=3)
    header = (nibabel.Nifti1Header if kind is nibabel.Nifti1Image else nibabel.Nifti2Header)(
        endianness=draw(st.sampled_from("<>"))
    )
    header.set_data_dtype(dtype)
    image = kind(data, matrix, header)
    if affine == "rotated":
        image.set_sform(None)
        image.set_qform(matrix, code=1)
    if draw(st.booleans()) and dtype.kind != "c":
        image.header.set_slope_inter(draw(st.sampled_from([0.5, -2.0, 1.0])), draw(st.sampled_from([0.0, -1024.0])))
    return image


@given(image=images(), packed=st.booleans())
def test_voxels_are_nibabels(image: nibabel.Nifti1Image, packed: bool) -> None:
    raw = image.to_bytes()
    theirs = type(image).from_bytes(raw)
    data = gzip.compress(raw, 1) if packed else raw
    ours = codecs.nifti(data)
    expected = np.asanyarray(theirs.dataobj)
    assert ours.shape == expected.shape
    assert ours.dtype == expected.dtype
    assert np.allclose(ours, expected, rtol=1e-12, atol=0)
    assert np.array_equal(codecs.nifti(data, scaled=False), theirs.dataobj.get_unscaled())
    out = np.empty(ours.shape, ours.dtype)
    assert codecs.nifti(memoryview(data), out=out) is out
    assert np.array_equal(out, ours)


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_files_and_volumes(tmp_path: Path, ending: str) -> None:
    rng = np.random.default_rng(1)
    image = nibabel.Nifti1Image(rng.integers(0, 4000, (20, 18, 12)).astype(np.int16), np.eye(4))
    image.header.set_slope_inter(1.0, -1024.0)
    path = tmp_path / f"study.{ending}"
    nibabel.save(image, path)
    theirs = nibabel.load(path).get_fdata()
    assert np.array_equal(codecs.nifti(path), theirs)
    assert np.array_equal(codecs.nifti(path, dtype=np.float32), theirs.astype(np.float32))
    ready = codecs.volume(path, clip=(-200, 300), normalise=(50, 100))
    assert np.allclose(ready, (np.clip(theirs, -200, 300) - 50) / 100, atol=1e-5)


def test_a_pair_of_files_and_a_wrong_magic_are_told() -> None:
    raw = bytearray(nibabel.Nifti1Image(np.zeros((2, 2, 2), np.int16), None).to_bytes())
    raw[344:348] = b"ni1\0"
    with pytest.raises(DecodeError, match="another file"):
        codecs.nifti(raw)
    raw[344:348] = b"what"
    with pytest.raises(DecodeError, match="magic"):
        codecs.nifti(raw)
    with pytest.raises(DecodeError, match="cut short"):
        codecs.nifti(bytes(10))


@pytest.mark.parametrize("datatype", [0, 4096, -512])
def test_an_unknown_datatype_is_told(datatype: int) -> None:
    raw = bytearray(nibabel.Nifti1Image(np.zeros((2, 2, 2), np.int16), None).to_bytes())
    struct.pack_into("<h", raw, 70, datatype)
    with pytest.raises(DecodeError, match=r"^bytes: the NIfTI"):
        codecs.nifti(raw)
