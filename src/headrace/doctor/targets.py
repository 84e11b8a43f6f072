"""Find what a user named as `module:attribute` or `file.py:attribute`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from headrace.errors import CannotLoadTarget
from headrace.model import describe_error


def load_target(text: str) -> Any:
    """Return the object that `module:attribute` or `file.py:attribute` names; raise `CannotLoadTarget` that says why.

    Its folder (for a module: the current one) joins `sys.path`, so that workers which start anew find it as well.
    """
    place, separator, attribute = text.rpartition(":")
    if not separator or not place or not attribute:
        raise CannotLoadTarget(
            f"{text!r} names no data set", next_step="write it as module:attribute or path/to/file.py:attribute"
        )
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    value = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            public = [n for n in vars(module) if not n.startswith("_")]
            raise CannotLoadTarget(f"{place} has no {attribute!r}", it_has=", ".join(public[:12]) or "nothing public")
        value = getattr(value, name)
    return value


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise CannotLoadTarget(f"there is no file {str(path)!r}", current_folder=Path.cwd())
    sys.path.insert(0, str(path.resolve().parent))
    module = _import(path.stem)
    if Path(getattr(module, "__file__", None) or "").resolve() != path.resolve():
        raise CannotLoadTarget(
            f"{path.name} has the name of another module, {path.stem}", next_step="give the file a name of its own"
        )
    return module


def _import_module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return _import(name)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise CannotLoadTarget(f"importing {name!r} failed: {describe_error(error)}", python=sys.executable) from error
