"""Which frames of a Python stack mean what: loaders, checkpoints, log writers, copies, evaluation."""

from __future__ import annotations

import re

from headrace.model import OwnStep, lies_in_room, step_of
from headrace.signals import Frame

# Loaders whose `next` the training loop waits in. Any frame of these files, or below these folders, is that wait.
_LOADERS = (
    *("/torch/utils/data/dataloader.py", "/torchdata/"),
    *("/nvidia/dali/plugin/", "/ffcv/loader/", "/prefetch_generator/", "/petastorm/", "/ray/data/iterator.py"),
)
# Wrappers that copy what a loader gave: on the stack inside some loaders, and not a wait for them.
_COPY_FUNCTIONS = {
    *("send_to_device", "move_data_to_device", "batch_to_device", "transfer_batch_to_device", "_prepare_input"),
    *("_prepare_inputs", "collate_data_to_device", "record_stream"),
}
_CHECKPOINTS = ("/torch/distributed/checkpoint/", "/safetensors/")
_CHECKPOINT_FUNCTION = re.compile(r"_?(save|dump|write)_(check_?points?|ckpts?|model|state|states|pretrained|snapshot)")
_LOG_WRITERS = (
    *("/logging/__init__.py", "/torch/utils/tensorboard/", "/tensorboardX/", "/tensorboard/", "/wandb/", "/mlflow/"),
    *("/tqdm/", "/loguru/", "/rich/", "/swanlab/", "/aim/sdk/", "/clearml/"),
)
_SYNCHRONISATION = ("/torch/distributed/distributed_c10d.py", "/torch/cuda/streams.py")
_COMPILERS = ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/", "/triton/compiler/")
# Evaluation by the name of the function: `evaluate`, `validate_one_epoch`, `_run_validation`, `val_epoch`, `test`.
_EVALUATION = re.compile(
    r"_?(run_|do_|on_|perform_)?(eval|evaluate|evaluation|valid|val|validate|validation|test)"
    r"(_(one|an?|the|loop|epoch|step|model|run|fn|set|loader|dataset|data))*"
)
# The standard library where it waits for somebody else.
_WAITS = (
    *("/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/subprocess.py", "/ssl.py"),
    *("/multiprocessing/popen_fork.py", "/multiprocessing/connection.py", "/concurrent/futures/_base.py"),
)
_COPY_LINE = re.compile(r"\.cuda\(|\.to\([^)]*(device|cuda|gpu|non_blocking|rank)")
_SYNC_LINE = re.compile(
    r"\.(item|cpu|tolist|numpy)\(\)|synchronize\(\)|\b(barrier|all_reduce|all_gather\w*|broadcast)\("
)
_GC_LINE = re.compile(r"\bgc\.collect\(")
_PRINT_LINE = re.compile(r"\bprint\(|\.flush\(\)|\.write\(")
_SLEEP_LINE = re.compile(r"\bsleep\(")
_READ_LINE = re.compile(r"\bopen\(|\.read\w*\(|\.recv\w*\(|\.seek\(|np\.(load|fromfile|memmap)\(|\bmmap\(")


def function_of(frame: Frame) -> str:
    """The bare name: newer Pythons tell `Trainer.fit.<locals>.step` where older ones tell `step`.

    >>> function_of(Frame(file="a.py", line=1, function="Trainer.fit.<locals>.step"))
    'step'
    """
    return frame.function.rpartition(".")[2]


def own_step(frame: Frame) -> OwnStep | None:
    """What a frame of ours means; None for any other."""
    return step_of(frame.file, frame.function)


def lies_in(frame: Frame, places: tuple[str, ...]) -> bool:
    """Whether a frame is of one of these files, or below one of these folders ("/tqdm/")."""
    return any(place in frame.file if place.endswith("/") else frame.file.endswith(place) for place in places)


def is_torch(frame: Frame) -> bool:
    return "/torch/" in frame.file


def is_loader(frame: Frame) -> bool:
    """The loop waits for a batch: a frame of a loader's iterator, whatever it does meanwhile."""
    is_loaders = lies_in(frame, _LOADERS) or lies_in_room(frame.file, "loader")
    return is_loaders and not function_of(frame).startswith("__len__")


def is_copy(frame: Frame) -> bool:
    return own_step(frame) is OwnStep.COPY or function_of(frame) in _COPY_FUNCTIONS


def is_checkpoint(frame: Frame) -> bool:
    if frame.file.endswith("/torch/serialization.py"):
        return "save" in function_of(frame) or "Writer" in frame.function
    return lies_in(frame, _CHECKPOINTS) or _CHECKPOINT_FUNCTION.match(function_of(frame)) is not None


def is_log_writer(frame: Frame) -> bool:
    return lies_in(frame, _LOG_WRITERS)


def is_synchronisation(frame: Frame) -> bool:
    return lies_in(frame, _SYNCHRONISATION) or (
        frame.file.endswith("/torch/cuda/__init__.py") and function_of(frame) == "synchronize"
    )


def is_compiling(frame: Frame) -> bool:
    """Only where it compiles: what runs a compiled graph has frames of the same packages."""
    return lies_in(frame, _COMPILERS) and re.search("compile|convert_frame|lower|codegen", frame.function) is not None


def is_evaluation(frame: Frame) -> bool:
    return not is_torch(frame) and _EVALUATION.fullmatch(function_of(frame).lower()) is not None


def is_importing(frame: Frame) -> bool:
    """Imports, also those of a spawned process that imports its parent's script."""
    spawns = frame.file.endswith("/multiprocessing/spawn.py") and not is_torch(frame)
    return "<frozen importlib" in frame.file or (spawns and function_of(frame).startswith(("prepare", "_fixup_main")))


def is_wait(frame: Frame) -> bool:
    return lies_in(frame, _WAITS)


def line_copies(line: str) -> bool:
    return _COPY_LINE.search(line) is not None


def line_synchronises(line: str) -> bool:
    return _SYNC_LINE.search(line) is not None


def line_collects(line: str) -> bool:
    return _GC_LINE.search(line) is not None


def line_prints(line: str) -> bool:
    return _PRINT_LINE.search(line) is not None


def line_sleeps(line: str) -> bool:
    return _SLEEP_LINE.search(line) is not None


def line_reads(line: str) -> bool:
    return _READ_LINE.search(line) is not None
