"""Findings from the messages of the knowledge base that stand in a log."""

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headrace.knowledge import MessageFound, MessageScanner, TrueCause, advice_for
from headrace.model import Cause, Confidence, Finding, Severity, Text, format_seconds

from .logs import LogEnd, Raised, read_end, split_numbers

_CAUSES = {cause.value: cause for cause in Cause}
_ABOUT_SPEED = {
    Cause.CPU_THROTTLED,
    Cause.CPU_CONTENDED,
    Cause.LOADER_THROUGHPUT,
    Cause.EPOCH_START,
    Cause.STRAGGLER_SAMPLE,
    Cause.SHARD_BOUNDARY,
    Cause.COMPUTE,
    Cause.GC,
}
_LAUNCHER = "rank_failed"  # a launcher's word that a process failed: never the first cause where another is told
_FROM_OUTSIDE = {"kernel_oom", "slurm_oom", "slurm_cancelled", "shell_killed", "told_to_end"}
_NAME = re.compile(r".*?\b[\w.]*(?:Error|Exception): ")
_MARGIN = re.compile(r"^ *[|+] ")  # of a group of exceptions
_ANY_NAME = re.compile(r"^(?=\w+(?:: |$))")
_WORD_END = re.compile(r"(?:[^\s.,;:]|[.:](?=\w))*")
_LINE = Text("line {line}: {text}", "第 {line} 行：{text}")
_RAISED_IN = Text("raised in {place}", "抛出位置：{place}")
_CONSEQUENCE = Text("its consequence, line {line}: {text}", "它的后果，第 {line} 行：{text}")
_LOOK_AT = Text("look at {place}: there your code raised it", "查看 {place}：你的代码在这里抛出了它")
_READ_ABOVE = Text("read the traceback above line {line}", "阅读第 {line} 行之前的 traceback")
_READ_LAST = Text("read what the script wrote last: it says why", "看脚本最后的输出：原因在那里")
_EXITED = Text(
    "exit code {code} after {after}, and no exception was seen", "运行 {after} 后以退出码 {code} 结束，没有看到异常"
)
_NOTHING_RAISED = Text(
    "no uncaught Python exception was seen: `sys.exit`, `os._exit`, or a program that it started ended it",
    "没有看到未捕获的 Python 异常：由 `sys.exit`、`os._exit` 或它启动的程序结束",
)
_AFTER = Text(" after {after}", "（运行 {after} 后）")
_SENT = Text("{name}{after}, a signal that was sent to it", "收到信号 {name}{after}")
_FIND_SENDER = Text(
    "find out who sent it (a scheduler at its time limit, a person, a supervisor), and start again from the last "
    "checkpoint",
    "查清是谁发的（到时限的调度器、某个人、监控程序），再从最近的检查点重新开始",
)
_CRASHED = Text("{name}{after}, a crash of native code", "原生代码崩溃 {name}{after}")
_NATIVE_END = re.compile("Segm|Bus err|Aborted|Illegal|Floating|段错误|总线错误|terminate called")
_NATIVE = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_NATIVE_CODE = Text(
    "a library's native code crashed, in the training process itself, and Python could say nothing of it",
    "训练进程里某个库的原生代码崩溃，Python 来不及说明",
)
_FAULTHANDLER = Text(
    "run it again with `PYTHONFAULTHANDLER=1`: it prints the Python line in which it crashes",
    "设置 `PYTHONFAULTHANDLER=1` 再运行一次：会打印崩溃时所在的 Python 行",
)
_IF = Text("if {why}: {fix}", "若是“{why}”：{fix}")
_IN_TRUTH = Text("{title}: {truth}", "{title}：{truth}")
_RUN = Text("run `{command}`; ", "运行 `{command}`；")
_RUN_IN_SLURM = Text("in a Slurm job run `{command}`; ", "若是 Slurm 作业，运行 `{command}`；")
_TO_DECIDE = Text("find out whether it is this: {why}: {run}{check}", "确认是否如此：{why}：{run}{check}")


