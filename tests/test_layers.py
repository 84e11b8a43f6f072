"""Which room may import which, who writes what, and the shape of the tree: the tables of ARCHITECTURE.md, checked."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils.data import dataloader as torch_loader

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
    "cli": {"demo": set()},
    "doctor": {"chaos": set(), "lint": set(), "machine": set(), "target": set()},
    "engine": {
        "memory": set(),
        "worker": {"memory"},
        "epoch": {"memory", "worker"},
        "losses": {"memory", "worker", "epoch"},
        "guard": {"memory", "worker", "epoch", "losses"},
    },
    "launch": {"hooks": set(), "site": set()},
    "signals": {"system": set(), "recording": {"system"}},
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
        ("from headrace import DataLoader, __version__", "headrace.cli.demo"),
        ("import torch\nfrom collections import deque", "headrace.engine.pool"),
        ("from headrace.signals import Ring", "headrace.tuning.model"),
    ],
)
def test_an_allowed_import_is_no_breach(code: str, module: str) -> None:
    assert problems_of(code, module) == []


def test_no_room_imports_the_commands() -> None:
    assert [room for room, allowed in MAY_IMPORT.items() if "cli" in allowed] == ["__main__"]


# ------------------------------------------------------------------------------------ the shape of the tree

_MOST_IN_A_FOLDER = 16
_FRAGMENT_LINES, _MOST_FRAGMENTS = 100, 20


def crowded(modules: dict[str, str]) -> list[str]:
    """Return folders with more modules than one can see; `modules` are paths below the package and their code."""
    counts = Counter(str(Path(path).parent) for path in modules)
    return [f"{folder}: {count} modules" for folder, count in counts.items() if count > _MOST_IN_A_FOLDER]


def fragments(modules: dict[str, str]) -> list[str]:
    """Return short modules that a single other one imports: paragraphs of that one. Faces do not count."""
    users: dict[str, set[str]] = defaultdict(set)
    for path, code in modules.items():
        if Path(path).name == "__init__.py":
            continue
        package = ["headrace", *Path(path).parent.parts]
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                inside = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*inside, *([node.module] if node.module else [])])
                for name in (base, *(f"{base}.{alias.name}" for alias in node.names)):
                    users[name].add(path)
    names = {path: ".".join(["headrace", *Path(path).with_suffix("").parts]) for path in modules}
    return [
        path
        for path, code in modules.items()
        if Path(path).name != "__init__.py"
        and len(code.splitlines()) < _FRAGMENT_LINES
        and len(users[names[path]]) == 1
    ]


def doubled_classes(modules: dict[str, str]) -> dict[str, list[str]]:
    """Return class names that mean two things."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, code in modules.items():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return {name: found for name, found in places.items() if len(found) > 1}


_OUR_PLACE = re.compile(r"headrace[./](\w+)[./](\w+)")


def named_insides(code: str, room: str, *, private: set[str]) -> list[str]:
    """Return texts that name a module of another room, or one of the `private` functions of the engine."""
    tree = ast.parse(code)
    documented = [
        tree,
        *(n for n in ast.walk(tree) if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))),
    ]
    docstrings = {id(n.body[0].value) for n in documented if n.body and isinstance(n.body[0], ast.Expr)}
    names = {getattr(node, "attr", getattr(node, "id", getattr(node, "arg", None))) for node in ast.walk(tree)}
    longer = tuple(name for name in names if isinstance(name, str))  # `f"{what}_share"` is the end of a name of its own
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        for other, inside in _OUR_PLACE.findall(node.value):
            path = SOURCE / other / inside
            if other != room and (path.is_dir() or path.with_suffix(".py").is_file()):
                found.append(f"line {node.lineno}: {node.value!r}")
        if node.value in private and not any(name.endswith(node.value) for name in longer if name != node.value):
            found.append(f"line {node.lineno}: {node.value!r}")
    return found


