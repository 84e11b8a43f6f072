"""What the scripts of `benchmarks/` and `examples/` import of ours is there, also in code given to `python -c`.

mypy looks at these scripts, too, but not into texts; and no test runs the benchmarks.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py"))


def missing_names(code: str) -> list[str]:
    """Return what code imports from headrace that is not there."""
    return [name for base, name in _imported(code) if not _is_there(base, name)]


def _imported(code: str) -> Iterator[tuple[str, str]]:
    """Give the module and the full name of each import of ours, in functions and in texts that are code as well."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import():
                yield from ((alias.name, alias.name) for alias in node.names if _is_ours(alias.name))
            case ast.ImportFrom(module=str(base)) if node.level == 0 and _is_ours(base):
                yield from ((base, f"{base}.{alias.name}") for alias in node.names)
            case ast.Constant(value=str(text)):
                yield from _imported_in_text(text)
            case ast.JoinedStr():
                parts = [part.value if isinstance(part, ast.Constant) else "filled_in" for part in node.values]
                yield from _imported_in_text("".join(map(str, parts)))


def _imported_in_text(text: str) -> Iterator[tuple[str, str]]:
    if "headrace" in text and "import" in text:
        try:
            ast.parse(textwrap.dedent(text))
        except SyntaxError:  # words
            return
        yield from _imported(textwrap.dedent(text))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "headrace"


def _is_there(base: str, name: str) -> bool:
    try:
        module = importlib.import_module(base)
        return name == base or hasattr(module, name.rpartition(".")[2]) or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and _is_ours(error.name):
            return False
        raise


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_script_imports_is_there(path: Path) -> None:
    assert missing_names(path.read_text(encoding="utf-8")) == []


def test_every_benchmark_takes_quick() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")}
    run = {name: text for name, text in texts.items() if '\nif __name__ == "__main__"' in text}  # by `make bench-quick`
    assert len(run) > 30
    assert [name for name, text in run.items() if "ask(QUESTION)" not in text and '"--quick"' not in text] == []


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("import headrace.nowhere", ["headrace.nowhere"]),
        ("from headrace.nowhere import x", ["headrace.nowhere.x"]),
        ("def f():\n    from headrace.engine import Nothing", ["headrace.engine.Nothing"]),
        ("code = 'import sys\\nfrom headrace import Nothing'", ["headrace.Nothing"]),
        ("code = f'from headrace import Nothing\\nprint({sys.argv})'", ["headrace.Nothing"]),
        ('"""How to import headrace: from headrace import Nothing, say."""', []),
        ("from headrace.signals import recording\nfrom headrace import DataLoader, storage, __version__", []),
        ("import headrace.signals.recording, torch.nowhere", []),
    ],
)
def test_a_name_that_is_not_there_is_found(code: str, missing: list[str]) -> None:
    assert missing_names(code) == missing
