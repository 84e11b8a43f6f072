"""How a recorded training ended: the exceptions that nobody caught, the sample, the rank that failed first. Pure."""

import re
import signal
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.knowledge import MessageFound, MessageScanner
from headrace.model import Cause, EventKind, Finding, Severity, Text, format_seconds

from ..crashes import exit_finding, findings_of, raised_finding, signal_finding
from .processes import ProcessEvents, ends_of, starts_of
from .trainer import Trainer, has_loader

_SIGNALLED = 128  # what a shell adds to the number of the signal that ended a program
_INTERRUPTED = _SIGNALLED + signal.SIGINT
_KILLED = "worker_killed"
_CAUGHT, _RAISED_FROM = "During handling of the above exception", "The above exception was the direct cause"
_ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+) +\(pid: (\d+)\)", re.DOTALL
)
_LAUNCHER = "ChildFailedError"
_HEADING = "Root Cause (first observed failure)"
_MOST_LETTERS = 160
# What the others raise when one of them is gone: not the cause, but its echo.
_ECHO = re.compile(
    r"connection (closed|reset|refused)|broken pipe|remote process exited|socket timeout|DistNetworkError|NCCL",
    re.IGNORECASE,
)


def find_ending(
    processes: Sequence[ProcessEvents], kills: int | None, exit_code: int | None, after_s: float = 0.0
) -> list[Finding]:
    """Return what ended a training: a signal, or what it raised; nothing for one that ended well, or by Ctrl-C."""
    # `kills`: those for memory, by the kernel's own count.
    if not exit_code or exit_code == _INTERRUPTED:
        return []
    texts = []
    for process in processes:
        events = process.of(EventKind.EXCEPTION)
        texts += [(int(one["start_ns"]), own_words(process.names.get(int(one["arg"]), ""))) for one in events]
    found: dict[str, MessageFound] = {}
    for _, text in sorted(texts):
        # an exception stands in the last line of its part; that which it was raised from explains it, and what was
        # caught before does not
        root = ""
        for part in text.rpartition(_CAUGHT)[2].split(_RAISED_FROM):
            scanner = MessageScanner()
            scanner.scan_chunk(part.encode())
            messages = scanner.found()
            last = max((one.last_line for one in messages), default=0)
            for one in messages:
                if one.last_line == last and not one.entry.name.startswith("interrupted"):  # that is no failure
                    told = replace(_decided(one, kills), first_line=0, explained_by=root or one.explained_by)
                    found.setdefault(one.entry.id, told)
            root = root or next((one.entry.id for one in messages if one.last_line == last), "")
    findings = findings_of([*found.values()])  # the first that was raised comes first
    if exit_code - _SIGNALLED in {*signal.Signals}:
        findings.insert(0, signal_finding(exit_code - _SIGNALLED, after_s, kills=kills))
    elif all(one.severity is not Severity.FATAL for one in findings):
        own = [text for _, text in sorted(texts) if text]
        first = next((text for text in own if not _ECHO.search(text.splitlines()[-1])), own[0] if own else "")
        findings.insert(0, raised_finding(first) or exit_finding(exit_code, after_s))
    # decoders have their own errors: what a `next` raised and no message tells of, a sample raised, or its collation
    in_next = any((one.of(EventKind.EXCEPTION)["value"] > 0).any() for one in processes)
    in_sample = in_next and exit_code < _SIGNALLED and not any("collate" in text for _, text in texts)
    for place, finding in enumerate(findings):
        is_raised = in_sample and place == 0 and finding.cause is Cause.UNKNOWN
        is_of_sample = finding.cause is Cause.CORRUPT_SAMPLE or is_raised
        if is_of_sample and (index := _find_bad_sample(processes)) is not None:
            said = Text("it is sample {index} of the data set", "是数据集的第 {index} 号样本（索引）")
            figures, evidence = {**finding.figures, "sample_index": float(index)}, finding.evidence
            findings[place] = replace(finding, evidence=(said.filled(index=index), *evidence), figures=figures)
    return findings


def _decided(found: MessageFound, kills: int | None) -> MessageFound:
    """Let the kernel's count say whether a killed worker was killed for memory."""
    if found.entry.name != _KILLED or found.decided or kills is None:
        return found
    because = f"the kernel's count of kills for memory grew by {kills}"
    return replace(found, decided="memory_limit" if kills > 0 else "someone_killed_it", because=because)


