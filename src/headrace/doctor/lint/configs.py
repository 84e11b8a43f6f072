"""The settings of a loader in a configuration: YAML, and dictionaries in Python as mmengine reads them."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.errors import UnusableInput

from .rules import LintFinding
from .script import Script

_WORKERS = ("num_workers", "workers_per_gpu", "workers")
_UNKNOWN = object()


def check(script: Script) -> Iterator[LintFinding]:
    """Find settings that contradict each other in the dictionaries of a Python file."""
    for call in script.calls("dict"):
        yield from _contradictions(script, call, {one.arg: _constant(one.value) for one in call.keywords})
    for node in script.each(ast.Dict):
        keys = [getattr(key, "value", None) for key in node.keys]
        yield from _contradictions(script, node, dict(zip(keys, map(_constant, node.values), strict=True)))


def check_yaml(path: str, text: str) -> Iterator[LintFinding]:
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
            for name, code in _pairs({name: _scalar(value) for name, (_, value) in named.items()}):
                line, column = named[name][0].start_mark.line + 1, named[name][0].start_mark.column + 1
                yield LintFinding.of("workers-needed", path, line, column, code=code, workers="0")


def _contradictions(script: Script, node: ast.AST, given: Mapping[Any, object]) -> Iterator[LintFinding]:
    # `**more` may hold another number; what names `worker_init_fn` beside them is a table of torch's defaults.
    for _, code in _pairs(given) if given.keys().isdisjoint({None, "worker_init_fn"}) else ():
        yield script.found("workers-needed", node, code=code, workers="0")


def _pairs(given: Mapping[Any, object]) -> Iterator[tuple[str, str]]:
    workers = [given[name] for name in _WORKERS if name in given]
    if len(workers) == 1 and isinstance(workers[0], int) and workers[0] == 0:
        for name in ("prefetch_factor", "persistent_workers"):
            if given.get(name) and given[name] is not _UNKNOWN:
                yield name, f"{name}: {given[name]}"


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else _UNKNOWN


def _scalar(node: Any) -> object:
    """Return a plain number, or whether it says yes; what needs its context is unknown."""
    if node.tag == "tag:yaml.org,2002:bool":
        return node.value.lower() in ("true", "yes", "on")
    return int(node.value) if node.tag == "tag:yaml.org,2002:int" and node.value.isdigit() else _UNKNOWN
