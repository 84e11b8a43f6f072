"""Why a worker died: one true sentence from recorded facts, in English and Chinese, with the evidence beside it."""

import enum
import os
import resource
import shutil
import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.knowledge import entry
from headrace.model import Text, format_bytes
from headrace.signals.system import GroupMemory, OomCounts, memory_groups, read_limits, read_oom_counts

from .memory import MemorySample

# fewer free bytes than a page of each tensor of a batch: the next write into a new segment fails
_SHM_FULL_BYTES = 1 << 20
_SHM_FULL_SHARE = 0.02
# below this share of free memory the machine was short when the kernel killed
_MACHINE_SHORT_SHARE = 0.05
_LAST_MOMENTS_S = 2.0
# A death is noticed within a fraction of a second, so a count this old is surely from before it; an older one would
# let the kill of another job in the same group, minutes ago, explain a SIGKILL of now.
_LOOK_BACK_S = 3.0
_EVERY_S = 1.0
_NOT_COUNTED = OomCounts()


@dataclass(frozen=True, kw_only=True)
class SampleInHand:
    """What a worker was at: any part may be unknown."""

    position: int | None = None  # in the epoch
    index: object | None = None  # what the data set was asked for
    age_s: float | None = None
    file: str | None = None
    is_collation: bool = False  # no sample: it was collating a batch


@dataclass(frozen=True, kw_only=True)
class DeathFacts:
    """All that is known of a death: by the loader, and by `DeathWatch.complete`."""

    workers: tuple[int, ...]  # several where they are threads of one process
    pid: int
    exit_code: int | None  # as multiprocessing has it: negative is a signal
    died_at_s: float  # on the clock of `memory`
    oom_before: OomCounts = _NOT_COUNTED
    oom_after: OomCounts = _NOT_COUNTED
    memory: tuple[MemorySample, ...] = ()  # oldest first
    limits: tuple[GroupMemory, ...] = ()  # control groups with a limit, read after the death
    samples: tuple[SampleInHand, ...] = ()
    has_begun: bool = True  # False: it never came to its first sample
    shm: tuple[int, int] | None = None  # free bytes of /dev/shm, and all of them
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
        moments = [sample for sample in self.memory if self.died_at_s - sample.at_s <= _LAST_MOMENTS_S]
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
        limits = (memory for memory in self.known_limits if memory.group in hit)
        return min(limits, key=lambda m: (m.limit_bytes or 0) - (m.peak_bytes or m.hard_bytes), default=None)


def kill_count(counts: OomCounts) -> int | None:
    """The kills of the innermost group that counts them, or the machine's."""
    return next((kills.kills for kills in counts.groups if kills.kills is not None), counts.machine)


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


class DeathWatch:
    """Follows the kernel's counters of memory kills for one loader: `note` now and then, `complete` after a death."""

    def __init__(self, now_s: float, *, root: Path = Path("/")) -> None:
        self._root = root
        self.groups = memory_groups(root)
        self._counts: deque[tuple[float, OomCounts]] = deque([(now_s, read_oom_counts(self.groups, root))])
        self._claims: deque[float] = deque()  # when a kill of the counters was explained by a death

    def note(self, now_s: float) -> None:
        """Keep a recent count to compare with; free when called more often than once a second."""
        if now_s - self._counts[-1][0] < _EVERY_S:
            return
        self._counts.append((now_s, read_oom_counts(self.groups, self._root)))
        # the first that stays is the youngest of those that are old enough
        while len(self._counts) > 1 and now_s - self._counts[1][0] >= _LOOK_BACK_S:
            self._counts.popleft()
        while self._claims and self._claims[0] < self._counts[0][0]:
            self._claims.popleft()

    def complete(self, known: DeathFacts) -> DeathFacts:
        """Add what the system tells of a death now. Each kill that the kernel counted explains one death at most."""
        after = read_oom_counts(self.groups, self._root)
        before = self._less_claims(self._counts[0][1], after)
        is_kill = known.exit_code == -signal.SIGKILL and known.sent_by_guard is None
        if is_kill and (kill_count(after) or 0) > (kill_count(before) or 0):
            self._claims.append(known.died_at_s)
        _, cpu_limit = resource.getrlimit(resource.RLIMIT_CPU)
        shm = shutil.disk_usage("/dev/shm") if os.path.isdir("/dev/shm") else None
        return replace(
            known,
            oom_before=before,
            oom_after=after,
            limits=read_limits(self.groups),
            shm=(shm.free, shm.total) if shm is not None else None,
            cpu_limit_s=None if cpu_limit == resource.RLIM_INFINITY else float(cpu_limit),
        )

    def _less_claims(self, before: OomCounts, after: OomCounts) -> OomCounts:
        """The earlier counts, moved up by the kills that already explain a death."""

        def moved(count: int | None, most: int | None) -> int | None:
            return count if count is None or most is None else min(most, count + len(self._claims))

        ceiling = {kills.group: kills.kills for kills in after.groups}
        groups = (replace(one, kills=moved(one.kills, ceiling.get(one.group))) for one in before.groups)
        return OomCounts(groups=tuple(groups), machine=moved(before.machine, after.machine))


