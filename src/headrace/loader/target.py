"""What a command works on, as people name it: `file.py:name`, `pkg.mod:name`, or a pattern of tar shards."""

import importlib
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.process import _process_counter  # type: ignore[attr-defined]
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch.utils.data as torch_data
from torch.utils.data import default_collate

from headrace.codecs import decode
from headrace.errors import CannotLoadTarget
from headrace.model import describe_error
from headrace.storage import Shards

_IN_PYTHON = re.compile(r"(?P<place>.+\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_OF_SHARDS = re.compile(r"\.tar\b|[*?\[{]|://")
_NAME_ONE = "path/to/file.py:name or package.module:name (a loader, a data set, or a function that returns one)"


@dataclass(frozen=True)
class Target:
    """What the user named: a data set, and the loader that it came with, if any."""

    text: str
    dataset: Any
    loader: torch_data.DataLoader[Any] | None = None
    collate_fn: Callable[[list[Any]], Any] = default_collate
    import_s: float = 0.0  # of its module, which each worker that starts anew imports as well
    starts_processes: bool = False  # its module did while it was imported: it has no guard

    @property
    def is_indexed(self) -> bool:
        """Whether samples can be asked for by index: not those of an `IterableDataset`."""
        is_stream = isinstance(self.dataset, torch_data.IterableDataset)  # which inherits a `__getitem__` that raises
        return not is_stream and hasattr(self.dataset, "__getitem__") and hasattr(self.dataset, "__len__")


def load_target(text: str) -> Target:
    """Return what `file.py:name`, `pkg.mod:name` or a shard pattern names; raise `CannotLoadTarget` that says why not.

    A name may be of a loader (torch's or ours), of a data set, or of a function or class that makes one without
    arguments. The folder of a file (for a module: the current one) joins `sys.path`, so that workers which start anew
    find it as well. Fields of shards are decoded as their extensions say; others are left out.
    """
    named = _IN_PYTHON.fullmatch(text)
    if named is None and (_OF_SHARDS.search(text) or os.path.isdir(text)):
        return _of_shards(text)
    if named is None:
        next_step = f"write {_NAME_ONE}; or name shards: 'data/train-{{000..127}}.tar', or their folder"
        raise CannotLoadTarget(f"{text!r} names no data set", next_step=next_step)
    began = time.perf_counter()
    found = _find(named["place"], named["attribute"])
    # each process takes a number when it is made
    of_import = time.perf_counter() - began, next(_process_counter) > 1
    is_made = isinstance(found, (torch_data.DataLoader, torch_data.Dataset))
    if isinstance(found, type) or (callable(found) and not is_made and not hasattr(found, "__getitem__")):
        try:
            with _own_arguments(text):
                found = found()
        except (Exception, SystemExit) as error:
            inside = traceback.extract_tb(error.__traceback__)[1:]  # empty where arguments are missing
            raised = f"what is raised in line {inside[-1].lineno} of {inside[-1].filename}" if inside else ""
            next_step = raised or "a function without arguments"
            raise CannotLoadTarget(f"calling {text} failed: {describe_error(error)}", next_step=next_step) from error
    if isinstance(found, torch_data.DataLoader):
        return Target(text, found.dataset, found, found.collate_fn, *of_import)
    several = list(found.values() if isinstance(found, Mapping) else found) if _is_several(found) else []
    comes_once = isinstance(found, Iterator) and not isinstance(found, torch_data.Dataset)
    if several or comes_once or not (hasattr(found, "__getitem__") or hasattr(found, "__iter__")):
        what = f"{len(several)} loaders or data sets" if several else f"a {type(found).__name__}, no data set"
        next_step = f"{'a function that returns one of them' if several else 'the name of one'}: {_NAME_ONE}"
        raise CannotLoadTarget(f"{text} is {what}", next_step=next_step)
    return Target(text, found, None, default_collate, *of_import)


def _is_several(found: Any) -> bool:
    """Whether it is what `return train_loader, val_loader` gives, and no list of samples."""
    if not isinstance(found, (tuple, list, Mapping)) or not 0 < len(found) < 10:
        return False
    parts = found.values() if isinstance(found, Mapping) else found
    return any(isinstance(part, (torch_data.DataLoader, torch_data.Dataset)) for part in parts)


def _find(place: str, attribute: str) -> Any:
    path = Path(place) if place.endswith(".py") else None
    if path is not None and not path.is_file():
        next_step = "the path of the file, from the current folder or from /"
        raise CannotLoadTarget(f"there is no file {place!r}", current_folder=Path.cwd(), next_step=next_step)
    sys.path.insert(0, str(Path.cwd() if path is None else path.resolve().parent))
    name = place if path is None else path.stem
    try:
        with _own_arguments(place):
            module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        next_step = f"make `python -c 'import {name}'` work here, or name a file: path/to/file.py:{attribute}"
        if isinstance(error, SystemExit):
            next_step = "parse arguments and train below `if __name__ == '__main__':`, which an import leaves out"
        what = f"importing {name!r} failed: {describe_error(error)}"
        raise CannotLoadTarget(what, python=sys.executable, next_step=next_step) from error
    if path is not None and Path(module.__file__ or "").resolve() != path.resolve():
        raise CannotLoadTarget(
            f"{path.name} has the name of another module, {name}", next_step="give the file a name of its own"
        )
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        public = ", ".join([name for name in vars(module) if not name.startswith("_")][:12]) or "nothing public"
        next_step = "the name of a data set, of a function that makes one, or of a loader"
        raise CannotLoadTarget(f"{place} has no {attribute!r}", it_has=public, next_step=next_step) from None


@contextmanager
def _own_arguments(place: str) -> Iterator[None]:
    """A script that parses its command line when it is imported should not parse ours."""
    before, sys.argv = sys.argv, [place]
    try:
        yield
    finally:
        sys.argv = before


def _of_shards(text: str) -> Target:
    """The samples of shards, decoded; collated by torch's rule where that works on the first two, else as lists."""
    raw = Shards(text)
    first = next(iter(raw), None)
    if first is None:
        raise CannotLoadTarget(f"{text} holds no sample", next_step=f"`headrace shards {text}` says what is in it")
    known = [field for field in first if not field.startswith("__") and _has_codec(field)]
    dataset = Shards(text, decode=decode(*known)) if known else raw
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that arrays are read-only
            default_collate(list(islice(iter(dataset), 2)))
        return Target(text, dataset)
    except Exception:  # pictures of several sizes; or the second one is damaged, which is not to be found out here
        return Target(text, dataset, collate_fn=list)


def _has_codec(field: str) -> bool:
    try:
        return bool(decode(field).fields)
    except ValueError:
        return False
