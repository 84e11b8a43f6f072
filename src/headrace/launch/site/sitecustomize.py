"""What every Python process under `headrace run` finds first: it hangs a hook into imports and is gone again.

`headrace run` puts this folder at the head of PYTHONPATH. The script's own `sitecustomize` still runs, `sys.path` is
what it would be without us, and nothing of Headrace is loaded before a module that is to be timed is imported, or an
exception that nobody caught has ended the script. Python without `site` (-S) or without the environment (-E, -I) does
not come here.
"""

from __future__ import annotations

import atexit
import os
import sys

MYPY = False  # `typing` is not loaded for this
if MYPY:
    from types import ModuleType
    from typing import Any

# What is timed once it is imported; `hooks/installing.py` says what is done for each.
_WATCHED = frozenset(
    {
        *("PIL.AvifImagePlugin", "PIL.Image", "PIL.ImageFile", "PIL.TiffImagePlugin", "PIL.WebPImagePlugin"),
        *("accelerate.accelerator", "albumentations.core.composition", "albumentations.core.transforms_interface"),
        *("cv2", "h5py._hl.dataset", "lightning.fabric.loggers.csv_logs", "lightning.pytorch.loops.evaluation_loop"),
        *("lightning.pytorch.loops.prediction_loop", "lightning.pytorch.strategies.strategy"),
        *("lightning.pytorch.trainer.trainer", "lightning_fabric.loggers.csv_logs", "loguru._handler"),
        *("mmengine.runner.loops", "mmengine.runner.runner", "mmengine.visualization.vis_backend"),
        *("monai.transforms.compose", "monai.transforms.transform", "nibabel.arrayproxy", "nibabel.loadsave", "numpy"),
        *("pytorch_lightning.loops.evaluation_loop", "pytorch_lightning.loops.prediction_loop"),
        *("pytorch_lightning.strategies.strategy", "pytorch_lightning.trainer.trainer", "safetensors.torch"),
        *("scipy.ndimage._filters", "scipy.ndimage._interpolation", "simplejpeg", "soundfile", "tarfile"),
        *("tensorboardX.writer", "torch", "torch.distributed.checkpoint.state_dict_saver"),
        *("torch.distributed.distributed_c10d", "torch.utils.data.dataloader", "torch.utils.tensorboard.writer"),
        *("torchdata.stateful_dataloader.stateful_dataloader", "torchdata.stateful_dataloader.worker"),
        *("torchvision.io.image", "torchvision.transforms.transforms", "torchvision.transforms.v2._transform"),
        *("tqdm.std", "transformers.modeling_utils", "transformers.trainer", "ultralytics.data.build"),
        *("ultralytics.engine.trainer", "ultralytics.engine.validator", "wandb.sdk.wandb_run"),
    }
)


class _AfterExec:
    """A loader that executes a module as its own would, and then has it timed."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._own  # nobody will see that we were here
        self._own.exec_module(module)
        _time_it(module)


class _Finder:
    """Finds the modules to be timed where they would be found anyway."""

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _WATCHED or name in self._searching:
            return None
        self._searching.add(name)
        try:
            for finder in sys.meta_path:
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec: Any = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        spec.loader = _AfterExec(spec.loader)
                    return spec
            return None
        finally:
            self._searching.discard(name)


def _time_it(module: ModuleType) -> None:
    try:
        _hooks().install(module.__name__, module)
    except Exception as error:  # the script runs, timed or not
        _tell(f"{module.__name__}: {type(error).__name__}: {error}")


def _record_uncaught() -> None:
    """Write down what ended this process, if anything: Python keeps it for us, whoever has printed it."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, Exception):
        try:
            _hooks().record_exception(error)
        except Exception as problem:
            _tell(f"{type(error).__name__}, which nobody caught: {type(problem).__name__}: {problem}")


def _hooks() -> Any:
    import importlib
    import importlib.util

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if "headrace" not in sys.modules and importlib.util.find_spec("headrace") is None:
        # The script's interpreter has no headrace: take ours, without showing it anything else of our environment.
        spec: Any = importlib.util.spec_from_file_location(
            "headrace", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
        )
        package = importlib.util.module_from_spec(spec)
        sys.modules["headrace"] = package
        spec.loader.exec_module(package)
    return importlib.import_module("headrace.launch.hooks")


def _tell(problem: str) -> None:
    """Leave a line where the report will look for it."""
    folder = os.environ.get("HEADRACE_RUN_DIR")
    try:
        with open(os.path.join(folder or os.devnull, "not-timed.txt"), "a", encoding="utf-8") as notes:
            notes.write(f"{os.getpid()}\t{' '.join(problem.split())}\n")
    except OSError:
        pass


def _chain(here: str) -> None:
    """Run the `sitecustomize` that would have been found without us."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None or os.path.dirname(os.path.abspath(spec.origin or "")) == here:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    if os.environ.get("HEADRACE_RECORDING"):
        sys.meta_path.insert(0, _Finder())
        atexit.register(_record_uncaught)
    _chain(here)


_begin()
