"""Which room may import which: the table of ARCHITECTURE.md, held as data and checked on every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

SOURCE = Path(headrace.__file__).parent

_FEEDING = {"order", "storage", "codecs", "signals"}
_EVERYTHING = {
    *_FEEDING,
    *("knowledge", "engine", "loader", "causes", "tuning", "doctor", "reports", "launch"),
}

# What a room may import besides `errors` and `model`.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "order": set(),
    "storage": set(),
    "codecs": set(),
    "signals": set(),
    "knowledge": set(),
    "reports": set(),
    "engine": _FEEDING | {"knowledge"},
    "loader": _FEEDING | {"knowledge", "engine"},
    "causes": {"signals", "knowledge"},
    "tuning": {"signals", "causes", "engine"},
    "doctor": {"storage", "codecs", "signals", "knowledge", "causes", "loader"},
    "launch": {"signals", "knowledge", "loader"},
    "cli": _EVERYTHING,
    "__init__": _EVERYTHING,  # the package's face: it offers names of any room, lazily
    "__main__": {"cli"},  # `python -m headrace`: the command itself
}


def problems_of(code: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return what a module's imports break, in sentences. `module` is its full name, `headrace.engine.slots`."""
    room = _room_of(module)
    if room not in MAY_IMPORT:
        return [f"{module}: there is no room {room!r} in the table; add it there first"]
    problems = []
    for imported in _imports(code, module, is_package=is_package):
        target = _room_of(imported.name)
        where = f"{module}:{imported.line}"
        if target == room:
            if imported.is_absolute and room != "__init__":
                problems.append(f"{where}: imports {imported.name}; inside a room, imports are relative")
        elif target == "__init__":
            pass  # `import headrace`, `from headrace import __version__`: the package's face, which loads nothing
        elif target not in {"errors", "model"} | MAY_IMPORT[room]:
            problems.append(f"{where}: {room} may not import {target}")
        elif room == "errors":
            problems.append(f"{where}: errors imports nothing of ours")
        elif len(imported.name.split(".")) > 2 and (SOURCE / target).is_dir():
            problems.append(f"{where}: imports {imported.name}; rooms talk through their faces")
    return problems


class _Import:
    def __init__(self, name: str, line: int, *, is_absolute: bool) -> None:
        self.name, self.line, self.is_absolute = name, line, is_absolute


def _imports(code: str, module: str, *, is_package: bool) -> Iterator[_Import]:
    """Find every import of ours, also inside functions, with its name made absolute."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "headrace":
                    yield _Import(alias.name, node.lineno, is_absolute=True)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            if base.split(".")[0] != "headrace":
                continue
            # `from headrace import engine` names a room; `from headrace.engine import Pool` a thing in its face.
            names = [f"{base}.{alias.name}" if base == "headrace" else base for alias in node.names]
            for name in dict.fromkeys(names):
                yield _Import(_home_of(name), node.lineno, is_absolute=node.level == 0)


def _home_of(name: str) -> str:
    """Turn `headrace.DataLoader` into the package itself: only rooms and modules are places."""
    parts = name.split(".")
    if len(parts) == 2 and parts[1] not in MAY_IMPORT and not (SOURCE / parts[1]).is_dir():
        return "headrace"
    return name


def _room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _modules() -> Iterator[tuple[Path, str, bool]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["headrace", *path.relative_to(SOURCE).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        yield path, ".".join(parts[:-1] if is_package else parts), is_package


_MODULES = {module: (path, is_package) for path, module, is_package in _modules()}


@pytest.mark.parametrize("module", _MODULES)
def test_module_keeps_to_the_table(module: str) -> None:
    path, is_package = _MODULES[module]
    assert problems_of(path.read_text(encoding="utf-8"), module, is_package=is_package) == []


@pytest.mark.parametrize(
    ("code", "module", "problem"),
    [
        ("from headrace.engine import Pool", "headrace.causes.lockstep", "causes may not import engine"),
        ("from ..engine import Pool", "headrace.causes.lockstep", "causes may not import engine"),
        ("import headrace.cli", "headrace.loader", "loader may not import cli"),
        ("from .cli import main", "headrace.loader", "loader may not import cli"),
        ("def f():\n    from headrace import loader", "headrace.engine.pool", "engine may not import loader"),
        ("from headrace.engine.slots import Slot", "headrace.loader", "through their faces"),
        ("from .engine.slots import Slot", "headrace.loader", "through their faces"),
        ("from headrace.engine.slots import Slot", "headrace.engine.pool", "imports are relative"),
        ("from headrace.model import Event", "headrace.errors", "nothing of ours"),
        ("import json", "headrace.helpers.things", "no room 'helpers'"),
    ],
)
def test_a_breach_is_found(code: str, module: str, problem: str) -> None:
    found = problems_of(code, module)
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("from headrace.errors import WorkerLost", "headrace.engine.pool"),
        ("from ..errors import WorkerLost", "headrace.engine.pool"),
        ("from .slots import Slot", "headrace.engine.pool"),
        ("from .engine import Pool\nfrom .errors import HeadraceError", "headrace.loader"),
        ("from headrace import DataLoader, __version__", "headrace.cli.demo"),
        ("import torch\nfrom collections import deque", "headrace.engine.pool"),
        ("from headrace.signals import Ring", "headrace.tuning.model"),
    ],
)
def test_an_allowed_import_is_no_breach(code: str, module: str) -> None:
    assert problems_of(code, module) == []


def test_no_room_imports_the_commands() -> None:
    assert [room for room, allowed in MAY_IMPORT.items() if "cli" in allowed] == ["__main__"]
