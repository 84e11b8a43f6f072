"""Why a worker died: one true sentence from recorded facts, in English and Chinese, with the evidence beside it.

Pure: `DeathFacts` come from `death_watch`, `judge` says which cause they bear out, `describe_death` puts it into words.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.knowledge import TrueCause, entry
from headrace.model import Text, format_bytes
from headrace.signals.system import GroupMemory, OomCounts

from .memory import MemorySample

# fewer free bytes than a page of each tensor of a batch: the next write into a new segment fails
_SHM_FULL_BYTES = 1 << 20
_SHM_FULL_SHARE = 0.02
# below this share of free memory the machine was short when the kernel killed
_MACHINE_SHORT_SHARE = 0.05
_LAST_MOMENTS_S = 2.0
_NOT_COUNTED = OomCounts()


# ---------------------------------------------------------------------------------------- the facts


@dataclass(frozen=True, kw_only=True)
class SampleInHand:
    """What a worker was at: any part may be unknown."""

    position: int | None = None  # in the epoch
    index: object | None = None  # what the data set was asked for
    age_s: float | None = None
    file: str | None = None
    is_collation: bool = False  # no sample: it was collating a batch


@dataclass(frozen=True, kw_only=True)
class ShmRoom:
    """/dev/shm at the moment of a death."""

    free_bytes: int
    total_bytes: int

    @property
    def is_full(self) -> bool:
        return self.free_bytes < max(_SHM_FULL_BYTES, _SHM_FULL_SHARE * self.total_bytes)


@dataclass(frozen=True, kw_only=True)
class KernelWord:
    """What the kernel's log says of one process."""

    line: str
    is_memory_kill: bool
    group: str | None = None  # the control group whose limit was hit; None: the whole machine, or not told
    library: str | None = None  # where a crash happened


@dataclass(frozen=True, kw_only=True)
class DeathFacts:
    """All that is known of a death; only `workers`, `pid` and `exit_code` must be."""

    workers: tuple[int, ...]  # several where they are threads of one process
    pid: int
    exit_code: int | None  # as multiprocessing has it: negative is a signal
    oom_before: OomCounts = _NOT_COUNTED
    oom_after: OomCounts = _NOT_COUNTED
    memory: tuple[MemorySample, ...] = ()  # oldest first
    limits: tuple[GroupMemory, ...] = ()  # control groups with a limit, read after the death
    died_at_s: float | None = None  # on the clock of `memory`
    samples: tuple[SampleInHand, ...] = ()
    has_begun: bool = True  # False: it never came to its first sample
    shm: ShmRoom | None = None
    kernel: KernelWord | None = None
    stack: tuple[str, ...] = ()  # Python frames at the crash, innermost first: "decode.py:12 in __getitem__"
    sent_by_guard: str | None = None  # why Headrace itself ended it
    cpu_limit_s: float | None = None  # RLIMIT_CPU's hard end, where there is one: it ends in SIGKILL too

    @property
    def fullest(self) -> MemorySample | None:
        """The sample of the last moments in which the tree was largest.

        Not simply the last one: a look that falls into the kill sees a process that is already being taken apart.
        """
        if not self.memory:
            return None
        end_s = self.memory[-1].at_s if self.died_at_s is None else self.died_at_s
        moments = [sample for sample in self.memory if end_s - sample.at_s <= _LAST_MOMENTS_S]
        return max(moments or self.memory[-1:], key=lambda sample: sample.tree_bytes)

    @property
    def known_limits(self) -> tuple[GroupMemory, ...]:
        """The groups with a limit, as they were last seen: before the death, where that was sampled."""
        return (self.fullest.groups if self.fullest else ()) or self.limits

    @property
    def limit_hit(self) -> GroupMemory | None:
        """The group whose own limit was hit between the counts: the tightest, where several were."""
        before = {kills.group: kills.limit_hits for kills in self.oom_before.groups}
        hit = {k.group for k in self.oom_after.groups if _rise(before.get(k.group), k.limit_hits)}
        return _tightest(m for m in self.known_limits if m.group in hit)


