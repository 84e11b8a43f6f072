"""Rules about what a loader is given, and about what the loop over it does in every step."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from .script import LoaderCall, Loop, Script, Spot, names_in, pairs_of, root_name, within

_EVALUATES = ("val", "test", "eval", "dev", "query", "gallery", "infer", "pred")
_DDP = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
_BY_RANK = re.compile(
    r"DistributedSampler|partition|\[[\w.]*rank\]|rank\s*(::|\*)|\.shard\(|split_by_node|split_dataset"
)
_TOLD = re.compile(r"dataset[\w.]*\.set_epoch\(")
_DEVICES = ("device", "cuda", "gpu", "rank")
_ON_A_DEVICE = ("cuda", "device", "accelerator", "fabric")
_OFTEN_STEPS = 500  # rarer saves are few among the steps


def check(script: Script) -> Iterator[Spot]:
    yield from _needs_workers(script)
    yield from _copies(script)
    yield from _restarted_workers(script)
    if any(script.calls(*_DDP)) and not _BY_RANK.search(script.text):
        for call in script.loaders:
            shuffles = call.values("shuffle") == [True] and "shuffle" not in call.unsure
            if shuffles and call.lacks("sampler") and call.lacks("batch_sampler"):
                yield script.found("no-rank-sampler", call.node)
    for loop in script.each(ast.For, ast.While):
        if backwards := _calls(script, loop, "backward"):
            losses = {root_name(one) for call in backwards for one in (call.func, *call.args)} - {""}
            yield from _reads(script, loop, losses)
            yield from _saves(script, loop)


def _loops(script: Script) -> Iterator[tuple[ast.For, list[LoaderCall]]]:
    """Yield the loops over loaders, and the loaders that each may run over."""
    for loop in script.each(ast.For):
        origins = script.origins(loop.iter)
        over = [call for call in script.loaders if call.node in origins]
        if over and len(over) == len(origins):
            yield loop, over


def _needs_workers(script: Script) -> Iterator[Spot]:
    """Only what is sure: 0 workers, as they are written or as the only default, and no condition about it."""
    for call in script.loaders:
        if call.unsure or not call.is_off("num_workers"):
            continue
        flags = [script.flags[name].shown for name in call.settings("num_workers") & script.flags.keys()]
        for name in ("prefetch_factor", "persistent_workers"):
            values = call.values(name)
            if values and all(values) and not call.settings(name):
                shown = f"0 ({flags[0]})" if flags else "0"
                yield script.found("workers-needed", call.node, code=f"{name}={values[0]}", workers=shown)


def _copies(script: Script) -> Iterator[Spot]:
    """Batches on their way to the device: pinned, but waited for; or not pinned, so that nobody can but wait."""
    for loop, calls in _loops(script):
        moves = list(_moves(script, loop))
        if not moves or not all(asked for _, asked in moves):
            continue
        if all(True in call.values("pin_memory") for call in calls) and not any(any(asked) for _, asked in moves):
            yield script.found("pin-without-non-blocking", moves[0][0], code=ast.unparse(moves[0][0]))
        if all(call.is_off("pin_memory") for call in calls) and ".pin_memory()" not in script.text:
            eager = [move for move, asked in moves if all(asked)]
            if eager:
                yield script.found("non-blocking-without-pin", eager[0], place=calls[0].node.lineno)


def _moves(script: Script, loop: ast.For) -> Iterator[tuple[ast.Call, list[Any]]]:
    """Yield the calls that copy what the loop was given to a device, and what each may have as `non_blocking`."""
    names, inside = names_in(loop.target), [node for statement in loop.body for node in ast.walk(statement)]
    for node in inside:
        if isinstance(node, ast.comprehension) and root_name(node.iter) in names:
            names |= names_in(node.target)
    for node in inside:
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda" | "to" as way), args=args) if root_name(node.func) in names:
                device = ast.unparse(args[0]).lower() if args else ""
                if way == "cuda" or any(word in device for word in _DEVICES):
                    asked = dict(pairs_of(node, "device", "non_blocking" if way == "cuda" else "")).get("non_blocking")
                    yield node, script.constants(asked) if asked else [False]


def _restarted_workers(script: Script) -> Iterator[Spot]:
    """Loaders with workers that are made once, and iterated over in every epoch."""
    epochs = {call: _epochs_around(script, loop, call) for loop, over in _loops(script) for call in over}
    for call in script.loaders:
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
    is_told = any(ast.unparse(one.value) in names for one in within(epochs, ast.Attribute))
    return is_told or bool(_TOLD.search(script.text))


def _evaluates(script: Script, call: LoaderCall) -> bool:
    """Whether a loader is, by the names about it, for evaluation: a second pool for it may not be worth its memory."""
    place = script.nearest(call.node, ast.Assign, ast.FunctionDef)
    said = [place.name] if isinstance(place, ast.FunctionDef) else []
    said += [ast.unparse(one) for one in (*getattr(place, "targets", ()), *call.given.get("dataset", ()))]
    return any(word in " ".join(said).lower() for word in _EVALUATES)


# ------------------------------------------------------------------------------------------ steps


def _calls(script: Script, loop: Loop, method: str) -> list[ast.Call]:
    """Return the calls of a method in a loop itself, without loops inside it."""
    calls = (one for one in within(loop, ast.Call) if getattr(one.func, "attr", "") == method)
    return [one for one in calls if script.loop_of(one) is loop]


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