@dataclass(frozen=True)
class _Cause:
    """What is said of a cause, and what to do."""

    said: Text
    entry: str = ""  # of the knowledge base
    step: Text | None = None
    brackets: str = ""  # what stands in brackets after it: "memory", or where a "crash" happened


_LESS = Text(
    "fewer workers (num_workers=) or less queued data (memory=)", "减少 worker（num_workers=）或排队数据（memory=）"
)


class DeathCause(enum.Enum):
    MEMORY_LIMIT = _Cause(  # of a control group
        Text("was killed by the kernel for memory", "因内存超限被内核杀死"),
        "worker_killed",
        Text(f"{_LESS.en}, or a higher limit", f"{_LESS.zh}，或提高上限"),
        "memory",
    )
    MACHINE_MEMORY = _Cause(
        Text("was killed by the kernel because the machine ran out of memory", "因整机内存耗尽被内核杀死"),
        *("worker_killed", _LESS, "memory"),
    )
    MEMORY_UNSEEN = _Cause(
        Text(
            "was killed by the kernel for memory, though no limit visible here was hit: the machine itself, or a "
            "group outside this container, ran out",
            "因内存不足被内核杀死，但这里可见的各级上限都没有触顶：不足的是整机，或容器外的上级 cgroup",
        ),
        *("worker_killed", _LESS, "memory"),
    )
    MAYBE_MEMORY = _Cause(
        Text(
            "was killed by SIGKILL, possibly by the kernel for memory: its count of such kills rose, but not by as "
            "many as died, or only for the machine as a whole",
            "被 SIGKILL 杀死，可能是内核因内存不足所为：内核的此类计数增加了，但少于被杀的进程数，或只有整机的计数可查",
        ),
        "worker_killed",
        brackets="memory",
    )
    GUARD = _Cause(Text("was ended by Headrace: {why}", "由 Headrace 主动结束：{why}"))
    KILLED = _Cause(
        Text(
            "was killed: somebody sent SIGKILL, not the kernel's memory killer, whose count did not change ({count})",
            "被杀死：有人发送了 SIGKILL，不是内核的内存查杀，其计数没有变化（{count}）",
        ),
        "worker_killed",
        Text("Find who; nothing in the loader is wrong", "找出是谁杀的；数据加载本身没有问题"),
    )
    KILLED_UNKNOWN = _Cause(  # no counter can be read
        Text(
            "was killed by SIGKILL; who sent it cannot be known, for the kernel's count of memory kills is not "
            "readable",
            "被 SIGKILL 杀死；内核的内存查杀计数不可读，无法得知是谁发送的",
        ),
        "worker_killed",
    )
    TERMINATED = _Cause(
        Text("was ended from outside: somebody sent {signal}", "被外部结束：有人发送了 {signal}"), "worker_terminated"
    )
    CRASHED = _Cause(
        Text("crashed in native code ({crash})", "在原生代码中崩溃（{crash}）"), "worker_segfault", brackets="crash"
    )
    ABORTED = _Cause(
        Text(
            "aborted in native code (SIGABRT: a failed check, a damaged heap or an uncaught C++ exception)",
            "在原生代码中中止（SIGABRT：断言失败、堆损坏或未捕获的 C++ 异常）",
        ),
        "worker_aborted",
        brackets="crash",
    )
    SHM_FULL = _Cause(
        Text("crashed with SIGBUS while /dev/shm was full: {shm}", "因 SIGBUS 崩溃，当时 /dev/shm 已满：{shm}"),
        "worker_bus_error",
        Text(
            "a larger /dev/shm: `--shm-size` or `--ipc=host` for a container",
            "加大 /dev/shm：容器用 `--shm-size` 或 `--ipc=host`",
        ),
        "crash",
    )
    MAPPED_FILE = _Cause(  # SIGBUS, and /dev/shm has room
        Text(
            "crashed with SIGBUS: it touched a mapped file that was truncated, rewritten or could not be read "
            "(/dev/shm was not full: {shm})",
            "因 SIGBUS 崩溃：所访问的映射文件被截断、被改写或无法读取（/dev/shm 未满：{shm}）",
        ),
        "worker_bus_error",
        Text(
            "check that the files which the data set maps are whole, and that nothing rewrites them",
            "检查数据集映射的文件是否完整，训练期间是否有程序在改写它们",
        ),
        "crash",
    )
    CPU_LIMIT = _Cause(
        Text(
            "used up its limit of processor time (SIGXCPU, `ulimit -t`)", "用完了 CPU 时间上限（SIGXCPU，`ulimit -t`）"
        ),
        step=Text(
            "`ulimit -t unlimited` in the shell that starts the training",
            "在启动训练的 shell 中执行 `ulimit -t unlimited`",
        ),
    )
    EXITED = _Cause(
        Text(
            "ended itself with exit code {code}: the data set, or a library that it uses, left the process",
            "自行退出，退出码 {code}：数据集或它用到的某个库结束了进程",
        ),
        "worker_exited_with_code",
    )
    OTHER_SIGNAL = _Cause(Text("was ended by {signal}", "被信号 {signal} 结束"))
    UNKNOWN = _Cause(
        Text("is gone, and the system does not say how it ended", "已经消失，系统没有给出结束方式"),
        "worker_exited_unexpectedly",
    )


