"""Healthy data sets, plain ones and those of packages: nothing may be found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from case_files import FOLDER, NUM
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split

CASES = {
    "tensors": {"finds": "", "quick": ""},
    "list_of_arrays": {"finds": ""},
    "subset_of_concatenated": {"finds": ""},
    "jpeg_files": {"finds": "", "quick": ""},
    "npz_files": {"finds": ""},
    "memory_mapped": {"finds": ""},
    "opencv_decoding": {"finds": ""},
    "spawned_workers": {"finds": ""},
    "without_workers": {"finds": "", "quick": ""},
    "hdf5_opened_late": {"finds": "", "needs": "h5py"},
    "zarr_array": {"finds": "", "needs": "zarr"},
    "lmdb_opened_late": {"finds": "", "needs": "lmdb"},
    "webdataset_shard": {"finds": "", "needs": "webdataset", "quick": ""},
    "stateful_loader": {"finds": "", "needs": "torchdata"},
    "huggingface_rows": {"finds": "", "needs": "datasets", "quick": ""},
    "huggingface_stream": {"finds": "", "needs": "datasets"},
    "monai_dataset": {"finds": "", "needs": "monai", "quick": ""},
    "monai_cached": {"finds": "", "needs": "monai"},
    "our_loader": {"finds": ""},
    "our_shards": {"finds": "", "quick": ""},
    "shards_by_pattern": {"finds": "", "path": "shard-{000..001}.tar"},
}


class Files(Dataset[torch.Tensor]):
    """A file a sample."""

    def __init__(self, kind: str) -> None:
        self.kind, self.opened = kind, None
        self.arrays = np.load(FOLDER / "arrays.npy", mmap_mode="r") if kind == "mapped" else None

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(self._read(index)))

    def _read(self, index: int) -> Any:
        match self.kind:
            case "npz":
                with np.load(FOLDER / "npz" / f"{index:03}.npz") as archive:
                    return archive["image"]
            case "opencv":
                import cv2

                return cv2.imread(str(FOLDER / "jpeg" / f"{index:03}.jpg"))
            case "mapped":
                return self.arrays[index]  # type: ignore[index]  # it is there
            case _:
                with Image.open(FOLDER / "jpeg" / f"{index:03}.jpg") as image:
                    return np.array(image)


class Late(Files):
    """A store that each process opens for itself."""

    opened: Any

    def _read(self, index: int) -> Any:
        if self.opened is None:
            self.opened = self._open()
        if self.kind == "lmdb":
            with self.opened.begin() as read:
                return np.frombuffer(read.get(b"%03d" % index), np.uint8).copy()
        return self.opened[index]

    def _open(self) -> Any:
        if self.kind == "hdf5":
            import h5py

            return h5py.File(FOLDER / "all.h5", "r")["images"]
        import lmdb

        return lmdb.open(str(FOLDER / "all.lmdb"), readonly=True, lock=False)


class Zarr(Files):
    """An array of zarr, which opens its files chunk by chunk."""

    def __init__(self) -> None:
        import zarr

        super().__init__("zarr")
        self.store: Any = zarr.open(str(FOLDER / "all.zarr"), mode="r")

    def _read(self, index: int) -> Any:
        return self.store[index]


def _loader(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=4, num_workers=2, **options)


def tensors() -> DataLoader[Any]:
    return _loader(TensorDataset(torch.rand(256, 3, 32, 32), torch.arange(256)), shuffle=True)


def list_of_arrays() -> DataLoader[Any]:
    return _loader([(np.full(8, number, np.float32), number) for number in range(64)])


def subset_of_concatenated() -> DataLoader[Any]:
    both: Dataset[torch.Tensor] = ConcatDataset([Files("jpeg"), Files("jpeg")])
    return _loader(random_split(Subset(both, range(100)), [80, 20])[0])


def jpeg_files() -> DataLoader[Any]:
    return _loader(Files("jpeg"), shuffle=True, persistent_workers=True)


def npz_files() -> Dataset[torch.Tensor]:
    return Files("npz")


def memory_mapped() -> Dataset[torch.Tensor]:
    return Files("mapped")


def opencv_decoding() -> DataLoader[Any]:
    return _loader(Files("opencv"))


def spawned_workers() -> DataLoader[Any]:
    return _loader(Files("jpeg"), multiprocessing_context="spawn")


def without_workers() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=8)


def hdf5_opened_late() -> DataLoader[Any]:
    return _loader(Late("hdf5"))


def zarr_array() -> DataLoader[Any]:
    return _loader(Zarr())


def lmdb_opened_late() -> DataLoader[Any]:
    return _loader(Late("lmdb"))


def webdataset_shard() -> DataLoader[Any]:
    import webdataset

    files = [str(FOLDER / f"shard-{number:03}.tar") for number in range(2)]
    rows = webdataset.WebDataset(files, shardshuffle=False).decode().to_tuple("npy")
    return DataLoader(rows, batch_size=4, num_workers=2)


def stateful_loader() -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(Files("jpeg"), batch_size=4, num_workers=2)


def _rows() -> Iterator[dict[str, Any]]:
    for number in range(64):
        yield {"values": [float(number)] * 8, "label": number}


def huggingface_rows() -> DataLoader[Any]:
    import datasets

    rows = datasets.Dataset.from_list(list(_rows())).with_format("torch")
    return _loader(rows)


def huggingface_stream() -> DataLoader[Any]:
    import datasets

    rows = datasets.Dataset.from_list(list(_rows())).to_iterable_dataset(num_shards=4).with_format("torch")
    return DataLoader(rows, batch_size=4, num_workers=2)


def _monai_items() -> tuple[list[dict[str, str]], Any]:
    from monai.transforms import Compose, LoadImaged, ScaleIntensityd

    names = [{"image": str(FOLDER / "jpeg" / f"{number:03}.jpg")} for number in range(NUM)]
    return names, Compose([LoadImaged("image", image_only=True), ScaleIntensityd("image")])


def monai_dataset() -> Any:
    import monai.data

    return monai.data.DataLoader(monai.data.Dataset(*_monai_items()), batch_size=4, num_workers=2)


def monai_cached() -> Any:
    import monai.data

    cached = monai.data.CacheDataset(*_monai_items(), cache_rate=0.5, progress=False)
    return monai.data.DataLoader(cached, batch_size=4, num_workers=2)


def our_loader() -> Any:
    import headrace

    return headrace.DataLoader(Files("jpeg"), batch_size=4, num_workers=2)


def our_shards() -> Any:
    import headrace

    return headrace.Shards(str(FOLDER / "shard-{000..001}.tar"))
