"""What a report says, whatever its form: headline, sections and tables, in English and Chinese."""

from collections.abc import Iterator, Mapping, Sequence

from headrace.model import (
    Activity,
    Cause,
    Finding,
    Findings,
    LoaderRow,
    PartRow,
    Severity,
    Text,
    TimeRow,
    Verdict,
    format_bytes,
    format_seconds,
    format_share,
    three_digits,
)

_RUN_ENDED = Text("the run was ended: {title}", "运行终止：{title}")
_BEFORE_IT = Text("{ended}; before that {verdict}", "{ended}；此前{verdict}")
_NOTHING_WRONG = Text("Nothing wrong was found.", "没有发现问题。")


def headline_of(findings: Findings, language: str) -> str:
    """Return the verdict, or by what the run was ended, and the verdict behind it where there is one."""
    first, verdict = findings.findings[0] if findings.findings else None, findings.verdict.label
    if (costly := next((one for one in findings.findings if one.severity is not Severity.FATAL), None)) is not None:
        verdict = verdict.filled(what=costly.title or costly.cause.label, share=format_share(costly.share))
    verdict = findings.headline or verdict
    if first is None or first.severity is not Severity.FATAL:
        return verdict.of(language)
    ended = _RUN_ENDED.filled(title=first.title or first.cause.label)
    known = findings.verdict is not Verdict.UNKNOWN
    return (_BEFORE_IT.filled(ended=ended, verdict=verdict) if known else ended).of(language)


def nothing_wrong(findings: Findings, language: str) -> list[str]:
    """Return what is said instead of findings, where that is known."""
    is_known = not findings.findings and findings.verdict is not Verdict.UNKNOWN
    return [_NOTHING_WRONG.of(language)] if is_known else []


# ---------------------------------------------------------------------------------------------- a finding

_SHARE = Text("{share} of the time", "占时间的 {share}")
_WENT_ON = Text("the log goes on after it", "其后日志仍在继续")
_GAIN = Text(
    "without it at most {gain} times as fast (estimate: 1 / (1 - share))",
    "没有它，最多快到 {gain} 倍（估计：1 / (1 − 占比)）",
)
PAGE = Text("more about this cause: {page}", "关于这个原因：{page}")
_EVIDENCE = Text("evidence", "证据")
_FIX = Text("what helps", "怎么办")
_FUTILE = Text("what cannot help", "没有用的做法")
_MEASURE = Text("to measure next", "接下来测量")


def title_of(finding: Finding, language: str) -> str:
    """Return a finding in one line: cause, or a message's own words, share, severity, confidence."""
    comma = "，" if language == "zh" else ", "
    said = [finding.severity.label.of(language), finding.confidence.label.of(language)]
    if finding.title and finding.severity is Severity.HIGH and not finding.share:
        said.insert(0, _WENT_ON.of(language))
    elif finding.severity is not Severity.FATAL and (finding.share or not finding.title):
        said.insert(0, _SHARE.filled(share=format_share(finding.share)).of(language))
    what = (finding.title or finding.cause.label).of(language)
    is_said = what == finding.cause.value or (finding.title and finding.cause is Cause.UNKNOWN)
    return f"{'' if is_said else f'{finding.cause.value} · '}{what} · {comma.join(said)}"


