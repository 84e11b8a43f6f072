"""One look of the doctor: what was looked at, how it went, and what is wrong, in the words of a file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

from headrace.model import Cause, Confidence, Finding, Said, Severity, Text


class Outcome(Said):
    """How a look went."""

    PASS = "pass", Text("PASS", "通过")
    NOTE = "note", Text("NOTE", "提示")  # so it is at the moment, and nobody's fault: others use the machine
    WARN = "warn", Text("WARN", "注意")  # it works, and will cost time or safety
    FAIL = "fail", Text("FAIL", "失败")
    SKIP = "skip", Text("SKIP", "跳过")  # what it needs failed before, or is not here


@dataclass(frozen=True, kw_only=True)
class Check:
    """One look: at the machine, or one stage of a target's test."""

    name: str  # for scripts: "cores", "shm", "sample", "workers_fork"
    title: Text
    outcome: Outcome
    says: Text  # what was seen, with units
    seconds: float | None = None
    problem: str = ""  # what is wrong, for scripts: "unpicklable", "shared_handle"; empty where nothing is
    finding: Finding | None = None  # of WARN and FAIL

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return it as it stands in the document, beside the findings."""
        return {
            "name": self.name,
            "title": self.title.of(language),
            "outcome": self.outcome.value,
            "says": self.says.of(language),
            "seconds": None if self.seconds is None else round(self.seconds, 4),
            "problem": self.problem or None,
        }


class Seen(NamedTuple):
    """What came of a look: which problem of the words' file, or what else is said there, and what fills its blanks."""

    which: str
    blanks: Mapping[str, Any] = {}  # never written
    evidence: tuple[Text, ...] = ()  # where it is more than the problem's own sentence
    outcome: Outcome | None = None  # of a problem, where it is another one than the file says
    is_certain: bool = True


class Words:
    """What one room says, from its TOML file: titles of looks, what was seen, what can be wrong and what helps.

    A problem has a cause, a title and what helps; an outcome, if not that of most, and its evidence, where they are
    always the same; and where several of them are one problem to a script, the name of that one.
    """

    def __init__(self, package: str, file: str) -> None:
        self.tables = tomllib.loads(files(package).joinpath(file).read_text(encoding="utf-8"))

    def said(self, name: str, /, **values: object) -> Text:
        return text_of(self.tables["said"][name]).filled(**values)

    def check(self, name: str, seen: Seen, *, seconds: float | None = None) -> Check:
        """Return a look as a check: with a finding, where what was seen is a problem and no note."""
        make = partial(Check, name=name, title=text_of(self.tables["title"][name]), seconds=seconds)
        if (words := self.tables["problem"].get(seen.which)) is None:
            outcome = Outcome.SKIP if seen.which in self.tables["skipped"] else Outcome.PASS
            return make(outcome=outcome, says=self.said(seen.which, **seen.blanks))
        advice = words["fix"] if isinstance(words["fix"], list) else [words["fix"]]
        sentences = (words["title"], words.get("evidence", words["title"]), *advice)
        title, says, *fix = (text_of(one).filled(**seen.blanks) for one in sentences)
        outcome = seen.outcome or Outcome(words.get("outcome", self.tables["outcome"]))
        problem = words.get("problem", seen.which)
        if outcome is Outcome.NOTE:
            says = Text(f"{says.en}: {fix[0].en}", f"{says.zh}：{fix[0].zh}")
            return make(outcome=outcome, says=says, problem=problem)
        finding = Finding(
            cause=Cause(words["cause"]),
            share=self.tables["share_of_failure"] if outcome is Outcome.FAIL else 0.0,
            title=title,
            evidence=seen.evidence or (says,),
            fix=tuple(fix),
            severity=Severity.HIGH if outcome is Outcome.FAIL else Severity.MEDIUM,
            confidence=Confidence.CERTAIN if seen.is_certain else Confidence.LIKELY,
        )
        return make(outcome=outcome, says=says, problem=problem, finding=finding)


def text_of(words: str | Mapping[str, str]) -> Text:
    """Return a sentence as a TOML file has it: the same in both languages, or `en` and `zh`."""
    return Text(words, words) if isinstance(words, str) else Text(**words)