def findings_of(found: Sequence[MessageFound], *, end: LogEnd | None = None) -> list[Finding]:
    """Return one finding a message that needs action; those that only follow from another one stand in its evidence.

    What ended the run has a share of 1, for nothing was trained after it: a fatal message at the end of the log, or an
    exception that nobody caught, known or not. What the run survived has an unknown share, which counts as 0.
    """
    raised = end.first if end is not None else None
    if raised is not None:  # a frame of the traceback may quote the message before it is raised
        text, line = raised.text, raised.line
        found = [replace(one, text=text, first_line=line) if _is_about(one, raised) else one for one in found]
    first = {one.entry.id: one for one in found}
    more: dict[str, list[Text]] = {}  # evidence, by the id of an entry
    heads = []
    for one in found:
        if raised is not None and one.text == raised.text and raised.is_own_code:
            more.setdefault(one.entry.id, []).insert(0, _RAISED_IN.filled(place=raised.place))
        if one.explained_by in first and one.explained_by != one.entry.id and not _circular(one, first):
            if one.text != first[one.explained_by].text:
                more.setdefault(one.explained_by, []).append(_quoted(_CONSEQUENCE, one.first_line, one.text))
        elif not _is_remark(one, end):
            heads.append(one)
    if raised is not None and all(one.text != raised.text for one in found):
        fatal = [one for one in heads if _has_ended(one, end)]
        before = [one for one in fatal if raised.is_echo or one.first_line < raised.line if one.entry.name != _LAUNCHER]
        if before:
            more.setdefault(before[0].entry.id, []).append(_quoted(_CONSEQUENCE, raised.line, raised.text))
        else:
            later = [_quoted(_CONSEQUENCE, one.first_line, one.text) for one in fatal]
            return [_own(raised, later), *(_finding(one, more, end) for one in heads if one not in fatal)]
    return [_finding(one, more, end) for one in heads]


def _is_about(one: MessageFound, raised: Raised) -> bool:
    """Whether a known message is what an exception says; its words may stand in the lines below its name."""
    before = 40 if one.text.lstrip().startswith('File "') else 0  # it may be one of its frames
    is_there = any(raised.line - before <= line <= raised.line + 4 for line in (one.first_line, one.last_line))
    return one.entry.name != _LAUNCHER and (is_there or split_numbers(raised.text)[0] in split_numbers(one.text)[0])


def _has_ended(one: MessageFound, end: LogEnd | None) -> bool:
    is_last = end is None or end.ended_by(one.last_line, from_outside=one.entry.name in _FROM_OUTSIDE)
    return is_last and one.entry.severity.value == "fatal"


def raised_finding(text: str) -> Finding | None:
    """Return the finding of an exception, from the end of its traceback, whether an entry is about it or not."""
    lines = ["Traceback (most recent call last)", *(_MARGIN.sub("", line) for line in text.splitlines())]
    # a class of the script's own may have any name: with a module before it, it is taken for one
    for names in (lines, [_ANY_NAME.sub("__main__.", line) for line in lines]):
        if (raised := read_end([*enumerate(names)], last_step=0).first) is not None:
            return _own(replace(raised, line=0, text=raised.text.removeprefix("__main__.")), [])
    return None


def signal_finding(number: int, after_s: float | None = None, *, kills: int | None = None) -> Finding:
    """Return the finding of a training that a signal ended; `kills`: those for memory, by the kernel's own count."""
    after = _AFTER.filled(after=format_seconds(after_s)) if after_s is not None else ""
    name = signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"  # a real-time one
    is_killed, is_native = number == signal.SIGKILL, number in _NATIVE
    title = (_CRASHED if is_native else _SENT).filled(name=name, after=after)
    if is_native:
        return _fatal(title, _NATIVE_CODE, fix=_FAULTHANDLER)
    scanner = MessageScanner()
    scanner.add("shell_killed" if is_killed else "told_to_end", name, 0)
    (found,) = scanner.found()
    if is_killed and kills is not None:
        found = replace(found, decided="out_of_memory" if kills else "someone_killed_it")
    finding = _finding(found, {}, None)
    return replace(
        finding,
        title=title,
        cause=finding.cause if kills else Cause.UNKNOWN,
        confidence=finding.confidence if is_killed else Confidence.CERTAIN,  # of the signal, whoever sent it
        fix=finding.fix if found.decided else (_FIND_SENDER, *finding.fix),
        evidence=(found.entry.meaning,),
    )


def exit_finding(code: int, after_s: float) -> Finding:
    """Return the finding of a training that ended itself with an exit code, and raised nothing."""
    return _fatal(_EXITED.filled(code=code, after=format_seconds(after_s)), _NOTHING_RAISED, fix=_READ_LAST)


def _own(raised: Raised, consequences: list[Text]) -> Finding:
    """Return the finding of an exception that no entry is about."""
    words, place = _shortened(raised.text, 160), [_RAISED_IN.filled(place=raised.place)] if raised.place else []
    said = [_quoted(_LINE, raised.line, raised.text)] if raised.line or not place else []  # else the title says it all
    look = _LOOK_AT if raised.is_own_code else _READ_ABOVE if raised.line and place else _READ_LAST
    if _NATIVE_END.match(raised.text):
        look, said = _FAULTHANDLER, [*said, _NATIVE_CODE]
    found = _fatal(Text(words, words), *said, *place, *consequences, fix=look.filled(**vars(raised)))
    return replace(found, figures={"line": float(raised.line)} if raised.line else {})


