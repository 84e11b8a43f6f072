"""The calls that make a loader, what each is given, and the loops that run over it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .script import Loop, Script

_TORCH = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory")

Pairs: TypeAlias = list[tuple[ast.expr | None, ast.expr]]

# The classes that are torch's loader, or pass what they are given on to it, and their positional arguments.
_LOADERS = {
    "torch.utils.data.DataLoader": _TORCH,
    "torch.utils.data.dataloader.DataLoader": _TORCH,
    "torchdata.stateful_dataloader.StatefulDataLoader": _TORCH,
    "torch_geometric.loader.DataLoader": _TORCH[:3],
    "torch_geometric.data.DataLoader": _TORCH[:3],
    "monai.data.DataLoader": ("dataset", "num_workers"),
}


@dataclass
class LoaderCall:
    """A call that makes a loader, and what it is given as far as the file shows."""

    node: ast.Call
    given: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    unsure: set[str] = field(default_factory=set)  # given under a condition
    is_whole: bool = True  # nothing is given that cannot be seen
    unpacked: set[ast.expr] = field(default_factory=set)

    def lacks(self, name: str) -> bool:
        """Whether an argument is surely left out."""
        return self.is_whole and name not in self.given


class LoaderCalls:
    """All loaders of a file."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.calls = [LoaderCall(node) for node in script.each(ast.Call) if self._arguments_of(node) is not None]
        for call in self.calls:
            self._read(call)

    def values(self, call: LoaderCall, name: str) -> list[Any]:
        """Return the values that an argument may have; an empty list where it is not given, or not known."""
        each = [self._script.constants(one) for one in call.given.get(name, ())]
        return [value for values in each for value in values] if all(each) else []

    def settings(self, call: LoaderCall, name: str) -> set[str]:
        """Return the settings that an argument is made of, by the names that they are read by."""
        return {one for node in call.given.get(name, ()) for one in self._script.settings_in(node)}

    def is_off(self, call: LoaderCall, name: str) -> bool:
        """Whether an argument whose default is off is surely left out, false or 0."""
        values = self.values(call, name)
        return call.lacks(name) or (bool(values) and not any(values))

    @property
    def is_in_process(self) -> bool:
        """Whether there are loaders, and none of them has a worker."""
        return bool(self.calls) and all(self.is_off(call, "num_workers") for call in self.calls)

    def loops(self) -> Iterator[tuple[ast.For, list[LoaderCall]]]:
        """Yield the loops over loaders, and the loaders that each may run over."""
        for loop in self._script.each(ast.For):
            origins = self._script.origins(loop.iter)
            calls = [call for call in self.calls if call.node in origins]
            if calls and len(calls) == len(origins):
                yield loop, calls

    def epochs_around(self, loop: ast.For, call: LoaderCall) -> Loop | None:
        """Return the loop of epochs around a loop of batches: in its function, or around the calls of that function."""
        function = self._script.function_of(loop)
        is_made_by_each = function is not None and function is self._script.function_of(call.node)
        sites = [] if is_made_by_each else self._script.call_sites(function)
        around = [self._script.loop_of(one) for one in (loop, *sites)]
        return next((one for one in around if one), None)

    def _arguments_of(self, node: ast.Call) -> tuple[str, ...] | None:
        """Return the names of a call's positional arguments if it makes a loader."""
        return _LOADERS.get(self._script.dotted(node.func))

    def _read(self, call: LoaderCall) -> None:
        for name, value in zip(self._arguments_of(call.node) or (), call.node.args, strict=False):
            call.is_whole = call.is_whole and not isinstance(value, ast.Starred)
            call.given[name].append(value)
        self._put(call, _pairs(call.node)[len(call.node.args) :], is_sure=True)

    def _put(self, call: LoaderCall, pairs: Pairs, *, is_sure: bool) -> None:
        for key, value in pairs:
            if key is None:
                self._unpack(call, value, is_sure=is_sure)
            elif isinstance(key, ast.Constant):
                name = str(key.value)
                if not is_sure:
                    call.unsure.add(name)
                call.given[name] = [value] if is_sure else [*call.given[name], value]
            else:
                call.is_whole = False

    def _unpack(self, call: LoaderCall, node: ast.expr, *, is_sure: bool) -> None:
        """Read `**node`: a dictionary of this file with all that is stored into it."""
        origins = [] if node in call.unpacked else self._script.origins(node)
        call.unpacked.add(node)  # one that is made of itself is not known
        call.is_whole = call.is_whole and bool(origins)
        for origin in origins:
            is_call = isinstance(origin, ast.Call) and self._script.dotted(origin.func) == "dict"
            call.is_whole = call.is_whole and (is_call or isinstance(origin, ast.Dict))
            self._put(call, _pairs(origin) if is_call or isinstance(origin, ast.Dict) else [], is_sure=is_sure)
        home = self._script.function_of(node) or self._script.tree
        if not isinstance(node, ast.Name):
            return
        for one in ast.walk(home):
            if getattr(one, "lineno", call.node.lineno) < call.node.lineno:
                sure = is_sure and not self._script.is_conditional(one, home)
                match one:
                    case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=node.id), slice=key)]):
                        self._put(call, [(key, one.value)], is_sure=sure)
                    case ast.Call(func=ast.Attribute(value=ast.Name(id=node.id), attr="update")):
                        self._put(call, _pairs(one), is_sure=sure)


def _pairs(node: ast.AST) -> Pairs:
    """Return what a dictionary, or a call that fills one, holds; without a key: `**more`."""
    if isinstance(node, ast.Dict):
        return list(zip(node.keys, node.values, strict=True))
    assert isinstance(node, ast.Call)
    named = [(ast.Constant(one.arg) if one.arg else None, one.value) for one in node.keywords]
    return [*((None, one) for one in node.args), *named]
