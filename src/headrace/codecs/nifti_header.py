"""The header of a NIfTI file, with nibabel's reading of it."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .source import Source

LONGEST_HEADER = 544

_KINDS: dict[int, Any] = {
    2: "u1",
    4: "i2",
    8: "i4",
    16: "f4",
    32: "c8",
    64: "f8",
    128: [("R", "u1"), ("G", "u1"), ("B", "u1")],
    256: "i1",
    512: "u2",
    768: "u4",
    1024: "i8",
    1280: "u8",
    1792: "c16",
    2304: [("R", "u1"), ("G", "u1"), ("B", "u1"), ("A", "u1")],
}


@dataclass(frozen=True)
class NiftiHeader:
    """What the header says. `slope` 1 and `intercept` 0 mean that stored values are the values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    voxel_sizes: tuple[float, ...]
    affine: npt.NDArray[np.float64]
    slope: float
    intercept: float
    offset: int


@dataclass(frozen=True)
class _Layout:
    """Where the fields of one version lie."""

    size: int
    magics: tuple[bytes, ...]
    magic_at: int
    dim: tuple[int, str]
    kind_at: int
    pixdim: tuple[int, str]
    offset: tuple[int, str]
    scaling: tuple[int, str]
    codes: tuple[int, str]
    quaternion: tuple[int, str]
    srow: tuple[int, str]


_ONE = _Layout(
    size=348,
    magics=(b"n+1\0",),
    magic_at=344,
    dim=(40, "8h"),
    kind_at=70,
    pixdim=(76, "8f"),
    offset=(108, "f"),
    scaling=(112, "2f"),
    codes=(252, "2h"),
    quaternion=(256, "6f"),
    srow=(280, "12f"),
)
_TWO = _Layout(
    size=540,
    magics=(b"n+2\0\r\n\x1a\n",),
    magic_at=4,
    dim=(16, "8q"),
    kind_at=12,
    pixdim=(104, "8d"),
    offset=(168, "q"),
    scaling=(176, "2d"),
    codes=(344, "2i"),
    quaternion=(352, "6d"),
    srow=(400, "12d"),
)


def is_nifti_start(start: bytes) -> bool:
    return start[:4] in {struct.pack(order + "i", layout.size) for order in "<>" for layout in (_ONE, _TWO)}


def parse_nifti(source: Source, data: bytes) -> NiftiHeader:
    """Read a header, of either version and byte order."""
    if len(data) < 348:
        raise source.damaged("not a NIfTI file, or cut short in its header", size=f"{len(data)} bytes")
    for order in "<>":
        for layout in (_ONE, _TWO):
            if data[:4] == struct.pack(order + "i", layout.size) and len(data) >= layout.size:
                return _parse(source, data, layout, order)
    raise source.damaged("not a NIfTI file: its header has no known size", first_bytes=data[:4].hex(" "))


def _parse(source: Source, data: bytes, layout: _Layout, order: str) -> NiftiHeader:
    def field(where: tuple[int, str]) -> tuple[Any, ...]:
        return struct.unpack_from(order + where[1], data, where[0])

    magic = data[layout.magic_at : layout.magic_at + len(layout.magics[0])]
    if magic not in layout.magics:
        if magic[:3] in (b"ni1", b"ni2"):
            raise source.damaged("a NIfTI header whose voxels lie in another file (.hdr and .img)", magic=magic)
        raise source.damaged("not a NIfTI file: its magic is wrong", offset=layout.magic_at, magic=magic)
    dims = field(layout.dim)
    num = dims[0]
    if not 1 <= num <= 7 or any(n < 0 for n in dims[1 : num + 1]):
        raise source.damaged("the NIfTI header's dimensions make no sense", dim=dims)
    shape = tuple(int(n) for n in dims[1 : num + 1])
    (kind,) = field((layout.kind_at, "h"))
    if kind not in _KINDS:
        raise source.damaged("the NIfTI file's datatype is not known, or not supported", datatype=kind)
    dtype = np.dtype(_KINDS[kind])
    dtype = dtype.newbyteorder(order) if dtype.names is None else dtype
    (offset,) = field(layout.offset)
    least = layout.size + 4
    # nibabel takes 0 as "right after the header and its extension flag"
    if not math.isfinite(offset) or (offset and not layout.size <= offset <= 2**40):
        raise source.damaged("the NIfTI header's voxel offset makes no sense", vox_offset=offset)
    slope, intercept = field(layout.scaling)
    if not math.isfinite(slope) or slope == 0:
        slope, intercept = 1.0, 0.0
    elif not math.isfinite(intercept):
        raise source.damaged("the NIfTI header has a slope and no valid intercept", slope=slope, intercept=intercept)
    sizes = field(layout.pixdim)
    q_code, s_code = field(layout.codes)
    if s_code > 0:
        affine = np.vstack([np.array(field(layout.srow), np.float64).reshape(3, 4), [0, 0, 0, 1]])
    elif q_code > 0:
        affine = _from_quaternion(field(layout.quaternion), sizes)
    else:
        affine = _centred(shape, sizes)
    return NiftiHeader(
        shape=shape,
        dtype=dtype,
        voxel_sizes=tuple(float(s) for s in sizes[1 : num + 1]),
        affine=affine,
        slope=float(slope),
        intercept=float(intercept),
        offset=int(offset) or least,
    )


def _from_quaternion(numbers: tuple[float, ...], sizes: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """The affine of the header's "method 2": a rotation, voxel sizes and an offset."""
    b, c, d, *offsets = (float(n) for n in numbers)
    a = math.sqrt(max(0.0, 1.0 - (b * b + c * c + d * d)))
    rotation = np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - c * c - b * b],
        ]
    )
    handed = -1.0 if sizes[0] == -1 else 1.0
    affine = np.eye(4)
    affine[:3, :3] = rotation * (np.array(sizes[1:4], np.float64) * [1, 1, handed])
    affine[:3, 3] = offsets
    return affine


def _centred(shape: tuple[int, ...], sizes: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """The affine where the header has none: voxel sizes, x mirrored, the origin in the middle."""
    steps = np.array(sizes[1:4], np.float64)
    num = np.array([*shape, 1, 1][:3])
    steps[len(shape) :] = 1.0
    steps[0] *= -1
    affine = np.diag([*steps, 1.0])
    affine[:3, 3] = -(num - 1) / 2 * steps
    return affine
