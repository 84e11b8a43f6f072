"""Rules about what a loader is given, and about what the loop over it does in every step."""

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from .loader_calls import LoaderCall
from .script import Loop, Script, Spot, names_in, root_name

Loops: TypeAlias = list[tuple[ast.For, list[LoaderCall]]]  # each with the loaders that it may run over

_EVALUATES = ("val", "test", "eval", "dev", "query", "gallery", "infer", "pred")
_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
_BY_RANK = re.compile(
    r"DistributedSampler|partition|\[[\w.]*rank\]|rank\s*(::|\*)|\.shard\(|split_by_node|split_dataset"
)
_TOLD = re.compile(r"dataset[\w.]*\.set_epoch\(")
_DEVICES = ("device", "cuda", "gpu", "rank")
_ON_A_DEVICE = ("cuda", "device", "accelerator", "fabric")
_OFTEN_STEPS = 500  # rarer saves are few among the steps


def check(script: Script, calls: list[LoaderCall]) -> Iterator[Spot]:
    loops = list(_loops(script, calls))
    yield from _needs_workers(script, calls)
    yield from _copies(script, loops)
    yield from _restarted_workers(script, calls, loops)
    if any(script.calls(*_DDP)) and not _BY_RANK.search(script.text):
        for call in calls:
            shuffles = call.values("shuffle") == [True] and "shuffle" not in call.unsure
            if shuffles and call.lacks("sampler") and call.lacks("batch_sampler"):
                yield script.found("no-rank-sampler", call.node)
    for loop in script.each(ast.For, ast.While):
        backwards = list(_calls(script, loop, "backward"))
        if backwards:
            losses = {root_name(one) for call in backwards for one in (call.func, *call.args)} - {""}
            yield from _reads(script, loop, losses)
            yield from _saves(script, loop)


def _loops(script: Script, calls: list[LoaderCall]) -> Iterator[tuple[ast.For, list[LoaderCall]]]:
    """Yield the loops over loaders, and the loaders that each may run over."""
    for loop in script.each(ast.For):
        origins = script.origins(loop.iter)
        over = [call for call in calls if call.node in origins]
        if over and len(over) == len(origins):
            yield loop, over


def _needs_workers(script: Script, calls: list[LoaderCall]) -> Iterator[Spot]:
    """Only what is sure: 0 workers, as they are written or as the only default, and no condition about it."""
    for call in calls:
        if call.unsure or not call.is_off("num_workers"):
            continue
        flags = [script.flags[name].shown for name in call.settings("num_workers") & script.flags.keys()]
        for name in ("prefetch_factor", "persistent_workers"):
            values = call.values(name)
            if values and all(values) and not call.settings(name):
                shown = f"0 ({flags[0]})" if flags else "0"
                yield script.found("workers-needed", call.node, code=f"{name}={values[0]}", workers=shown)


def _copies(script: Script, loops: Loops) -> Iterator[Spot]:
    """Batches on their way to the device: pinned, but waited for; or not pinned, so that nobody can but wait."""
    for loop, calls in loops:
        moves = list(_moves(loop))
        asked = [script.constants(value) if (value := _non_blocking(move)) else [False] for move in moves]
        if not moves or not all(asked):
            continue
        if all(True in call.values("pin_memory") for call in calls) and not any(map(any, asked)):
            yield script.found("pin-without-non-blocking", moves[0], code=ast.unparse(moves[0]))
        if all(call.is_off("pin_memory") for call in calls) and ".pin_memory()" not in script.text:
            eager = [move for move, values in zip(moves, asked, strict=True) if all(values)]
            if eager:
                yield script.found("non-blocking-without-pin", eager[0], place=calls[0].node.lineno)


