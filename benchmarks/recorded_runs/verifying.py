"""Did the cause that was injected come about? Told by the training's own clock and the kernel's counters, not by us.

A limit may not bind, and a machine may be so busy that a healthy training waits. Such a training is not what its label
says, so another one is drawn in its place; how often that happened, and why, is told with the results.
"""

from __future__ import annotations

from .drawing import DATA, Drawn

_SOME = 0.12  # of the time: well above what is reported
_QUIET = 0.05
_WAITED = {*DATA, "straggler_sample", "shard_boundary"}
MEASURED = {  # what the training measures of a cause
    "epoch_start": "starts_s",
    "checkpoint": "checkpoint_s",
    "evaluation": "evaluation_s",
    "logging": "logging_s",
    "gc": "gc_s",
    "unknown": "hidden_s",
    "h2d_copy": "copies_s",
    "swap": "touched_s",
    **dict.fromkeys(_WAITED, "waited_s"),
    "memory_pressure": "waited_s",
}


def why_not(drawn: Drawn, measured: dict[str, float], counted: dict[str, int], exit_code: int, *, hung: bool) -> str:
    """Return why a training is not what its label says; empty for one that is."""
    if drawn.may_fail:
        if not exit_code:
            return "the training ended well"
        return "no worker hung" if drawn.spec.get("hangs_after") and not hung else ""
    train_s = measured.get("train_s", 0.0)
    if not train_s:
        return "the training did not train"
    shares = {name: seconds / train_s for name, seconds in measured.items() if name.endswith("_s")}
    if not drawn.expected:
        waited = shares["waited_s"] + shares["starts_s"]
        return f"nothing was injected, and it waited for data for {waited:.1%} of the time" if waited > _QUIET else ""
    names = [name for name, _ in drawn.pair] or [MEASURED[cause] for cause in drawn.expected if cause in MEASURED]
    for name in names:
        if shares.get(name, 0.0) < _SOME:
            return f"{name.removesuffix('_s')} took {shares.get(name, 0.0):.1%} of the time"
    return _why_not_counted(drawn, counted, train_s)


def _why_not_counted(drawn: Drawn, counted: dict[str, int], train_s: float) -> str:
    if "cpu_throttled" in drawn.expected:
        share = counted["throttled_periods"] / max(1, counted["periods"])
        return f"the quota was used up in {share:.1%} of its periods" if share < 0.25 else ""
    if "memory_pressure" in drawn.expected:
        rate = 4096 * counted["refault_pages"] / train_s
        least = 0.25 * drawn.limits["read_bytes_per_s"]
        return f"{rate / 1e6:.1f} MB/s were read again, of {4 * least / 1e6:.1f}" if rate < least else ""
    if "swap" in drawn.expected:
        rate = counted["swapped_in_bytes"] / train_s
        return f"{rate / 1e6:.1f} MB/s came back from swap" if rate < 2e6 else ""
    return ""


def right_first(drawn: Drawn, measured: dict[str, float]) -> tuple[frozenset[str], tuple[frozenset[str], ...]]:
    """Return which causes may come first, and which must all be among the findings.

    Of a mixture, the one that cost more by the training's own clock; within 3 % of the time of each other, either.
    """
    if not drawn.pair:
        return drawn.expected, ()
    train_s = measured["train_s"]
    ranked = sorted(drawn.pair, key=lambda one: -measured.get(one[0], 0.0))
    gap = (measured.get(ranked[0][0], 0.0) - measured.get(ranked[1][0], 0.0)) / train_s
    first = ranked[0][1] if gap > 0.03 else ranked[0][1] | ranked[1][1]
    return first, tuple(causes for _, causes in ranked)
