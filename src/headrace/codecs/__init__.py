"""How bytes become arrays.

- `claims`: what a header claims against what its bytes can hold.
- `decoding`: a decoder for the fields of a sample, by extension.
- `documents`: text and JSON.
- `extras`: libraries that are loaded when needed.
- `inflate`: deflate streams, by libdeflate or zlib.
- `jpeg_markers`, `jpeg_picture`: JPEG.
- `nifti_header`, `nifti_volume`: NIfTI.
- `npy_array`, `npz_archive`, `zip_directory`: numpy's files.
- `output`: results into the caller's buffer.
- `picture`: region, orientation, size and layout of decoded pixels.
- `png_picture`: PNG.
- `point_cloud`: points.
- `scratch`: memory that is used again: a thread's own, and that of results.
- `source`: what is read: bytes, a view, a path.
- `trilinear`, `volume_steps`: volumes made ready for training.
"""

from .decoding import Decoder, decode
from .documents import json, text
from .jpeg_picture import jpeg
from .nifti_header import NiftiHeader
from .nifti_volume import nifti, nifti_header
from .npy_array import npy
from .npz_archive import npz
from .png_picture import png
from .point_cloud import points
from .scratch import empty, release
from .source import BytesLike, Data
from .volume_steps import volume

__all__ = [
    "BytesLike",
    "Data",
    "Decoder",
    "NiftiHeader",
    "decode",
    "empty",
    "jpeg",
    "json",
    "nifti",
    "nifti_header",
    "npy",
    "npz",
    "png",
    "points",
    "release",
    "text",
    "volume",
]
