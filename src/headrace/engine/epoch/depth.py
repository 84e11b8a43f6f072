"""How many batches ahead, and how many samples a chunk: pure functions of what was measured."""

import math
from dataclasses import dataclass

from ..memory import MAX_ENTRIES
from ..worker import SMALL_ROW_BYTES

MOST_AHEAD = MAX_ENTRIES // 4

# a message each way costs a worker and the training process some 20 µs together: 2 % of this
CHUNK_TARGET_S = 0.001
# a process may be off the processor for this long without anything being wrong
HICCUP_S = 0.02
# as many bytes ahead as no training misses
CHEAP_BYTES = 256 << 20
# until this many samples were seen, their spread is not known: one slow sample in 400 would be missed by fewer
ENOUGH_SAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What has been measured so far. Times are seconds; 0 means not known."""

    sample_s: float  # typical service time of a sample
    worst_sample_s: float
    samples_seen: int
    step_s: float  # time from one batch to the next, as the loop asks for them
    batch_rows: int
    num_workers: int
    batch_bytes: int = 0  # 0: not known, and taken as small


def chunk_samples(pace: Pace) -> int:
    """Samples a chunk: few enough that all workers share a batch, many enough that messages do not show.

    A batch is cut into four chunks a worker, or one where samples are small: those are written together, and what a
    worker does between two samples shows in their rate. Samples that cost next to nothing make chunks of a millisecond.
    """
    rows = max(1, pace.batch_rows)
    is_small = 0 < pace.batch_bytes <= rows * SMALL_ROW_BYTES
    share = max(1, rows // (pace.num_workers if is_small else 4 * pace.num_workers))
    if pace.sample_s <= 0:
        return share
    return min(rows, max(share, math.ceil(CHUNK_TARGET_S / pace.sample_s)))


def batches_ahead(pace: Pace, *, most: int = MOST_AHEAD) -> tuple[int, str]:
    """Batches to have issued at a time, and why.

    Strict order needs a look-ahead that covers the slowest sample: a batch is begun `depth` steps before it is
    asked for, so the slowest sample stays hidden when depth x step >= its time. On top come the batches that
    the workers are filling together at one moment and one that is finished.
    """
    filling = math.ceil(pace.num_workers * max(1, chunk_samples(pace)) / max(1, pace.batch_rows)) + 1
    least = min(most, filling + 1)
    is_known = pace.samples_seen >= ENOUGH_SAMPLES and pace.step_s > 0
    hide_s = max(1.5 * pace.worst_sample_s, HICCUP_S)
    cover = math.ceil(hide_s / pace.step_s) if pace.step_s > 0 else 1
    wanted = max(least, filling + cover)
    reason = (
        f"{filling} being filled + {cover} to hide {hide_s:.3g} s (1.5 x the slowest sample) "
        f"at {pace.step_s:.3g} s a step"
    )
    # a slow sample may be still to come: where batches are small, be as far ahead as torch until enough were seen
    as_torch = min(2 * pace.num_workers, CHEAP_BYTES // max(1, pace.batch_bytes))
    if not is_known and as_torch > wanted:
        return min(most, as_torch), "2 x workers as in torch, until the spread of sample times is known"
    return min(most, wanted), reason
