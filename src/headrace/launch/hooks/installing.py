"""Which modules are timed once they are imported, and by whom; of frameworks, which methods are what.

A hook that cannot be hung leaves a note for the report, and the script runs on.

Of a framework `eval()` and `torch.save` tell most. What they do not tell stands in a table: Lightning sets `training`
by hand after an evaluation and runs the whole step inside the optimizer; Hugging Face's Trainer leaves `eval()` mode
with the next step, after it has saved; all of them gather and write around `torch.save`.
"""

import sys
from collections.abc import Callable
from types import ModuleType

from headrace.model import EventKind

from ..tape import note
from . import device, interruptions, loader, parts, step, tracebacks, worker
from .wrapping import Inside, replace

_EVALUATION, _CHECKPOINT = EventKind.EVALUATION, EventKind.CHECKPOINT
_LOGGING, _FORWARD = EventKind.LOGGING, EventKind.FORWARD
# of each kind, nested calls are one event
_INSIDE: dict[EventKind, Inside] = {
    _EVALUATION: step.in_evaluation,
    _CHECKPOINT: interruptions.in_checkpoint,
    _LOGGING: interruptions.in_logging,
    _FORWARD: step.in_forward,
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
    "mmengine.runner.loops": (("TestLoop.run", _EVALUATION, "mmengine"), ("ValLoop.run", _EVALUATION, "mmengine")),
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
    "wandb.sdk.wandb_run": tuple((f"Run.{name}", _LOGGING, "wandb") for name in ("log", "save", "log_artifact")),
}


def _time_framework(module: ModuleType) -> None:
    for path, kind, what in METHODS[module.__name__]:
        owner, _, method = path.partition(".")
        cls = getattr(module, owner, None)
        if hasattr(cls, method):
            replace(cls, method, int(kind), what, _INSIDE[kind])
        else:
            note(f"{module.__name__}.{path}: not there in this version")


Hook = Callable[[ModuleType], None]

_HOOKS: dict[str, tuple[Hook, ...]] = {
    **dict.fromkeys(METHODS, (_time_framework,)),
    "loguru._handler": (interruptions.time_lines,),
    "safetensors.torch": (interruptions.time_safetensors,),
    "tarfile": (parts.time_archives,),
    "tensorboardX.writer": (interruptions.time_summary_writer,),
    "torch": (
        tracebacks.hide_our_frames,
        interruptions.time_save,
        step.time_steps,
        device.time_device,
        interruptions.time_logging,
        step.time_collections,
    ),
    "torch.distributed.checkpoint.state_dict_saver": (interruptions.time_distributed_save,),
    "torch.distributed.distributed_c10d": (device.time_collectives,),
    "torch.utils.data.dataloader": (loader.time_loaders, parts.time_own_parts),
    "torch.utils.tensorboard.writer": (interruptions.time_summary_writer,),
    "torchdata.stateful_dataloader.stateful_dataloader": (loader.time_stateful_loader,),
    "torchdata.stateful_dataloader.worker": (worker.time_worker_loop,),
    "tqdm.std": (interruptions.time_lines,),
    "ultralytics.data.build": (loader.time_endless_loader,),
}
# What is known of a sample's parts; a module may have hooks of both kinds.
_HOOKS.update({name: (*_HOOKS.get(name, ()), parts.time_parts) for name in parts.MODULES})
WATCHED = frozenset(_HOOKS)
_installed: set[tuple[str, int]] = set()


def install(name: str, module: ModuleType) -> None:
    for number, hook in enumerate(_HOOKS.get(name, ())):
        if (name, number) in _installed:
            continue
        _installed.add((name, number))
        try:
            hook(module)
        except Exception as error:
            note(f"{name}, {hook.__name__}: {type(error).__name__}: {error}")


def install_imported() -> None:
    """Time what is imported already: for a process that came to be recorded late."""
    for name in sorted(_HOOKS):
        if (module := sys.modules.get(name)) is not None:
            install(name, module)
