"""Which modules are timed once they are imported, and by whom.

Each `hooks_*` module knows one subject. A hook that cannot be hung leaves a note for the report; the script runs on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from ..tape import note
from . import checkpoint as hooks_checkpoint
from . import device as hooks_device
from . import frameworks as hooks_frameworks
from . import garbage as hooks_gc
from . import loader as hooks_loader
from . import log_writers as hooks_logging
from . import parts as hooks_parts
from . import prints as hooks_stdout
from . import rank as hooks_rank
from . import shards as hooks_shards
from . import step as hooks_step
from . import tracebacks as hooks_traceback
from . import worker as hooks_worker

Hook = Callable[[ModuleType], None]

_HOOKS: dict[str, tuple[Hook, ...]] = {
    **{name: (hooks_frameworks.hook_of(name),) for name in hooks_frameworks.METHODS},
    "loguru._handler": (hooks_logging.time_loguru,),
    "safetensors.torch": (hooks_checkpoint.time_safetensors,),
    "tarfile": (hooks_shards.time_archives,),
    "tensorboardX.writer": (hooks_logging.time_summary_writer,),
    "torch": (
        hooks_traceback.hide_our_frames,
        hooks_checkpoint.time_save,
        hooks_step.time_steps,
        hooks_device.time_device,
        hooks_logging.time_logging,
        hooks_gc.time_collections,
    ),
    "torch.distributed.checkpoint.state_dict_saver": (hooks_checkpoint.time_distributed_save,),
    "torch.distributed.distributed_c10d": (hooks_rank.time_collectives,),
    "torch.utils.data.dataloader": (hooks_loader.time_loaders, hooks_parts.time_own_parts, hooks_stdout.time_stdout),
    "torch.utils.tensorboard.writer": (hooks_logging.time_summary_writer,),
    "torchdata.stateful_dataloader.stateful_dataloader": (hooks_loader.time_stateful_loader,),
    "torchdata.stateful_dataloader.worker": (hooks_worker.time_worker_loop,),
    "tqdm.std": (hooks_logging.time_tqdm,),
    "ultralytics.data.build": (hooks_loader.time_endless_loader,),
    "wandb.sdk.wandb_run": (hooks_logging.time_wandb,),
}
# What is known of a sample's parts; a module may have hooks of both kinds.
_HOOKS.update({name: (*_HOOKS.get(name, ()), hooks_parts.time_parts) for name in hooks_parts.MODULES})
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
