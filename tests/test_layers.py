"""Which room may import which: the tables of ARCHITECTURE.md, held as data and checked on every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

SOURCE = Path(headrace.__file__).parent

_FEEDING = {"order", "storage", "codecs", "signals"}
_EVERYTHING = {
    *_FEEDING,
    *("knowledge", "forensics", "engine", "loader", "causes", "tuning", "doctor", "reports", "launch", "watch"),
}

# What a room may import besides `errors`, `model` and `lazy`.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "lazy": set(),
    "model": set(),
    "order": set(),
    "storage": set(),
    "codecs": set(),
    "signals": set(),
    "knowledge": set(),
    "reports": set(),
    "forensics": {"signals", "knowledge"},
    "engine": _FEEDING | {"knowledge", "forensics"},
    "loader": _FEEDING | {"knowledge", "forensics", "engine"},
    "causes": {"signals", "knowledge", "forensics"},
    "tuning": {"signals", "causes", "storage", "loader"},
    "doctor": {"storage", "codecs", "signals", "knowledge", "forensics", "causes", "loader"},
    "launch": {"signals", "knowledge", "loader"},
    "watch": {"signals", "knowledge", "forensics", "causes"},
    "cli": _EVERYTHING,
    "__init__": _EVERYTHING,  # the package's face: it offers names of any room, lazily
    "__main__": {"cli"},  # `python -m headrace`: the command itself
}

# Between the smaller rooms of one room: which of them each may import. Modules that stand in the room itself may be
# used by its smaller rooms as long as they import none of them in turn, and may use them all.
WITHIN: dict[str, dict[str, set[str]]] = {
    "causes": {"logs": set(), "steps": {"logs"}, "recorded": {"logs", "steps"}},
    "cli": {room: set() for room in ("demo", "run", "storage")},
    "doctor": {"chaos": set()},
    "engine": {
        "memory": set(),
        "worker": {"memory"},
        "epoch": {"memory", "worker"},
        "losses": {"memory", "worker", "epoch"},
        "guard": {"memory", "worker", "epoch", "losses"},
    },
    "launch": {"hooks": set(), "site": set()},
    "signals": {"system": set(), "recording": {"system"}, "timing": {"system", "recording"}},
    "storage": {"reading": set(), "shards": {"reading"}, "media": set()},
}


def problems_of(code: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return what a module's imports break, in sentences. `module` is its full name, `headrace.engine.memory.slots`."""
    room, small = _room_of(module), _small_room_of(module)
    if room not in MAY_IMPORT:
        return [f"{module}: there is no room {room!r} in the table; add it there first"]
    problems = []
    for imported in _imports(code, module, is_package=is_package):
        target, inner = _room_of(imported.name), _small_room_of(imported.name)
        where = f"{module}:{imported.line}"
        if target == room:
            if imported.is_absolute and room != "__init__":
                problems.append(f"{where}: imports {imported.name}; inside a room, imports are relative")
            elif inner and inner != small:
                if small and inner not in WITHIN[room][small]:
                    problems.append(f"{where}: {room}/{small} may not import {room}/{inner}")
                elif not _is_door(imported.name):
                    problems.append(f"{where}: imports {imported.name}; rooms talk through their faces")
        elif target == "__init__":
            pass  # `import headrace`, `from headrace import __version__`: the package's face, which loads nothing
        elif target not in {"errors", "model", "lazy"} | MAY_IMPORT[room]:
            problems.append(f"{where}: {room} may not import {target}")
        elif room in ("errors", "lazy"):
            problems.append(f"{where}: {room} imports nothing of ours")
        elif not _is_door(imported.name):
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
            names = [f"{base}.{alias.name}" if _is_package(base) else base for alias in node.names]
            for name in dict.fromkeys(map(_place_of, names)):
                yield _Import(name, node.lineno, is_absolute=node.level == 0)


def _is_package(name: str) -> bool:
    return SOURCE.joinpath(*name.split(".")[1:]).is_dir()


def _is_door(name: str) -> bool:
    """Whether a name is a room, a smaller room, or a module beside the rooms (`errors`)."""
    return len(name.split(".")) == 2 or (len(name.split(".")) == 3 and _is_package(name))


def _place_of(name: str) -> str:
    """Turn `headrace.DataLoader` into the package itself: only rooms and modules are places."""
    home, _, last = name.rpartition(".")
    path = SOURCE.joinpath(*name.split(".")[1:])
    is_module = path.with_suffix(".py").is_file() and last not in _names_of(home)
    return name if path.is_dir() or is_module or (home == "headrace" and last in MAY_IMPORT) else home


def _names_of(package: str) -> set[str]:
    """Return the names that a package's face imports: a function may be called like the module that holds it."""
    face = SOURCE.joinpath(*package.split(".")[1:], "__init__.py")
    imports = [node for node in ast.walk(ast.parse(face.read_text())) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _small_room_of(module: str) -> str:
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[2] in WITHIN.get(parts[1], {}) else ""


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


def test_every_smaller_room_is_in_the_table() -> None:
    found = {(p.parent.name, p.name) for p in SOURCE.glob("*/*") if p.is_dir() and any(p.glob("*.py"))}
    assert found == {(room, small) for room, smaller in WITHIN.items() for small in smaller}


@pytest.mark.parametrize(
    ("code", "module", "problem"),
    [
        ("from headrace.engine import Pool", "headrace.causes.lockstep", "causes may not import engine"),
        ("from ..engine import Pool", "headrace.causes.lockstep", "causes may not import engine"),
        ("import headrace.cli", "headrace.loader", "loader may not import cli"),
        ("from .cli import main", "headrace.loader", "loader may not import cli"),
        ("def f():\n    from headrace import loader", "headrace.engine.pool", "engine may not import loader"),
        ("from headrace.engine.memory.slots import Slot", "headrace.loader", "through their faces"),
        ("from headrace.engine.pool import Pool", "headrace.loader", "through their faces"),
        ("from .engine.memory.slots import Slot", "headrace.loader", "through their faces"),
        ("from ..memory.slots import Slot", "headrace.engine.worker.host", "through their faces"),
        ("from .memory.slots import Slot", "headrace.engine.feed", "through their faces"),
        ("from ..losses import Recovery", "headrace.engine.epoch.plan", "engine/epoch may not import engine/losses"),
        ("from .. import guard", "headrace.engine.losses.recovery", "engine/losses may not import engine/guard"),
        ("from headrace.engine.memory import Slot", "headrace.engine.pool", "imports are relative"),
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
        ("from .slots import Slot", "headrace.engine.memory.arena"),
        ("from ..pool import Pool", "headrace.engine.losses.recovery"),
        ("from ..memory import Slot", "headrace.engine.worker.host"),
        ("from headrace.signals.system import read_threads", "headrace.forensics.hangs"),
        ("from .engine import Pool\nfrom .errors import HeadraceError", "headrace.loader"),
        ("from headrace import DataLoader, __version__", "headrace.cli.demo.loop"),
        ("import torch\nfrom collections import deque", "headrace.engine.pool"),
        ("from headrace.signals import Ring", "headrace.tuning.model"),
    ],
)
def test_an_allowed_import_is_no_breach(code: str, module: str) -> None:
    assert problems_of(code, module) == []


def test_no_room_imports_the_commands() -> None:
    assert [room for room, allowed in MAY_IMPORT.items() if "cli" in allowed] == ["__main__"]
