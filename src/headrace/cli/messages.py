"""The sentences of the commands, in English and in Chinese."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.model import LANGUAGES, language


def default_language(environ: Mapping[str, str] = os.environ) -> str:
    """Return the language that HEADRACE_LANG asks for, else the one of the locale; English when in doubt.

    >>> default_language({"LANG": "zh_CN.UTF-8"}), default_language({"LANG": "zh_CN.UTF-8", "HEADRACE_LANG": "en"})
    ('zh', 'en')
    """
    asked = language(environ)
    if asked in LANGUAGES:
        return asked
    # The order in which POSIX looks at them; the first one that is set decides.
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


@dataclass(frozen=True, kw_only=True)
class DemoMessages:
    """Everything `headrace demo` says; a language that lacks a sentence does not type-check."""

    building: str
    running: str
    title: str
    settings: str
    slow_disk: str
    measured: str
    torch: str
    headrace: str
    comparison: str
    first_batch: str
    wait_median: str
    wait_worst: str
    waiting_share: str
    samples_per_s: str
    peak_memory: str
    loader_memory: str
    page_faults: str
    identical: str
    identical_yes: str
    identical_no: str
    not_measured: str
    times: str
    same: str
    sooner: tuple[str, str]
    shorter: tuple[str, str]
    faster: tuple[str, str]
    less: tuple[str, str]
    fewer: tuple[str, str]
    timeline: str
    timeline_cut: str
    next_step: str


_EN = DemoMessages(
    building="building a data set of {samples} volumes in a temporary folder",
    running="round {round} of {rounds}: {loader}",
    title="The same training loop over the same data set",
    settings=(
        "{samples} compressed volumes of {sample_size}, batches of {batch_size}, {workers} workers "
        "({start_method}), {epochs} epochs, {cores} cores"
    ),
    slow_disk="The disk is simulated: a sample sleeps {low_ms} to {high_ms} ms before it is read. The rest is real.",
    measured="The loaders took turns, {rounds} rounds, each in its own process; ratios: median of the rounds (spread).",
    torch="torch",
    headrace="headrace",
    comparison="headrace is",
    first_batch="first batch",
    wait_median="wait for a batch, median",
    wait_worst="wait for a batch, worst",
    waiting_share="share of the time spent waiting",
    samples_per_s="samples per second",
    peak_memory="peak memory of all processes",
    loader_memory="  of it, added by the loader",
    page_faults="page faults per sample",
    identical="batches identical",
    identical_yes="yes, all {batches}",
    identical_no="NO, first difference at batch {first}",
    not_measured="not measured",
    times="{ratio}x {word}",
    same="the same",
    sooner=("sooner", "later"),
    shorter=("shorter", "longer"),
    faster=("faster", "slower"),
    less=("less", "more"),
    fewer=("fewer", "more"),
    timeline="Waits, one bar a batch, one scale for both (full height: {worst}); the first batch is left out:",
    timeline_cut="(the first {shown} of {all} batches)",
    next_step="Next: in your script, `from headrace import DataLoader`, and leave everything else as it is.",
)

_ZH = DemoMessages(
    building="正在临时目录中生成 {samples} 个体数据样本",
    running="第 {round} 轮（共 {rounds} 轮）：{loader}",
    title="同一个训练循环，同一个数据集",
    settings=(
        "{samples} 个压缩体数据，每个解码后 {sample_size}；batch 大小 {batch_size}，{workers} 个 worker"
        "（{start_method}），{epochs} 个 epoch，{cores} 个 CPU 核"
    ),
    slow_disk="磁盘速度是模拟的：每个样本读取前先休眠 {low_ms} 到 {high_ms} 毫秒；其余都是真实的计算。",
    measured="两种加载器交替运行，各 {rounds} 轮，每次都用独立的进程；倍数取各轮的中位数，括号内为各轮的范围。",
    torch="torch",
    headrace="headrace",
    comparison="与 torch 相比",
    first_batch="首个 batch 用时",
    wait_median="等待一个 batch，中位数",
    wait_worst="等待一个 batch，最长",
    waiting_share="等待时间占比",
    samples_per_s="每秒样本数",
    peak_memory="全部进程的内存峰值",
    loader_memory="  其中由加载器增加的部分",
    page_faults="每个样本的缺页次数",
    identical="各 batch 内容是否一致",
    identical_yes="一致，共 {batches} 个",
    identical_no="不一致，首个差异在第 {first} 个 batch",
    not_measured="未测得",
    times="{ratio}× {word}",
    same="相同",
    sooner=("更早", "更晚"),
    shorter=("更短", "更长"),
    faster=("更快", "更慢"),
    less=("更省", "更多"),
    fewer=("更少", "更多"),
    timeline="每个 batch 的等待时间，一格一个 batch，两行用同一刻度（满格为 {worst}），不含首个 batch：",
    timeline_cut="（共 {all} 个 batch，这里只画前 {shown} 个）",
    next_step="下一步：在训练脚本里改成 `from headrace import DataLoader`，其余代码不用动。",
)


def demo_messages(language: str) -> DemoMessages:
    """Return the sentences of `headrace demo` in one of `LANGUAGES`."""
    return {"en": _EN, "zh": _ZH}[language]
