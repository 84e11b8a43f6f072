"""What a data set is made of: its parts by name, those that cannot be pickled, hold files open, are copied by a fork.

A part's name is how Python reaches it: `dataset.transform.steps[2]`.
"""

import contextlib
import io
import itertools
import os
import pickle
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from headrace.signals.system import sizes_of_references

_MOST_PARTS = 20_000  # that are looked at: a list of a million paths holds no handle that its first thousands do not
_MOST_ITEMS = 256  # of one container
_LARGE = 10_000  # items of a container
_MOST_SEEN = 1000  # objects that were pickled last
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_CLOSED = (ModuleType, type, BuiltinFunctionType)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_OF_OTHERS = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]), "<frozen")
# what its makers forbid to take along into a fork: by type, its package (lmdb's own says "builtins"), where its file is
_NOT_FOR_FORKS: dict[str, tuple[str, Callable[[Any], str]]] = {
    **dict.fromkeys(("File", "Dataset", "Group"), ("h5py", lambda part: part.file.filename)),
    "Connection": ("sqlite3", lambda part: part.execute("PRAGMA database_list").fetchone()[2]),
    "Environment": ("", lambda part: part.path() if os.path.isfile(part.path()) else f"{part.path()}/data.mdb"),
}
_FOR_ALL = "nowhere", str


@dataclass(frozen=True)
class Handle:
    """A part that holds something open: a file, an archive, a data base, a socket."""

    name: str  # "dataset.archive"
    kind: str  # "NpzFile"
    fd: int
    path: str
    is_forbidden: bool  # its makers say that it must not be used on both sides of a fork
    address: int  # the same on both sides of a fork, for as long as it is kept


def is_theirs(place: str) -> bool:
    """Whether a file, or a line of a traceback, is of the user's own code: not of Python, of a package, or of ours."""
    return not any(one in place for one in _OF_OTHERS)


def parts_of(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield a value and all its parts with their names, those near to it first; a bounded number."""
    todo, seen = [(name, value)], {id(value)}
    for at in range(_MOST_PARTS):
        if at >= len(todo):
            return
        yield todo[at]
        for part, inner in _inside(*todo[at]):
            if id(inner) not in seen and not _is_plain(inner):
                seen.add(id(inner))
                todo.append((part, inner))


def _is_plain(value: Any) -> bool:
    """Whether nothing is to be found inside: a number, say, or a proxy of what is gone or not made yet."""
    try:
        return isinstance(value, _PLAIN)
    except Exception:  # it asks what it stands for
        return True


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _CONTAINERS):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        yield from ((f"{name}[{key!r:.40}]", inner) for key, inner in itertools.islice(pairs, _MOST_ITEMS))
    elif isinstance(value, _CLOSED):
        return
    elif isinstance(value, MethodType):
        yield f"{name}.__self__", value.__self__
    elif isinstance(value, FunctionType):
        names = value.__code__.co_freevars
        for free, cell in zip(names, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # it is still empty
                yield f"{name}.{free}", cell.cell_contents
    else:
        state = getattr(value, "__dict__", None)
        for key, inner in list(state.items()) if isinstance(state, dict) else ():
            yield f"{name}.{key}", inner
        for key in getattr(type(value), "__slots__", ()):
            with contextlib.suppress(Exception):
                yield f"{name}.{key}", getattr(value, key)


def find_handles(**values: Any) -> list[Handle]:
    """Return the parts of some values that hold something open, the outermost of each file."""
    found: dict[int, Handle] = {}
    for part, inner in (one for name, value in values.items() for one in parts_of(value, name)):
        with contextlib.suppress(Exception):  # it holds nothing, or not any more
            kind = type(inner).__name__
            package, path_of = _NOT_FOR_FORKS.get(kind, _FOR_ALL)
            is_forbidden = type(inner).__module__.startswith(package)
            fd = _find_descriptor(path_of(inner)) if is_forbidden else _descriptor(inner)
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith(("/", "socket:")) and not path.startswith("/dev/"):
                found.setdefault(fd, Handle(part, kind, fd, path, is_forbidden, id(inner)))
    return list(found.values())


def _find_descriptor(path: str) -> int:
    real = os.path.realpath(path)
    return next(fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.realpath(f"/proc/self/fd/{fd}") == real)


def _descriptor(part: Any) -> int:
    """Return the descriptor behind an open file or archive; raises something where it is none of them, or closed."""
    part = part.zip if type(part).__name__ == "NpzFile" else part
    inner = getattr(part, "fp", None) or getattr(part, "fileobj", None)  # a zip or a tar file
    part = part if inner is None or isinstance(part, io.IOBase) else inner
    fd: int = getattr(part, "_file", part).fileno()  # a zip's file that several members share
    return fd


# ------------------------------------------------------------------------------------------ pickling


class _Pickling(ForkingPickler):
    """Pickles into nowhere, for a large data set should not be in memory twice; remembers what it came by last."""

    def __init__(self) -> None:
        super().__init__(self, pickle.HIGHEST_PROTOCOL)
        self.size, self.seen = 0, deque[Any](maxlen=_MOST_SEEN)

    def write(self, data: Any) -> None:
        self.size += memoryview(data).nbytes

    def persistent_id(self, value: Any) -> str | None:
        self.seen.append(value)
        # locks and queues of multiprocessing go to a worker while it starts, and only then
        return "left out" if type(value).__module__.startswith("multiprocessing.") else None

    def problem_of(self, value: Any) -> str:
        """Return what pickling says of a value; empty where it can be pickled."""
        try:
            self.dump(value)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""


def pickled_bytes(value: Any) -> int:
    """Return how many bytes go to each worker that starts anew, where tensors are shared; raises what pickling does."""
    pickling = _Pickling()
    pickling.dump(value)
    return pickling.size


def find_unpicklable(value: Any, name: str) -> tuple[str, str] | None:
    """Return the innermost part that cannot be pickled, and what it says; None where all can."""
    pickling = _Pickling()
    if not (said := pickling.problem_of(value)):
        return None
    names = {id(inner): part for part, inner in parts_of(value, name)}
    known = (one for one in reversed(pickling.seen) if id(one) in names)
    return next(((names[id(one)], said) for one in known if _Pickling().problem_of(one)), (name, said))


# ------------------------------------------------------------------------------------------ copied by reference counts


def copied_by_fork(value: Any, name: str) -> list[tuple[int, str, int]]:
    """Estimate the bytes that a forked process copies of each large container when it looks at all objects in it once.

    An epoch does that. Arrays and tensors are one object each, whatever they hold. Returns bytes, name and number of
    items, the largest first.
    """
    found: list[tuple[int, str, int]] = []
    for part, inner in parts_of(value, name):
        is_large = isinstance(inner, _CONTAINERS) and len(inner) >= _LARGE
        if is_large and not part.startswith(tuple(f"{outer}[" for _, outer, _ in found)):
            found.append((sizes_of_references(inner)[0], part, len(inner)))
    return sorted(found, reverse=True)
