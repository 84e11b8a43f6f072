"""The sentences about a worker's death, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DeathWords:
    """All pieces of a sentence; a language that lacks one does not type-check."""

    sentence: str
    worker: str
    workers: str
    causes: Mapping[str, str]
    or_cpu_limit: str
    brackets: str
    comma: str
    semicolon: str
    limit: str
    used: str
    peak: str
    machine: str
    tree: str
    tree_before: str
    shm: str
    at_line: str
    in_library: str
    at_sample: str
    sample: str
    position: str
    collation: str
    age: str
    between: str
    before_first: str
    exit_code: str
    evidence: Mapping[str, str]
    next_steps: Mapping[str, str]


_EN = DeathWords(
    sentence="{subject} {what}{activity}",
    worker="worker {worker}",
    workers="the process of workers {workers}",
    causes={
        "memory_limit": "was killed by the kernel for memory",
        "machine_memory": "was killed by the kernel because the machine ran out of memory",
        "memory_unseen": (
            "was killed by the kernel for memory, though no limit visible here was hit: the machine itself, or a "
            "group outside this container, ran out"
        ),
        "maybe_memory": (
            "was killed by SIGKILL, possibly by the kernel for memory: its count of such kills rose, but not by as "
            "many as died, or only for the machine as a whole"
        ),
        "guard": "was ended by Headrace: {why}",
        "killed": (
            "was killed: somebody sent SIGKILL, not the kernel's memory killer, whose count did not change ({count})"
        ),
        "killed_unknown": (
            "was killed by SIGKILL; who sent it cannot be known, for the kernel's count of memory kills is not readable"
        ),
        "terminated": "was ended from outside: somebody sent {signal}",
        "segfault": "crashed in native code (SIGSEGV)",
        "shm_full": "crashed with SIGBUS while /dev/shm was full: {shm}",
        "mapped_file": (
            "crashed with SIGBUS: it touched a mapped file that was truncated, rewritten or could not be read "
            "(/dev/shm was not full: {shm})"
        ),
        "bus_unknown": "crashed with SIGBUS: a mapped file was truncated or unreadable, or shared memory ran out",
        "aborted": "aborted in native code (SIGABRT: a failed check, a damaged heap or an uncaught C++ exception)",
        "illegal_instruction": "crashed in native code (SIGILL: an instruction that this processor does not have)",
        "arithmetic": "crashed in native code (SIGFPE: a division by zero)",
        "cpu_limit": "used up its limit of processor time (SIGXCPU, `ulimit -t`)",
        "forbidden_call": "made a system call that this sandbox forbids (SIGSYS)",
        "exited": "ended itself with exit code {code}: the data set, or a library that it uses, left the process",
        "other_signal": "was ended by {signal}",
        "unknown": "is gone, and the system does not say how it ended",
    },
    or_cpu_limit=" (or it reached the hard limit of {cpu_limit} s of processor time)",
    brackets=" ({text})",
    comma=", ",
    semicolon="; ",
    limit="{name} limit {limit}",
    used="{used} of {limit}",
    peak="peak {peak}",
    machine="{total} in all, {free} available",
    tree="tree at {tree}",
    tree_before="tree at {tree} {before} before",
    shm="{free} free of {total}",
    at_line="at {line}",
    in_library="in {library}",
    at_sample=" while working on {samples}",
    sample="sample {index}",
    position="the sample at position {position}",
    collation="the collation of a batch",
    age="for {age}",
    between=" between two samples",
    before_first=" before its first sample",
    exit_code="exit code {code}",
    evidence={
        "exit": "exit",
        "kills": "memory_kills",
        "machine_kills": "memory_kills_of_the_machine",
        "memory": "memory",
        "own": "its_own",
        "queued": "queued_data",
        "stack": "stack",
        "kernel": "kernel_log",
    },
    next_steps={
        "memory_limit": "fewer workers (num_workers=) or less queued data (memory=), or a higher limit",
        "machine_memory": "fewer workers (num_workers=) or less queued data (memory=)",
        "memory_unseen": "fewer workers (num_workers=) or less queued data (memory=)",
        "shm_full": "a larger /dev/shm: `--shm-size` or `--ipc=host` for a container",
        "mapped_file": "check that the files which the data set maps are whole, and that nothing rewrites them",
        "cpu_limit": "`ulimit -t unlimited` in the shell that starts the training",
    },
)

_ZH = DeathWords(
    sentence="{subject} {what}{activity}",
    worker="worker {worker}",
    workers="worker {workers} 所在的进程",
    causes={
        "memory_limit": "因内存超限被内核杀死",
        "machine_memory": "因整机内存耗尽被内核杀死",
        "memory_unseen": "因内存不足被内核杀死，但这里可见的各级上限都没有触顶：不足的是整机，或容器外的上级 cgroup",
        "maybe_memory": (
            "被 SIGKILL 杀死，可能是内核因内存不足所为：内核的此类计数增加了，但少于被杀的进程数，或只有整机的计数可查"
        ),
        "guard": "由 Headrace 主动结束：{why}",
        "killed": "被杀死：有人发送了 SIGKILL，不是内核的内存查杀，其计数没有变化（{count}）",
        "killed_unknown": "被 SIGKILL 杀死；内核的内存查杀计数不可读，无法得知是谁发送的",
        "terminated": "被外部结束：有人发送了 {signal}",
        "segfault": "在原生代码中崩溃（SIGSEGV，段错误）",
        "shm_full": "因 SIGBUS 崩溃，当时 /dev/shm 已满：{shm}",
        "mapped_file": "因 SIGBUS 崩溃：所访问的映射文件被截断、被改写或无法读取（/dev/shm 未满：{shm}）",
        "bus_unknown": "因 SIGBUS 崩溃：映射文件被截断或无法读取，或共享内存已用尽",
        "aborted": "在原生代码中中止（SIGABRT：断言失败、堆损坏或未捕获的 C++ 异常）",
        "illegal_instruction": "在原生代码中崩溃（SIGILL：当前 CPU 不支持的指令）",
        "arithmetic": "在原生代码中崩溃（SIGFPE：除以零）",
        "cpu_limit": "用完了 CPU 时间上限（SIGXCPU，`ulimit -t`）",
        "forbidden_call": "执行了沙箱禁止的系统调用（SIGSYS）",
        "exited": "自行退出，退出码 {code}：数据集或它用到的某个库结束了进程",
        "other_signal": "被信号 {signal} 结束",
        "unknown": "已经消失，系统没有给出结束方式",
    },
    or_cpu_limit="（也可能是达到了 {cpu_limit} 秒的 CPU 时间硬上限）",
    brackets="（{text}）",
    comma="，",
    semicolon="；",
    limit="{name} 上限 {limit}",
    used="已用 {used}，上限 {limit}",
    peak="峰值 {peak}",
    machine="整机共 {total}，可用 {free}",
    tree="进程树占用 {tree}",
    tree_before="{before} 前进程树占用 {tree}",
    shm="剩余 {free}，共 {total}",
    at_line="位于 {line}",
    in_library="位于 {library}",
    at_sample="，当时正在处理{samples}",
    sample="样本 {index}",
    position="本 epoch 第 {position} 个位置的样本",
    collation="一个 batch 的拼接（collate）",
    age="已用 {age}",
    between="，当时手上没有样本",
    before_first="，当时尚未取到第一个样本",
    exit_code="退出码 {code}",
    evidence={
        "exit": "结束方式",
        "kills": "内存查杀计数",
        "machine_kills": "整机内存查杀计数",
        "memory": "内存",
        "own": "该进程",
        "queued": "排队数据",
        "stack": "调用栈",
        "kernel": "内核日志",
    },
    next_steps={
        "memory_limit": "减少 worker（num_workers=）或排队数据（memory=），或提高上限",
        "machine_memory": "减少 worker（num_workers=）或排队数据（memory=）",
        "memory_unseen": "减少 worker（num_workers=）或排队数据（memory=）",
        "shm_full": "加大 /dev/shm：容器用 `--shm-size` 或 `--ipc=host`",
        "mapped_file": "检查数据集映射的文件是否完整，训练期间是否有程序在改写它们",
        "cpu_limit": "在启动训练的 shell 中执行 `ulimit -t unlimited`",
    },
)


def death_words(language: str) -> DeathWords:
    """The sentences in `en` or `zh`; English for any other language."""
    return _ZH if language == "zh" else _EN
