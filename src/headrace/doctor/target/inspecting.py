"""What a data set is made of: its parts by name, those that cannot be pickled, hold files open, are copied by a fork.

A part's name is how Python reaches it: `dataset.transform.steps[2]`.
"""

import contextlib
import fcntl
import gc
import io
import itertools
import json
import os
import pickle
import sysconfig
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from headrace.signals.system import read_rollup

_MOST_PARTS = 20_000  # that are looked at: a list of a million paths holds no handle that its first thousands do not
_MOST_ITEMS = 256  # of one container
_LARGE = 10_000
_TOUCH_S = 5.0
_CLOSED = (ModuleType, type, BuiltinFunctionType, str, bytes, int, float, complex, bool, type(None))
_CONTAINERS = (list, tuple, dict, set, frozenset)
_OF_OTHERS = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]), "<frozen")
# what its makers forbid to take along into a fork, by type and module; lmdb's own says "builtins"
_NOT_FOR_FORKS = {"File": "h5py", "Dataset": "h5py", "Group": "h5py", "Connection": "sqlite3", "Environment": ""}


@dataclass(frozen=True)
class Handle:
    """A part that holds something open: a file, an archive, a data base, a socket."""

    name: str  # "dataset.archive"
    kind: str  # "NpzFile"
    fd: int
    path: str
    is_forbidden: bool  # its makers say that it must not be used on both sides of a fork
    is_marked: bool  # by `mark_files`: it is the very one that was opened before the fork


def is_theirs(place: str) -> bool:
    """Whether a file, or a line of a traceback, is of the user's own code: not of Python, of a package, or of ours."""
    return not any(one in place for one in _OF_OTHERS)


def mark_files(handles: Iterable[Handle], *, is_on: bool) -> None:
    """Mark open files in a way that all processes see who have them since a fork, and nobody who opened them anew.

    Reads and writes of plain files do not care whether they may block; the flag lies in what a fork shares.
    """
    for one in handles:
        with contextlib.suppress(OSError):
            flags = fcntl.fcntl(one.fd, fcntl.F_GETFL)
            if one.path.startswith("/"):
                fcntl.fcntl(one.fd, fcntl.F_SETFL, flags | os.O_NONBLOCK if is_on else flags & ~os.O_NONBLOCK)


