"""Which torch loaders `headrace run --feed` fed, why not the others, and what that brought. Pure.

Waits of torch's workers and of ours are those of one run, told apart by what was written down when one took the
other's place. The first batch of a pass, or behind such a change, pays for starting and is no part of either.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import EventKind, FeedNote, FeedReason, FeedRow, Text, format_seconds, format_share

from .processes import ProcessEvents, ends_of, starts_of

_STAYS = {
    FeedReason.PIPE: Text("data pipes run in torch's loader", "data pipe 由 torch 的加载器运行"),
    FeedReason.IN_PROCESS: Text("num_workers=0: the training makes its samples", "num_workers=0：样本在训练进程内生成"),
    FeedReason.OWN_ITERATOR: Text("{detail} makes its iterators itself", "{detail} 自己创建迭代器"),
    FeedReason.DRAWS: Text(
        "its samples draw random numbers, which ours would give by position and torch's by worker: --feed-random, if "
        "other ones are as good",
        "样本会抽取随机数，我们按位置设种子，torch 按 worker：若换一组随机数也可以，请用 --feed-random",
    ),
    FeedReason.ASKS_WORKER: Text("its samples ask which worker they are made in", "样本会查询自己在哪个 worker 里"),
    FeedReason.PROBE_FAILED: Text("its first samples failed when they were tried", "试取最初的样本时出错"),
    FeedReason.PROBE_LATE: Text("its first two samples took too long to be tried", "最初两个样本太慢，没有试完"),
    FeedReason.FAILED: Text("feeding it failed: {detail}", "喂数据失败：{detail}"),
    FeedReason.MEASURED: Text("torch's stretch was not over when the run was", "运行结束时，torch 的测量段还没有结束"),
}
_STAY = Text("torch's own loader: {loaders}: {why}", "仍由 torch 加载：{loaders}：{why}")
_FED = Text("fed by Headrace: {loader}{given}{tuned}: {ours}", "由 Headrace 喂数据：{loader}{given}{tuned}：{ours}")
_MEASURED = Text("{fed}; before, with torch's workers: {torchs}", "{fed}；此前用 torch 的 worker：{torchs}")
_PROFILE = Text(", profile {profile}, {workers:worker(s)}", "，配置 {profile}，{workers} 个 worker")
_TUNED = {
    None: "",
    True: Text(", tuned while it ran", "，运行中自动调优"),
    False: Text(
        ", not tuned (its batches depend on the number of workers)", "，没有自动调优（batch 取决于 worker 数）"
    ),
}
_WAITS = Text(
    "{count:batch(es)}, waits {median} typically, {worst} at worst, {share} of the time; {step} a step",
    "{count} 个 batch，通常等待 {median}，最长 {worst}，占时间 {share}；每步 {step}",
)
_NO_WAITS = Text("too few batches to tell of waits", "batch 太少，说不出等待")
_DREW = Text("{loader} drew random numbers after all: batches may differ", "{loader} 还是抽取了随机数：batch 可能不同")
_HEADLINE = Text(
    "with torch's loader the training waited for data for {torchs} of its time, with ours for {ours} ({loader})",
    "用 torch 的加载器，训练有 {torchs} 的时间在等数据；换成我们的，{ours}（{loader}）",
)


def feed_rows(process: ProcessEvents) -> tuple[FeedRow, ...]:
    """Return a row for each torch loader of a process, in the order in which they were met; none without `--feed`."""
    said, waits, settings = process.of(EventKind.FEED), process.of(EventKind.WAIT), process.loader_settings()
    rows = []
    for loader in dict.fromkeys(said["value"].tolist()):
        own = said[said["value"] == loader]
        notes = [FeedNote.from_text(process.names.get(int(arg), "")) for arg in own["arg"]]
        name, last = process.names.get(loader, "loader"), notes[-1]
        known = [FeedReason(note.reason) for note in notes if note.reason in {*FeedReason}]
        reason = FeedReason.DREW if FeedReason.DREW in known else known[-1] if known else FeedReason.FED
        came = waits[waits["arg"] == loader]
        at = np.searchsorted(starts_of(own), starts_of(came), side="right") - 1
        is_ours = np.array([note.by == "headrace" for note in notes])[at]
        rows.append(
            FeedRow(
                name=name,
                place=settings[name].place if name in settings else "",
                **(vars(last) | {"reason": reason}),
                **_figures("torch", came, at, ~is_ours),
                **_figures("ours", came, at, is_ours),
            )
        )
    return tuple(rows)


def _figures(
    whose: str, waits: NDArray[np.void], at: NDArray[np.int64], is_chosen: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return what some of a loader's waits were, as the fields of a row."""
    batch, starts = waits["value"].astype(np.int64), starts_of(waits)
    found: dict[str, Any] = dict.fromkeys(("wait_median_s", "wait_worst_s", "wait_share", "step_s"))
    is_usual = np.zeros(len(waits), bool)
    is_usual[1:] = is_chosen[1:] & (at[1:] == at[:-1]) & (batch[1:] == batch[:-1] + 1)
    has_next = is_usual & np.append(is_usual[1:], False)
    if has_next.any():
        wait_s, steps_s = (ends_of(waits) - starts) / 1e9, np.diff(starts)[has_next[:-1]] / 1e9
        usual = wait_s[is_usual]
        share = wait_s[has_next].sum() / steps_s.sum()
        found = dict(zip(found, map(float, (np.median(usual), usual.max(), share, steps_s.mean())), strict=True))
    found["batches"] = int((is_chosen & (batch >= 0)).sum())
    return {f"{whose}_{name}": value for name, value in found.items()}