def _find_bad_sample(processes: Sequence[ProcessEvents]) -> int | None:
    """Return the index of the sample that ended a training; None where it cannot be told."""
    # An exception in a worker is raised by the `next` that would have brought its batch, whatever the worker did then.
    # Our own loader names the sample in its error, and its tasks are not batches.
    for trainer in filter(has_loader, processes):
        waits = trainer.of(EventKind.WAIT)
        last = waits[[int(np.argmax(ends_of(waits)))]]
        settings = trainer.loader_settings().get(trainer.names.get(int(last["arg"][0]), ""))
        if settings is None or settings.is_ours:
            continue
        for process in processes:
            fetches = process.of(EventKind.FETCH)
            number = -1 if process is trainer else int(last["value"][0])
            task = fetches[(fetches["value"] == number) & (ends_of(fetches) <= ends_of(last))][-1:]
            if not len(task) or (process is trainer and ends_of(task) < starts_of(last)):
                continue
            samples = process.of(EventKind.SAMPLE)
            inside = (starts_of(samples) >= starts_of(task)) & (ends_of(samples) <= ends_of(task))
            index = int(samples["value"][inside][-1]) if inside.any() else -1
            if index >= 0:
                return index
    return None


def _root_cause(processes: Sequence[ProcessEvents]) -> tuple[int, int, int] | None:
    """Return which rank failed first, its exit code (below 0: a signal) and pid, where a launcher says it."""
    for process in processes:
        for event in process.of(EventKind.EXCEPTION):
            if found := _ROOT_CAUSE.search(process.names.get(int(event["arg"]), "")):
                return int(found[1]), int(found[2]), int(found[3])
    return None


def own_words(text: str) -> str:
    """Return what an exception says itself: of a launcher's, only what it says of the rank that was killed first."""
    # Its list names every rank, those too that it ended itself; a rank that raised has said why in its own process.
    if _LAUNCHER not in text and _HEADING not in text:
        return text
    found = _ROOT_CAUSE.search(text)
    return text[found.start() :] if found is not None and int(found[2]) < 0 else ""


def end_facts(trainers: Sequence[Trainer], processes: Sequence[ProcessEvents], exit_code: int | None) -> list[Text]:
    """Return which training process ended a run that failed, and by what; nothing where that is not known."""
    if not exit_code:
        return []
    if exit_code == _INTERRUPTED:
        return [Text("interrupted (Ctrl-C, SIGINT), which is no failure", "被中断（Ctrl-C，SIGINT），不算失败")]
    rank, code, pid = _root_cause(processes) or (0, 0, 0)
    if code < 0:
        known = {-one.value: one.name for one in signal.Signals}
        return [
            Text(
                "rank {rank} (pid {pid}) ended first, by {name}, as its launcher says; {batches:batch(es)} came before",
                "rank {rank} (pid {pid}) 最先结束：启动器报告它因 {name} 退出，此前取过 {batches} 个 batch",
            ).filled(
                rank=rank,
                pid=pid,
                name=known.get(code, f"signal {-code}"),
                batches=next((one.num_batches for one in trainers if one.process.pid == pid), 0),
            )
        ]
    raised = [(one, _raised(one)) for one in trainers]
    own = [(*found, one) for one, found in raised if found is not None and not _ECHO.search(found[1])]
    if own:
        at_ns, text, first = min(own, key=lambda one: one[0])
        said = Text(
            "{which} ended first, after {batches:batch(es)} and {after}: {text}",
            "{which} 最先结束（取过 {batches} 个 batch，运行 {after} 后）：{text}",
        )
        if len(trainers) == 1:
            said = Text(
                "it ended after {batches:batch(es)} and {after}",
                "训练在取过 {batches} 个 batch、运行 {after} 后结束",
            )
        after = format_seconds((at_ns - first.start_ns) / 1e9)
        return [said.filled(which=first.title, batches=first.num_batches, after=after, text=text)]
    silent = [one for one, found in raised if found is None]
    if len(silent) == len(trainers):
        return []
    return [
        Text(
            "{which} was gone after {batches:batch(es)} without an exception, last seen {after} after the start: "
            "killed, or ended from outside Python; what the other ranks raised followed from that",
            "{which} 在取过 {batches} 个 batch 后消失，没有抛出异常，最后一次记录在启动 {after} 后：可能被杀死，或在 "
            "Python 之外退出；其他 rank 的异常由此引起",
        ).filled(
            which=one.title,
            batches=one.num_batches,
            after=format_seconds((int(ends_of(one.process.events).max()) - one.start_ns) / 1e9),
        )
        for one in silent
    ]


def _raised(trainer: Trainer) -> tuple[int, str] | None:
    """Return when a process raised what nobody caught, and the exception's own line."""
    events = trainer.process.of(EventKind.EXCEPTION)
    if not len(events):
        return None
    lines = trainer.process.names.get(int(events["arg"][0]), "").strip().splitlines()
    text = next((line for line in reversed(lines) if re.match(r"[\w.]+(: |$)", line)), lines[-1] if lines else "?")
    return int(starts_of(events)[0]), text[:_MOST_LETTERS]
