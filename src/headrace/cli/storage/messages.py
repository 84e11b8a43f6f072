"""The sentences of `headrace storage`, in English and in Chinese."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StorageMessages:
    """Everything the command says; a language that lacks a sentence does not type-check."""

    running: str
    title: str
    start_depth: str
    large_files: str
    small_files: str
    test_file: str
    not_all_seen: str
    passed_over: str
    passed_reasons: Mapping[str, str]
    took: str
    columns: tuple[str, str, str, str, str, str, str]
    in_order: str
    small_random: str
    random: str
    whole_files: str
    warm: str
    cold_states: Mapping[str, str]
    cold_how: str
    knee_found: str
    knee_one: str
    knee_not_reached: str
    knee_noisy: str
    knee_not_measured: str
    knee_falls: str
    unknown_title: str
    next_step: str
    next_estimate: str
    workers: str
    workers_torch: str
    evidence: str
    measured_depth: str
    remembered: str
    not_remembered: str


_EN = StorageMessages(
    running="reading {path}",
    title="{path}: {label}",
    start_depth="a depth to begin with: {depth} ({reason}); not measured",
    large_files="{count} of its files, {size}: {examples}",
    small_files="{count} of its small files, {size}, read whole: {examples}",
    test_file="a test file of {size}, written and removed",
    not_all_seen="the folder holds more than the {seen} entries that were looked at",
    passed_over="passed over: {what}",
    passed_reasons={
        "sparse": "{count} with holes, which are read without a disk",
        "unreadable": "{count} that may not be read",
        "unreadable folder": "{count} folders that may not be read",
        "empty": "{count} empty ones",
    },
    took="{size} read in {seconds}",
    columns=("", "rate", "reads/s", "median", "p95", "worst", "from"),
    in_order="in order, {depth} at a time",
    small_random="{size} at random, 1 at a time",
    random="{size} at random, {depth} at a time",
    whole_files="whole small files, {depth} at a time",
    warm="read a second time, 1 at a time",
    cold_states={
        "cold": "storage (cold)",
        "warm": "memory (warm)",
        "partly": "partly page cache",
        "unknown": "unknown",
    },
    cold_how="{what}: {how}",
    knee_found="Knee: {depth} reads at a time bring {rate}, {gain} times what one brings; more bring no more.",
    knee_one="Knee: one read at a time brings {rate}; more bring no more.",
    knee_not_reached="Knee: not reached. {depth} reads at a time bring {rate}, {gain} times what one brings.",
    knee_noisy="Knee: withheld. Rates may be off by {noise} by chance, which is more than what is to be told apart.",
    knee_not_measured="Knee: not measured.",
    knee_falls="From {depth} on, more readers bring fewer bytes: they get in each other's way.",
    unknown_title="What could not be learnt:",
    next_step="Next: io_depth={depth} ({reason}).",
    next_estimate="Next: begin with io_depth={depth} (an estimate: {reason}).",
    workers="Readers are not decoders: num_workers is for decoding, about one a processor ({processors} here).",
    workers_torch=(
        "A loader that reads in its workers, as torch's does, would need {depth} of them for this rate; "
        "{processors} of them get {rate} at most, {share} of it."
    ),
    evidence="evidence: {fact}",
    measured_depth="the depth that a probe found: {depth} ({reason})",
    remembered="the depth is kept in {path}",
    not_remembered="the depth is not kept: it was not measured, or the cache folder cannot be written",
)

_ZH = StorageMessages(
    running="正在读取 {path}",
    title="{path}：{label}",
    start_depth="建议的起始深度：{depth}（{reason}）；未经测量",
    large_files="读取了其中 {count} 个文件，共 {size}：{examples}",
    small_files="整读了其中 {count} 个小文件，共 {size}：{examples}",
    test_file="临时写入 {size} 的测试文件，测完已删除",
    not_all_seen="目录很大，只查看了前 {seen} 个条目",
    passed_over="跳过：{what}",
    passed_reasons={
        "sparse": "{count} 个稀疏文件（空洞部分不经磁盘）",
        "unreadable": "{count} 个无权读取的文件",
        "unreadable folder": "{count} 个无权读取的目录",
        "empty": "{count} 个空文件",
    },
    took="共读取 {size}，用时 {seconds}",
    columns=("", "速率", "次/秒", "中位数", "p95", "最慢", "数据来自"),
    in_order="顺序读取，{depth} 路",
    small_random="{size} 随机读取，1 路",
    random="{size} 随机读取，{depth} 路",
    whole_files="整读小文件，{depth} 路",
    warm="再读一遍，1 路",
    cold_states={"cold": "存储（冷）", "warm": "内存（热）", "partly": "部分来自页缓存", "unknown": "未知"},
    cold_how="{what}：{how}",
    knee_found="拐点：{depth} 路并发可达 {rate}，是单路的 {gain} 倍；再多也不会更快。",
    knee_one="拐点：单路就已达到 {rate}；再多也不会更快。",
    knee_not_reached="拐点：尚未出现。{depth} 路并发时为 {rate}，是单路的 {gain} 倍。",
    knee_noisy="拐点：不予给出。速率的偶然误差可达 {noise}，大于需要分辨的差别。",
    knee_not_measured="拐点：未测定。",
    knee_falls="从 {depth} 路起，读者越多反而越慢：它们互相干扰。",
    unknown_title="未能查明：",
    next_step="下一步：io_depth={depth}（{reason}）。",
    next_estimate="下一步：先用 io_depth={depth}（估计值：{reason}）。",
    workers="读取与解码要分开：num_workers 只管解码，大约每个处理器一个（这里是 {processors} 个）。",
    workers_torch=(
        "像 torch 那样由 worker 自己读数据的加载器，要 {depth} 个 worker 才能达到这个速率；"
        "{processors} 个最多 {rate}，只有 {share}。"
    ),
    evidence="依据：{fact}",
    measured_depth="此前测得的深度：{depth}（{reason}）",
    remembered="深度已保存在 {path}",
    not_remembered="深度没有保存：未能测定，或缓存目录不可写",
)


def storage_messages(language: str) -> StorageMessages:
    """Return the sentences of a language."""
    return _ZH if language == "zh" else _EN
