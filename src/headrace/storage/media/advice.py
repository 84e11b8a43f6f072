"""Which depth to read with, from what was measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model import Text, format_share

from .kinds import StorageKind
from .knee import Knee, KneeState
from .probe_result import Coldness, Reading, Suggestion

_LOSES = 0.85  # several readers in order that bring less than this of what one does get in each other's way

_KNEE = Text(
    "the knee: no deeper depth was faster by more than 10 % and the noise",
    "拐点：再增加深度，提升不超过 10% 与噪声",
)
_LAST = Text(
    "the deepest one tried, and still faster than the one before: --depth-max {more} would tell more",
    "这是测过的最大深度，且仍比前一档快；可用 --depth-max {more} 继续测",
)
_NOISY = Text(
    "rates differed by {noise} from round to round; {reason}",
    "各轮速率相差 {noise}，无法测定；{reason}",
)
_NOT_MEASURED = Text("{reason}", "{reason}")
_NOT_COLD = Text("the reads are not known to be cold; {reason}", "无法确认读取是冷的；{reason}")
_IN_THE_WAY = Text(
    "several readers in order brought {share} of what one does: they get in each other's way",
    "多个读者顺序读取的总速率只有单个读者的 {share}：它们互相干扰",
)


def suggest_depth(kind: StorageKind, knee: Knee, ladder: Sequence[Reading], in_order: Sequence[Reading]) -> Suggestion:
    """Return the depth that the measurement speaks for; where it does not, the kind's own, and say so."""
    fallback = kind.starting_depth
    if any(reading.coldness in (Coldness.WARM, Coldness.PARTLY) for reading in ladder) and kind.disks:
        return _estimate(fallback, _NOT_COLD, kind)
    if knee.state is KneeState.TOO_NOISY:
        return _estimate(fallback, _NOISY, kind, noise=format_share(knee.noise or 0.0))
    if knee.depth is None:
        return _estimate(fallback, _NOT_MEASURED, kind)
    share = loss_of_several(in_order)
    if share is not None and share < _LOSES and knee.depth > 2:
        # random blocks at a depth may still gain where streams lose; a reader of shards reads in order, mostly
        return Suggestion(io_depth=2, is_measured=True, reason=_IN_THE_WAY.filled(share=format_share(share)))
    reason = _LAST.filled(more=2 * knee.depth) if knee.state is KneeState.NOT_REACHED else _KNEE
    return Suggestion(io_depth=knee.depth, is_measured=True, reason=reason)


def loss_of_several(in_order: Sequence[Reading]) -> float | None:
    """What several readers in order bring together, as a share of what one does; None: not measured."""
    if len(in_order) < 2 or in_order[0].bytes_per_s <= 0:
        return None
    return in_order[1].bytes_per_s / in_order[0].bytes_per_s


def _estimate(depth: int, why: Text, kind: StorageKind, **facts: str) -> Suggestion:
    start = kind.depth_reason
    reason = Text(why.en.format(reason=start.en, **facts), why.zh.format(reason=start.zh, **facts))
    return Suggestion(io_depth=depth, is_measured=False, reason=reason)
