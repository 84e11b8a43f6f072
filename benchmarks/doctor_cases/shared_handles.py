"""Files that are opened before workers are forked, so that they share one position; and the same opened late."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
import torch
from case_files import FOLDER, NUM
from torch.utils.data import Dataset

CASES = {
    "npz": {"finds": "shared_handle", "also": ["unpicklable", "corrupt_sample"]},
    "compressed_npz": {"finds": "shared_handle", "also": ["unpicklable", "corrupt_sample"]},
    "zip_archive": {"finds": "shared_handle", "also": ["unpicklable", "corrupt_sample"]},
    "plain_file": {"finds": "shared_handle", "also": ["unpicklable", "corrupt_sample"]},
    "hdf5": {"finds": "shared_handle", "also": ["unpicklable", "corrupt_sample"], "needs": "h5py"},
    "hdf5_dataset": {"finds": "shared_handle", "also": ["unpicklable", "corrupt_sample"], "needs": "h5py"},
    "npz_opened_late": {"finds": ""},
    "mapped_file": {"finds": ""},
}


class Npz(Dataset[torch.Tensor]):
    """One archive for all samples."""

    def __init__(self, name: str) -> None:
        self.archive = np.load(FOLDER / name)

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.archive[f"a{index}"])


class Zip(Npz):
    """The same as a plain zip."""

    def __init__(self) -> None:
        self.archive: Any = zipfile.ZipFile(FOLDER / "all.zip")

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(self.archive.read(f"{index:03}.raw")), dtype=torch.uint8)


class Records(Npz):
    """Records of one size, one after the other."""

    def __init__(self) -> None:
        self.file = open(FOLDER / "records.bin", "rb")  # noqa: SIM115  # that is the case

    def __getitem__(self, index: int) -> torch.Tensor:
        size = 4 + 64 * 64 * 3
        self.file.seek(index * size)
        record = self.file.read(size)
        if int.from_bytes(record[:4], "little") != index:
            raise ValueError(f"record {index} says that it is {int.from_bytes(record[:4], 'little')}")
        return torch.frombuffer(bytearray(record[4:]), dtype=torch.uint8)


class Hdf5(Npz):
    """A file of HDF5, opened when the data set is made."""

    def __init__(self, *, holds_dataset: bool) -> None:
        import h5py

        self.file = h5py.File(FOLDER / "all.h5", "r")
        self.images = self.file["images"] if holds_dataset else None

    def __getitem__(self, index: int) -> torch.Tensor:
        images = self.file["images"] if self.images is None else self.images
        return torch.from_numpy(images[index])


class Late(Npz):
    """Opened by whoever reads first, and not before."""

    def __init__(self) -> None:
        self.opened: Any = None

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.opened is None:
            self.opened = np.load(FOLDER / "all.npz")
        return torch.from_numpy(self.opened[f"a{index}"])


class Mapped(Npz):
    """Mapped into memory: there is no position to share."""

    def __init__(self) -> None:
        self.arrays = np.load(FOLDER / "arrays.npy", mmap_mode="r")

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.arrays[index]))


def npz() -> Dataset[torch.Tensor]:
    return Npz("all.npz")


def compressed_npz() -> Dataset[torch.Tensor]:
    return Npz("packed.npz")


def zip_archive() -> Dataset[torch.Tensor]:
    return Zip()


def plain_file() -> Dataset[torch.Tensor]:
    return Records()


def hdf5() -> Dataset[torch.Tensor]:
    return Hdf5(holds_dataset=False)


def hdf5_dataset() -> Dataset[torch.Tensor]:
    return Hdf5(holds_dataset=True)


def npz_opened_late() -> Dataset[torch.Tensor]:
    return Late()


def mapped_file() -> Dataset[torch.Tensor]:
    return Mapped()
