"""What a data set is made of: its parts by name, those that cannot be pickled, hold files open, are copied by a fork.

A part's name is how Python reaches it: `dataset.transform.steps[2]`.
"""

import contextlib
import gc
import io
import itertools
import os
import pickle
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

_MOST_PARTS = 20_000  # that are looked at: a list of a million paths holds no handle that its first thousands do not
_MOST_ITEMS = 256  # of one container
_LARGE, _LOOKED_AT, _MOST_OBJECTS = 10_000, 1000, 1000  # items of a container; of those, how many; and behind each
_PAGE = 4096
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_CLOSED = (ModuleType, type, BuiltinFunctionType)
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


def find_handles(**values: Any) -> list[Handle]:
    """Return the parts of some values that hold something open, the outermost of each file."""
    found: dict[int, Handle] = {}
    for part, inner in (one for name, value in values.items() for one in parts_of(value, name)):
        with contextlib.suppress(Exception):
            fd, kind = _descriptor(inner), type(inner).__name__
            if fd is None:
                continue
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith(("/", "socket:")) and not path.startswith("/dev/"):
                is_forbidden = type(inner).__module__.startswith(_NOT_FOR_FORKS.get(kind, "-"))
                found.setdefault(fd, Handle(part, kind, fd, path, is_forbidden, id(inner)))
    return list(found.values())


def _descriptor(part: Any) -> int | None:
    """Return the descriptor behind an open file, archive or connection; None where it is none of them, or closed."""
    kind, paths = type(part).__name__, list[str]()
    if type(part).__module__.split(".")[0] == "h5py":
        return int(part.file.id.get_vfd_handle()) if part else None
    if kind == "Connection" and hasattr(part, "total_changes"):
        paths = [part.execute("PRAGMA database_list").fetchone()[2]]
    if kind == "Environment" and callable(getattr(part, "max_readers", None)):  # of lmdb
        paths = [part.path(), os.path.join(part.path(), "data.mdb")]
    if paths:
        real = [os.path.realpath(path) for path in paths]
        fds = map(int, os.listdir("/proc/self/fd"))
        return next((fd for fd in fds if os.path.realpath(f"/proc/self/fd/{fd}") in real), None)
    part = part.zip if kind == "NpzFile" else part
    inner = getattr(part, "fp", None) or getattr(part, "fileobj", None)  # a zip or a tar file
    part = part if inner is None or isinstance(part, io.IOBase) else inner
    part = getattr(part, "_file", part)  # a zip's file that several members share
    fd = part.fileno() if not isinstance(part, type) else None
    return fd if isinstance(fd, int) and fd >= 0 else None


# ------------------------------------------------------------------------------------------ pickling


class _Nowhere:
    """Counts what is written: a large data set should not be in memory twice for a question."""

    size = 0

    def write(self, data: Any) -> None:
        self.size += memoryview(data).nbytes


class _Trail(ForkingPickler):
    """Pickles into nowhere, and remembers what it came by last."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), pickle.HIGHEST_PROTOCOL)
        self.seen: deque[Any] = deque(maxlen=_LOOKED_AT)

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
    nowhere = _Nowhere()
    ForkingPickler(nowhere, pickle.HIGHEST_PROTOCOL).dump(value)
    return nowhere.size


def find_unpicklable(value: Any, name: str) -> tuple[str, str] | None:
    """Return the innermost part that cannot be pickled, and what it says; None where all can."""
    trail = _Trail()
    if not (said := trail.problem_of(value)):
        return None
    names = {id(inner): part for part, inner in parts_of(value, name)}
    known = (one for one in reversed(trail.seen) if id(one) in names)
    return next(((names[id(one)], said) for one in known if _Trail().problem_of(one)), (name, said))


# ------------------------------------------------------------------------------------------ copied by reference counts


def copied_by_fork(value: Any, name: str) -> list[tuple[int, str, int]]:
    """Estimate the bytes that a forked process copies of each large container when it looks at all objects in it once.

    An epoch does that: each look at an object changes its count of references, and with it copies its page. Arrays and
    tensors are one object each, whatever they hold. Returns bytes, name and number of items, the largest first.
    """
    found: list[tuple[int, str, int]] = []
    for part, inner in parts_of(value, name):
        is_large = isinstance(inner, _CONTAINERS) and len(inner) >= _LARGE
        if is_large and not part.startswith(tuple(f"{outer}[" for _, outer, _ in found)):
            found.append((_bytes_of_objects(inner), part, len(inner)))
    return sorted(found, reverse=True)


def _bytes_of_objects(container: Any) -> int:
    """By some of its items: what the second half of these adds to the first, so that what all share counts once."""
    items = container.items() if isinstance(container, dict) else container
    looked_at = list(itertools.islice(items, 0, None, len(container) // _LOOKED_AT))
    seen, size = {id(container)}, 0
    for at, item in enumerate(looked_at):
        todo = deque(item if isinstance(container, dict) else [item])
        most = len(seen) + _MOST_OBJECTS  # the nearest ones: an item may point back to all that there is
        while todo and len(seen) < most:
            one = todo.popleft()
            if id(one) not in seen and not issubclass(type(one), (*_CLOSED, FunctionType)):
                seen.add(id(one))
                size += min(sys.getsizeof(one), _PAGE) if 2 * at >= len(looked_at) else 0
                todo += gc.get_referents(one)
    return 2 * size * len(container) // len(looked_at)
