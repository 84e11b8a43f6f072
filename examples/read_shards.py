"""Write tar shards, damage one of them, and read all that is whole: by index, as a stream, and with a loader.

    python examples/read_shards.py

Prints what is damaged and where, and that every other sample came.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import numpy as np

import headrace


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    with headrace.ShardWriter(folder / "train-%06d.tar", max_count=50) as writer:
        for k in range(200):
            row = rng.integers(0, 256, 3072, dtype=np.uint8)
            writer.write({"__key__": f"{k:06d}", "row": row.tobytes(), "cls": k % 10, "json": {"id": k}})


def to_arrays(sample: dict[str, bytes]) -> tuple[np.ndarray, int]:
    return np.frombuffer(sample["row"], np.uint8), int(sample["cls"])


def main() -> None:
    logging.basicConfig(level=logging.ERROR)  # WARNING shows each damage as it is found
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        with (folder / "train-000002.tar").open("r+b") as file:
            file.seek(100 * 512)  # somewhere in the middle: a header, as it happens
            file.write(b"\xff" * 2048)

        shards = headrace.Shards(folder / "train-{000000..000003}.tar", fields=["row", "cls"], map=to_arrays)
        for place in shards.damage:
            print(f"damage: {str(place).replace(name, '…')}")
        print(shards)

        loader = headrace.DataLoader(shards, batch_size=32, shuffle=True, num_workers=2, on_error="quarantine")
        num_batches = sum(1 for _ in loader)
        print(f"{num_batches} batches; left out:")
        for failure in loader.quarantine:
            print(f"  sample {failure.file} in {Path(failure.shard or '').name} at byte {failure.offset}")
        streamed = sum(1 for _ in shards)
        print(f"{streamed} of 200 samples are whole, and all of them came")


if __name__ == "__main__":
    main()