def _moves(loop: ast.For) -> Iterator[ast.Call]:
    """Yield the calls that copy what the loop was given to a device."""
    names, inside = names_in(loop.target), [node for statement in loop.body for node in ast.walk(statement)]
    for node in inside:
        if isinstance(node, ast.comprehension) and root_name(node.iter) in names:
            names |= names_in(node.target)
    for node in inside:
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda")) if root_name(node.func) in names:
                yield node
            case ast.Call(func=ast.Attribute(attr="to"), args=[to, *_]) if root_name(node.func) in names:
                if any(word in ast.unparse(to).lower() for word in _DEVICES):
                    yield node


def _non_blocking(move: ast.Call) -> ast.expr | None:
    named = next((one.value for one in move.keywords if one.arg == "non_blocking"), None)
    is_cuda = isinstance(move.func, ast.Attribute) and move.func.attr == "cuda"
    return named or (move.args[1] if is_cuda and len(move.args) > 1 else None)


def _restarted_workers(script: Script, calls: list[LoaderCall], loops: Loops) -> Iterator[Spot]:
    """Loaders with workers that are made once, and iterated over in every epoch."""
    epochs = {call: _epochs_around(script, loop, call) for loop, over in loops for call in over}
    for call in calls:
        has_workers = any(isinstance(one, int) and one > 0 for one in call.values("num_workers"))
        if has_workers and call.is_off("persistent_workers") and not _evaluates(script, call):
            around = epochs.get(call)
            function, home = script.function_of(call.node), script.nearest(call.node, ast.ClassDef)
            is_hook = function is not None and function.name == "train_dataloader" and home is not None
            is_of_lightning = is_hook and any("Lightning" in base for base in script.bases(home))
            is_made_once = around is not None and around not in script.ancestors(call.node)
            if (is_of_lightning or is_made_once) and not _is_told(script, call, around):
                yield script.found("no-persistent-workers", call.node)


def _epochs_around(script: Script, loop: ast.For, call: LoaderCall) -> Loop | None:
    """Return the loop of epochs around a loop of batches: in its function, or around the calls of that function."""
    function = script.function_of(loop)
    is_made_by_each = function is not None and function is script.function_of(call.node)
    sites = [] if is_made_by_each else script.call_sites(function)
    around = [script.loop_of(one) for one in (loop, *sites)]
    return next((one for one in around if one), None)


def _is_told(script: Script, call: LoaderCall, epochs: ast.AST | None) -> bool:
    """Whether the data set is changed or told something in each epoch, which workers that stay would not hear of."""
    names = {ast.unparse(one) for one in call.given.get("dataset", ())}
    told = [one for one in ast.walk(epochs) if isinstance(one, ast.Attribute)] if epochs else []
    return any(ast.unparse(one.value) in names for one in told) or bool(_TOLD.search(script.text))


def _evaluates(script: Script, call: LoaderCall) -> bool:
    """Whether a loader is, by the names about it, for evaluation: a second pool for it may not be worth its memory."""
    place = script.nearest(call.node, ast.Assign, ast.FunctionDef)
    said = [place.name] if isinstance(place, ast.FunctionDef) else []
    said += [ast.unparse(one) for one in (*getattr(place, "targets", ()), *call.given.get("dataset", ()))]
    return any(word in " ".join(said).lower() for word in _EVALUATES)


# ------------------------------------------------------------------------------------------ steps


def _calls(script: Script, loop: Loop, method: str) -> Iterator[ast.Call]:
    """Yield the calls of a method in a loop itself, without loops inside it."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == method and script.loop_of(node) is loop:
            yield node


def _reads(script: Script, loop: Loop, losses: set[str]) -> Iterator[Spot]:
    """The first `loss.item()` of every step, unless the loop waits for the device anyway."""
    waits = [call for call in _calls(script, loop, "synchronize") if not script.is_conditional(call, loop)]
    if waits or not any(word in script.text for word in _ON_A_DEVICE):
        return
    for call in _calls(script, loop, "item"):
        name = root_name(call.func)
        if (name in losses or "loss" in name.lower()) and not script.is_conditional(call, loop):
            yield script.found("item-each-step", call, code=ast.unparse(call))
            return


def _saves(script: Script, loop: Loop) -> Iterator[Spot]:
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
