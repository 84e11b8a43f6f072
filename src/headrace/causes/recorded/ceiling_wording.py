"""A measured ceiling in sentences: what it says, and what it cost the training."""

from __future__ import annotations

from headrace.model import Text, format_seconds, format_share, three_digits

from .ceiling import Ceiling


def ceiling_facts(ceiling: Ceiling) -> list[Text]:
    """Return what a replay measured."""
    gain = {"gain": three_digits(ceiling.gain), "error": three_digits(ceiling.gain_error)}
    return [
        Text(
            "replay: {count} steps on cached batches took {step} ± {error} each: {rate} steps a second is the ceiling, "
            "whatever the loader, against {real} a second in the real steps",
            "回放：用缓存 batch 训练了 {count} 步，每步 {step} ± {error}：无论加载器多快，上限就是每秒 {rate} 步；"
            "真实步为每秒 {real} 步",
        ).filled(
            count=ceiling.num_served,
            step=format_seconds(ceiling.step.value),
            error=format_seconds(ceiling.step.error),
            rate=three_digits(ceiling.steps_per_s),
            real=three_digits(1 / ceiling.real.value if ceiling.real.value > 0 else 0.0),
        ),
        (
            Text(
                "a perfect loader would make this training {gain} ± {error} times as fast",
                "换成完美的加载器，这个训练会快到 {gain} ± {error} 倍",
            )
            if ceiling.is_gain_shown
            else Text(
                "a perfect loader would bring nothing that can be told from noise: {gain} ± {error} times as fast",
                "换成完美的加载器也看不出区别：{gain} ± {error} 倍，在误差之内",
            )
        ).filled(**gain),
        Text(
            "accelerator utilisation (AU) {au}, as MLPerf Storage defines it: compute time / running time. Compute "
            "time is the real steps × the step on cached batches; the first step of each epoch counts in neither, and "
            "checkpoints and evaluation are not running time",
            "加速器利用率（AU）{au}，按 MLPerf Storage 的定义：计算时间 / 运行时间。计算时间 = 真实步数 × 缓存 batch 的"
            "单步耗时；每个 epoch 的第一步两边都不计，检查点和评估不计入运行时间",
        ).filled(au=format_share(ceiling.au)),
        Text(
            "without the replay, a step without its wait would have been taken for {estimate} instead of {step}",
            "如果没有回放，只能把去掉等待的一步当作 {estimate}，而实测为 {step}",
        ).filled(estimate=format_seconds(ceiling.estimated_step_s), step=format_seconds(ceiling.step.value)),
    ]


def ceiling_evidence(ceiling: Ceiling) -> Text:
    """Return the sentence that a finding about data rests on."""
    return Text(
        "the demand is measured, not estimated: {count} steps on cached batches (--replay) at {step} ± {error} each; "
        "what would help is reckoned from it",
        "这里的需求是实测而非估计：用缓存 batch 训练 {count} 步（--replay），每步 {step} ± {error}；"
        "下面的收益都按它计算",
    ).filled(
        count=ceiling.num_served,
        step=format_seconds(ceiling.step.value),
        error=format_seconds(ceiling.step.error),
    )


def ceiling_limits(ceiling: Ceiling) -> list[Text]:
    """Return what the replay changed, and what its figure does not say."""
    limits = [
        Text(
            "this is not the training it would have been: {count} of its steps were made on batches that it had seen "
            "already. "
            + ("The loader lost nothing: the epoch was that much longer" if ceiling.ran_to_end else _CUT.en),
            "这次训练已不是原来的训练：有 {count} 步用的是已经见过的 batch。"
            + ("加载器的数据一个不少：这个 epoch 多了这么多步" if ceiling.ran_to_end else _CUT.zh),
        ).filled(count=ceiling.num_served)
    ]
    if not ceiling.is_undisturbed:
        limits.append(
            Text(
                "workers were still filling their queue during the replay, on the same cores: the ceiling may be "
                "higher",
                "回放期间 worker 还在填队列，与训练共用核心：真实上限可能更高",
            )
        )
    if ceiling.has_copied:
        limits.append(
            Text(
                "a copy was given each time, for the training writes into its batches or they hold more than tensors; "
                "copying is not in the steps",
                "训练会原地改写 batch，或 batch 里不只有张量，因此每次给的是副本；复制的时间不计入步长",
            )
        )
    return limits


def no_replay_text(why: str) -> Text:
    """Return that a replay was asked for and did not measure anything."""
    if why:
        return Text("--replay did not happen: {why}", "--replay 没有进行：{why}").filled(why=why)
    return Text(
        "--replay measured nothing: it takes 16 steps with a backward pass or an optimizer step between two batches of "
        "one DataLoader, then at least ten cached ones and some real ones beside them",
        "--replay 没有测到结果：它需要同一个 DataLoader 先有 16 步训练（两个 batch 之间有反向或优化器更新），之后至少十"
        "步缓存 batch，另有若干真实步可比",
    )


_CUT = Text(
    "The loop ended that epoch by itself (by a count, or a `break`), so as many batches of it may not have come",
    "循环自己结束了这个 epoch（按步数或 `break`），因此可能有同样多的 batch 没有被取到",
)
