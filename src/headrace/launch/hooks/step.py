"""The training step: forward of the outermost module, backward, optimizer, evaluation, garbage collections.

Evaluation goes from `eval()` to `train()`: what batches of a loader are for is told by what is done with them, so this
is for those without one. A framework's own (`installing`) goes before it.

Which module is the outermost is found by a hook that torch calls for every module, and which is taken away again at the
first call of one with parameters: from then on only the class of that module is timed. `torch.compile` must not see
hooks come and go, nor trace through our timing, so nothing is looked for once it has been called, and classes are timed
no more; what it returns is timed instead.
"""

import atexit
import functools
import gc
import weakref
from threading import get_ident
from types import ModuleType
from typing import Any

from headrace.model import EventKind

from ..tape import now, tape
from .device import say_rank
from .wrapping import Inside, instead_of

_FORWARD, _BACKWARD, _OPTIMIZER, _EVALUATION = (
    int(kind) for kind in (EventKind.FORWARD, EventKind.BACKWARD, EventKind.OPTIMIZER, EventKind.EVALUATION)
)
_GC = int(EventKind.GC)
_WORTH_COLLECTION_NS = 50_000  # the youngest generation takes a few microseconds, some hundred times a second
_collection_started_ns = 0


class _State:
    torch: Any = None
    seeker: Any = None  # the handle of the hook that looks for the outermost module
    last_model = 0
    compiles = False
    optimizer_started: int = 0
    num_worked = 0  # backward passes and optimizer steps so far


_state = _State()
in_forward: Inside = set()
in_evaluation: Inside = set()
_models: weakref.WeakSet[Any] = weakref.WeakSet()  # modules that were called as the outermost one
_evaluating: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # since when
_timed_classes: dict[Any, tuple[Any, Any]] = {}  # the `__call__` that they had of their own, or None; and ours


def time_steps(torch: ModuleType) -> None:
    """Time backward and optimizer at once; forward as soon as models are looked for."""
    _state.torch = torch
    torch.autograd.backward = _timed_backward(torch.autograd.backward)
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(_optimizer_starts)
    register_optimizer_step_post_hook(_optimizer_ends)
    _time_modes(torch.nn.Module)
    _watch_compile(torch)
    atexit.register(tape.write_kept)


def num_worked() -> int:
    """Return how often a backward pass or an optimizer step has ended: what tells a training loop from others."""
    return _state.num_worked


def look_for_models() -> None:
    """Have torch tell which module is called next as the outermost one."""
    if _state.torch is None or _state.seeker is not None or _state.compiles:
        return
    from torch.nn.modules.module import register_module_forward_pre_hook

    _state.seeker = register_module_forward_pre_hook(_found)


def _stop_looking() -> None:
    if _state.seeker is not None:
        _state.seeker.remove()
        _state.seeker = None


def _found(module: Any, _inputs: Any) -> None:
    if next(module.parameters(), None) is None:
        return  # a transform of samples, what puts a batch on the device, a loss: the model is still to come
    _stop_looking()
    if get_ident() not in in_forward and isinstance(module, _state.torch.nn.Module):
        _models.add(module)
        _time_class(type(module))


def _time_class(cls: Any) -> None:
    if cls in _timed_classes:
        return
    own, inherited = cls.__dict__.get("__call__"), cls.__call__

    @functools.wraps(inherited)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # An inherited one is looked up anew: `torch.fx` puts its own in the place of `Module.__call__` for a while.
        call = own.__get__(self) if own is not None else super(cls, self).__call__
        thread = get_ident()
        if thread in in_forward:
            return call(*args, **kwargs)
        in_forward.add(thread)
        if id(self) != _state.last_model:  # a weak set costs as much as an event
            _state.last_model = id(self)
            _models.add(self)
        start = now()
        try:
            return call(*args, **kwargs)
        finally:
            tape.keep(_FORWARD, start, now() - start)
            in_forward.discard(thread)

    _timed_classes[cls] = (own, __call__)
    cls.__call__ = __call__


def _time_classes_no_more() -> None:
    """Give classes their own `__call__` back: a compiler that traces through ours would break its graph there."""
    for cls, (own, ours) in _timed_classes.items():
        if cls.__dict__.get("__call__") is ours:  # else somebody has wrapped it again
            if own is not None:
                cls.__call__ = own
            else:
                del cls.__call__
    _timed_classes.clear()


def _watch_compile(torch: Any) -> None:
    def watched(compile_it: Any) -> Any:
        @functools.wraps(compile_it)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            if not _state.compiles:
                _state.compiles = True
                _stop_looking()
                _time_classes_no_more()
            result = compile_it(*args, **kwargs)
            if isinstance(result, torch.nn.Module):
                _models.add(result)
                _time_class(type(result))
            return result

        return compiled

    torch.compile, torch.nn.Module.compile = watched(torch.compile), watched(torch.nn.Module.compile)


def _timed_backward(original: Any) -> Any:
    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            tape.keep(_BACKWARD, start, now() - start)
            _state.num_worked += 1
            if not tape.num_waits and (_state.num_worked < 4 or not _state.num_worked % 64):
                tape.say_role("trainer")  # a loop that makes its data itself
                say_rank()
                look_for_models()

    return backward


def _optimizer_starts(*_: Any) -> None:
    _state.optimizer_started = now()


def _optimizer_ends(*_: Any) -> None:
    start, _state.optimizer_started = _state.optimizer_started, 0
    if start:
        tape.keep(_OPTIMIZER, start, now() - start)
        _state.num_worked += 1


def _time_modes(module_class: Any) -> None:
    original = module_class.train

    @instead_of(module_class, "train")
    def train(self: Any, mode: bool = True) -> Any:
        if not mode and self.training and get_ident() not in in_evaluation and _is_model(self):
            _evaluating.setdefault(self, now())
        elif mode and _evaluating and (start := _evaluating.pop(self, 0)):
            tape.write(_EVALUATION, start, now() - start)
        return original(self, mode)


def _is_model(module: Any) -> bool:
    """Whether it was called as the outermost module, by itself or inside a wrapper such as DistributedDataParallel.

    A backbone that is frozen with `eval()` is neither, and nor is a teacher that has not been called yet.
    """
    return module in _models or any(model._modules.get("module") is module for model in _models)


def time_collections(_torch: ModuleType) -> None:
    if _note_collection not in gc.callbacks:
        gc.callbacks.append(_note_collection)


def _note_collection(phase: str, info: dict[str, int]) -> None:
    global _collection_started_ns
    if phase == "start":
        _collection_started_ns = now()
    elif _collection_started_ns:
        duration = now() - _collection_started_ns
        # A collection may come in the middle of an import, where another import breaks the interpreter's locks
        # (Python 3.11: KeyError in `_blocking_on`), so nothing is opened here. Before the first event there is no loop.
        if duration >= _WORTH_COLLECTION_NS and tape.has_lane:
            tape.write(_GC, _collection_started_ns, duration, info["collected"], info["generation"] + 1)
        _collection_started_ns = 0