def kill_count(counts: OomCounts) -> int | None:
    """The kills of the innermost group that counts them, or the machine's."""
    return next((kills.kills for kills in counts.groups if kills.kills is not None), counts.machine)


def _tightest(groups: Iterable[GroupMemory]) -> GroupMemory | None:
    return min(groups, key=lambda m: (m.limit_bytes or 0) - (m.peak_bytes or m.hard_bytes), default=None)


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


# ---------------------------------------------------------------------------------------- the causes


class DeathCause(enum.Enum):
    """What ended a worker. The value is stable: it is written into logs and JSON."""

    MEMORY_LIMIT = "memory_limit"  # the kernel, for a control group's limit
    MACHINE_MEMORY = "machine_memory"  # the kernel, for the whole machine
    MEMORY_UNSEEN = "memory_unseen"  # the kernel, for memory; whose limit it was cannot be seen from here
    MAYBE_MEMORY = "maybe_memory"
    GUARD = "guard"  # Headrace itself
    KILLED = "killed"  # SIGKILL, from somebody
    KILLED_UNKNOWN = "killed_unknown"  # SIGKILL, and no counter can be read
    TERMINATED = "terminated"  # another signal that somebody sent
    SEGFAULT = "segfault"
    SHM_FULL = "shm_full"
    MAPPED_FILE = "mapped_file"  # SIGBUS, /dev/shm has room
    BUS_UNKNOWN = "bus_unknown"
    ABORTED = "aborted"
    ILLEGAL = "illegal_instruction"
    ARITHMETIC = "arithmetic"
    CPU_LIMIT = "cpu_limit"
    FORBIDDEN_CALL = "forbidden_call"
    EXITED = "exited"
    OTHER_SIGNAL = "other_signal"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Cause:
    """What is said of a cause: the sentence, our own next step, and what the knowledge base tells of it."""

    said: Text
    entry: str = ""  # of the knowledge base
    true_cause: str = ""  # of that entry; none where the facts leave several
    step: Text | None = None  # where this loader has a setting for it
    brackets: str = ""  # what stands in brackets after it: "memory", or where a "crash" happened


