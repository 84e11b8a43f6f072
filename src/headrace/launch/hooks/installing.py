"""Which modules are timed once they are imported, and by whom.

Each of the other modules knows one subject. A hook that cannot be hung leaves a note for the report, and the script
runs on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from ..tape import note
from . import checkpoint, device, frameworks, loader, logs, parts, step, tracebacks, worker

Hook = Callable[[ModuleType], None]

_HOOKS: dict[str, tuple[Hook, ...]] = {
    **{name: (frameworks.hook_of(name),) for name in frameworks.METHODS},
    "loguru._handler": (logs.time_loguru,),
    "safetensors.torch": (checkpoint.time_safetensors,),
    "tarfile": (parts.time_archives,),
    "tensorboardX.writer": (logs.time_summary_writer,),
    "torch": (
        tracebacks.hide_our_frames,
        checkpoint.time_save,
        step.time_steps,
        device.time_device,
        logs.time_logging,
        step.time_collections,
    ),
    "torch.distributed.checkpoint.state_dict_saver": (checkpoint.time_distributed_save,),
    "torch.distributed.distributed_c10d": (device.time_collectives,),
    "torch.utils.data.dataloader": (loader.time_loaders, parts.time_own_parts, logs.time_stdout),
    "torch.utils.tensorboard.writer": (logs.time_summary_writer,),
    "torchdata.stateful_dataloader.stateful_dataloader": (loader.time_stateful_loader,),
    "torchdata.stateful_dataloader.worker": (worker.time_worker_loop,),
    "tqdm.std": (logs.time_tqdm,),
    "ultralytics.data.build": (loader.time_endless_loader,),
    "wandb.sdk.wandb_run": (logs.time_wandb,),
}
# What is known of a sample's parts; a module may have hooks of both kinds.
_HOOKS.update({name: (*_HOOKS.get(name, ()), parts.time_parts) for name in parts.MODULES})
WATCHED = frozenset(_HOOKS)
_installed: set[tuple[str, int]] = set()


def install(name: str, module: ModuleType) -> None:
    """Time what is to be timed in a module that has just been imported."""
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
        module = sys.modules.get(name)
        if module is not None:
            install(name, module)
