"""Bytes to arrays."""
from .npy_array import npy
from .npz_archive import npz