_CRASHES: dict[int, Text] = {
    signal.SIGSEGV: Text("SIGSEGV", "SIGSEGV，段错误"),
    signal.SIGILL: Text("SIGILL: an instruction that this processor does not have", "SIGILL：当前 CPU 不支持的指令"),
    signal.SIGFPE: Text("SIGFPE: a division by zero", "SIGFPE：除以零"),
}
_SENT = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_BY_SIGNAL: dict[int, DeathCause] = {
    **dict.fromkeys(_CRASHES, DeathCause.CRASHED),
    **dict.fromkeys(_SENT, DeathCause.TERMINATED),
    signal.SIGABRT: DeathCause.ABORTED,
    signal.SIGXCPU: DeathCause.CPU_LIMIT,
}


def judge(facts: DeathFacts) -> DeathCause:
    """The cause that the facts bear out."""
    if facts.exit_code is None:
        return DeathCause.UNKNOWN
    if facts.exit_code >= 0:
        return DeathCause.EXITED
    if facts.sent_by_guard is not None:
        return DeathCause.GUARD
    number = -facts.exit_code
    if number == signal.SIGKILL:
        return _judge_kill(facts)
    if number == signal.SIGBUS and facts.shm is not None:
        free, total = facts.shm
        is_full = free < max(_SHM_FULL_BYTES, _SHM_FULL_SHARE * total)
        return DeathCause.SHM_FULL if is_full else DeathCause.MAPPED_FILE
    return _BY_SIGNAL.get(number, DeathCause.OTHER_SIGNAL)


