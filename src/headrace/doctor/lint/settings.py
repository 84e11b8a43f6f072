"""Rules about what users set: options that do not reach the loader, settings that contradict each other.

Settings are looked for in YAML, and in dictionaries in Python as mmengine reads them.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.errors import UnusableInput

from .script import Flag, Script, Spot, pairs_of

# What people call the options of a loader, and the argument that each is for.
_ARGUMENT = {
    **dict.fromkeys(("num_workers", "workers", "n_workers", "nworkers", "num_worker", "nw"), "num_workers"),
    **dict.fromkeys(("dataloader_num_workers", "data_workers", "num_data_workers", "workers_per_gpu"), "num_workers"),
    **dict.fromkeys(("prefetch_factor", "prefetch", "dataloader_prefetch_factor"), "prefetch_factor"),
    **dict.fromkeys(("pin_memory", "pin_mem"), "pin_memory"),
    **dict.fromkeys(("persistent_workers", "persistent"), "persistent_workers"),
    **dict.fromkeys(("batch_size", "train_batch_size", "batchsize"), "batch_size"),
}
_DEFAULT = {"num_workers": 0, "prefetch_factor": None, "batch_size": 1}  # others are off
_COUNTS = {"num_workers", "prefetch_factor"}
_WORKERS = ("num_workers", "workers_per_gpu", "workers")


def check(script: Script) -> Iterator[Spot]:
    for node, read in _clamped(script):
        if name := next((name for name in read if _ARGUMENT.get(name) in _COUNTS), ""):
            flag, code = script.flags[name].shown if name in script.flags else name, ast.unparse(node)
            yield script.found("flag-clamped", node, flag=flag, code=code, read=ast.unparse(read[name]))
    for option in script.flags.values():
        if option.is_option and option.name in _ARGUMENT:
            yield from _overwritten(script, option) or _ignored(script, option)
    for node in (*script.calls("dict"), *script.each(ast.Dict)):
        pairs = pairs_of(node)[len(getattr(node, "args", ())) :]  # those of a call by name
        given = {name: getattr(value, "value", None) for name, value in pairs}
        # `**more` or a computed key may hold another number; with `worker_init_fn` it is a table of torch's defaults.
        for _, code in _contradictions(given) if given.keys().isdisjoint({None, "", "worker_init_fn"}) else ():
            yield script.found("workers-needed", node, code=code, workers="0")


def _clamped(script: Script) -> Iterator[tuple[ast.AST, dict[str, ast.AST]]]:
    """`min(4, max(2, args.num_workers))`, and `if args.num_workers > 4: args.num_workers = 4`: what they read."""
    for call in script.each(ast.Call):
        if _is_bounded(script, call) and not _is_bounded(script, script.parents[call]):
            yield call, script.settings_in(call)
    for branch in script.each(ast.If):
        match branch.test, branch.body[0]:
            case ast.Compare(ops=[ast.Gt()], left=left, comparators=[limit]), ast.Assign() as store:
                is_same = script.setting_read(left) == script.setting_read(store.targets[0])
                if is_same and script.constants(limit) and script.constants(limit) == script.constants(store.value):
                    yield store, {script.setting_read(left): left}


def _is_bounded(script: Script, node: ast.AST) -> bool:
    """Whether it is a `min` or `max` with a constant; a `max` with 0 or 1 is no bound to speak of."""
    if not isinstance(node, ast.Call) or (kind := script.dotted(node.func)) not in ("min", "max"):
        return False
    arguments = [one for each in node.args for one in getattr(each, "elts", [each])]
    limits = [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, int)]
    return any(kind == "min" or limit > 1 for limit in limits) or any(_is_bounded(script, one) for one in arguments)


def _overwritten(script: Script, flag: Flag) -> list[Spot]:
    """`args.num_workers = 2`, on every way through the function or the script: the last of them."""
    stores = [store for store in script.stores_of(flag) if isinstance(store.value, ast.Constant)]
    sure = [one for one in stores if not script.is_conditional(one, script.function_of(one) or script.tree)]
    return [script.found("flag-overridden", one, flag=flag.shown, code=ast.unparse(one)) for one in sure[-1:]]


def _ignored(script: Script, flag: Flag) -> list[Spot]:
    """An option that nothing in the file reads, while all loaders of the file have a constant, or torch's default."""
    argument, loaders = _ARGUMENT[flag.name], script.loaders
    given = [node for call in loaders for node in call.given.get(argument, ())]
    if given and all(isinstance(node, ast.Constant) for node in given):
        node, value = given[0], ast.unparse(given[0])
    elif loaders and all(call.lacks(argument) for call in loaders):
        node, value = loaders[0].node, str(_DEFAULT.get(argument, False))
    else:
        return []
    values = {"flag": flag.shown, "code": f"{argument}={value}", "read": f"args.{flag.name}"}
    return [] if _is_read(script, flag) else [script.found("flag-ignored", node, **values)]


def _is_read(script: Script, flag: Flag) -> bool:
    """Whether the name stands somewhere as an attribute, a key that is asked for or, of `**vars(args)`, a parameter."""
    asked = [node for node in script.each(ast.Constant) if node.value == flag.name]
    places = [script.parents[node] for node in asked if script.parents[node] is not flag.node]
    is_asked = any(isinstance(getattr(one, "ctx", None), ast.Load) or isinstance(one, ast.Call) for one in places)
    names = [getattr(node, "attr", "") or getattr(node, "id", "") for node in script.each(ast.Attribute, ast.Name)]
    return is_asked or flag.name in (*names, *(node.arg for node in script.each(ast.arg)))


# ------------------------------------------------------------------------------------------ configurations


def check_yaml(text: str) -> Iterator[Spot]:
    """Find settings that contradict each other in one mapping of a YAML file."""
    try:
        import yaml
    except ImportError:
        raise UnusableInput("YAML is read with PyYAML", next_step="pip install 'headrace[lint]'") from None
    try:
        waiting = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise UnusableInput(f"not YAML: {getattr(error, 'problem', None) or error}{where}") from None
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is not None and id(node) not in seen:  # an alias leads to the same node again
            seen.add(id(node))
            pairs = node.value if isinstance(node, yaml.MappingNode) else ()
            waiting += [value for _, value in pairs] or (node.value if isinstance(node, yaml.SequenceNode) else [])
            named = {key.value: (key, value) for key, value in pairs if isinstance(key, yaml.ScalarNode)}
            for name, code in _contradictions({name: _scalar(value) for name, (_, value) in named.items()}):
                line, column = named[name][0].start_mark.line + 1, named[name][0].start_mark.column + 1
                yield Spot("workers-needed", line, column, {"code": code, "workers": "0"})


def _contradictions(given: Mapping[Any, object]) -> Iterator[tuple[str, str]]:
    workers = [given[name] for name in _WORKERS if name in given]
    if len(workers) == 1 and isinstance(workers[0], int) and workers[0] == 0:
        for name in ("prefetch_factor", "persistent_workers"):
            if isinstance(given.get(name), int) and given[name]:
                yield name, f"{name}: {given[name]}"


def _scalar(node: Any) -> object:
    """Return a plain number, or whether it says yes; `None`, which needs its context, is unknown."""
    if node.tag == "tag:yaml.org,2002:bool":
        return node.value.lower() in ("true", "yes", "on")
    return int(node.value) if node.tag == "tag:yaml.org,2002:int" and node.value.isdigit() else None
