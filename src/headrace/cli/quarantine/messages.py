"""The sentences of `headrace quarantine`, in English and in Chinese."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class QuarantineMessages:
    """Everything `headrace quarantine` says; a language that lacks a sentence does not type-check."""

    nothing: str
    nothing_passes: str
    one_sample: str
    samples: str
    of_all: str
    between: str
    at: str
    one_damaged: str
    damaged: str
    damage_line: str
    more_damage: str
    times: str
    sample: str
    where_and_why: str
    tries: str
    rank: str
    worker: str
    when: str
    colon: str
    kinds: Mapping[str, str]
    groups: Mapping[str, str]
    unknown: str
    num_samples: str
    example: str
    no_key: str
    cut: str
    no_text_key: str
    next_traceback: str
    next_step: str


_EN = QuarantineMessages(
    nothing="no sample is condemned in {files}",
    nothing_passes="none of the {all} condemned samples in {files} passes the filters",
    one_sample="1 sample is condemned in {files}",
    samples="{count} samples are condemned in {files}",
    of_all=" (of {all}; the others do not pass the filters)",
    between=", from {first} to {last}",
    at=", at {first}",
    one_damaged="1 damaged line could not be read; stderr says which",
    damaged="{count} damaged lines could not be read; stderr says which",
    damage_line="damaged line {path}:{line}: {reason}",
    more_damage="and {count} more damaged lines; --json names them all",
    times="times",
    sample="sample",
    where_and_why="where and why",
    tries="tries",
    rank="rank",
    worker="worker",
    when="last ({zone})",
    colon=": ",
    kinds={"exception": "exception", "worker_lost": "its worker died", "hang": "hang"},
    groups={
        "exception": "exception",
        "shard": "shard",
        "file": "file",
        "worker": "worker",
        "rank": "rank",
        "kind": "kind",
    },
    unknown="not known",
    num_samples="samples",
    example="one of them",
    no_key="without a key",
    cut="… and {left} more; --limit 0 shows all",
    no_text_key="samples without a key that JSON can hold are not listed: {count}",
    next_traceback="Next: `headrace quarantine --traceback {files}` shows where each one failed.",
    next_step="To leave them out from the start: DataLoader(…, skip_quarantined={file!r}).",
)

_ZH = QuarantineMessages(
    nothing="{files} 里没有被隔离的样本",
    nothing_passes="{files} 里共有 {all} 个被隔离的样本，但没有一个符合筛选条件",
    one_sample="{files} 里有 1 个被隔离的样本",
    samples="{files} 里有 {count} 个被隔离的样本",
    of_all="（共 {all} 个，其余不符合筛选条件）",
    between="，时间从 {first} 到 {last}",
    at="，时间 {first}",
    one_damaged="有 1 行已损坏，无法读取；具体是哪一行见标准错误输出",
    damaged="有 {count} 行已损坏，无法读取；具体是哪些行见标准错误输出",
    damage_line="损坏的行 {path}:{line}：{reason}",
    more_damage="另有 {count} 行损坏；用 --json 可以看到全部",
    times="次数",
    sample="样本",
    where_and_why="位置与原因",
    tries="尝试",
    rank="rank",
    worker="worker",
    when="最近一次（{zone}）",
    colon="：",
    kinds={"exception": "抛出异常", "worker_lost": "worker 进程死亡", "hang": "卡死"},
    groups={
        "exception": "异常",
        "shard": "分片",
        "file": "文件",
        "worker": "worker",
        "rank": "rank",
        "kind": "类型",
    },
    unknown="未知",
    num_samples="样本数",
    example="其中之一",
    no_key="没有键",
    cut="…… 还有 {left} 个；加 --limit 0 显示全部",
    no_text_key="有 {count} 个样本的键无法用 JSON 表示，这里没有列出",
    next_traceback="下一步：`headrace quarantine --traceback {files}` 查看每个样本出错的位置。",
    next_step="如果要从一开始就跳过它们：DataLoader(…, skip_quarantined={file!r})。",
)


def quarantine_messages(language: str) -> QuarantineMessages:
    """Return the sentences of `headrace quarantine` in one of `LANGUAGES`."""
    return {"en": _EN, "zh": _ZH}[language]
