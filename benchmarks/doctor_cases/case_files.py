"""The files that the cases read: made once, in the folder that `DOCTOR_CASES_DATA` names."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("DOCTOR_CASES_DATA", "/tmp/headrace-doctor-cases"))
NUM = 64


def make() -> None:
    """Write all files; those that need a package are left out where it is not installed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    arrays = np.random.default_rng(0).integers(0, 255, (NUM, 64, 64, 3), np.uint8)
    np.save(FOLDER / "arrays.npy", arrays)
    named = {f"a{number}": array for number, array in enumerate(arrays)}
    np.savez(FOLDER / "all.npz", **named)
    np.savez_compressed(FOLDER / "packed.npz", **named)
    with open(FOLDER / "records.bin", "wb") as records:
        for number, array in enumerate(arrays):
            records.write(number.to_bytes(4, "little") + array.tobytes())
    for kind in ("npz", "npz_cut", "npz_empty"):
        (FOLDER / kind).mkdir(exist_ok=True)
        for number, array in enumerate(arrays):
            np.savez(FOLDER / kind / f"{number:03}.npz", image=array)
    cut = FOLDER / "npz_cut" / "041.npz"
    cut.write_bytes(cut.read_bytes()[:5000])
    (FOLDER / "npz_empty" / "007.npz").write_bytes(b"")
    with zipfile.ZipFile(FOLDER / "all.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for number, array in enumerate(arrays):
            file.writestr(f"{number:03}.raw", array.tobytes())
    for shard in range(2):
        with tarfile.open(FOLDER / f"shard-{shard:03}.tar", "w") as tar:
            for number in range(shard, NUM, 2):
                held = io.BytesIO()
                np.save(held, arrays[number])
                member = tarfile.TarInfo(f"{number:03}.npy")
                member.size = held.tell()
                held.seek(0)
                tar.addfile(member, held)
    _make_pictures(arrays)
    _make_packages(arrays)


def _make_pictures(arrays: np.ndarray) -> None:
    from PIL import Image

    for kind in ("jpeg", "jpeg_cut"):
        (FOLDER / kind).mkdir(exist_ok=True)
        for number, array in enumerate(arrays):
            Image.fromarray(array).save(FOLDER / kind / f"{number:03}.jpg", quality=90)
    cut = FOLDER / "jpeg_cut" / "019.jpg"
    cut.write_bytes(cut.read_bytes()[:1500])


def _make_packages(arrays: np.ndarray) -> None:
    try:
        import h5py

        with h5py.File(FOLDER / "all.h5", "w") as file:
            file.create_dataset("images", data=arrays, chunks=(1, 64, 64, 3), compression="gzip")
    except ImportError:
        pass
    try:
        import zarr

        zarr.save(str(FOLDER / "all.zarr"), arrays)
    except ImportError:
        pass
    try:
        import lmdb

        with lmdb.open(str(FOLDER / "all.lmdb"), map_size=1 << 26) as env, env.begin(write=True) as write:
            for number, array in enumerate(arrays):
                write.put(b"%03d" % number, array.tobytes())
    except ImportError:
        pass


if __name__ == "__main__":
    make()