_LESS = Text(
    "fewer workers (num_workers=) or less queued data (memory=)", "减少 worker（num_workers=）或排队数据（memory=）"
)
_CAUSES = {
    DeathCause.MEMORY_LIMIT: _Cause(
        Text("was killed by the kernel for memory", "因内存超限被内核杀死"),
        *("worker_killed", "memory_limit"),
        Text(f"{_LESS.en}, or a higher limit", f"{_LESS.zh}，或提高上限"),
        "memory",
    ),
    DeathCause.MACHINE_MEMORY: _Cause(
        Text("was killed by the kernel because the machine ran out of memory", "因整机内存耗尽被内核杀死"),
        *("worker_killed", "machine_memory", _LESS, "memory"),
    ),
    DeathCause.MEMORY_UNSEEN: _Cause(
        Text(
            "was killed by the kernel for memory, though no limit visible here was hit: the machine itself, or a "
            "group outside this container, ran out",
            "因内存不足被内核杀死，但这里可见的各级上限都没有触顶：不足的是整机，或容器外的上级 cgroup",
        ),
        *("worker_killed", "machine_memory", _LESS, "memory"),
    ),
    DeathCause.MAYBE_MEMORY: _Cause(
        Text(
            "was killed by SIGKILL, possibly by the kernel for memory: its count of such kills rose, but not by as "
            "many as died, or only for the machine as a whole",
            "被 SIGKILL 杀死，可能是内核因内存不足所为：内核的此类计数增加了，但少于被杀的进程数，或只有整机的计数可查",
        ),
        "worker_killed",
        brackets="memory",
    ),
    DeathCause.GUARD: _Cause(Text("was ended by Headrace: {why}", "由 Headrace 主动结束：{why}")),
    DeathCause.KILLED: _Cause(
        Text(
            "was killed: somebody sent SIGKILL, not the kernel's memory killer, whose count did not change ({count})",
            "被杀死：有人发送了 SIGKILL，不是内核的内存查杀，其计数没有变化（{count}）",
        ),
        *("worker_killed", "someone_killed_it"),
    ),
    DeathCause.KILLED_UNKNOWN: _Cause(
        Text(
            "was killed by SIGKILL; who sent it cannot be known, for the kernel's count of memory kills is not "
            "readable",
            "被 SIGKILL 杀死；内核的内存查杀计数不可读，无法得知是谁发送的",
        ),
        "worker_killed",
    ),
    DeathCause.TERMINATED: _Cause(
        Text("was ended from outside: somebody sent {signal}", "被外部结束：有人发送了 {signal}"), "worker_terminated"
    ),
    DeathCause.SEGFAULT: _Cause(
        Text("crashed in native code (SIGSEGV)", "在原生代码中崩溃（SIGSEGV，段错误）"),
        "worker_segfault",
        brackets="crash",
    ),
    DeathCause.SHM_FULL: _Cause(
        Text("crashed with SIGBUS while /dev/shm was full: {shm}", "因 SIGBUS 崩溃，当时 /dev/shm 已满：{shm}"),
        *("worker_bus_error", "shm_full"),
        Text(
            "a larger /dev/shm: `--shm-size` or `--ipc=host` for a container",
            "加大 /dev/shm：容器用 `--shm-size` 或 `--ipc=host`",
        ),
        "crash",
    ),
    DeathCause.MAPPED_FILE: _Cause(
        Text(
            "crashed with SIGBUS: it touched a mapped file that was truncated, rewritten or could not be read "
            "(/dev/shm was not full: {shm})",
            "因 SIGBUS 崩溃：所访问的映射文件被截断、被改写或无法读取（/dev/shm 未满：{shm}）",
        ),
        *("worker_bus_error", "mapped_file_changed"),
        Text(
            "check that the files which the data set maps are whole, and that nothing rewrites them",
            "检查数据集映射的文件是否完整，训练期间是否有程序在改写它们",
        ),
        "crash",
    ),
    DeathCause.BUS_UNKNOWN: _Cause(
        Text(
            "crashed with SIGBUS: a mapped file was truncated or unreadable, or shared memory ran out",
            "因 SIGBUS 崩溃：映射文件被截断或无法读取，或共享内存已用尽",
        ),
        "worker_bus_error",
        brackets="crash",
    ),
    DeathCause.ABORTED: _Cause(
        Text(
            "aborted in native code (SIGABRT: a failed check, a damaged heap or an uncaught C++ exception)",
            "在原生代码中中止（SIGABRT：断言失败、堆损坏或未捕获的 C++ 异常）",
        ),
        "worker_aborted",
        brackets="crash",
    ),
    DeathCause.ILLEGAL: _Cause(
        Text(
            "crashed in native code (SIGILL: an instruction that this processor does not have)",
            "在原生代码中崩溃（SIGILL：当前 CPU 不支持的指令）",
        ),
        "worker_segfault",
        brackets="crash",
    ),
    DeathCause.ARITHMETIC: _Cause(
        Text("crashed in native code (SIGFPE: a division by zero)", "在原生代码中崩溃（SIGFPE：除以零）"),
        "worker_segfault",
        brackets="crash",
    ),
    DeathCause.CPU_LIMIT: _Cause(
        Text(
            "used up its limit of processor time (SIGXCPU, `ulimit -t`)", "用完了 CPU 时间上限（SIGXCPU，`ulimit -t`）"
        ),
        step=Text(
            "`ulimit -t unlimited` in the shell that starts the training",
            "在启动训练的 shell 中执行 `ulimit -t unlimited`",
        ),
    ),
    DeathCause.FORBIDDEN_CALL: _Cause(
        Text("made a system call that this sandbox forbids (SIGSYS)", "执行了沙箱禁止的系统调用（SIGSYS）")
    ),
    DeathCause.EXITED: _Cause(
        Text(
            "ended itself with exit code {code}: the data set, or a library that it uses, left the process",
            "自行退出，退出码 {code}：数据集或它用到的某个库结束了进程",
        ),
        "worker_exited_with_code",
    ),
    DeathCause.OTHER_SIGNAL: _Cause(Text("was ended by {signal}", "被信号 {signal} 结束")),
    DeathCause.UNKNOWN: _Cause(
        Text("is gone, and the system does not say how it ended", "已经消失，系统没有给出结束方式"),
        "worker_exited_unexpectedly",
    ),
}
_BY_SIGNAL: dict[int, DeathCause] = {
    signal.SIGSEGV: DeathCause.SEGFAULT,
    signal.SIGABRT: DeathCause.ABORTED,
    signal.SIGILL: DeathCause.ILLEGAL,
    signal.SIGFPE: DeathCause.ARITHMETIC,
    signal.SIGXCPU: DeathCause.CPU_LIMIT,
    signal.SIGSYS: DeathCause.FORBIDDEN_CALL,
    **dict.fromkeys(
        (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
        DeathCause.TERMINATED,
    ),
}


def judge(facts: DeathFacts) -> tuple[DeathCause, bool]:
    """The cause that the facts bear out, and whether they leave no other."""
    if facts.exit_code is None:
        return DeathCause.UNKNOWN, False
    if facts.exit_code >= 0:
        return DeathCause.EXITED, True
    if facts.sent_by_guard is not None:
        return DeathCause.GUARD, True
    number = -facts.exit_code
    if number == signal.SIGKILL:
        return _judge_kill(facts)
    if number == signal.SIGBUS:
        if facts.shm is None:
            return DeathCause.BUS_UNKNOWN, False
        return (DeathCause.SHM_FULL if facts.shm.is_full else DeathCause.MAPPED_FILE), False
    return _BY_SIGNAL.get(number, DeathCause.OTHER_SIGNAL), True


def _judge_kill(facts: DeathFacts) -> tuple[DeathCause, bool]:
    if facts.kernel is not None and facts.kernel.is_memory_kill:
        # the kernel names the group whose limit it was, or says "Out of memory" for the machine's
        is_group = facts.kernel.group is not None or facts.kernel.line.startswith("Memory cgroup")
        return (DeathCause.MEMORY_LIMIT if is_group else DeathCause.MACHINE_MEMORY), True
    before = {kills.group: kills.kills for kills in facts.oom_before.groups}
    rises = (_rise(before.get(after.group), after.kills) for after in facts.oom_after.groups)
    # the innermost that counts: v1 counts a kill there alone, and what is further out counts other jobs' kills too
    rose = next((rise for rise in rises if rise is not None), None)
    machine = _rise(facts.oom_before.machine, facts.oom_after.machine)
    if rose is None and machine:
        return DeathCause.MAYBE_MEMORY, False
    if rose is None and machine is None:
        return DeathCause.KILLED_UNKNOWN, False
    if not rose:  # nor did the machine's count, which holds the kills of all groups
        return DeathCause.KILLED, facts.cpu_limit_s is None
    if facts.limit_hit is not None:
        return DeathCause.MEMORY_LIMIT, True
    sample = facts.fullest
    available, total = (sample.available_bytes, sample.total_bytes) if sample else (None, None)
    if available is not None and total and available < _MACHINE_SHORT_SHARE * total:
        return DeathCause.MACHINE_MEMORY, True
    return DeathCause.MEMORY_UNSEEN, True


def entry_of(cause: DeathCause) -> str | None:
    """Return the id of the entry, for `headrace explain --message`; nothing where none tells of such a death."""
    name = _CAUSES[cause].entry
    return entry(name).id if name else None


def true_cause_of(cause: DeathCause) -> TrueCause | None:
    """Return what the knowledge base says of it; nothing where the facts leave several causes."""
    about = _CAUSES[cause]
    if not about.true_cause:
        return None
    return next((one for one in entry(about.entry).true_causes if one.name == about.true_cause), None)


# ---------------------------------------------------------------------------------------- the words


@dataclass(frozen=True, kw_only=True)
class Death:
    """What happened, in words. `is_certain` is False where the facts allow another reading."""

    cause: DeathCause
    is_certain: bool
    sentence: str
    evidence: Mapping[str, str]
    next_step: str


def describe_death(facts: DeathFacts, *, language: str = "en") -> Death:
    """Say what ended a worker, in one sentence that the facts bear out.

    Where they do not tell the cause, the sentence says what is known. `evidence` and `next_step` have the shape that
    `HeadraceError` takes.
    """
    cause, is_certain = judge(facts)
    words = _DeathWords(facts, language)
    return Death(
        cause=cause,
        is_certain=is_certain,
        sentence=f"{words.subject()} {words.what(cause)}{words.activity()}",
        evidence=words.evidence(),
        next_step=words.next_step(cause),
    )


_COMMA = Text(", ", "，")


class _DeathWords:
    """The pieces of the sentence about one death, in one language."""

    def __init__(self, facts: DeathFacts, language: str) -> None:
        self._facts, self._language = facts, language
        self._comma = _COMMA.of(language)

    def _say(self, english: str, chinese: str, **values: object) -> str:
        return Text(english, chinese).of(self._language).format(**values)

    def subject(self) -> str:
        workers = ", ".join(map(str, self._facts.workers))
        if len(self._facts.workers) == 1:
            return f"worker {workers}"
        return self._say("the process of workers {workers}", "worker {workers} 所在的进程", workers=workers)

    def what(self, cause: DeathCause) -> str:
        facts, about = self._facts, _CAUSES[cause]
        text = about.said.of(self._language).format(
            signal=_signal_name(facts.exit_code),
            code=facts.exit_code,
            count=kill_count(facts.oom_after),
            shm=self._shm(),
            why=facts.sent_by_guard or "",
        )
        if cause is DeathCause.KILLED and facts.cpu_limit_s is not None:
            text += self._say(
                " (or it reached the hard limit of {limit:.0f} s of processor time)",
                "（也可能是达到了 {limit:.0f} 秒的 CPU 时间硬上限）",
                limit=facts.cpu_limit_s,
            )
        inside = {"memory": self._memory_texts, "crash": self._crash_texts}.get(about.brackets)
        return text + self._in_brackets(inside(cause) if inside is not None else [])

    def _memory_texts(self, cause: DeathCause) -> list[str]:
        """Limit and memory of the tree."""
        facts, last, found = self._facts, self._facts.fullest, []
        if cause is DeathCause.MEMORY_LIMIT:
            limit = facts.limit_hit or _tightest(facts.known_limits)
            if limit is not None:
                name, size = limit.group.name, format_bytes(limit.limit_bytes or 0)
                found.append(self._say("{name} limit {size}", "{name} 上限 {size}", name=name, size=size))
        if cause is DeathCause.MACHINE_MEMORY and last is not None and last.total_bytes:
            total, free = format_bytes(last.total_bytes), format_bytes(last.available_bytes or 0)
            said = self._say("{total} in all, {free} available", "整机共 {total}，可用 {free}", total=total, free=free)
            found.append(said)
        return found + ([self._tree(last)] if last is not None else [])

    def _crash_texts(self, _cause: DeathCause) -> list[str]:
        """Where it happened."""
        facts = self._facts
        found = [self._say("at {line}", "位于 {line}", line=facts.stack[0])] if facts.stack else []
        if facts.kernel is not None and facts.kernel.library:
            found.append(self._say("in {library}", "位于 {library}", library=facts.kernel.library))
        return found

    def activity(self) -> str:
        if not self._facts.has_begun:
            return self._say(" before its first sample", "，当时尚未取到第一个样本")
        known = [s for s in self._facts.samples if s.position is not None or s.index is not None or s.is_collation]
        if not known:
            return self._say(" between two samples", "，当时手上没有样本")
        samples = self._comma.join(map(self._sample, known))
        return self._say(" while working on {samples}", "，当时正在处理{samples}", samples=samples)

    def _sample(self, sample: SampleInHand) -> str:
        if sample.is_collation:
            text = self._say("the collation of a batch", "一个 batch 的拼接（collate）")
        elif sample.index is not None:
            text = self._say("sample {index}", "样本 {index}", index=sample.index)
        else:
            text = self._say("the sample at position {at}", "本 epoch 第 {at} 个位置的样本", at=sample.position)
        inside = [sample.file] if sample.file else []
        if sample.age_s is not None:
            inside.append(self._say("for {age}", "已用 {age}", age=_seconds(sample.age_s)))
        return text + self._in_brackets(inside)

    def _in_brackets(self, texts: list[str]) -> str:
        return self._say(" ({text})", "（{text}）", text=self._comma.join(texts)) if texts else ""

    def _tree(self, last: MemorySample) -> str:
        tree = format_bytes(last.tree_bytes)
        if self._facts.died_at_s is None:
            return self._say("tree at {tree}", "进程树占用 {tree}", tree=tree)
        before = _seconds(max(0.0, self._facts.died_at_s - last.at_s))
        return self._say("tree at {tree} {before} before", "{before} 前进程树占用 {tree}", tree=tree, before=before)

    def _shm(self) -> str:
        shm = self._facts.shm
        if shm is None:
            return ""
        free, total = format_bytes(shm.free_bytes), format_bytes(shm.total_bytes)
        return self._say("{free} free of {total}", "剩余 {free}，共 {total}", free=free, total=total)

    def evidence(self) -> dict[str, str]:
        facts, say, last = self._facts, self._say, self._facts.fullest
        ended = _signal_name(facts.exit_code) or say("exit code {code}", "退出码 {code}", code=facts.exit_code)
        found = {say("exit", "结束方式"): ended}
        before, after = kill_count(facts.oom_before), kill_count(facts.oom_after)
        if before is not None and after is not None:
            found[say("memory_kills", "内存查杀计数")] = f"{before} → {after}"
        before, after = facts.oom_before.machine, facts.oom_after.machine
        if before is not None and after is not None:
            found[say("memory_kills_of_the_machine", "整机内存查杀计数")] = f"{before} → {after}"
        if last is not None:
            found[say("memory", "内存")] = self._tree(last)
            own = last.of(facts.pid)
            if own is not None:
                found[say("its_own", "该进程")] = format_bytes(own.own_bytes)
            if last.queued_bytes:
                found[say("queued_data", "排队数据")] = format_bytes(last.queued_bytes)
        for memory in facts.known_limits:
            used, limit = format_bytes(memory.used_bytes), format_bytes(memory.limit_bytes or 0)
            text = say("{used} of {limit}", "已用 {used}，上限 {limit}", used=used, limit=limit)
            if memory.peak_bytes is not None:
                text += self._comma + say("peak {peak}", "峰值 {peak}", peak=format_bytes(memory.peak_bytes))
            found[f"{memory.group.name} {memory.group.folder.name}"] = text
        if facts.shm is not None:
            found["/dev/shm"] = self._shm()
        if facts.stack:
            found[say("stack", "调用栈")] = " < ".join(facts.stack[:4])
        if facts.kernel is not None:
            found[say("kernel_log", "内核日志")] = facts.kernel.line
        return found

    def next_step(self, cause: DeathCause) -> str:
        """What to do: ours where this loader has a setting for it, else the knowledge base's, and its entry."""
        own, known, entry_id = _CAUSES[cause].step, true_cause_of(cause), entry_of(cause)
        step = own.of(self._language) if own else known.fix.of(self._language).rstrip(".。") if known else ""
        said = f"`headrace explain --message {entry_id}`" if entry_id else ""
        return self._say("; ", "；").join(part for part in (step, said) if part)


def _signal_name(code: int | None) -> str:
    if code is None or code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"
