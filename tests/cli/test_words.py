"""What the commands say is said in both languages, with the same figures in it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import headrace.cli

SOURCE = Path(headrace.cli.__file__).parent


def sentences() -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Give every `Text(english, chinese)` that is written out, with the place where it stands."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Text":
                match node.args:
                    case [ast.Constant() | ast.JoinedStr() as english, ast.Constant() | ast.JoinedStr() as chinese]:
                        yield f"{path.relative_to(SOURCE)}:{node.lineno}", english, chinese


def blanks(text: ast.expr) -> list[str]:
    """Return what is filled in, now or later; a part that is in the sentence's own language counts as the same."""
    if isinstance(text, ast.JoinedStr):
        filled = [ast.unparse(part.value) for part in text.values if isinstance(part, ast.FormattedValue)]
        return sorted({re.sub(r"\b(en|zh)\b", "said", one) for one in filled})
    return sorted(set(re.findall(r"{(\w+)", str(ast.literal_eval(text)))))


def test_both_languages_fill_in_the_same_blanks() -> None:
    found = list(sentences())
    assert len(found) > 100
    for place, english, chinese in found:
        assert blanks(english) == blanks(chinese), place
