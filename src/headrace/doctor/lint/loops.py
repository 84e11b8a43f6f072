"""Rules about what a training loop does in every step: reading values from the device, saving."""

import ast
from collections.abc import Iterator

from .rules import LintFinding
from .script import Loop, Script, root_name

_OFTEN_STEPS = 500  # rarer saves are few among the steps
_DEVICES = ("cuda", "device", "accelerator", "fabric")


def check(script: Script) -> Iterator[LintFinding]:
    """Find what holds up the steps of the training loops of a file."""
    for loop in script.each(ast.For, ast.While):
        backwards = list(_calls(script, loop, "backward"))
        if backwards:
            losses = {root_name(one) for call in backwards for one in (call.func, *call.args)} - {""}
            yield from _reads(script, loop, losses)
            yield from _saves(script, loop)


def _calls(script: Script, loop: Loop, method: str) -> Iterator[ast.Call]:
    """Yield the calls of a method in a loop itself, without loops inside it."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == method and script.loop_of(node) is loop:
            yield node


def _reads(script: Script, loop: Loop, losses: set[str]) -> Iterator[LintFinding]:
    """The first `loss.item()` of every step, unless the loop waits for the device anyway."""
    waits = [call for call in _calls(script, loop, "synchronize") if not script.is_conditional(call, loop)]
    if waits or not any(word in script.text for word in _DEVICES):
        return
    for call in _calls(script, loop, "item"):
        name = root_name(call.func)
        if (name in losses or "loss" in name.lower()) and not script.is_conditional(call, loop):
            yield script.found("item-each-step", call, code=ast.unparse(call))
            return


def _saves(script: Script, loop: Loop) -> Iterator[LintFinding]:
    said: set[int] = set()
    for call in script.calls("torch.save"):
        if script.loop_of(call) is loop:
            steps = _interval(script, call, loop) if script.is_conditional(call, loop) else 1
            if steps is not None and steps < _OFTEN_STEPS and steps not in said:
                said.add(steps)
                yield script.found("save-in-step-loop", call, steps=steps)


def _interval(script: Script, call: ast.Call, loop: Loop) -> int | None:
    """Return the N of `if step % N == 0`, if that is the only condition."""
    branches = [one for one in script.ancestors(call) if isinstance(one, ast.If) and loop in script.ancestors(one)]
    match branches:
        case [ast.If(test=ast.Compare(left=ast.BinOp(op=ast.Mod(), right=every), ops=[ast.Eq()]))]:
            values = script.constants(every)
            return max(values) if values and all(isinstance(one, int) for one in values) else None
    return None
