"""The sentences of `headrace chaos`, in English and in Chinese."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ChaosMessages:
    """Everything the command says; a language that lacks a sentence does not type-check."""

    running: str
    title: str
    facts: str
    repeat: str
    fault: str
    injected: str
    survived: str
    worst_wait: str
    all_survived: str
    quarantined: str
    problems_title: str
    problems: Mapping[str, str]
    round_line: str
    hang_stacks: str
    own: str
    own_line: str
    skipped: str
    next_clean: str
    next_problems: str
    kinds: Mapping[str, str]


_EN = ChaosMessages(
    running="faults strike the loader",
    title="headrace.DataLoader under faults: {dataset}",
    facts=(
        "{delivered} samples delivered in {rounds} rounds of up to {most}, batches of {batch_size}, {workers} workers "
        "({backend}, {start_method}), {elapsed:.0f} s"
    ),
    repeat="seed {seed}: the same order and the same faults come again with --seed {seed}",
    fault="fault",
    injected="injected",
    survived="survived",
    worst_wait="worst wait",
    all_survived=(
        "0 lost, 0 repeated, 0 damaged, 0 hangs, 0 leftovers: every sample came once, in the order of seed and epoch"
    ),
    quarantined="{quarantined} samples that fail each time were left out, and are named in the quarantine",
    problems_title="Not survived:",
    problems={
        "lost": "samples lost",
        "repeated": "samples delivered twice",
        "out_of_order": "samples in another place than the order says",
        "damaged": "samples whose content is not what their worker made",
        "wrongly_condemned": "good samples put into quarantine",
        "wrongly_spared": "samples that fail each time, and are not in quarantine",
        "wrong_batch_sizes": "rounds with other batch sizes",
        "errors": "rounds ended by an error",
        "hangs": "rounds that hung",
        "leftovers": "processes, files or /dev/shm entries left behind",
    },
    round_line="  round {number}: {what}",
    hang_stacks="  where it stood:",
    own="The data set has bad samples of its own ({count}), without any fault from us:",
    own_line="  sample {index}: {exception}: {message}",
    skipped="left out: {kind}, for {reason}",
    next_clean='Next: in your script, DataLoader(…, on_error="quarantine", quarantine="bad.jsonl").',
    next_problems="Next: report this with the whole output of `headrace chaos --json …` and with `headrace --version`.",
    kinds={
        "kill": "worker killed (SIGKILL)",
        "segv": "crash in native code (SIGSEGV)",
        "bus": "truncated mapped file (SIGBUS)",
        "exit": "worker leaves (os._exit)",
        "abort": "abort() in native code",
        "exception": "sample raises",
        "hang": "sample hangs",
        "stop": "worker stopped (SIGSTOP)",
        "slow": "slow sample",
        "hog": "memory hog",
        "shm_full": "/dev/shm full",
        "fd_limit": "file descriptors short",
    },
)

_ZH = ChaosMessages(
    running="正在向加载器注入故障",
    title="故障注入下的 headrace.DataLoader：{dataset}",
    facts=(
        "共 {rounds} 轮（每轮至多 {most} 个样本），交付 {delivered} 个样本；batch 大小 {batch_size}，"
        "{workers} 个 worker（{backend}，{start_method}），用时 {elapsed:.0f} 秒"
    ),
    repeat="随机种子 {seed}：用 --seed {seed} 可以重现同样的样本顺序和同样的故障",
    fault="故障",
    injected="注入次数",
    survived="挺过次数",
    worst_wait="最长等待",
    all_survived="丢失 0、重复 0、损坏 0、卡死 0、残留 0：每个样本恰好出现一次，顺序与种子和 epoch 所定的完全一致",
    quarantined="有 {quarantined} 个样本每次读取都失败，已被隔离并逐个记名",
    problems_title="没有挺过去的：",
    problems={
        "lost": "丢失的样本",
        "repeated": "重复交付的样本",
        "out_of_order": "顺序不对的样本",
        "damaged": "内容与 worker 产出不符的样本",
        "wrongly_condemned": "被误隔离的好样本",
        "wrongly_spared": "每次都失败却没有被隔离的样本",
        "wrong_batch_sizes": "batch 大小不对的轮次",
        "errors": "因报错而中断的轮次",
        "hangs": "卡死的轮次",
        "leftovers": "残留的进程、文件或 /dev/shm 条目",
    },
    round_line="  第 {number} 轮：{what}",
    hang_stacks="  卡住的位置：",
    own="数据集里本来就有 {count} 个坏样本，与注入的故障无关：",
    own_line="  样本 {index}：{exception}：{message}",
    skipped="未注入 {kind}：{reason}",
    next_clean='下一步：在训练脚本里使用 DataLoader(…, on_error="quarantine", quarantine="bad.jsonl")。',
    next_problems="下一步：请附上 `headrace chaos --json …` 的完整输出和 `headrace --version`，把这个问题报告给我们。",
    kinds={
        "kill": "worker 被杀（SIGKILL）",
        "segv": "原生代码崩溃（SIGSEGV）",
        "bus": "内存映射文件被截断（SIGBUS）",
        "exit": "worker 自行退出（os._exit）",
        "abort": "原生代码 abort()",
        "exception": "样本抛异常",
        "hang": "样本卡死",
        "stop": "worker 被暂停（SIGSTOP）",
        "slow": "慢样本",
        "hog": "样本狂吃内存",
        "shm_full": "/dev/shm 写满",
        "fd_limit": "文件描述符不足",
    },
)


def chaos_messages(language: str) -> ChaosMessages:
    """Return the sentences in one of `LANGUAGES`."""
    return {"en": _EN, "zh": _ZH}[language]