def _judge_kill(facts: DeathFacts) -> DeathCause:
    before = {kills.group: kills.kills for kills in facts.oom_before.groups}
    rises = (_rise(before.get(after.group), after.kills) for after in facts.oom_after.groups)
    # the innermost that counts: v1 counts a kill there alone, and what is further out counts other jobs' kills too
    rose = next((rise for rise in rises if rise is not None), None)
    machine = _rise(facts.oom_before.machine, facts.oom_after.machine)
    if rose is None and machine:
        return DeathCause.MAYBE_MEMORY
    if rose is None and machine is None:
        return DeathCause.KILLED_UNKNOWN
    if not rose:  # nor did the machine's count, which holds the kills of all groups
        return DeathCause.KILLED
    if facts.limit_hit is not None:
        return DeathCause.MEMORY_LIMIT
    sample = facts.fullest
    available, total = (sample.available_bytes, sample.total_bytes) if sample else (None, None)
    is_short = available is not None and total and available < _MACHINE_SHORT_SHARE * total
    return DeathCause.MACHINE_MEMORY if is_short else DeathCause.MEMORY_UNSEEN


@dataclass(frozen=True, kw_only=True)
class Death:
    """What happened, in words; `evidence` and `next_step` have the shape that `HeadraceError` takes."""

    cause: DeathCause
    sentence: str
    evidence: Mapping[str, str]
    next_step: str


def describe_death(facts: DeathFacts, *, language: str = "en") -> Death:
    """Say what ended a worker, in one sentence that the facts bear out; where they tell no cause, what is known."""
    cause, words = judge(facts), _DeathWords(facts, language)
    sentence = f"{words.subject()} {words.what(cause)}{words.activity()}"
    return Death(cause=cause, sentence=sentence, evidence=words.evidence(), next_step=words.next_step(cause))


_COMMA = Text(", ", "，")


