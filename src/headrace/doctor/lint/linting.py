"""Files and folders, one after the other, each through all rules, which are in `rules.toml` in English and Chinese."""

import os
import re
import sys
import tokenize
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from pathlib import Path

from headrace.errors import UnusableInput
from headrace.model import Severity, Text

from . import datasets, loaders, settings
from .script import Script, Spot

SCHEMA = "headrace/lint/1"
_PYTHON, _YAML = (".py", ".pyw"), (".yaml", ".yml")
# folders that others wrote, as those that start with a dot
_PASSED_BY = {"venv", "env", "node_modules", "__pycache__", "site-packages", "build", "dist"}
_IGNORED = re.compile(r"#\s*headrace:\s*ignore(?:\[([\w\s,-]*)\])?", re.IGNORECASE)


@dataclass(frozen=True)
class Rule:
    """One kind of defect; blanks in its title and its fix are filled in by each finding."""

    name: str
    severity: Severity
    title: Text
    why: Text
    fix: Text


@dataclass(frozen=True)
class LintFinding:
    """A line that breaks a rule."""

    rule: Rule
    path: str
    line: int
    column: int
    title: Text
    fix: Text

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return it as it stands in a document of schema `headrace/lint/1`."""
        place = {"path": self.path, "line": self.line, "column": self.column}
        texts = {"title": self.title, "why": self.rule.why, "fix": self.fix}
        said = {name: text.of(language) for name, text in texts.items()}
        return {"rule": self.rule.name, "severity": self.rule.severity.value, **place, **said}


RULES = {
    name: Rule(name, Severity(row["severity"]), *(Text(**row[one]) for one in ("title", "why", "fix")))
    for name, row in tomllib.loads(files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")).items()
}


@dataclass(frozen=True)
class LintResult:
    """What was found, in the order of files and lines, and which files could not be looked at."""

    findings: tuple[LintFinding, ...]
    unread: dict[str, str]  # path: why
    num_files: int
    num_ignored: int  # findings that a comment silences

    def as_json(self, language: str = "en") -> dict[str, object]:
        """Return the document of schema `headrace/lint/1`."""
        return {
            "schema": SCHEMA,
            "num_files": self.num_files,
            "num_ignored": self.num_ignored,
            "findings": [finding.as_json(language) for finding in self.findings],
            "unread": [{"path": path, "reason": reason} for path, reason in self.unread.items()],
        }


def lint(paths: Sequence[str | os.PathLike[str]], *, rules: Collection[str] = tuple(RULES)) -> LintResult:
    """Look at training scripts and configurations without running them; `-` is a script on standard input.

    Folders are searched for `.py`, `.yaml` and `.yml`. All files are taken as one project: a rule that asks whether
    somebody calls `cv2.setNumThreads` looks into all of them. A file that cannot be read or parsed is among the
    `unread`, and the others are looked at.
    """
    found_paths = list(dict.fromkeys(one for path in paths for one in _files(os.fspath(path))))
    if not found_paths:
        raise UnusableInput("there is no .py, .yaml or .yml file", paths=", ".join(map(str, paths)))
    texts: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    for path in found_paths:
        try:
            texts[path] = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        except OSError as error:
            unread[path] = error.strerror or str(error)
    project = b"\n".join(texts.values())
    findings: list[LintFinding] = []
    num_ignored = 0
    for path, text in texts.items():
        try:
            spots = [(RULES[one.rule], one) for one in _look(path, text, project) if one.rule in rules]
        except UnusableInput as error:
            unread[path] = error.what + (f"; {error.next_step}" if error.next_step else "")
            continue
        except RecursionError:
            unread[path] = "nested too deeply"
            continue
        for rule, spot in sorted(spots, key=lambda one: (one[1].line, one[1].column, one[0].name)):
            if _is_silenced(spot, text.splitlines()):
                num_ignored += 1
            else:
                said = (words.filled(**spot.values) for words in (rule.title, rule.fix))
                findings.append(LintFinding(rule, path, spot.line, spot.column, *said))
    return LintResult(tuple(findings), unread, len(found_paths), num_ignored)


def _files(path: str) -> Iterator[str]:
    if path == "-" or not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _PASSED_BY)
        yield from (os.path.join(folder, one) for one in sorted(names) if one.endswith(_PYTHON + _YAML))


def _look(path: str, text: bytes, project: bytes) -> Iterator[Spot]:
    if path.endswith(_YAML):
        yield from settings.check_yaml(text.decode(errors="replace"))
        return
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(text).readline)
        script = Script(text.decode(encoding), project)
    except (SyntaxError, ValueError, MemoryError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UnusableInput(f"not Python {sys.version_info.major}.{sys.version_info.minor}: {said}{where}") from None
    for family in (settings, loaders, datasets):
        yield from family.check(script)


def _is_silenced(spot: Spot, lines: list[bytes]) -> bool:
    """Whether its line, or a comment alone on the line before, says `# headrace: ignore` or `ignore[rule, rule]`."""
    before = lines[spot.line - 2] if spot.line > 1 else b""
    said = [lines[spot.line - 1], before if before.lstrip().startswith(b"#") else b""] if lines else []
    marks = [mark for one in said if (mark := _IGNORED.search(one.decode(errors="replace")))]
    return any(mark[1] is None or spot.rule in re.split(r"[\s,]+", mark[1]) for mark in marks)
