"""The sentences of `headrace shards`, in English and in Chinese."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ShardsMessages:
    """Everything the command says; a language that lacks a sentence does not type-check."""

    reading: str
    shard: str
    samples: str
    members: str
    size: str
    fields: str
    state: str
    good: str
    damaged: str
    unreadable: str
    compressed: str
    not_a_tar: str
    total: str
    indexed: str
    damage_title: str
    damage: Mapping[str, str]
    readable: str
    damaged_sample: str
    wrong_data: str
    unpaired_title: str
    unpaired_line: str
    unpaired_more: str
    skipped: str
    kinds: Mapping[str, str]
    other_kind: str
    reasons: Mapping[str, str]
    lacks: str
    verified: str
    stored: str
    next_good: str
    next_unpaired: str
    next_damaged: str


_EN = ShardsMessages(
    reading="reading the headers of shards ({count})",
    shard="shard",
    samples="samples",
    members="members",
    size="size",
    fields="fields",
    state="state",
    good="whole",
    damaged="damaged: {places}",
    unreadable="cannot be read: {what}",
    compressed="compressed with {name}; unpack it first",
    not_a_tar="not a tar file",
    total="shards: {shards}   samples: {samples}   members: {members}   size: {size}",
    indexed="indexes: {made} made, {kept} were up to date",
    damage_title="Damage:",
    damage={
        "no_end": "{shard}, byte {offset}: it ends without end blocks: cut at a member, or never finished",
        "cut_in_header": "{shard}, byte {offset}: it is cut inside a header ({size} bytes of it are left)",
        "cut_in_data": "{shard}, byte {offset}: the data of {member} is cut, {size} bytes are missing",
        "corrupt_header": "{shard}, byte {offset}: a corrupt header; {size} bytes are lost up to the next valid one",
        "zeros_inside": "{shard}, byte {offset}: {size} bytes of zeros between members; other readers stop there",
        "after_end": "{shard}, byte {offset}: {size} bytes after the end are no tar",
    },
    readable="  still readable: {before} members before it, {after} after it",
    damaged_sample="  damaged sample: {key}",
    wrong_data="{shard}: members whose header or data is not what was indexed: {count}, first {name}",
    unpaired_title="Members in no sample: {count}",
    unpaired_line="  {shard}: {name} ({reason})",
    unpaired_more="  … and {count} more",
    skipped="Passed over, for they hold no data of their own: {count}, first {name} ({kind})",
    kinds={"1": "hard link", "2": "symbolic link", "5": "directory", "S": "sparse file"},
    other_kind="special file",
    reasons={
        "no rule fits its name": "no rule fits its name",
        "its sample has this field already": "its sample has this field already",
    },
    lacks="its sample has no {fields}",
    verified="the data of all members was read and compared with the checksums in the index",
    stored="checksums of all data are in the index now; --verify compares with them from the next time on",
    next_unpaired="Next: --pair FIELD=PATTERN, where names are not of the form key.field; in Shards, pairing=.",
    next_good="Next: headrace.Shards({urls!r}) in your script.",
    next_damaged=(
        'Next: train on with what is whole: headrace.DataLoader(headrace.Shards(…), on_error="quarantine", '
        'quarantine="bad.jsonl"); or fetch the damaged shards again.'
    ),
)

_ZH = ShardsMessages(
    reading="正在读取 {count} 个 shard 的文件头",
    shard="shard",
    samples="样本数",
    members="文件数",
    size="大小",
    fields="字段",
    state="状态",
    good="完好",
    damaged="损坏：{places} 处",
    unreadable="无法读取：{what}",
    compressed="用 {name} 压缩过，请先解压",
    not_a_tar="不是 tar 文件",
    total="共 {shards} 个 shard，{samples} 个样本，{members} 个文件，{size}",
    indexed="索引：新建 {made} 个，{kept} 个已是最新",
    damage_title="损坏情况：",
    damage={
        "no_end": "{shard}，第 {offset} 字节：没有结束块就到了文件末尾，可能在两个文件之间被截断，也可能没有写完",
        "cut_in_header": "{shard}，第 {offset} 字节：文件头被截断，只剩 {size} 字节",
        "cut_in_data": "{shard}，第 {offset} 字节：{member} 的数据被截断，缺 {size} 字节",
        "corrupt_header": "{shard}，第 {offset} 字节：文件头损坏，到下一个完好的文件头之间丢失 {size} 字节",
        "zeros_inside": "{shard}，第 {offset} 字节：文件之间夹着 {size} 字节的零，其他读取程序会在此停止",
        "after_end": "{shard}，第 {offset} 字节：结束之后还有 {size} 字节不属于 tar 的内容",
    },
    readable="  仍可读取：之前 {before} 个文件，之后 {after} 个文件",
    damaged_sample="  受损样本：{key}",
    wrong_data="{shard}：有 {count} 个文件的文件头或数据与索引不符，第一个是 {name}",
    unpaired_title="有 {count} 个文件不属于任何样本：",
    unpaired_line="  {shard}：{name}（{reason}）",
    unpaired_more="  ……另有 {count} 个",
    skipped="有 {count} 个条目本身不含数据，已跳过，第一个是 {name}（{kind}）",
    kinds={"1": "硬链接", "2": "符号链接", "5": "目录", "S": "稀疏文件"},
    other_kind="特殊文件",
    reasons={
        "no rule fits its name": "文件名不符合任何配对规则",
        "its sample has this field already": "所属样本已有这个字段",
    },
    lacks="所属样本缺少 {fields}",
    verified="已读取全部文件的数据，并与索引中的校验和逐一比对",
    stored="已把全部数据的校验和写入索引，下次使用 --verify 时会据此比对",
    next_unpaired="下一步：文件名如果不是“键.字段”的形式，请用 --pair FIELD=PATTERN 说明规则（Shards 里是 pairing=）。",
    next_good="下一步：在训练脚本里使用 headrace.Shards({urls!r})。",
    next_damaged=(
        '下一步：用完好的部分继续训练：headrace.DataLoader(headrace.Shards(…), on_error="quarantine", '
        'quarantine="bad.jsonl")；或重新获取损坏的 shard。'
    ),
)


def shards_messages(language: str) -> ShardsMessages:
    """Return the sentences in one of `LANGUAGES`."""
    return {"en": _EN, "zh": _ZH}[language]
