"""Faces that load a name when it is first used, so that `import headrace` loads neither torch nor numpy."""

from collections.abc import Callable
from importlib import import_module
from sys import modules


def lazy_names(face: str, **homes: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a face: `homes` say which module has which names, loader="DataLoader".

    A home with no names of its own is offered itself.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name in home_of:
            value: object = getattr(import_module(f".{home_of[name]}", face), name)
            setattr(modules[face], name, value)  # the next access does not come here again
            return value
        if name in homes:
            return import_module(f".{name}", face)
        raise AttributeError(f"module {face!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(modules[face]), *home_of, *homes})

    return load, names