class _DeathWords:
    """The pieces of the sentence about one death, in one language."""

    def __init__(self, facts: DeathFacts, language: str) -> None:
        self._facts, self._language = facts, language
        self._comma = _COMMA.of(language)

    def _say(self, english: str, chinese: str) -> str:
        return Text(english, chinese).of(self._language)

    def subject(self) -> str:
        workers = ", ".join(map(str, self._facts.workers))
        if len(self._facts.workers) == 1:
            return f"worker {workers}"
        return self._say(f"the process of workers {workers}", f"worker {workers} 所在的进程")

    def what(self, cause: DeathCause) -> str:
        facts, about, inside = self._facts, cause.value, []
        free, total = map(format_bytes, facts.shm or (0, 0))
        text = about.said.of(self._language).format(
            signal=_signal_name(facts.exit_code),
            crash=_CRASHES.get(-(facts.exit_code or 0), _COMMA).of(self._language),
            code=facts.exit_code,
            count=kill_count(facts.oom_after),
            shm=self._say(f"{free} free of {total}", f"剩余 {free}，共 {total}"),
            why=facts.sent_by_guard or "",
        )
        if cause is DeathCause.KILLED and facts.cpu_limit_s is not None:
            limit = f"{facts.cpu_limit_s:.0f}"
            text += self._say(
                f" (or it reached the hard limit of {limit} s of processor time)",
                f"（也可能是达到了 {limit} 秒的 CPU 时间硬上限）",
            )
        if about.brackets == "memory":
            inside = self._memory_texts(cause)
        elif about.brackets == "crash" and facts.stack:
            inside = [self._say(f"at {facts.stack[0]}", f"位于 {facts.stack[0]}")]
        return text + self._in_brackets(inside)

    def _memory_texts(self, cause: DeathCause) -> list[str]:
        last, limit, found = self._facts.fullest, self._facts.limit_hit, []
        if cause is DeathCause.MEMORY_LIMIT and limit is not None:
            name, size = limit.group.name, format_bytes(limit.limit_bytes or 0)
            found.append(self._say(f"{name} limit {size}", f"{name} 上限 {size}"))
        if cause is DeathCause.MACHINE_MEMORY and last is not None:
            total, free = format_bytes(last.total_bytes or 0), format_bytes(last.available_bytes or 0)
            found.append(self._say(f"{total} in all, {free} available", f"整机共 {total}，可用 {free}"))
        return found + ([self._tree(last)] if last is not None else [])

    def activity(self) -> str:
        if not self._facts.has_begun:
            return self._say(" before its first sample", "，当时尚未取到第一个样本")
        known = [s for s in self._facts.samples if s.position is not None or s.index is not None or s.is_collation]
        if not known:
            return self._say(" between two samples", "，当时手上没有样本")
        samples = self._comma.join(map(self._sample, known))
        return self._say(f" while working on {samples}", f"，当时正在处理{samples}")

    def _sample(self, sample: SampleInHand) -> str:
        if sample.is_collation:
            text = self._say("the collation of a batch", "一个 batch 的拼接（collate）")
        elif sample.index is not None:
            text = self._say(f"sample {sample.index}", f"样本 {sample.index}")
        else:
            at = sample.position
            text = self._say(f"the sample at position {at}", f"本 epoch 第 {at} 个位置的样本")
        inside = [sample.file] if sample.file else []
        if sample.age_s is not None:
            inside.append(self._say(f"for {_seconds(sample.age_s)}", f"已用 {_seconds(sample.age_s)}"))
        return text + self._in_brackets(inside)

    def _in_brackets(self, texts: list[str]) -> str:
        text = self._comma.join(texts)
        return self._say(f" ({text})", f"（{text}）") if texts else ""

    def _tree(self, last: MemorySample) -> str:
        tree, before = format_bytes(last.tree_bytes), _seconds(max(0.0, self._facts.died_at_s - last.at_s))
        return self._say(f"tree at {tree} {before} before", f"{before} 前进程树占用 {tree}")

    def evidence(self) -> dict[str, str]:
        facts, say, last = self._facts, self._say, self._facts.fullest
        ended = _signal_name(facts.exit_code) or say(f"exit code {facts.exit_code}", f"退出码 {facts.exit_code}")
        if facts.exit_code is None:
            ended = say("not known: somebody else waited for it", "未知：已被其他代码回收")
        found = {say("exit", "结束方式"): ended}
        before, after = kill_count(facts.oom_before), kill_count(facts.oom_after)
        if before is not None and after is not None:
            found[say("memory_kills", "内存查杀计数")] = f"{before} → {after}"
        if last is not None:
            found[say("memory", "内存")] = self._tree(last)
            if facts.pid in last.own_bytes:
                found[say("its_own", "该进程")] = format_bytes(last.own_bytes[facts.pid])
            if last.queued_bytes:
                found[say("queued_data", "排队数据")] = format_bytes(last.queued_bytes)
        for memory in facts.known_limits:
            used, limit = format_bytes(memory.used_bytes), format_bytes(memory.limit_bytes or 0)
            text = say(f"{used} of {limit}", f"已用 {used}，上限 {limit}")
            if memory.peak_bytes is not None:
                text += self._comma + say("peak ", "峰值 ") + format_bytes(memory.peak_bytes)
            found[f"{memory.group.name} {memory.group.folder.name}"] = text
        if facts.stack:
            found[say("stack", "调用栈")] = " < ".join(facts.stack[:4])
        return found

    def next_step(self, cause: DeathCause) -> str:
        """What to do, and the entry of the knowledge base that says more."""
        about = cause.value
        known = entry(about.entry) if about.entry else None
        parts = [about.step.of(self._language)] if about.step else []
        parts += [f"`headrace explain --message {known.id}`"] if known is not None else []
        return self._say("; ", "；").join(parts)


def _signal_name(code: int | None) -> str:
    if code is None or code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"
