"""Estimates in sentences, each with its formula and its error."""

from __future__ import annotations

from headrace.model import Text, format_share, three_digits

from .estimates import Estimate, Remedy

_SHORT = Text(
    "; more would be needed, but the cores are used up then: cheaper decoding is the rest",
    "；要完全跟上还需更多，但那时核心已用尽，其余只能靠降低解码开销",
)
_TEXTS = {
    Remedy.MORE_WORKERS: Text(
        "num_workers={workers}: about {gain} ± {error} times as fast (estimate: demand × time of a batch in the pool = "
        "workers needed)",
        "num_workers={workers}：约快到 {gain} ± {error} 倍（估计：需求 × 池子产出一个 batch 的时间 = 所需 worker 数）",
    ),
    Remedy.FASTER_DECODE: Text(
        "a decoder or transform twice as fast: about {gain} ± {error} times as fast (estimate: half of the {share} of "
        "a task that is computing goes away)",
        "解码或变换快一倍：约快到 {gain} ± {error} 倍（估计：任务中占 {share} 的计算时间减半）",
    ),
    Remedy.GPU_DECODE: Text(
        "decoding on the GPU: up to {gain} ± {error} times as fast, if the GPU has the time for it (estimate: the "
        "{share} of a task that is decoding goes away)",
        "在 GPU 上解码：GPU 若有余力，最多快到 {gain} ± {error} 倍（估计：任务中占 {share} 的解码时间全部省去）",
    ),
    Remedy.WARM_CACHE: Text(
        "data in memory or on a faster disk: up to {gain} ± {error} times as fast (estimate: the {share} of a task "
        "that waits for bytes goes away)",
        "数据放进内存或更快的盘：最多快到 {gain} ± {error} 倍（估计：任务中占 {share} 的等读取时间全部省去）",
    ),
    Remedy.ASYNC_CHECKPOINT: Text(
        "saves beside the training (`torch.distributed.checkpoint.async_save`): about {gain} ± {error} times as fast "
        "(estimate: a tenth of a save stays, give or take as much: copying the state)",
        "异步保存（`torch.distributed.checkpoint.async_save`）：约快到 {gain} ± {error} 倍（估计：每次保存约剩"
        "十分之一，误差也约十分之一：复制状态的时间）",
    ),
}


def estimate_text(estimate: Estimate) -> Text:
    """Return what a remedy would bring."""
    said = _TEXTS[estimate.remedy]
    if estimate.is_short:
        said = Text(said.en + _SHORT.en, said.zh + _SHORT.zh)
    return said.filled(
        workers=estimate.workers,
        gain=three_digits(estimate.gain),
        error=three_digits(estimate.error),
        share=format_share(estimate.share),
    )
