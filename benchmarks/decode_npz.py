"""How fast is an array read from an NPZ file that is in memory?

`numpy.load` against `headrace.codecs.npz`, on W1's feature maps (2 MB, compressed to 0.92), on the same maps stored
without compression, and on W2's volumes (67 MB, compressed to 0.4). The arrays are compared before the clock starts;
both check the archive's CRC. "Into a buffer" gives `out=`, as one does who keeps memory. "Batch held" keeps eight
arrays and drops them together, as a worker does that collates a batch: malloc then hands pages back, and each costs a
fault when it is needed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from decoding import raw_samples, stored_again, time_decode
from harness import Bar, Contender, Options, Question, Result, ask
from workloads import load_npz

W1, STORED, W2 = "W1 NPZ", "W1 NPZ, stored", "W2 NPZ"
WANTED = {W1: 2.0, STORED: 5.0, W2: 2.0}


def archives(group: str, options: Options) -> list[bytes]:
    if group == W2:
        return [raw[0] for raw in raw_samples("ct", options.size)[:4]]
    packed = [raw[1] for raw in raw_samples("sa1b", options.size)[:32]]
    return [stored_again(data) for data in packed] if group == STORED else packed


def by_numpy(data: bytes) -> tuple[np.ndarray]:
    return (load_npz(data),)


def by_codecs(group: str, *, keeps: bool) -> Callable[[bytes], tuple[Any]]:
    from headrace import codecs

    name = "volume" if group == W2 else "feat"
    out = np.empty((512, 512, 128), np.int16) if group == W2 else np.empty((256, 64, 64), np.float16)
    if keeps:
        return lambda data: (codecs.npz(data, name, out=out),)
    return lambda data: (codecs.npz(data, name),)


def contenders(options: Options) -> list[Contender]:
    found = []
    for group in WANTED:

        def ours(*, group: str = group, keeps: bool = False, num_threads: int = 1, batch: int = 1) -> Result:
            decode, data, seconds = by_codecs(group, keeps=keeps), archives(group, options), options.seconds
            return time_decode(decode, data, seconds=seconds, num_threads=num_threads, like=by_numpy, batch=batch)

        def numpys(*, group: str = group, batch: int = 1) -> Result:
            return time_decode(by_numpy, archives(group, options), seconds=options.seconds, batch=batch)

        found += [
            Contender("numpy.load", numpys, group),
            Contender("codecs.npz", ours, group),
            Contender("codecs.npz, into a buffer", partial(ours, keeps=True), group),
            Contender("codecs.npz, 2 threads", partial(ours, num_threads=2), group),
        ]
        if group == W1:
            found += [
                Contender("numpy.load, batch held", partial(numpys, batch=8), group),
                Contender("codecs.npz, batch held", partial(ours, batch=8), group),
            ]
    return found


def bars(_: Options) -> list[Bar]:
    found = []
    for group, least in WANTED.items():
        by_hand, ours = f"{group}/numpy.load", f"{group}/codecs.npz"
        found.append(Bar(f"over numpy.load: {group}", ours, "samples_per_s", (by_hand,), at_least=least))
        found.append(Bar(f"the same, into a buffer: {group}", f"{ours}, into a buffer", "samples_per_s", (by_hand,)))
        if group == W1:
            held = (f"{by_hand}, batch held",)
            found.append(Bar(f"over numpy.load, batch held: {group}", f"{ours}, batch held", "samples_per_s", held))
        # a stored array is a view: what is left is the CRC and Python, which holds the interpreter's lock
        at_least = None if group == STORED else 1.9
        found.append(Bar(f"2 threads over 1: {group}", f"{ours}, 2 threads", "samples_per_s", (ours,), at_least))
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    files=lambda options: [("sa1b", options.size), ("ct", options.size)],
    columns=("decode_median_ms", "samples_per_s", "difference"),
    rounds=5,
    seconds=3.0,
    quick_seconds=0.3,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
