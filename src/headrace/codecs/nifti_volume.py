"""Volumes from NIfTI-1 and NIfTI-2 files, packed with gzip or not; nibabel reads their headers."""

import math
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model import stage

from .arrays import as_array
from .buffers import Array, hand_out, result_memory, scratch
from .inflate import BadStream, find_inflater
from .source import DEFLATE_RATIO, MAX_BYTES, Data, Source, load_library

_GZIP = b"\x1f\x8b"
_SIZES = (348, 540)  # of the headers of versions 1 and 2, in their first four bytes


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
    returned; `scaled=False` returns the stored ones always, `dtype` asks for another type. For
    training, `volume` does the scaling, resizing and conversion in one pass.
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


def is_nifti(start: bytes) -> bool:
    """Whether these may be a NIfTI's first bytes, packed or not."""
    return start.startswith(_GZIP) or start[:4] in {struct.pack(f"{order}i", n) for n in _SIZES for order in "<>"}


def nifti_stored(source: Source, max_bytes: int, *, keeps: bool) -> tuple[Array, tuple[float, float]]:
    """Return the stored voxels, in memory of their own if the caller keeps them, with slope and intercept."""
    shape, dtype, scaling, offset = _stored(source, _read_header(source))
    size = math.prod(shape) * dtype.itemsize
    if bytes(source.read(0, 2)) == _GZIP:
        total = offset + size
        source.check_claim(total, held=source.size, ratio=DEFLATE_RATIO, max_bytes=max_bytes, what="the volume")
        packed = source.borrow(0, source.size)
        buffer = result_memory(total) if keeps else scratch("unpacked", total)
        try:
            find_inflater().gunzip(packed, buffer)
        except BadStream as error:
            raise source.damaged(str(error)) from None
        held = buffer.data[offset:]
    else:
        source.check_claim(size, held=source.size, max_bytes=max_bytes, what="the volume")
        held = (source.read if keeps else source.borrow)(offset, size)
    return as_array(held, dtype, shape, is_fortran=True), scaling


def _read_header(source: Source) -> Any:
    """Return the header as nibabel has it, of either version and byte order."""
    start = bytes(source.read(0, min(source.size, 64 << 10)))
    if start.startswith(_GZIP):
        try:
            start = zlib.decompressobj(31).decompress(start, max(_SIZES))
        except zlib.error as error:
            raise source.damaged(f"damaged gzip: {error}", offset=0) from None
    nibabel = load_library("nibabel", "NIfTI needs the nibabel package")
    for size, kind in zip(_SIZES, (nibabel.Nifti1Header, nibabel.Nifti2Header), strict=True):
        for order in "<>":
            if start[:4] == struct.pack(f"{order}i", size) and len(start) >= size:
                return kind(start[:size], endianness=order, check=False)
    if len(start) < min(_SIZES):
        raise source.damaged("not a NIfTI file, or cut short in its header", size=f"{len(start)} bytes")
    raise source.damaged("not a NIfTI file: its header has no known size", first_bytes=start[:4].hex(" "))


def _stored(source: Source, header: Any) -> tuple[tuple[int, ...], np.dtype[Any], tuple[float, float], int]:
    """Shape, dtype, slope with intercept, and place of the voxels, checked: nibabel takes damaged ones as they are."""
    magic, dims = header["magic"].item(), header["dim"].tolist()
    if not magic.startswith((b"n+1", b"n+2")):
        if magic.startswith((b"ni1", b"ni2")):
            raise source.damaged("a NIfTI header whose voxels lie in another file (.hdr and .img)", magic=magic)
        raise source.damaged("not a NIfTI file: its magic is wrong", magic=magic)
    if not 1 <= dims[0] <= 7:
        raise source.damaged("the NIfTI header's dimensions make no sense", dim=dims)
    try:
        shape, dtype = header.get_data_shape(), header.get_data_dtype()
        slope, intercept = header.get_slope_inter()
        # 0 stands for "right after the header and its extension flag"
        offset = header.get_data_offset() or header.sizeof_hdr + 4
    except KeyError:
        raise source.damaged("the NIfTI file's datatype is not known", datatype=header["datatype"].item()) from None
    except (ValueError, OverflowError) as error:  # nibabel's own errors among them
        raise source.damaged(f"the NIfTI header makes no sense: {error}", dim=dims) from None
    if min(shape) < 0 or not dtype.itemsize or not header.sizeof_hdr <= offset <= 2**40:
        raise source.damaged("the NIfTI header makes no sense", dim=dims, dtype=dtype, vox_offset=offset)
    return shape, dtype, (1.0 if slope is None else slope, 0.0 if intercept is None else intercept), offset
