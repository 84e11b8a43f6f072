"""What the commands say is said in both languages, with the same figures in it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import headrace.cli
from headrace.model import Text

SOURCE = Path(headrace.cli.__file__).parent


def sentences(source: Path = SOURCE) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Give every `Text(english, chinese)` that is written out, with the place where it stands."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Text":
                match node.args:
                    case [ast.Constant() | ast.JoinedStr() as english, ast.Constant() | ast.JoinedStr() as chinese]:
                        yield f"{path.relative_to(source)}:{node.lineno}", english, chinese


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


COUNTED = re.compile(
    r"{([\w.]+)} (?:[a-z]+ )?(?:workers|batches|steps|saves|evaluations|writes|copies|epochs|lines|samples|shards|times"
    r"|processes|windows|alarms|messages|tasks)\b"
)
# never one: rates and factors, distances of slow steps, and what is told of several only
SEVERAL = {"supply", "rate", "gain", "most", "times", "factor", "period", "every", "at_once", "n", "count"}


def test_one_of_a_thing_is_told_in_the_singular() -> None:
    """It was "the 1 workers"; a number and its noun belong together: `{workers:worker(s)}`."""
    rooms = SOURCE.parent
    for room in ("causes", "watch", "reports", "launch", "forensics"):
        for place, english, _ in sentences(rooms / room):
            text = ast.unparse(english)
            for blank in COUNTED.findall(text):
                assert blank in SEVERAL, f"{room}/{place}: {text}"
    for number, said in ((1, "1 save took 3 s, 1 copy"), (2, "2 saves took 3 s, 2 copies")):
        text = Text("{n:save(s)} took 3 s, {n:cop(y|ies)}", "{n} 次").filled(n=number)
        assert (text.en, text.zh) == (said, f"{number} 次")
