"""Prepare CT volumes with the codecs, and see where their time goes: by hand and with `headrace.codecs`.

Run it with `python examples/ct_volumes.py` (a few seconds; it makes some small volumes in a temporary folder). With
`HEADRACE_TIMING=1` it prints the stages of every sample.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import headrace
from headrace import codecs

SIZE = (64, 64, 32)


def make(folder: Path, num: int = 8) -> None:
    """Write studies as an NPZ with a JSON beside it."""
    for index in range(num):
        random = np.random.default_rng(index)
        volume = random.normal(-300, 400, (160, 160, 64)).clip(-1024, 3071).astype(np.int16)
        np.savez_compressed(folder / f"study_{index:03}.npz", volume=volume)
        (folder / f"study_{index:03}.json").write_text(json.dumps({"id": index}))


class ByHand:
    """numpy and torch: what such a data set usually looks like."""

    def __init__(self, folder: Path) -> None:
        self.stems = sorted(path.with_suffix("") for path in folder.glob("*.npz"))

    def __len__(self) -> int:
        return len(self.stems)

    def __getitem__(self, index: int) -> dict[str, object]:
        stem = self.stems[index]
        with headrace.sample(stem.name):
            with headrace.stage("metadata decode"):
                meta = json.loads(stem.with_suffix(".json").read_text())
            with headrace.stage("volume decode by hand") as done:
                with np.load(stem.with_suffix(".npz")) as archive:
                    stored = archive["volume"]
                done.nbytes, done.note = stored.nbytes, f"shape={stored.shape}"
            with headrace.stage("volume process by hand") as done:
                floats = torch.from_numpy(stored).to(torch.float32).clamp_(-1000, 1000)[None, None]
                ready = functional.interpolate(floats, size=SIZE, mode="trilinear")[0, 0].div_(1000)
                done.nbytes = ready.nbytes
        return {"volume": ready, "id": meta["id"]}


class ByCodecs(ByHand):
    """The same samples with `headrace.codecs`, which carries its own stages."""

    def __getitem__(self, index: int) -> dict[str, object]:
        stem = self.stems[index]
        with headrace.sample(stem.name):
            meta = codecs.json(stem.with_suffix(".json"))
            volume = codecs.volume(stem.with_suffix(".npz"), clip=(-1000, 1000), size=SIZE, normalise=(0, 1000))
        return {"volume": volume, "id": meta["id"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        batches = {}
        for kind in (ByHand, ByCodecs):
            loader = headrace.DataLoader(kind(Path(folder)), batch_size=4, num_workers=1)
            batches[kind] = [batch["volume"].clone() for batch in loader]
            print(f"{kind.__name__}\n{loader.stats().stages}\n")
        pairs = zip(batches[ByHand], batches[ByCodecs], strict=True)
        print(f"largest difference between the two: {max(float((a - b).abs().max()) for a, b in pairs):.1e}")


if __name__ == "__main__":
    main()