def parts_of(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield a value and all its parts with their names, those near to it first; a bounded number."""
    todo, seen = [(name, value)], {id(value)}
    for at in range(_MOST_PARTS):
        if at >= len(todo):
            return
        yield todo[at]
        for part, inner in _inside(*todo[at]):
            if id(inner) not in seen and not isinstance(inner, _CLOSED):
                seen.add(id(inner))
                todo.append((part, inner))


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _CONTAINERS):
        yield from itertools.islice(_items(value, name), _MOST_ITEMS)
    elif isinstance(value, MethodType):
        yield f"{name}.__self__", value.__self__
    elif isinstance(value, FunctionType):
        names = value.__code__.co_freevars
        for free, cell in zip(names, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # it is still empty
                yield f"{name}.{free}", cell.cell_contents
    elif type(value).__module__.partition(".")[0] not in ("torch", "numpy", "pandas") or hasattr(value, "dataset"):
        state = getattr(value, "__dict__", None)
        for key, inner in list(state.items()) if isinstance(state, dict) else ():
            yield f"{name}.{key}", inner
        for key in getattr(type(value), "__slots__", ()):
            with contextlib.suppress(Exception):
                yield f"{name}.{key}", getattr(value, key)
    elif type(value).__name__ == "NpzFile":
        yield f"{name}.zip", value.zip
    elif hasattr(value, "datasets"):  # torch's ConcatDataset
        yield f"{name}.datasets", value.datasets


def _items(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return ((f"{name}[{key!r:.40}]", inner) for key, inner in pairs)


def find_handles(value: Any, name: str) -> list[Handle]:
    """Return the parts that hold something open, the outermost of each file."""
    found: dict[int, Handle] = {}
    for part, inner in parts_of(value, name):
        with contextlib.suppress(Exception):
            fd, kind = _descriptor(inner), type(inner).__name__
            if fd is None:
                continue
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith(("/", "socket:")) and not path.startswith("/dev/"):
                is_marked = bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK)
                is_forbidden = type(inner).__module__.startswith(_NOT_FOR_FORKS.get(kind, "-"))
                found.setdefault(fd, Handle(part, kind, fd, path, is_forbidden, is_marked))
    return list(found.values())


def _descriptor(part: Any) -> int | None:
    """Return the descriptor behind an open file, archive or connection; None where it is none of them, or closed."""
    kind = type(part).__name__
    if type(part).__module__.split(".")[0] == "h5py":
        return int(part.file.id.get_vfd_handle()) if part else None
    if kind == "Connection" and hasattr(part, "total_changes"):
        return _fd_of(part.execute("PRAGMA database_list").fetchone()[2])
    if kind == "Environment" and callable(getattr(part, "max_readers", None)):  # of lmdb
        return _fd_of(part.path()) or _fd_of(os.path.join(part.path(), "data.mdb"))
    if kind == "NpzFile":
        part = part.zip
    inner = getattr(part, "fp", None) or getattr(part, "fileobj", None)  # a zip or a tar file
    if inner is not None and not isinstance(part, io.IOBase):
        part = inner
    part = getattr(part, "_file", part)  # a zip's file that several members share
    ask = getattr(part, "fileno", None)
    if not callable(ask) or isinstance(part, type):
        return None
    fd = ask()
    return fd if isinstance(fd, int) and fd >= 0 else None


def _fd_of(path: str) -> int | None:
    links = {int(name): f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}
    real = os.path.realpath(path)
    return next((fd for fd, link in links.items() if os.path.realpath(link) == real), None)


# ------------------------------------------------------------------------------------------ pickling


class _Nowhere(io.RawIOBase):
    """Counts what is written: a large data set should not be in memory twice for a question."""

    size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.size += memoryview(data).nbytes
        return memoryview(data).nbytes


def pickled_bytes(value: Any) -> int:
    """Return how many bytes go to each worker that starts anew, where tensors are shared; raises what pickling does."""
    nowhere = _Nowhere()
    ForkingPickler(nowhere, pickle.HIGHEST_PROTOCOL).dump(value)
    return nowhere.size


def find_unpicklable(value: Any, name: str, seen: frozenset[int] = frozenset()) -> tuple[str, str] | None:
    """Return the innermost part that cannot be pickled, and what it says; None where all can."""
    said = None if id(value) in seen else _pickle_problem(value)  # a part that points back is none of its own
    if said is None:
        return None
    with contextlib.suppress(Exception):
        for part, inner in _pickled_parts(value, name):
            if (found := find_unpicklable(inner, part, seen | {id(value)})) is not None:
                return found
    return name, said


def _pickle_problem(value: Any) -> str | None:
    try:
        ForkingPickler(_Nowhere(), pickle.HIGHEST_PROTOCOL).dump(value)
    except RecursionError:
        return "RecursionError"
    except Exception as error:
        # locks and queues of multiprocessing go to a worker while it starts, and only then
        return None if "through inheritance" in str(error) else f"{type(error).__name__}: {error}"
    return None


def _pickled_parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What pickling goes into: of an object, what it gives as its state."""
    if isinstance(value, _CONTAINERS):
        yield from _items(value, name)
        return
    reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if isinstance(reduced, str):
        return
    for part in reduced[1:]:
        if isinstance(part, dict):
            yield from ((f"{name}.{key}", inner) for key, inner in part.items())
        elif isinstance(part, (list, tuple)):
            yield from ((f"{name}.{inner.__name__}" if hasattr(inner, "__name__") else name, inner) for inner in part)


# ------------------------------------------------------------------------------------------ copied by reference counts


def copied_by_fork(value: Any, name: str) -> list[tuple[int, str, int]]:
    """Measure the bytes that a forked process copies of each large container when it looks at all objects in it once.

    An epoch does that: each look at an object changes its count of references, and with it copies its page. Arrays and
    tensors are one object each, whatever they hold. Returns bytes, name and number of items, the largest first.
    """
    large: dict[str, Any] = {}
    for part, inner in parts_of(value, name):
        is_large = isinstance(inner, _CONTAINERS) and len(inner) >= _LARGE
        if is_large and len(large) < _MOST_ITEMS and not part.startswith(tuple(f"{outer}[" for outer in large)):
            large[part] = inner
    sizes = _grown_by_looking(list(large.values())) if large else []
    found = [(size, part, len(inner)) for size, (part, inner) in zip(sizes, large.items(), strict=False)]
    return sorted(found, reverse=True)


def _grown_by_looking(values: list[Any]) -> list[int]:
    """By how many bytes of its own a forked process grows with each of the values."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        gc.disable()  # a collection would touch all objects, of whatever
        until, own = time.monotonic() + _TOUCH_S, [_own_bytes()]
        for value in values:
            _touch(value, until)
            own.append(_own_bytes())
        os.write(write, json.dumps([max(0, now - before) for before, now in itertools.pairwise(own)]).encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 1 << 16)
    os.close(read)
    os.waitpid(pid, 0)
    return list(json.loads(said or b"[]"))


def _own_bytes() -> int:
    rollup = read_rollup(os.getpid())
    return rollup.own_bytes if rollup is not None else 0


def _touch(value: Any, until: float, depth: int = 8) -> None:
    """Look at all that is inside; for a while, for what points back is met again and again."""
    inside = value if isinstance(value, (list, tuple, set, frozenset)) else gc.get_referents(value)
    for inner in inside:
        if depth and type(inner) not in _CLOSED and not isinstance(inner, (type, ModuleType, FunctionType)):
            if time.monotonic() > until:
                return
            _touch(inner, until, depth - 1)
