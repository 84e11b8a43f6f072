"""A Python file as its syntax tree: where the values in it come from, and what its loaders are given.

Values are followed inside of one file: a name to all of its assignments, a parameter to all calls of its function, a
call of a function of the file to what it returns, an attribute of `self` to its assignments in the class, a flag to its
default. Where one of those cannot be seen, nothing is known, and the rules are silent.
"""

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Loop: TypeAlias = ast.For | ast.While
Sources: TypeAlias = list[ast.AST | None]
Pairs: TypeAlias = list[tuple[str | None, ast.expr]]

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module, *_COMPREHENSIONS)
# What gives its first argument, or its items.
_PASS_ON = {"int", "bool", "enumerate", "tqdm", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "itertools.islice"}
# What people call the namespace that a parser of the command line, or a configuration, gives them.
_NAMESPACES = {"args", "arg", "opt", "opts", "options", "cfg", "config", "conf", "hparams", "hp", "params", "FLAGS"}
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


class Spot(NamedTuple):
    """A place that breaks a rule, and what fills the blanks of the rule's sentences."""

    rule: str
    line: int
    column: int
    values: Mapping[str, object]


@dataclass(frozen=True)
class Flag:
    """An option of the command line, or a field of a data class that holds settings."""

    name: str  # as it is read: `num_workers`
    shown: str  # as it is given: `--num-workers`
    default: ast.expr | None
    node: ast.AST
    is_option: bool  # and no field


