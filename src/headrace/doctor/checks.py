"""One look of the doctor: what was looked at, how it went, and what is wrong, in the words of a file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

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


class Words:
    """What one room says, from its TOML file: titles of checks, what was seen, what can be wrong and what helps.

    A problem has a cause, a title and what helps; an outcome and its evidence where they are always the same; and where
    several of them are one problem to a script, the name of that one.
    """

    def __init__(self, package: str, file: str) -> None:
        self.tables = tomllib.loads(files(package).joinpath(file).read_text(encoding="utf-8"))

    def said(self, name: str, /, **values: object) -> Text:
        return text_of(self.tables["said"][name]).filled(**values)

    def check(self, name: str, outcome: Outcome, says: Text, **more: Any) -> Check:
        return Check(name=name, title=text_of(self.tables["title"][name]), outcome=outcome, says=says, **more)

    def trouble(
        self,
        name: str,
        which: str,
        values: Mapping[str, object],
        *,
        evidence: tuple[Text, ...] = (),
        outcome: Outcome | None = None,
        share: float = 0.0,
        is_certain: bool = True,
        seconds: float | None = None,
    ) -> Check:
        """Return a check that says which problem it is, its sentences filled with what was seen."""
        words = self.tables["problem"][which]
        advice = words["fix"] if isinstance(words["fix"], list) else [words["fix"]]
        sentences = (words["title"], words.get("evidence", words["title"]), *advice)
        title, says, *fix = (text_of(one).filled(**values) for one in sentences)
        outcome = outcome or Outcome(words.get("outcome", "warn"))
        problem = words.get("problem", which)
        if outcome is Outcome.NOTE:
            says = Text(f"{says.en}: {fix[0].en}", f"{says.zh}：{fix[0].zh}")
            return self.check(name, outcome, says, seconds=seconds, problem=problem)
        finding = Finding(
            cause=Cause(words["cause"]),
            share=share,
            title=title,
            evidence=evidence or (says,),
            fix=tuple(fix),
            severity=Severity.HIGH if outcome is Outcome.FAIL else Severity.MEDIUM,
            confidence=Confidence.CERTAIN if is_certain else Confidence.LIKELY,
        )
        return self.check(name, outcome, says, seconds=seconds, problem=problem, finding=finding)


def text_of(words: str | Mapping[str, str]) -> Text:
    """Return a sentence as a TOML file has it: the same in both languages, or `en` and `zh`."""
    return Text(words, words) if isinstance(words, str) else Text(**words)
