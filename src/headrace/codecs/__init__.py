"""How bytes become arrays.

- `arrays`: NPY, NPZ and point clouds.
- `buffers`: where results lie: memory that is used again, or the caller's own.
- `decoding`: a decoder for the fields of a sample, by extension; texts, JSON and labels.
- `inflate`: deflate streams, by libdeflate or zlib.
- `nifti_volume`: volumes from NIfTI.
- `pictures`: pictures from JPEG and PNG: region, orientation, size and layout.
- `source`: what is read (bytes, a view, a path), and what its headers may claim.
- `volume_steps`: volumes made ready for training.
"""

from .arrays import npy, npz, points
from .buffers import empty, release
from .decoding import Decoder, decode, json, text
from .nifti_volume import nifti
from .pictures import jpeg, png
from .source import BytesLike, Data
from .volume_steps import volume

__all__ = [
    "BytesLike",
    "Data",
    "Decoder",
    "decode",
    "empty",
    "jpeg",
    "json",
    "nifti",
    "npy",
    "npz",
    "png",
    "points",
    "release",
    "text",
    "volume",
]
