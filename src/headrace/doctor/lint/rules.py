"""A rule and what it finds; the rules themselves, in English and Chinese, are in `rules.toml`."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files

from headrace.model import Severity, Text

SCHEMA = "headrace/lint/1"


@dataclass(frozen=True)
class Rule:
    """One kind of defect; blanks in its title and its fix are filled in by each finding."""

    name: str
    severity: Severity
    title: Text
    why: Text
    fix: Text


@dataclass(frozen=True)
class Project:
    """What is true of all files that are looked at together."""

    is_distributed: bool = False  # one of them trains on several ranks
    sets_cv2_threads: bool = False


@dataclass(frozen=True)
class LintFinding:
    """A line that breaks a rule."""

    rule: Rule
    path: str
    line: int
    column: int
    title: Text
    fix: Text

    @classmethod
    def of(cls, rule: str, path: str, line: int, column: int, **values: object) -> "LintFinding":
        """Return a finding of the rule with this name, its sentences filled in."""
        which = RULES[rule]
        return cls(which, path, line, column, which.title.filled(**values), which.fix.filled(**values))

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return it as it stands in a document of schema `headrace/lint/1`."""
        place = {"path": self.path, "line": self.line, "column": self.column}
        texts = {"title": self.title, "why": self.rule.why, "fix": self.fix}
        said = {name: text.of(language) for name, text in texts.items()}
        return {"rule": self.rule.name, "severity": self.rule.severity.value, **place, **said}


def _read_rules() -> dict[str, Rule]:
    tables = tomllib.loads(files(__package__).joinpath("rules.toml").read_text(encoding="utf-8"))
    return {
        name: Rule(name, Severity(row["severity"]), Text(**row["title"]), Text(**row["why"]), Text(**row["fix"]))
        for name, row in tables.items()
    }


RULES = _read_rules()