def feed_headline(rows: Sequence[FeedRow]) -> Text | None:
    """Return how much of its time the training waited with either loader, where it had both; None elsewhere."""
    both = [row for row in rows if row.torch_wait_share is not None and row.ours_wait_share is not None]
    if not both:
        return None
    row = max(both, key=lambda row: row.torch_batches + row.ours_batches)
    shares = {"torchs": format_share(row.torch_wait_share or 0.0), "ours": format_share(row.ours_wait_share or 0.0)}
    return _HEADLINE.filled(loader=row.title, **shares)


def feed_notes(rows: Sequence[FeedRow]) -> Iterator[Text]:
    """Yield what feeding did, what matters most first: each fed loader with its waits, the others by their reasons."""
    fed = []
    for row in sorted((row for row in rows if row.ours_batches), key=lambda row: -row.ours_batches):
        given = _PROFILE.filled(profile=row.profile, workers=row.num_workers) if row.profile else ""
        said = _FED.filled(loader=row.title, given=given, tuned=_TUNED[row.is_tuned], ours=_waits_text(row, "ours"))
        fed.append(_MEASURED.filled(fed=said, torchs=_waits_text(row, "torch")) if row.torch_step_s else said)
    yield from fed[:1]
    yield from (_DREW.filled(loader=row.title) for row in rows if row.reason is FeedReason.DREW)
    by_reason: dict[tuple[FeedReason, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: row.reason is not FeedReason.FAILED):
        if row.by != "headrace":
            by_reason.setdefault((row.reason, row.detail), []).append(row.title)
    for (reason, detail), titles in by_reason.items():
        yield _STAY.filled(loaders=", ".join(titles), why=_STAYS[reason].filled(detail=detail))
    yield from fed[1:]


def _waits_text(row: FeedRow, which: str) -> Text:
    names = ("wait_median_s", "wait_worst_s", "step_s", "wait_share")
    *times, share = (getattr(row, f"{which}_{name}") for name in names)
    if share is None:
        return _NO_WAITS
    median, worst, step = map(format_seconds, times)
    count = getattr(row, f"{which}_batches")
    return _WAITS.filled(count=count, median=median, worst=worst, step=step, share=format_share(share))
