"""Why a worker died: one true sentence from recorded facts, in English and Chinese, with the evidence beside it."""

import enum
import os
import resource
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
class ShmRoom:
    """/dev/shm at the moment of a death."""

    free_bytes: int
    total_bytes: int

    @property
    def is_full(self) -> bool:
        return self.free_bytes < max(_SHM_FULL_BYTES, _SHM_FULL_SHARE * self.total_bytes)


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
        limits = (memory for memory in self.known_limits if memory.group in hit)
        return min(limits, key=lambda m: (m.limit_bytes or 0) - (m.peak_bytes or m.hard_bytes), default=None)


def kill_count(counts: OomCounts) -> int | None:
    """The kills of the innermost group that counts them, or the machine's."""
    return next((kills.kills for kills in counts.groups if kills.kills is not None), counts.machine)


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


class DeathWatch:
    """Follows the kernel's counters of memory kills for one loader: `note` now and then, `facts` after a death."""

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

    def facts(
        self,
        workers: tuple[int, ...],
        pid: int,
        exit_code: int | None,
        *,
        now_s: float,
        memory: tuple[MemorySample, ...] = (),
        samples: tuple[SampleInHand, ...] = (),
        has_begun: bool = True,
        stack: tuple[str, ...] = (),
        sent_by_guard: str | None = None,
    ) -> DeathFacts:
        """Everything known of a death, read now. Each kill that the kernel counted explains one death at most."""
        after = read_oom_counts(self.groups, self._root)
        before = self._less_claims(self._counts[0][1], after)
        is_kill = exit_code == -signal.SIGKILL and sent_by_guard is None
        if is_kill and (kill_count(after) or 0) > (kill_count(before) or 0):
            self._claims.append(now_s)
        _, cpu_limit = resource.getrlimit(resource.RLIMIT_CPU)
        return DeathFacts(
            workers=workers,
            pid=pid,
            exit_code=exit_code,
            oom_before=before,
            oom_after=after,
            memory=memory,
            limits=read_limits(self.groups),
            died_at_s=now_s,
            samples=samples,
            has_begun=has_begun,
            shm=read_shm_room(),
            stack=stack,
            sent_by_guard=sent_by_guard,
            cpu_limit_s=None if cpu_limit == resource.RLIM_INFINITY else float(cpu_limit),
        )

    def _less_claims(self, before: OomCounts, after: OomCounts) -> OomCounts:
        """The earlier counts, moved up by the kills that already explain a death."""

        def moved(count: int | None, most: int | None) -> int | None:
            return count if count is None or most is None else min(most, count + len(self._claims))

        ceiling = {kills.group: kills.kills for kills in after.groups}
        groups = (replace(one, kills=moved(one.kills, ceiling.get(one.group))) for one in before.groups)
        return OomCounts(groups=tuple(groups), machine=moved(before.machine, after.machine))


def read_shm_room(path: Path = Path("/dev/shm")) -> ShmRoom | None:
    """How full /dev/shm is now; None where there is none."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return ShmRoom(free_bytes=stat.f_bavail * stat.f_frsize, total_bytes=stat.f_blocks * stat.f_frsize)


@dataclass(frozen=True)
class _Cause:
    """What is said of a cause, and what to do."""

    said: Text
    entry: str = ""  # of the knowledge base
    step: Text | str = ""  # a setting of this loader, or the true cause of the entry whose fix it is
    brackets: str = ""  # what stands in brackets after it: "memory", or where a "crash" happened


_LESS = Text(
    "fewer workers (num_workers=) or less queued data (memory=)", "减少 worker（num_workers=）或排队数据（memory=）"
)


class DeathCause(enum.Enum):
    """What ended a worker."""

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
        *("worker_killed", "someone_killed_it"),
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
        return DeathCause.SHM_FULL if facts.shm.is_full else DeathCause.MAPPED_FILE
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
    """What happened, in words."""

    cause: DeathCause
    sentence: str
    evidence: Mapping[str, str]
    next_step: str


def describe_death(facts: DeathFacts, *, language: str = "en") -> Death:
    """Say what ended a worker, in one sentence that the facts bear out.

    Where they do not tell the cause, the sentence says what is known. `evidence` and `next_step` have the shape that
    `HeadraceError` takes.
    """
    cause = judge(facts)
    words = _DeathWords(facts, language)
    return Death(
        cause=cause,
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
        facts, about = self._facts, cause.value
        text = about.said.of(self._language).format(
            signal=_signal_name(facts.exit_code),
            crash=_CRASHES.get(-(facts.exit_code or 0), _COMMA).of(self._language),
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
        inside = self._memory_texts(cause) if about.brackets == "memory" else []
        if about.brackets == "crash" and facts.stack:
            inside.append(self._say("at {line}", "位于 {line}", line=facts.stack[0]))
        return text + self._in_brackets(inside)

    def _memory_texts(self, cause: DeathCause) -> list[str]:
        """Limit and memory of the tree."""
        last, limit, found = self._facts.fullest, self._facts.limit_hit, []
        if cause is DeathCause.MEMORY_LIMIT and limit is not None:
            name, size = limit.group.name, format_bytes(limit.limit_bytes or 0)
            found.append(self._say("{name} limit {size}", "{name} 上限 {size}", name=name, size=size))
        if cause is DeathCause.MACHINE_MEMORY and last is not None and last.total_bytes:
            total, free = format_bytes(last.total_bytes), format_bytes(last.available_bytes or 0)
            said = self._say("{total} in all, {free} available", "整机共 {total}，可用 {free}", total=total, free=free)
            found.append(said)
        return found + ([self._tree(last)] if last is not None else [])

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
            text = say("{used} of {limit}", "已用 {used}，上限 {limit}", used=used, limit=limit)
            if memory.peak_bytes is not None:
                text += self._comma + say("peak {peak}", "峰值 {peak}", peak=format_bytes(memory.peak_bytes))
            found[f"{memory.group.name} {memory.group.folder.name}"] = text
        if facts.stack:
            found[say("stack", "调用栈")] = " < ".join(facts.stack[:4])
        return found

    def next_step(self, cause: DeathCause) -> str:
        """What to do, and the entry of the knowledge base that says more."""
        about, step = cause.value, cause.value.step
        known = entry(about.entry) if about.entry else None
        if known is not None and isinstance(step, str):
            step = next((one.fix for one in known.true_causes if one.name == step), "")
        parts = [step.of(self._language).rstrip(".。")] if isinstance(step, Text) else []
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