def sections_of(finding: Finding, language: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of a finding, each with its heading; empty ones are left out."""
    fix = finding.fix
    if fix and finding.gain is not None and finding.gain >= 1.01:
        fix = (*fix, _GAIN.filled(gain=three_digits(finding.gain)))
    for heading, sentences in (
        (_EVIDENCE, finding.evidence),
        (_FIX, fix),
        (_FUTILE, finding.futile),
        (_MEASURE, finding.measure),
    ):
        if sentences:
            yield heading.of(language), [text.of(language) for text in sentences]


# ---------------------------------------------------------------------------------------------- beside the findings

_FACTS = Text("measured", "测得")
_LIMITS = Text("what cannot be concluded", "无法得出的结论")
_READ = Text("read: {lines:line(s)}, {size} ({formats})", "已读：{lines} 行，{size}（{formats}）")
_SAMPLED = Text(
    "steps were read from {share} of it, in evenly spread windows; messages were looked for in all of it",
    "其中 {share} 用于读取各步（均匀分布的窗口），已知报错信息则在全文中查找",
)
_FORMATS = {
    "progress bar": Text("progress bars", "进度条"),
    "timed steps": Text("lines with step times", "带步耗时的行"),
    "stamped steps": Text("lines with time stamps", "带时间戳的行"),
    "slow batches": Text("reports of slow batches", "慢 batch 报告"),
    "last batches": Text("statistics of the last batches", "最近若干 batch 的统计"),
    "messages": Text("known messages", "已知报错信息"),
}
_NEXT_FINDING = Text("Next: {what}", "下一步：{what}")
_NEXT_NONE = Text("Next: nothing to change.", "下一步：无需改动。")


def topics_of(findings: Findings, language: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what is told beside the findings, each with its heading; empty ones are left out."""
    for heading, texts in (
        (_FACTS, (*findings.notes, *findings.facts)),
        (_LIMITS, findings.limits),
        (_MEASURE, () if findings.findings else findings.measure),
    ):
        if texts:
            yield heading.of(language), [text.of(language) for text in texts]


def what_was_read(source: Mapping[str, object], language: str) -> Iterator[str]:
    """Yield what the findings rest on."""
    size, read, lines, formats = (source.get(name) for name in ("bytes", "bytes_read_for_steps", "lines", "formats"))
    if not isinstance(size, int) or not isinstance(formats, Mapping):
        return
    comma = "、" if language == "zh" else ", "
    kinds = [_FORMATS.get(name, Text(name, name)).of(language) for name in formats]
    yield _READ.filled(lines=lines, size=format_bytes(size), formats=comma.join(kinds) or "-").of(language)
    if isinstance(read, int) and read < size:
        yield _SAMPLED.filled(share=format_share(read / size)).of(language)


def next_step(findings: Findings, language: str) -> str:
    """Return the one thing to do now, or to check."""
    steps = [*_checks(findings), *_doable(findings)]  # where the evidence leaves something open, that comes first
    return (_NEXT_FINDING.filled(what=steps[0]) if steps else _NEXT_NONE).of(language)


def _checks(findings: Findings) -> tuple[Text, ...]:
    return findings.findings[0].measure if findings.findings else findings.measure


def _doable(findings: Findings) -> list[Text]:
    """Return what helps against the first finding, without what holds on a condition only."""
    return [text for one in findings.findings[:1] for text in one.fix if not text.en.startswith("if ")]


_LOST = Text(
    "{lost} of {wall} ({share}) lost: {what} ({cause}), {sure}",
    "{wall} 中损失 {lost}（{share}）：{what}（{cause}），{sure}",
)
_UNEXPLAINED = Text("{lost} of {wall} ({share}) lost: {what}", "{wall} 中损失 {lost}（{share}）：{what}")
_SPENT = Text("{lost} of {wall} ({share}) went into {what}, {sure}", "{wall} 中有 {lost}（{share}）用于{what}，{sure}")
_WALLS = {  # by the figure that shares are of
    "train_s": Text("the training's {wall}", "训练的 {wall}"),
    "watched_s": Text("the {wall} watched", "观察的 {wall}"),
    "wall_s": Text("the log's {wall}", "日志的 {wall}"),
}
_SAID_BY_FIRST = {Verdict.UNKNOWN, Verdict.ELSEWHERE}  # nothing, or what the first line says already
_ENDED = Text("{ended}, {sure}", "{ended}，{sure}")
_DO = Text("do: {what}", "怎么办：{what}")
_CHECK = Text("check: {what}", "先查：{what}")
_CHANGE = Text("change: {what}", "改这里：{what}")
_OR = Text("or: {what}", "或者：{what}")
_ALSO = Text("also: {what}", "另外：{what}")
MORE = Text("more (evidence, what cannot help, what was read): {how}", "更多（证据、没有用的做法、读了什么）：{how}")


def opening_of(findings: Findings, language: str) -> Iterator[str]:
    """Yield at most three lines: what ended the run or what was lost to what, what to do, and where or how."""
    first = findings.findings[0] if findings.findings else None
    doable, checks = _doable(findings), [*_checks(findings), *findings.measure]
    if first is None or (findings.headline is not None and first.severity is not Severity.FATAL):
        yield from (headline_of(findings, language), *nothing_wrong(findings, language))
    else:
        yield _what_was_lost(first, findings, language)
    if doable:
        yield _DO.filled(what=doable[0]).of(language)
    if first is not None and first.change is not None:
        yield _CHANGE.filled(what=first.change).of(language)
    elif checks:
        yield _CHECK.filled(what=checks[0]).of(language)
    elif len(doable) > 1:
        yield _OR.filled(what=doable[1]).of(language)


def _what_was_lost(first: Finding, findings: Findings, language: str) -> str:
    sure = first.confidence.label
    if first.severity is Severity.FATAL:
        return _ENDED.filled(ended=_RUN_ENDED.filled(title=first.title or first.cause.label), sure=sure).of(language)
    name = next((one for one in _WALLS if findings.figures.get(one)), None)
    if name is None or not first.share:
        return title_of(first, language)
    wall_s, is_known = findings.figures[name], first.cause is not Cause.UNKNOWN
    is_spent = first.cause is Cause.EVALUATION or (first.title is not None and not is_known)  # it may be meant to be
    return (
        (_SPENT if is_spent else _LOST if is_known else _UNEXPLAINED)
        .filled(
            lost=format_seconds(first.share * wall_s),
            wall=_WALLS[name].filled(wall=format_seconds(wall_s)),
            share=format_share(first.share),
            what=first.title or first.cause.label,
            cause=first.cause.value,
            sure=sure,
        )
        .of(language)
    )


def brief_of(findings: Findings, language: str) -> Iterator[tuple[int, str]]:
    """Yield what stands behind the first lines, as far as a tired person reads, each with its rank.

    Lower ones come first. 1: what must not be overlooked, as what a replay measured and changed; 2: evidence, what else
    was found; 3: the verdict, which the first line makes plain; 4: what else was measured, what stays open.
    """
    first, others = findings.findings[:1], findings.findings[1:]
    is_fatal = bool(first) and first[0].severity is Severity.FATAL
    if findings.headline is not None and is_fatal:
        yield 1, findings.headline.of(language)
    elif findings.headline is not None:  # it stands in the first line
        others = findings.findings
    elif first and not is_fatal and findings.verdict not in _SAID_BY_FIRST:
        yield 3, headline_of(findings, language)
    most = 2 if findings.times else 3  # a table comes behind it
    facts = findings.facts[: most - 1 if findings.times and first else most]
    yield from ((2, text.of(language)) for one in first for text in one.evidence[:most])
    yield from ((2, _ALSO.filled(what=title_of(other, language)).of(language)) for other in others[:most])
    yield from ((1, text.of(language)) for text in findings.notes)
    yield from ((4, text.of(language)) for text in facts)
    rank = 1 if "replayed_steps" in findings.figures else 4
    yield from ((rank, text.of(language)) for text in findings.limits[: most - 1])


# ---------------------------------------------------------------------------------------------- tables

_TIMES = Text("where the time went", "时间花在哪里")
_TIME_COLUMNS = Text("activity|time|share|times", "活动|时间|占比|次数")
_TIMES_SUM = Text("wall clock", "总时间")
_TIMES_REST = Text("{count:smaller one(s)}", "其余 {count} 项")
_WORKERS_MEANWHILE = Text("  the workers meanwhile: {parts}", "  其间 worker 在：{parts}")
_WORKER_PARTS = {
    "samples": Text("fetching samples {share}", "取样本 {share}"),
    "collate": Text("collating {share}", "拼 batch {share}"),
    "sending": Text("sending {share}", "发送 {share}"),
    "starting": Text("starting {share}", "启动 {share}"),
    "idle": Text("idle {share}", "空闲 {share}"),
}

_PARTS = Text("where the workers' time went", "worker 的时间花在哪里")
_PART_COLUMNS = Text("part|times|total|median|p95|still|own share|MB/s", "部分|次数|总计|中位数|p95|停住|自身占比|MB/s")
_LOADERS = Text("loaders", "加载器")
_LOADER_COLUMNS = Text(
    "loader|for|made|passes|batches|typical wait|waiting", "加载器|用途|新建次数|遍数|batch 数|通常等待|等待占比"
)
_SHOWN_FROM = 0.0005  # of the wall clock, or of the workers' tasks
_STILL_FROM = 0.005


def tables_of(
    findings: Findings, language: str, *, most_times: int = len(Activity), is_verbose: bool = True
) -> Iterator[tuple[str, list[str], list[tuple[str, ...]], bool]]:
    """Yield title, headings and rows of each table that is not empty, and whether its last row is the sum.

    One loader alone is told of by the findings: a table of it is for those who want more.
    """
    loaders = findings.loaders if is_verbose or len(findings.loaders) > 1 else ()
    for title, columns, cells, has_sum in (
        (_TIMES, _TIME_COLUMNS, _time_cells(findings.times, language, most_times) if findings.times else (), True),
        (_LOADERS, _LOADER_COLUMNS, _loader_cells(loaders, language), False),
        (_PARTS, _PART_COLUMNS, _part_cells(findings.parts if is_verbose else (), language), False),
    ):
        if rows := list(cells):
            yield title.of(language), columns.of(language).split("|"), rows, has_sum


def _time_cells(rows: Sequence[TimeRow], language: str, most: int) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the largest rows, of the rest and of their sum; what took next to nothing is in it alone."""
    comma = "，" if language == "zh" else ", "
    by_share = sorted((row for row in rows if row.share >= _SHOWN_FROM), key=lambda row: -row.share)
    shown, rest = by_share[:most], by_share[most:]
    for row in (row for row in rows if row in shown):
        name = row.activity.label.filled(name=row.name).of(language)
        yield name, format_seconds(row.seconds), format_share(row.share), str(row.count) if row.count else ""
        parts = [
            _WORKER_PARTS[part].filled(share=format_share(share)).of(language)
            for part, share in sorted((row.parts or {}).items(), key=lambda one: -one[1])
            if share >= 0.005 and part in _WORKER_PARTS
        ]
        if parts:
            yield _WORKERS_MEANWHILE.filled(parts=comma.join(parts[: most - 2])).of(language), "", "", ""
    if rest:
        rest_s, share = sum(row.seconds for row in rest), format_share(sum(row.share for row in rest))
        yield _TIMES_REST.filled(count=len(rest)).of(language), format_seconds(rest_s), share, ""
    total = sum(row.seconds for row in rows)
    yield _TIMES_SUM.of(language), format_seconds(total), format_share(sum(row.share for row in rows)), ""


def _loader_cells(rows: Sequence[LoaderRow], language: str) -> Iterator[tuple[str, ...]]:
    for row in rows:
        counts = (str(count) for count in (row.num_made, row.passes, row.batches))
        times = format_seconds(row.wait_median_s), format_share(row.wait_share)
        yield row.title, row.role.label.of(language), *counts, *times


def _part_cells(rows: Sequence[PartRow], language: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row; what took next to nothing is left out."""
    for row in rows:
        if row.share < _SHOWN_FROM:
            continue
        is_still = row.still_share is not None and row.still_share >= _STILL_FROM
        yield (
            row.kind.label.filled(name=row.name).of(language),
            str(row.count),
            format_seconds(row.total_s),
            format_seconds(row.median_s),
            format_seconds(row.p95_s),
            format_share(row.still_share or 0.0) if is_still else "",
            format_share(row.share),
            "" if row.mb_per_s is None else three_digits(row.mb_per_s),
        )
