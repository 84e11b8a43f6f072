"""Frameworks: which of their methods is an evaluation, a checkpoint, a log or the forward part of a step.

`eval()` and `torch.save` tell most of it. What they do not tell stands here: Lightning sets `training` by hand after an
evaluation and runs the whole step inside the optimizer; Hugging Face's Trainer leaves `eval()` mode with the next step,
after it has saved; all of them gather and write around `torch.save`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from headrace.model import EventKind

from ..tape import note
from .checkpoint import checkpoint_depth
from .logs import logging_depth
from .step import evaluation_depth, forward_depth
from .wrapping import Depth, ThreadsInside, replace

_EVALUATION, _CHECKPOINT = EventKind.EVALUATION, EventKind.CHECKPOINT
_LOGGING, _FORWARD = EventKind.LOGGING, EventKind.FORWARD
# What shares a depth is one event, however deep its calls are nested.
_DEPTHS: dict[EventKind, Depth | ThreadsInside] = {
    _EVALUATION: evaluation_depth,
    _CHECKPOINT: checkpoint_depth,
    _LOGGING: logging_depth,
    _FORWARD: forward_depth,
}

_Method = tuple[str, EventKind, str]  # "Class.method", what it is, its name in a report


def _lightning(package: str, fabric: str) -> dict[str, tuple[_Method, ...]]:
    """Return Lightning's methods by the module they are in; it goes by two names."""
    return {
        f"{package}.loops.evaluation_loop": (("_EvaluationLoop.run", _EVALUATION, "Lightning"),),
        f"{package}.loops.prediction_loop": (("_PredictionLoop.run", _EVALUATION, "Lightning"),),
        f"{package}.strategies.strategy": (("Strategy.training_step", _FORWARD, "training_step"),),
        f"{package}.trainer.trainer": (("Trainer.save_checkpoint", _CHECKPOINT, "Trainer.save_checkpoint"),),
        f"{fabric}.loggers.csv_logs": (
            ("CSVLogger.log_metrics", _LOGGING, "CSVLogger"),
            ("CSVLogger.save", _LOGGING, "CSVLogger"),
        ),
    }


METHODS: dict[str, tuple[_Method, ...]] = {
    **_lightning("lightning.pytorch", "lightning.fabric"),
    **_lightning("pytorch_lightning", "lightning_fabric"),
    "accelerate.accelerator": (
        ("Accelerator.save_model", _CHECKPOINT, "Accelerator.save_model"),
        ("Accelerator.save_state", _CHECKPOINT, "Accelerator.save_state"),
    ),
    "mmengine.runner.loops": (
        ("TestLoop.run", _EVALUATION, "mmengine"),
        ("ValLoop.run", _EVALUATION, "mmengine"),
    ),
    "mmengine.runner.runner": (("Runner.save_checkpoint", _CHECKPOINT, "Runner.save_checkpoint"),),
    "mmengine.visualization.vis_backend": tuple(
        (f"LocalVisBackend.{name}", _LOGGING, "LocalVisBackend")
        for name in ("add_config", "add_image", "add_scalar", "add_scalars")
    ),
    "transformers.modeling_utils": (("PreTrainedModel.save_pretrained", _CHECKPOINT, "save_pretrained"),),
    "transformers.trainer": (
        ("Trainer._save_checkpoint", _CHECKPOINT, "Trainer._save_checkpoint"),
        ("Trainer.evaluate", _EVALUATION, "Trainer.evaluate"),
        ("Trainer.predict", _EVALUATION, "Trainer.predict"),
        ("Trainer.save_model", _CHECKPOINT, "Trainer.save_model"),
    ),
    "ultralytics.engine.trainer": (
        ("BaseTrainer.save_metrics", _LOGGING, "BaseTrainer.save_metrics"),
        ("BaseTrainer.save_model", _CHECKPOINT, "BaseTrainer.save_model"),
    ),
    "ultralytics.engine.validator": (("BaseValidator.__call__", _EVALUATION, "ultralytics"),),
}


def hook_of(name: str) -> Callable[[ModuleType], None]:
    """Return what times the methods of a framework's module."""

    def time_framework(module: ModuleType) -> None:
        for path, kind, what in METHODS[name]:
            owner, _, method = path.partition(".")
            cls = getattr(module, owner, None)
            if not hasattr(cls, method):
                note(f"{name}.{path}: not there in this version")
                continue
            replace(cls, method, int(kind), what, _DEPTHS[kind])

    return time_framework
