"""Findings as text, Markdown and JSON say the same, in both languages."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from headrace.causes import advice_on, bottleneck_fix
from headrace.model import (
    Activity,
    Bottleneck,
    Cause,
    Confidence,
    Finding,
    Findings,
    LoaderRole,
    LoaderRow,
    PartKind,
    Severity,
    Text,
    TimeRow,
    Verdict,
    format_share,
)
from headrace.reports import contents, findings_json, findings_markdown, findings_text

FOUND = Findings(
    verdict=Verdict.STUTTERING,
    findings=(
        Finding(
            cause=Cause.CHECKPOINT,
            share=0.35,
            severity=Severity.HIGH,
            confidence=Confidence.CERTAIN,
            evidence=(Text("five | slow <steps>", "五个慢步"),),
            fix=(Text("save less often", "少保存几次"),),
            gain=1 / 0.65,
            futile=(Text("more workers", "增加 worker"),),
            measure=(Text("look at the disk", "看磁盘"),),
            figures={"lost_s": 12.3456789},
        ),
    ),
    facts=(Text("150 steps", "150 步"),),
    limits=(Text("no waits told", "没有等待时间"),),
    source={"bytes": 1000, "bytes_read_for_steps": 500, "lines": 10, "formats": {"progress bar": 9}},
)
HEALTHY = Findings(verdict=Verdict.COMPUTE_BOUND, findings=())


def text_of(findings: Findings, language: str) -> str:
    console = Console(width=100, file=StringIO())
    console.print(findings_text(findings, language=language))
    written = console.file
    assert isinstance(written, StringIO)
    return " ".join(written.getvalue().split())


def test_json_has_the_schema_and_its_keys() -> None:
    document = json.loads(findings_json(FOUND))
    assert document["schema"] == "headrace/findings/1"
    assert document["verdict"] == "stuttering"
    finding = document["findings"][0]
    keys = {"cause", "page", "severity", "share", "evidence", "fix", "gain", "confidence"}
    assert keys <= set(finding)
    assert (finding["cause"], finding["share"], finding["gain"]) == ("checkpoint", 0.35, 1.54)
    assert json.loads(findings_json(FOUND, language="zh"))["findings"][0]["fix"] == ["少保存几次"]


@pytest.mark.parametrize("form", [text_of, lambda findings, language: findings_markdown(findings, language=language)])
def test_every_part_is_shown_in_both_languages(form: "object") -> None:
    assert callable(form)
    english, chinese = form(FOUND, "en"), form(FOUND, "zh")
    for said in ("checkpoint", "35 %", "save less often", "at most 1.54 times", "more workers", "look at the disk"):
        assert said in english
    for said in (
        "150 steps",
        "more about this cause: docs/causes/checkpoint.md",
        "no waits told",
        "50 %",
        "Next: look at the disk",
    ):
        assert said in english
    for said in (
        "占时间的 35 %",
        "关于这个原因：docs/causes/checkpoint.md",
        "少保存几次",
        "没有用的做法",
        "150 步",
        "下一步：看磁盘",
    ):
        assert said in chinese
    assert "save less often" not in chinese


def test_every_cause_has_its_page_and_the_list_of_causes_has_it() -> None:
    root = Path(__file__).resolve().parents[2]
    listed = (root / "docs" / "causes" / "README.md").read_text(encoding="utf-8")
    for cause in Cause:
        page = (root / cause.page).read_text(encoding="utf-8")
        assert page.splitlines()[0].endswith(f"(`{cause.value}`)")
        for heading in ("## How it looks", "## How it is recognised", "## What helps"):
            assert heading in page, cause.page
        assert f"[{cause.value}]({cause.value}.md)" in listed
    assert len(list((root / "docs" / "causes").glob("*.md"))) == len(Cause) + 1


def test_markdown_keeps_the_words_of_a_log_from_becoming_markup() -> None:
    assert "five \\| slow &lt;steps>" in findings_markdown(FOUND)


def test_a_phase_of_any_name_stays_in_its_cell() -> None:
    rows = (TimeRow(activity=Activity.PHASE, seconds=3.0, share=1.0, count=2, name="load | <warm>"),)
    said = findings_markdown(replace(HEALTHY, times=rows))
    assert r"load \| &lt;warm>" in said


def test_loaders_are_shown_where_there_are_several_or_more_is_wanted() -> None:
    row = LoaderRow(
        name="Photos#1",
        place="/home/u/train.py:14",
        role=LoaderRole.TRAINING,
        num_made=3,
        passes=3,
        batches=120,
        wait_median_s=0.0021,
        wait_share=0.042,
    )
    other = replace(row, name="Photos#2", role=LoaderRole.EVALUATION, num_made=1)
    both, one = replace(HEALTHY, loaders=(row, other)), replace(HEALTHY, loaders=(row,))
    assert "Photos#1 (train.py:14) training 3 3 120 2.10 ms 4.2 %" in text_of(both, "en")
    assert "Photos#2 (train.py:14) 评估 1 3 120" in text_of(both, "zh")
    assert "| Photos#2 (train.py:14) | evaluation | 1 |" in findings_markdown(both)
    assert "Photos#2" in " ".join(brief_of(both, "en"))
    assert "Photos" not in " ".join(brief_of(one, "en"))
    assert [title for title, *_ in contents.tables_of(one, "en")] == ["loaders"]


def test_nothing_wrong_is_said_in_words() -> None:
    assert "Nothing wrong was found." in text_of(HEALTHY, "en")
    assert "没有发现问题" in findings_markdown(HEALTHY, language="zh")


def brief_of(findings: Findings, language: str, width: int = 100) -> list[str]:
    console = Console(width=width, file=StringIO())
    console.print(findings_text(findings, language=language, is_verbose=False))
    written = console.file
    assert isinstance(written, StringIO)
    return written.getvalue().splitlines()


WHOLE = sum(range(1, len(Activity) + 1))
ROWS = tuple(TimeRow(activity=one, seconds=0.1 * n, share=n / WHOLE, count=n) for n, one in enumerate(Activity, 1))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_first_lines_say_what_was_lost_what_to_do_and_what_decides(language: str) -> None:
    found = replace(FOUND, figures={"train_s": 10.0, "wall_s": 20.0}, times=ROWS)
    lines = brief_of(found, language)
    first, second, third = {
        "en": ("3.50 s of the training's 10.0 s (35 %) lost:", "do: save less often", "check: look at the disk"),
        "zh": ("训练的 10.0 s 中损失 3.50 s（35 %）：", "怎么办：少保存几次", "先查：看磁盘"),
    }[language]
    assert lines[0].startswith(first)
    assert lines[1:3] == [second, third]
    assert len(lines) <= 22  # `headrace run` adds three of its own
    assert format_share(sum(row.share for row in ROWS)) in lines[-2]  # what is not shown is in the sum


CHECK = {"en": "check: ", "zh": "先查："}


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_to_do_is_a_line_or_two_of_the_terminal_and_ends_where_a_sentence_may(language: str, width: int) -> None:
    sentences = [text for cause in Cause for text in (*advice_on(cause).fix, *advice_on(cause).measure)]
    sentences += [text for one in Bottleneck for ours in (False, True) for text in bottleneck_fix(one, has_ours=ours)]
    label = {"en": "do: ", "zh": "怎么办："}[language]
    for text in (one for one in sentences if not one.en.startswith("if ")):
        found = replace(FOUND, findings=(replace(FOUND.findings[0], fix=(text,)),), figures={"train_s": 10.0})
        lines = brief_of(found, language, width)
        place = next(number for number, line in enumerate(lines) if line.startswith(label))
        after = next(number for number, line in enumerate(lines) if line.startswith(CHECK[language]))
        said, whole = lines[place], label + text.of(language)
        assert after <= place + 2, whole
        if after > place + 1:  # wrapped: rich takes the space at which it breaks
            said = next(
                head
                for end in range(len(whole), 0, -1)
                if "".join((head := whole[:end]).split()) == "".join((said + lines[place + 1]).split())
            )
        assert whole.startswith(said)
        assert said.count("`") > 1 or "`" not in whole  # the code to write is there
        assert said == whole or "`" in whole or len(said) >= width // 2
        rest = re.sub(r"^ ?(\([^()]*\)|（[^（）]*）)", "", whole[len(said) :])  # a bracket in its midst is no end
        assert rest[:1] in {"", *";:.；：。"}


def test_what_fits_on_one_line_without_its_reasons_stands_on_one() -> None:
    (advice, *_) = advice_on(Cause.CPU_CONTENDED).fix
    found = replace(FOUND, findings=(replace(FOUND.findings[0], fix=(advice,)),), figures={"train_s": 10.0})
    lines = brief_of(found, "en", 80)
    place = lines.index("do: free the cores that processes outside this training take (`top` names them)")
    assert lines[place + 1].startswith(CHECK["en"])


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("cause", [one for one in Cause if one is not Cause.UNKNOWN])
def test_what_was_lost_to_what_is_a_line(cause: Cause, language: str) -> None:
    found = replace(FOUND, findings=(replace(FOUND.findings[0], cause=cause, share=0.888),), figures={"train_s": 99.9})
    lines = brief_of(found, language)
    assert lines[1].startswith({"en": "do: ", "zh": "怎么办："}[language])


def test_what_else_was_found_comes_before_the_verdict_where_room_is_short() -> None:
    two_lines, three_lines = (Text("some words " * count, "") for count in (12, 20))
    first = replace(FOUND.findings[0], fix=(three_lines,) * 2, evidence=(two_lines,) * 2, measure=())
    also = replace(first, cause=Cause.EVALUATION, share=0.3)
    found = replace(FOUND, findings=(first, also), figures={"train_s": 10.0}, times=ROWS)
    lines = brief_of(found, "en")
    assert any(line.startswith("- also: evaluation · 30 %") for line in lines)
    assert contents.headline_of(found, "en") not in " ".join(lines)  # there is no room for both


_WORDS = st.integers(1, 60).map(lambda count: Text(" ".join(["some words"] * count), "几个字" * 3 * count))
_FINDING = st.builds(
    Finding,
    cause=st.sampled_from(Cause),
    share=st.floats(0.01, 1.0),
    severity=st.sampled_from(Severity),
    confidence=st.sampled_from(Confidence),
    evidence=st.lists(_WORDS, min_size=1, max_size=6).map(tuple),
    fix=st.lists(_WORDS, max_size=4).map(tuple),
    measure=st.lists(_WORDS, max_size=2).map(tuple),
    title=st.none() | _WORDS,
    change=st.none() | st.integers(1, 120).map(lambda length: Text(f"{'x' * length}.py:42", f"{'x' * length}.py:42")),
)
_LOADER = st.integers(1, 90).map(
    lambda length: LoaderRow(
        name="D#1",
        place="p" * length,
        role=LoaderRole.OTHER,
        num_made=1,
        passes=1,
        batches=9,
        wait_median_s=0.1,
        wait_share=0.1,
    )
)


def test_a_cause_whose_title_is_its_name_is_named_once() -> None:
    finding = replace(FOUND.findings[0], cause=Cause.EVALUATION)
    assert contents.title_of(finding, "en").startswith("evaluation · 35 %")
    assert contents.title_of(finding, "zh").startswith("evaluation · ")


@settings(max_examples=60, deadline=None)
@given(
    findings=st.lists(_FINDING, max_size=4),
    loaders=st.lists(_LOADER, max_size=6).map(tuple),
    texts=st.lists(_WORDS, max_size=5).map(tuple),
    verdict=st.sampled_from([one for one in Verdict if one is not Verdict.ELSEWHERE]),
    has_times=st.booleans(),
    language=st.sampled_from(["en", "zh"]),
    width=st.integers(90, 200),
)
def test_a_report_is_a_screen_whatever_was_found(
    findings: list[Finding],
    loaders: tuple[LoaderRow, ...],
    texts: tuple[Text, ...],
    verdict: Verdict,
    has_times: bool,
    language: str,
    width: int,
) -> None:
    """At most 25 lines with the three that `headrace run` adds, but for first lines that fill them by themselves."""
    found = Findings(
        verdict=verdict,
        findings=Findings.in_order(findings),
        notes=texts[:2],
        facts=texts,
        limits=texts,
        figures={"train_s": 10.0},
        times=ROWS if has_times else (),
        loaders=loaders,
    )
    first = sum(1 + cell_len(line) * 11 // (10 * width) + 1 for line in contents.opening_of(found, language))
    lines = brief_of(found, language, width)
    assert len(lines) <= max(22, first + 1)
    said = " ".join(" ".join(lines).split())
    if first <= 12 and findings and not texts and language == "en":  # then the table fits, and evidence that is short
        assert "wall clock" in said or not has_times
        assert found.findings[0].evidence[0].en in said or len(found.findings[0].evidence[0].en) > width


@pytest.mark.parametrize("is_verbose", [False, True])
def test_what_ended_a_run_comes_before_what_cost_time(is_verbose: bool) -> None:
    condition = Text("if it was the scheduler: save on SIGTERM", "若是调度器：收到 SIGTERM 时保存")
    ended = replace(FOUND.findings[0], share=1.0, severity=Severity.FATAL, title=Text("SIGTERM", "SIGTERM"))
    ended = replace(ended, fix=(condition, Text("start again", "重新开始")), measure=())
    costly = replace(FOUND.findings[0], share=1.0)
    console = Console(width=100, file=StringIO())
    found = replace(FOUND, findings=Findings.in_order([costly, ended]))
    console.print(findings_text(found, is_verbose=is_verbose))
    written = console.file
    assert isinstance(written, StringIO)
    said = written.getvalue()
    assert said.startswith("the run was ended: SIGTERM")
    assert ("Next: start again" if is_verbose else "do: start again") in said
    assert "nothing to change" not in said
    assert "Next: if" not in said


def test_every_value_has_its_words() -> None:
    for member in (*Cause, *Verdict, *Severity, *Confidence, *Activity, *PartKind, *LoaderRole):
        assert member.label.en, member
        assert member.label.zh, member


def test_a_finding_needs_evidence_and_a_share() -> None:
    rest = {"cause": Cause.UNKNOWN, "severity": Severity.LOW, "confidence": Confidence.CERTAIN, "fix": ()}
    with pytest.raises(ValueError, match="evidence"):
        Finding(share=0.5, evidence=(), **rest)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="share"):
        Finding(share=1.5, evidence=(Text("a", "b"),), **rest)  # type: ignore[arg-type]


def test_findings_come_by_share_and_the_fatal_one_first() -> None:
    rest = {"confidence": Confidence.CERTAIN, "fix": (), "evidence": (Text("a", "b"),)}
    small = Finding(cause=Cause.GC, share=0.1, severity=Severity.MEDIUM, **rest)  # type: ignore[arg-type]
    large = Finding(cause=Cause.SWAP, share=1.0, severity=Severity.HIGH, **rest)  # type: ignore[arg-type]
    fatal = Finding(cause=Cause.SHM_FULL, share=1.0, severity=Severity.FATAL, **rest)  # type: ignore[arg-type]
    assert Findings.in_order([small, large, fatal]) == (fatal, large, small)


def test_what_a_replay_measured_and_changed_is_told_before_the_evidence() -> None:
    told = Text("a perfect loader would bring nothing", "换成完美的加载器也看不出区别")
    changed = Text("this is not the training it would have been", "这次训练已不是原来的训练")
    long = replace(FOUND.findings[0], evidence=(Text("why " * 300, "为什么" * 300),) * 2)
    figures = {"train_s": 10.0, "replayed_steps": 64.0}
    found = replace(FOUND, findings=(long,), notes=(told,), limits=(changed,), figures=figures, times=ROWS)
    lines = brief_of(found, "en")
    assert {f"- {told.en}", f"- {changed.en}"} <= {*lines}
    assert len(lines) <= 22