def _fatal(title: Text, *evidence: Text, fix: Text) -> Finding:
    certain, fatal = Confidence.CERTAIN, Severity.FATAL
    return Finding(
        cause=Cause.UNKNOWN, share=1.0, severity=fatal, confidence=certain, evidence=evidence, fix=(fix,), title=title
    )


def remarks_of(found: Sequence[MessageFound], *, end: LogEnd | None = None) -> list[Text]:
    """Return the known messages that need no action by themselves, as facts: noise, hints, what a library skipped.

    A hint about speed ("will create 16 worker processes, suggested max is 8") is no loss of time. Whether time was
    lost is for the steps to say.
    """
    said = Text("line {line}: {text} ({id}, {title})", "第 {line} 行：{text}（{id}，{title}）")
    return [
        said.filled(line=one.first_line, text=_shortened(one.text, 100), id=one.entry.id, title=one.entry.title)
        for one in found
        if _is_remark(one, end)
    ]


def _is_remark(one: MessageFound, end: LogEnd | None) -> bool:
    severity = one.entry.severity.value
    is_told_aside = end is not None and one.last_line in end.quiet
    return severity == "harmless" or is_told_aside or (severity != "fatal" and _cause_of(one) in _ABOUT_SPEED)


def _cause_of(one: MessageFound) -> Cause:
    return _CAUSES.get(one.cause or one.entry.cause, Cause.UNKNOWN)


def _circular(one: MessageFound, first: dict[str, MessageFound]) -> bool:
    return first[one.explained_by].explained_by == one.entry.id and one.first_line <= first[one.explained_by].first_line


def _finding(one: MessageFound, more: dict[str, list[Text]], end: LogEnd | None) -> Finding:
    ended = _has_ended(one, end)
    causes = one.open_causes
    is_decided = len(causes) == 1
    wrong = [_IN_TRUTH.filled(title=known.title, truth=known.truth) for known in advice_for(one.entry)]
    # a kill is no proof of memory, unless the text speaks of it
    is_guessed = (
        _cause_of(one) is Cause.MEMORY_PRESSURE and "mem" not in one.text.lower() and "oom" not in one.text.lower()
    )
    return Finding(
        cause=_cause_of(one),
        share=1.0 if ended else 0.0,
        severity=Severity.FATAL if ended else Severity.HIGH if one.entry.severity.value == "fatal" else Severity.MEDIUM,
        confidence=Confidence.CERTAIN if is_decided and not is_guessed else Confidence.LIKELY,
        evidence=(*_evidence(one), *more.get(one.entry.id, ())),
        fix=tuple(cause.fix if is_decided else _IF.filled(why=_why(cause), fix=cause.fix) for cause in causes),
        futile=(*one.entry.avoid, *wrong),
        measure=() if is_decided else tuple(map(_check, causes)),
        figures={"line": float(one.first_line), "count": float(one.count)},
        title=_own_words(one),
    )


def _own_words(one: MessageFound) -> Text:
    """Return what a message says itself, without the exception's name and what stands around it."""
    match = next((match for pattern in one.entry.patterns if (match := pattern.regex.search(one.text))), None)
    if match is None or " " not in match[0]:
        said = Text("{title} ({words})", "{title}（{words}）")
        return said.filled(title=one.entry.title, words=_shortened(one.text, 80))
    name, rest = _NAME.match(one.text[: match.start()]), _WORD_END.match(one.text, match.end())
    words = one.text[name.end() if name else match.start() : rest.end() if rest else match.end()]
    words = _shortened(" ".join(words.strip("* ").split()), 160)
    return Text(words, words)


def _evidence(one: MessageFound) -> Iterator[Text]:
    yield _quoted(_LINE, one.first_line, one.text)
    if one.count > 1:
        yield Text("{n} times", "共 {n} 次").filled(n=one.count)
    yield one.entry.meaning
    if one.decided and one.because not in ("", one.text):
        yield Text("decided by: {text}", "由此确定：{text}").filled(text=_shortened(one.because))


def _why(cause: TrueCause) -> Text:
    return Text(cause.why.en.rstrip("."), cause.why.zh.rstrip("。"))


def _check(cause: TrueCause) -> Text:
    # nobody has that variable, or the command, outside of a Slurm job
    said = _RUN_IN_SLURM if "$SLURM_" in cause.command else _RUN if cause.command else Text("", "")
    return _TO_DECIDE.filled(why=_why(cause), run=said.filled(command=cause.command), check=cause.check)


def _quoted(said: Text, line: int, text: str) -> Text:
    return (said if line else Text("{text}", "{text}")).filled(line=line, text=_shortened(text))


def _shortened(text: str, most: int = 240) -> str:
    """Cut the middle out of a long text: both its ends tell more than a long path."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[-most // 3 + 1 :]}"