def _code() -> dict[str, str]:
    return {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


def _private_of_the_engine() -> set[str]:
    """Names of the engine's private functions that torch's loader has not got: of those, hooks may speak."""
    of_torch = {name for cls in vars(torch_loader).values() if isinstance(cls, type) for name in dir(cls)}
    trees = [ast.parse(code) for path, code in _code().items() if path.startswith("engine/")]
    names = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {name for name in names - of_torch if name.startswith("_") and not name.startswith("__")}


def test_no_folder_is_crowded() -> None:
    assert crowded(_code()) == []
    assert crowded({f"engine/m{number}.py": "" for number in range(17)}) == ["engine: 17 modules"]


def test_few_modules_are_fragments() -> None:
    found = fragments(_code())
    assert len(found) <= _MOST_FRAGMENTS, found
    assert fragments({"engine/a.py": "from .b import x", "engine/b.py": "x = 1"}) == ["engine/b.py"]
    assert fragments({"engine/a.py": "from . import b", "engine/b.py": "x = 1"}) == ["engine/b.py"]
    assert fragments({"engine/a.py": "from .b import x", "engine/c.py": "from .b import x", "engine/b.py": ""}) == []
    assert fragments({"engine/a.py": "from .b import x", "engine/b.py": "x = 1\n" * 100}) == []


def test_no_class_name_means_two_things() -> None:
    assert doubled_classes(_code()) == {}
    assert doubled_classes({"a.py": "class Batch: ...", "b.py": "class Batch: ..."}) == {"Batch": ["a.py", "b.py"]}


def test_no_text_names_the_insides_of_another_room() -> None:
    private = _private_of_the_engine()
    assert {"_next_message", "_serve"} <= private
    for path, code in _code().items():
        room = Path(path).parts[0]
        if room not in ("model", "engine"):  # `model` holds what others recognise; an engine test keeps it true
            assert named_insides(code, room, private=private) == [], path
    code = (
        '"""headrace.engine.pool"""\nplace = "headrace/engine/pool.py"\nhook = "headrace.engine.pool"\nname = "_serve"'
    )
    assert [text.partition(":")[0] for text in named_insides(code, "launch", private=private)] == [
        "line 2",
        "line 3",
        "line 4",
    ]


# ------------------------------------------------------------------------------------ who writes what

_BOARD = ("Head", "Entry", "Slot", "Record")
_OWNERS_HEADING = "## Who writes what lies in shared memory"


def written_words(code: str) -> set[str]:
    """Return the words of the board that code stores into: `words[at + Entry.LAST] = …`."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in [one for some in targets for one in (some.elts if isinstance(some, ast.Tuple) else [some])]:
            if isinstance(target, ast.Subscript):
                names = [
                    n for n in ast.walk(target.slice) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
                ]
                found |= {
                    f"{n.value.id}.{n.attr}" for n in names if isinstance(n.value, ast.Name) and n.value.id in _BOARD
                }
    return found


def _owners() -> dict[str, str]:
    """Read the table of ARCHITECTURE.md: word of the board, the folder that writes it."""
    text = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8").partition(_OWNERS_HEADING)[2]
    rows = re.findall(r"^\| (.*?) \| `(engine[\w/]*)` \|", text.partition("\n## ")[0], re.MULTILINE)
    return {word: folder for words, folder in rows for word in re.findall(r"`(\w+\.[\w*]+)`", words)}


def _written() -> set[tuple[str, str]]:
    return {
        (word, str(Path(path).parent))
        for path, code in _code().items()
        if path.startswith("engine/")
        for word in written_words(code)
    }


def test_each_word_of_the_board_is_written_in_the_folder_that_the_table_names() -> None:
    owners, written = _owners(), _written()
    assert {
        word: folder for word, folder in written if owners.get(word, owners.get(f"{word.split('.')[0]}.*")) != folder
    } == {}
    assert {word for word in owners if not word.endswith("*")} <= {word for word, _ in written}
    assert written_words("words[at + Entry.LAST] = 1\nwords[Head.STOP] += 1\nx = words[Slot.STATE]") == {
        "Entry.LAST",
        "Head.STOP",
    }


def batch_writes(code: str) -> list[int]:
    """Return the lines on which a field of a variable called `batch` is stored into."""
    stores = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return [node.lineno for node in stores if isinstance(node.value, ast.Name) and node.value.id == "batch"]


def test_only_the_scheduler_writes_a_batch() -> None:
    engine = {path: code for path, code in _code().items() if path.startswith("engine/")}
    assert [path for path, code in engine.items() if batch_writes(code)] == ["engine/epoch/scheduler.py"]
    assert batch_writes("batch.told |= 1\nprint(batch.seq)\nbatch.owed = None") == [1, 3]
