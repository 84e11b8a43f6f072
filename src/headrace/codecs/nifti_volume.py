"""Volumes from NIfTI-1 and NIfTI-2 files, packed with gzip or not, as nibabel reads them."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .buffers import hand_out, result_memory, scratch
from .inflate import BadStream, find_inflater
from .nifti_header import LONGEST_HEADER, NiftiHeader, is_nifti_start, parse_nifti
from .source import DEFLATE_RATIO, MAX_BYTES, Data, Source

Array = npt.NDArray[Any]

_GZIP = b"\x1f\x8b"


def nifti(
    data: Data,
    *,
    scaled: bool = True,
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
    name: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Array:
    """Return the voxels of a `.nii` or `.nii.gz`, in the file's own (Fortran) order of memory.

    As in nibabel, a slope and intercept in the header give float64 values, and without them the stored ones are
    returned; `scaled=False` returns the stored ones always, `dtype` asks for another type. Where the affine and voxel
    sizes are wanted: `nifti_header`. For training, `volume` does the scaling, resizing and conversion in one pass.
    """
    with Source(data, name) as source, stage("nifti decode") as timed:
        is_plain = dtype is None and out is None
        stored, (slope, shift) = nifti_stored(source, max_bytes, keeps=is_plain)
        is_scaled = scaled and (slope, shift) != (1.0, 0.0)
        if is_scaled:
            kind = np.dtype(dtype) if dtype is not None else np.dtype(np.float64)
            if stored.dtype.kind == "c":
                kind = np.promote_types(kind, np.complex64)
            source.check_claim(stored.size * kind.itemsize, held=2**62, max_bytes=max_bytes, what="the volume")
            if kind.kind not in "fc":
                raise ValueError(f"{source.name}: it has a slope and intercept, which do not fit dtype={kind}")
            array: Array = np.multiply(stored, slope, dtype=kind, order="K")
            array += shift
        elif dtype is not None:
            array = stored.astype(dtype, order="K")
        else:
            array = stored
        timed.nbytes, timed.note = array.nbytes, f"shape={array.shape}"
        return hand_out(source.name, array, out)


def nifti_header(data: Data, *, name: str | None = None) -> NiftiHeader:
    """Return what a NIfTI file's header says: shape, dtype, voxel sizes, affine, slope and intercept."""
    with Source(data, name) as source:
        return _header(source)


def is_nifti(start: bytes) -> bool:
    """Whether these may be a NIfTI's first bytes, packed or not."""
    return start.startswith(_GZIP) or is_nifti_start(start)


def nifti_stored(source: Source, max_bytes: int, *, keeps: bool) -> tuple[Array, tuple[float, float]]:
    """Return the stored voxels, in memory of their own if the caller keeps them, with slope and intercept."""
    header = _header(source)
    size = math.prod(header.shape) * header.dtype.itemsize
    if bytes(source.read(0, 2)) == _GZIP:
        total = header.offset + size
        source.check_claim(total, held=source.size, ratio=DEFLATE_RATIO, max_bytes=max_bytes, what="the volume")
        packed = source.borrow(0, source.size)
        buffer = result_memory(total) if keeps else scratch("unpacked", total)
        try:
            find_inflater().gunzip(packed, buffer)
        except BadStream as error:
            raise source.damaged(str(error)) from None
        held = buffer.data[header.offset :]
    else:
        source.check_claim(size, held=source.size, max_bytes=max_bytes, what="the volume")
        held = (source.read if keeps else source.borrow)(header.offset, size)
    if not size:
        return np.empty(header.shape, header.dtype, order="F"), (header.slope, header.intercept)
    flat: Array = np.frombuffer(held, header.dtype, count=math.prod(header.shape))
    if not flat.flags.aligned:
        flat = flat.copy()
    return flat.reshape(header.shape[::-1]).T, (header.slope, header.intercept)


def _header(source: Source) -> NiftiHeader:
    start = source.read(0, min(source.size, 64 << 10))
    if bytes(start[:2]) == _GZIP:
        try:
            unpacked = zlib.decompressobj(31).decompress(start, LONGEST_HEADER)
        except zlib.error as error:
            raise source.damaged(f"damaged gzip: {error}", offset=0) from None
        start = memoryview(unpacked)
    return parse_nifti(source, bytes(start[:LONGEST_HEADER]))
