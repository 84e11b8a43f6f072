"""How fast is a whole sample decoded, without a loader?

The same work, the same result, three ways. *By hand*: simplejpeg, OpenCV and numpy.load (W1), numpy.load, torch's clamp
and trilinear interpolate (W2), numpy.fromfile and fancy indexing (W4). *Pillow*: what most data sets do for W1 (its
bilinear smooths first, so its pixels are others). *codecs*: `headrace.codecs`. Results are compared with those by hand
before the clock starts (W2 to 1e-5, W1 and W4 exactly). *Pages kept* is the same with malloc told to keep its pages,
as it is in our workers; *batch held* keeps eight samples of W1 and drops them together, as a worker does that collates.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import decoding
from decoding import Decode, raw_samples, time_decode
from harness import Bar, Contender, Options, Question, Result, ask
from loaders import KEEP_PAGES
from workloads import WORKLOADS

# workload: by hand, by codecs, allowed difference, wanted ratio
WAYS: dict[str, tuple[Decode, Decode, float, float]] = {
    "sa1b": (decoding.sa1b_by_hand, decoding.sa1b_by_codecs, 0.0, 1.3),
    "ct": (decoding.ct_by_hand, decoding.ct_by_codecs, 1e-5, 1.7),
    "lidar": (decoding.lidar_by_hand, decoding.lidar_by_codecs, 0.0, 2.0),
}


def contenders(options: Options) -> list[Contender]:
    found = []
    for workload, (by_hand, by_codecs, tolerance, _) in WAYS.items():
        group = WORKLOADS[workload].title

        def run(decode: Decode, *, workload: str = workload, **settings: Any) -> Result:
            return time_decode(decode, raw_samples(workload, options.size), seconds=options.seconds, **settings)

        plain = partial(run, by_hand)
        ours = partial(run, by_codecs, like=by_hand, tolerance=tolerance)

        found.append(Contender("by hand", plain, group))
        if workload == "sa1b":
            found += [
                Contender("by hand, batch held", partial(plain, batch=8), group),
                Contender("codecs, batch held", partial(ours, batch=8), group),
            ]
        if workload == "sa1b":
            found.append(Contender("Pillow", partial(run, decoding.sa1b_with_pillow), group, needs=("PIL",)))
        found += [
            Contender("codecs", ours, group),
            Contender("codecs, 2 threads", partial(ours, num_threads=2), group),
            Contender("by hand, pages kept", plain, group, env=KEEP_PAGES),
            Contender("codecs, pages kept", ours, group, env=KEEP_PAGES),
        ]
    return found


def bars(_: Options) -> list[Bar]:
    found = []
    for workload, (*_ways, least) in WAYS.items():
        group = WORKLOADS[workload].title
        ours, by_hand = f"{group}/codecs", f"{group}/by hand"
        found.append(Bar(f"over by hand: {group}", ours, "samples_per_s", (by_hand,), at_least=least))
        if workload == "sa1b":
            found.append(Bar(f"over Pillow: {group}", ours, "samples_per_s", (f"{group}/Pillow",), at_least=2.5))
            held = (f"{by_hand}, batch held",)
            found.append(Bar(f"over by hand, batch held: {group}", f"{ours}, batch held", "samples_per_s", held))
        found.append(Bar(f"2 threads over 1: {group}", f"{ours}, 2 threads", "samples_per_s", (ours,), at_least=1.9))
        kept = (f"{by_hand}, pages kept",)
        found.append(Bar(f"over by hand, pages kept: {group}", f"{ours}, pages kept", "samples_per_s", kept))
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    files=lambda options: [(workload, options.size) for workload in WAYS],
    columns=("samples_per_s", "decode_median_ms", "difference"),
    rounds=5,
    seconds=4.0,
    quick_seconds=0.5,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
