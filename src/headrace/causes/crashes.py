"""Findings from the messages of the knowledge base that stand in a log."""

from collections.abc import Iterator, Sequence

from headrace.knowledge import MessageFound, TrueCause, advice_for
from headrace.model import Cause, Confidence, Finding, Severity, Text

_CAUSES = {cause.value: cause for cause in Cause}
_ABOUT_SPEED = {
    Cause.CPU_THROTTLED,
    Cause.LOADER_THROUGHPUT,
    Cause.EPOCH_START,
    Cause.STRAGGLER_SAMPLE,
    Cause.SHARD_BOUNDARY,
    Cause.COMPUTE,
    Cause.GC,
}


def findings_of(found: Sequence[MessageFound], *, last_step_line: int | None = None) -> list[Finding]:
    """Return one finding a message that needs action; those that only follow from another one stand in its evidence.

    A fatal message behind the last step ended the run: its share is 1, for nothing was trained after it. One that
    steps follow did not (the run was started again, or went on); its share of the time is not known and counts as 0.
    """
    first = {one.entry.id: one for one in found}
    echoes: dict[str, list[MessageFound]] = {}
    heads = []
    for one in found:
        if one.explained_by in first and one.explained_by != one.entry.id and not _circular(one, first):
            echoes.setdefault(one.explained_by, []).append(one)
        else:
            heads.append(one)
    return [_finding(one, echoes.get(one.entry.id, []), last_step_line) for one in heads if not _is_remark(one)]


def remarks_of(found: Sequence[MessageFound]) -> list[Text]:
    """Return the known messages that need no action by themselves, as facts: noise, and hints about speed.

    A hint about speed ("will create 16 worker processes, suggested max is 8") is no loss of time. Whether time was
    lost is for the steps to say.
    """
    said = Text("line {line}: {text} ({id}, {title})", "第 {line} 行：{text}（{id}，{title}）")
    return [
        said.filled(line=one.first_line, text=_shortened(one.text, 100), id=one.entry.id, title=one.entry.title)
        for one in found
        if _is_remark(one)
    ]


def _is_remark(one: MessageFound) -> bool:
    severity = one.entry.severity.value
    return severity == "harmless" or (severity != "fatal" and _cause_of(one) in _ABOUT_SPEED)


def _cause_of(one: MessageFound) -> Cause:
    return _CAUSES.get(one.cause or one.entry.cause, Cause.UNKNOWN)


def _circular(one: MessageFound, first: dict[str, MessageFound]) -> bool:
    return first[one.explained_by].explained_by == one.entry.id and one.first_line <= first[one.explained_by].first_line


def _finding(one: MessageFound, echoes: list[MessageFound], last_step_line: int | None) -> Finding:
    ended = one.entry.severity.value == "fatal" and (last_step_line is None or one.last_line >= last_step_line)
    causes = one.open_causes
    is_decided = len(causes) == 1
    return Finding(
        cause=_cause_of(one),
        share=1.0 if ended else 0.0,
        severity=Severity.FATAL if ended else Severity.HIGH if one.entry.severity.value == "fatal" else Severity.MEDIUM,
        confidence=Confidence.CERTAIN if is_decided else Confidence.LIKELY,
        evidence=tuple(_evidence(one, echoes)),
        fix=tuple(
            cause.fix
            if is_decided
            else Text(
                f"if {cause.why.en.rstrip('.')}: {cause.fix.en}", f"若是“{cause.why.zh.rstrip('。')}”：{cause.fix.zh}"
            )
            for cause in causes
        ),
        futile=(
            *one.entry.avoid,
            *(
                Text("{title}: {truth}", "{title}：{truth}").filled(title=known.title, truth=known.truth)
                for known in advice_for(one.entry)
            ),
        ),
        measure=() if is_decided else tuple(map(_check, causes)),
        figures={"line": float(one.first_line), "count": float(one.count)},
    )


def _evidence(one: MessageFound, echoes: list[MessageFound]) -> Iterator[Text]:
    yield Text("line {line}: {text}", "第 {line} 行：{text}").filled(line=one.first_line, text=_shortened(one.text))
    if one.count > 1:
        yield Text("{n} times", "共 {n} 次").filled(n=one.count)
    yield one.entry.meaning
    if one.decided and one.because:
        yield Text("decided by: {text}", "由此确定：{text}").filled(text=_shortened(one.because))
    for echo in echoes:
        yield Text("its consequence, line {line}: {text}", "它的后果，第 {line} 行：{text}").filled(
            line=echo.first_line, text=_shortened(echo.text)
        )


def _check(cause: TrueCause) -> Text:
    command = f" `{cause.command}`" if cause.command else ""
    return Text(cause.check.en + command, cause.check.zh + command)


def _shortened(text: str, most: int = 240) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
