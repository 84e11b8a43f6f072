"""The calls that make a loader, and what each is given."""

import ast
from collections import defaultdict
from typing import Any

from .script import Pairs, Script, name_of, pairs_of

_TORCH = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory")

# The classes that are torch's loader, or pass what they are given on to it, and their positional arguments.
_LOADERS = {
    "torch.utils.data.DataLoader": _TORCH,
    "torch.utils.data.dataloader.DataLoader": _TORCH,
    "torchdata.stateful_dataloader.StatefulDataLoader": _TORCH,
    "torch_geometric.loader.DataLoader": _TORCH[:3],
    "torch_geometric.data.DataLoader": _TORCH[:3],
    "monai.data.DataLoader": ("dataset", "num_workers"),
}


def find_loaders(script: Script) -> list["LoaderCall"]:
    return [LoaderCall(script, node) for node in script.calls(*_LOADERS)]


class LoaderCall:
    """A call that makes a loader, and what it is given as far as the file shows."""

    def __init__(self, script: Script, node: ast.Call) -> None:
        self._script, self.node = script, node
        self.given: dict[str, list[ast.expr]] = defaultdict(list)
        self.unsure = set[str]()  # given under a condition
        self._is_whole = True  # nothing is given that cannot be seen
        self._unpacked = set[ast.expr]()
        self._put(pairs_of(node, *_LOADERS[script.dotted(node.func)]), is_sure=True)

    def lacks(self, name: str) -> bool:
        """Whether an argument is surely left out."""
        return self._is_whole and name not in self.given

    def values(self, name: str) -> list[Any]:
        """Return the values that an argument may have; an empty list where it is not given, or not known."""
        each = [self._script.constants(one) for one in self.given.get(name, ())]
        return [value for values in each for value in values] if all(each) else []

    def settings(self, name: str) -> set[str]:
        """Return the settings that an argument is made of, by the names that they are read by."""
        return {one for node in self.given.get(name, ()) for one in self._script.settings_in(node)}

    def is_off(self, name: str) -> bool:
        """Whether an argument whose default is off is surely left out, false or 0."""
        values = self.values(name)
        return self.lacks(name) or (bool(values) and not any(values))

    def _put(self, pairs: Pairs, *, is_sure: bool) -> None:
        for name, value in pairs:
            if name is None:
                self._unpack(value, is_sure=is_sure)
            elif name and not isinstance(value, ast.Starred):
                self.unsure |= set() if is_sure else {name}
                self.given[name] = [value] if is_sure else [*self.given[name], value]
            else:
                self._is_whole = False

    def _unpack(self, node: ast.expr, *, is_sure: bool) -> None:
        """Read `**node`: a dictionary of this file with all that is stored into it."""
        origins = [] if node in self._unpacked else self._script.origins(node)
        self._unpacked.add(node)  # one that is made of itself is not known
        dicts = {*self._script.each(ast.Dict), *self._script.calls("dict")}
        known = [one for one in origins if one in dicts]
        self._is_whole = self._is_whole and 0 < len(origins) == len(known)
        for origin in known:
            self._put(pairs_of(origin), is_sure=is_sure)
        home = self._script.function_of(node) or self._script.tree
        if not isinstance(node, ast.Name):
            return
        for one in ast.walk(home):
            if getattr(one, "lineno", self.node.lineno) < self.node.lineno:
                sure = is_sure and not self._script.is_conditional(one, home)
                match one:
                    case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=node.id), slice=key)]):
                        self._put([(name_of(key), one.value)], is_sure=sure)
                    case ast.Call(func=ast.Attribute(value=ast.Name(id=node.id), attr="update")):
                        self._put(pairs_of(one), is_sure=sure)