class Script:
    """One file, parsed; made once and asked by all rules. `project`: the bytes of all that are looked at together."""

    def __init__(self, text: str, project: bytes) -> None:
        self.text, self.project = text, project
        with warnings.catch_warnings(action="ignore"):  # of the file: "invalid escape sequence"
            self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._nodes: dict[type[ast.AST], list[Any]] = defaultdict(list)
        self._imports: dict[str, str] = {}
        # By scope, or class, and name: what it is set to; `None` is something that cannot be followed.
        self._bound: dict[tuple[ast.AST | None, str], Sources] = defaultdict(list)
        self._known: dict[ast.AST, list[Any]] = {}
        for node in ast.walk(self.tree):
            self._nodes[type(node)].append(node)
            self.parents.update((child, node) for child in ast.iter_child_nodes(node))
        self._read_imports()
        self._read_bindings()

    def each(self, *kinds: type[ast.AST]) -> Iterator[Any]:
        return (node for kind in kinds for node in self._nodes[kind])

    def found(self, rule: str, node: ast.AST, **values: object) -> Spot:
        line, byte = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        column = len(self.text.splitlines()[line - 1].encode()[:byte].decode()) + 1
        return Spot(rule, line, column, values)

    # ---------------------------------------------------------------------------------- the tree

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node lies in, the nearest first."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def nearest(self, node: ast.AST, *kinds: type[ast.AST]) -> Any:
        return next((above for above in self.ancestors(node) if isinstance(above, kinds)), None)

    def function_of(self, node: ast.AST) -> Function | None:
        found: Function | None = self.nearest(node, ast.FunctionDef, ast.AsyncFunctionDef)
        return found

    def loop_of(self, node: ast.AST) -> Loop | None:
        """Return the loop around a node, in the same function."""
        found = self.nearest(node, ast.For, ast.While, *_SCOPES[:3])
        return found if isinstance(found, Loop) else None

    def is_conditional(self, node: ast.AST, within: ast.AST) -> bool:
        """Whether a node below `within` may be passed by: an `if`, a handler, an inner loop or function is between."""
        below = node
        for above in self.ancestors(node):
            if above is within:
                return False
            if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
                return True
            if isinstance(above, (ast.ExceptHandler, ast.BoolOp, ast.For, ast.While, ast.Match, *_SCOPES)):
                return True
            below = above
        return True

    def dotted(self, node: ast.AST | None) -> str:
        """Return the full name of a function or class, as imports tell it: `torch.utils.data.DataLoader`."""
        if isinstance(node, ast.Name):
            return self._imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (before := self.dotted(node.value)):
            return f"{before}.{node.attr}"
        return ""

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Yield the calls of functions with these full names."""
        return (call for call in self.each(ast.Call) if self.dotted(call.func) in names)

    def bases(self, home: ast.ClassDef) -> list[str]:
        return [self.dotted(base).rpartition(".")[2] for base in home.bases]

    @cached_property
    def loaders(self) -> list["LoaderCall"]:
        return [LoaderCall(self, node) for node in self.calls(*_LOADERS)]

    # ---------------------------------------------------------------------------------- following values

    def origins(self, node: ast.AST) -> list[ast.AST]:
        """Return the expressions that may have given a value; an empty list where that cannot be known."""
        found: list[ast.AST] = []
        seen: set[ast.AST] = set()
        waiting: Sources = [node]
        while waiting:
            if (one := waiting.pop()) is None:
                return []
            if one not in seen:
                seen.add(one)
                sources = self._sources(one)
                found += [one] if sources is None else []
                waiting += [None] if sources == [] else sources or []
        return found

    def constants(self, node: ast.AST) -> list[Any]:
        """Return all values that an expression may have; an empty list where that cannot be known."""
        if node not in self._known:
            self._known[node] = []  # what is computed from itself is not known
            each = [self._constants_of(origin) for origin in self.origins(node)]
            if all(each):
                self._known[node] = [value for values in each for value in values]
        return self._known[node]

    def call_sites(self, function: Function | None) -> list[ast.Call]:
        """Return the calls of a function of this file; an empty list where others may call it as well."""
        if function is None:
            return []
        is_method = isinstance(self.parents[function], ast.ClassDef)
        found: list[ast.Call] = []
        for node in self.each(ast.Attribute if is_method else ast.Name):
            if (node.attr if is_method else node.id) == function.name:
                above: Any = self.parents[node]
                if getattr(above, "func", None) != node:
                    return []  # handed on: to a thread, a registry, `mp.spawn`
                if not is_method or is_self(node.value):
                    found.append(above)
        return found

    def local_function(self, call: ast.AST) -> Function | None:
        """Return the function of this file that is called: by its name, or as a method of the same class."""
        bound: Sources = []
        match call:
            case ast.Call(func=ast.Name() as name):
                bound = self._bindings(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=method)):
                bound = self._bound.get((self.nearest(call, ast.ClassDef), method), [])
        return bound[0] if len(bound) == 1 and isinstance(bound[0], Function) else None

    def _sources(self, node: ast.AST) -> Sources | None:
        """Return what a value comes from, `None` among it where that is unknown; `None` for what is no name."""
        match node:
            case ast.Name():
                return self._bindings(node)
            case ast.arg():
                function = self.function_of(node)
                return [_argument(site, function, node.arg) for site in self.call_sites(function) if function]
            case ast.Attribute(value=ast.Name(id="self")):
                return self._bound.get((self.nearest(node, ast.ClassDef), f"self.{node.attr}"))
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.Call(args=[first, *_]) if self.dotted(node.func) in _PASS_ON:
                return [first]
            case ast.Call() if (function := self.local_function(node)) is not None:
                return self._returned(function)
            case ast.Subscript(slice=ast.Constant(value=int(at))) if function := self.local_function(node.value):
                returned = self._returned(function)
                return [one.elts[at] if isinstance(one, ast.Tuple) and at < len(one.elts) else None for one in returned]
        return None

    def _bindings(self, name: ast.Name) -> Sources:
        """Return what a name is set to in the nearest scope that sets it."""
        for scope in self.ancestors(name):
            is_seen = not isinstance(scope, ast.ClassDef) or scope is self._scope(name)
            if isinstance(scope, _SCOPES) and is_seen and (scope, name.id) in self._bound:
                return self._bound[scope, name.id]
        return []

    def _returned(self, function: Function) -> Sources:
        return [one.value for one in within(function, ast.Return) if self.function_of(one) is function]

    def _constants_of(self, node: ast.AST) -> list[Any]:
        match node:
            case _ if (flag := self.flag_of(node)) is not None:
                return self.constants(flag.default) if flag.default and not self._is_changed(flag) else []
            case ast.Constant():
                return [node.value]
            case ast.UnaryOp(op=ast.Not()):
                return [not one for one in self.constants(node.operand)]
            case ast.BoolOp(op=ast.And()):
                parts = [self.constants(one) for one in node.values]
                return [all(all(part) for part in parts)] if all(parts) else []
            case ast.BinOp(op=ast.Mult() | ast.Pow()):  # as lengths are written: 5 * 10**6
                left, right = self.constants(node.left), self.constants(node.right)
                if len(left) == len(right) == 1 and all(
                    isinstance(one, int) and 0 <= one < 1 << 40 for one in left + right
                ):
                    return [left[0] * right[0] if isinstance(node.op, ast.Mult) else left[0] ** min(right[0], 64)]
            case ast.Call() if self.dotted(node.func) == "torch.cuda.is_available":
                return [True]  # it is, where a training matters
        return []

    # ---------------------------------------------------------------------------------- flags

    @cached_property
    def flags(self) -> dict[str, Flag]:
        """The options that this file declares, by the name they are read by; a name declared twice is none."""
        found: dict[str, list[Flag]] = defaultdict(list)
        for call in self.each(ast.Call):
            words = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if words and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                options = {one.arg: one.value for one in call.keywords}
                shown = next((word for word in words if word.startswith("--")), words[0])
                dest, action = (getattr(options.get(one), "value", None) for one in ("dest", "action"))
                name = dest if isinstance(dest, str) else shown.lstrip("-").replace("-", "_")
                is_switch = action in ("store_true", "store_false")
                default = options.get("default") or (ast.Constant(action == "store_false") if is_switch else None)
                found[name].append(Flag(name, shown, default, call, is_option=True))
        for field in self.each(ast.AnnAssign):
            home = self.parents[field]
            if isinstance(home, ast.ClassDef) and "dataclass" in " ".join(map(ast.unparse, home.decorator_list)):
                name = ast.unparse(field.target)
                found[name].append(Flag(name, f"{home.name}.{name}", field.value, field, is_option=False))
        return {name: flags[0] for name, flags in found.items() if len(flags) == 1}

    @cached_property
    def _namespaces(self) -> set[str]:
        parsed = [call for call in self.each(ast.Call) if getattr(call.func, "attr", "").startswith("parse_")]
        stores = [self.parents[call] for call in parsed if isinstance(self.parents[call], ast.Assign)]
        return _NAMESPACES | {one for store in stores for one in names_in(getattr(store, "targets", [None])[0])}

    def setting_read(self, node: ast.AST) -> str:
        """Return the name that is read from the command line or a configuration, `args.num_workers`; else nothing."""
        match node:
            case ast.Attribute(value=home, attr=name) | ast.Subscript(value=home, slice=ast.Constant(value=name)):
                return str(name) if self._is_namespace(home) else ""
        return ""

    def flag_of(self, node: ast.AST) -> Flag | None:
        return self.flags.get(self.setting_read(node))

    def settings_in(self, node: ast.AST) -> dict[str, ast.AST]:
        """Return the settings that are read in an expression, or in what its names stand for, and where."""
        parts = list(ast.walk(node))
        parts += [one for part in parts if isinstance(part, ast.Name) for one in self.origins(part)]
        return {name: part for part in parts if (name := self.setting_read(part))}

    def _is_namespace(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in self._namespaces or self._is_namespace(node.value)
        return isinstance(node, ast.Name) and node.id in self._namespaces

    def stores_of(self, flag: Flag) -> list[ast.Assign]:
        return [store for store in self.each(ast.Assign) if self.flag_of(store.targets[0]) is flag]

    def _is_changed(self, flag: Flag) -> bool:
        """Whether the script sets a flag itself, to something else than a share of what was asked for."""
        return any(flag.name not in self.settings_in(store.value) for store in self.stores_of(flag))

    # ---------------------------------------------------------------------------------- reading the tree

    def _read_imports(self) -> None:
        for node in self.each(ast.Import, ast.ImportFrom):
            for alias in node.names:
                if alias.asname or isinstance(node, ast.ImportFrom):
                    full = f"{getattr(node, 'module', None) or ''}.{alias.name}".lstrip(".")
                    self._imports[alias.asname or alias.name] = full

    def _scope(self, node: ast.AST) -> ast.AST:
        scope: ast.AST = self.nearest(node, *_SCOPES)
        return scope

    def _read_bindings(self) -> None:
        shared = {(self._scope(node), name) for node in self.each(ast.Global, ast.Nonlocal) for name in node.names}
        for node in self.each(ast.Name):
            if not isinstance(node.ctx, ast.Load):
                scope = self._scope(node)
                self._bound[self.tree if (scope, node.id) in shared else scope, node.id].append(self._stored(node))
        for attribute in self.each(ast.Attribute):
            if isinstance(attribute.ctx, ast.Store) and is_self(attribute.value):
                name = f"self.{attribute.attr}"
                self._bound[self.nearest(attribute, ast.ClassDef), name].append(self._stored(attribute))
        for one in self.each(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg):
            self._bound[self._scope(one), one.arg if isinstance(one, ast.arg) else one.name].append(one)

    def _stored(self, target: ast.expr) -> ast.AST | None:
        """Return what is stored into a name or an attribute of `self`."""
        above = self.parents[target]
        if isinstance(above, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            return above.value
        place = self.parents.get(above)
        if isinstance(above, ast.Tuple) and isinstance(place, ast.Assign):
            index = above.elts.index(target)
            if isinstance(place.value, ast.Tuple) and len(place.value.elts) == len(above.elts):
                return place.value.elts[index]
            if isinstance(place.value, ast.Call):  # an element of what is returned
                element = ast.Subscript(place.value, ast.Constant(index), ast.Load())
                self.parents[element] = place
                return element
        return None


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


def within(node: ast.AST | None, *kinds: type[ast.AST]) -> Iterator[Any]:
    """Yield the nodes of some kinds in a part of a file, the outer ones first."""
    return (one for one in ast.walk(node) if isinstance(one, kinds)) if node else iter(())


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def names_in(node: ast.AST | None) -> set[str]:
    return {one.id for one in within(node, ast.Name)}


def root_name(node: ast.AST) -> str:
    """Return the variable that an expression starts from: `batch` of `batch["image"].float()`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def name_of(key: ast.expr) -> str:
    """Return the name that a key of a dictionary is; nothing where it is computed."""
    return str(key.value) if isinstance(key, ast.Constant) else ""


def pairs_of(node: ast.AST, *names: str) -> Pairs:
    """Return what a dictionary holds, or a call is given, these names first; `None` for the name of `**more`."""
    if isinstance(node, ast.Dict):
        return [(name_of(key) if key else None, value) for key, value in zip(node.keys, node.values, strict=True)]
    assert isinstance(node, ast.Call)
    by_place = zip([*names, *[None] * len(node.args)], node.args, strict=False)
    return [*by_place, *((one.arg, one.value) for one in node.keywords)]


def _argument(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """Return what a call gives for a parameter, its default included; `None` where that cannot be seen."""
    spec = function.args
    names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
    given = pairs_of(call, *names[names[:1] == ["self"] :], *[""] * len(call.args))  # more of them go to `*rest`
    if any(one is None or isinstance(value, ast.Starred) for one, value in given):
        return None
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    defaults |= {one.arg: value for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
    return dict(given).get(name) or defaults.get(name)
