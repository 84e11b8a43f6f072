"""From a Python stack, and from the kernel's word, to what a trainer or a worker is doing.

Pure: recorded stacks are read as living ones are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from headrace.model import OwnStep, Text, lies_in_room, step_of
from headrace.signals import Frame, ThreadStack
from headrace.signals.system import Call, OpenFile

SourceLine = Callable[[Frame], str]  # the text of a frame's line; "" where the file cannot be read
_no_source: SourceLine = lambda _frame: ""  # noqa: E731


class _InWords(Enum):
    @property
    def code(self) -> str:
        return self.name.lower()


class TrainerActivity(_InWords):
    DATA_WAIT = Text("waiting for data", "等待数据")  # inside the loader's `next`
    COMPUTE = Text("computing", "计算")
    H2D_COPY = Text("copying to the GPU", "拷贝到 GPU")
    SYNCHRONISATION = Text("synchronising", "同步等待")  # `.item()`, a barrier: waits for the GPU or for other ranks
    CHECKPOINT = Text("saving a checkpoint", "保存检查点")
    EVALUATION = Text("evaluating", "评估")
    LOGGING = Text("logging", "写日志")
    GC = Text("collecting garbage", "垃圾回收")
    OTHER = Text("something else", "其他")  # imports, sleeps, waits for something that is no loader
    UNKNOWN = Text("not known", "未知")  # no stack, and the kernel does not tell


class Detail(Enum):
    """What more is known of an activity."""

    NONE = ""
    STARTING_WORKERS = "starting_workers"
    IN_PROCESS = "in_process"  # num_workers=0: the training process loads itself
    WAITING_FOR_DATA = "waiting_for_data"  # of an evaluation
    TRAINING = "training"  # below a function named like an evaluation


class WorkerActivity(_InWords):
    IDLE = Text("idle", "空闲")  # waits for the next task, or for the loop to be done with a batch
    READING = Text("reading", "读取")  # a file or a connection
    DECODING = Text("decoding", "解码")  # the data set's own code: decodes, transforms
    COLLATING = Text("collating", "组 batch")
    SENDING = Text("sending", "发送")  # hands over what it has made: writes rows, pickles, tells
    BLOCKED = Text("blocked", "阻塞")  # inside a sample, waiting for a lock, a child, the clock, a pipe
    STOPPED = Text("stopped", "已暂停")  # by a signal or a debugger
    STARTING = Text("starting", "启动中")
    UNKNOWN = Text("not known", "未知")


@dataclass(frozen=True, kw_only=True)
class KernelLook:
    """State and system call of a thread, and what that call is about."""

    state: str
    call: Call | None
    file: OpenFile | None = None  # of a read
    is_fed: bool = False  # reads or polls a pipe whose other end a worker holds


_Activity = TypeVar("_Activity", TrainerActivity, WorkerActivity)


@dataclass(frozen=True)
class StackReading(Generic[_Activity]):
    """What a stack says, and the frame of the user's code where it stands."""

    activity: _Activity
    at: Frame | None = None
    detail: Detail = Detail.NONE


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
# Evaluation by the name of the function: `evaluate`, `validate_one_epoch`, `_run_validation`, `val_epoch`, `test`; a
# `test_…` tests anything.
_EVALUATION = re.compile(
    r"_?(run_|do_|on_|perform_)?(eval|evaluate|evaluation|valid|val|validate|validation)"
    r"(_(one|an?|the|loop|epoch|step|model|run|fn|set|loader|dataset|data))*|test"
)
# The standard library where it waits for somebody else.
_WAITS = (
    *("/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/subprocess.py", "/ssl.py"),
    *("/multiprocessing/popen_fork.py", "/multiprocessing/connection.py", "/concurrent/futures/_base.py"),
)
# What the running line of a trainer says, the first that fits: calls into C have no frame of their own.
_LINES = {
    r"\bgc\.collect\(": TrainerActivity.GC,
    r"\.cuda\(|\.to\([^)]*(device|cuda|gpu|non_blocking|rank)": TrainerActivity.H2D_COPY,
    r"\.(item|cpu|tolist|numpy)\(\)|synchronize\(\)|\b(barrier|all_reduce|all_gather\w*|broadcast)\(": (
        TrainerActivity.SYNCHRONISATION
    ),
    r"\bprint\(|\.flush\(\)|\.write\(": TrainerActivity.LOGGING,
    r"\bsleep\(": TrainerActivity.OTHER,
}
_READ_LINE = re.compile(r"\bopen\(|\.read\w*\(|\.recv\w*\(|\.seek\(|np\.(load|fromfile|memmap)\(|\bmmap\(")
_NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "<frozen ", "/lib/python3", "/headrace/")


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The Python frames of a process above a fork: `evaluate` in those of its parent says nothing about a worker."""
    python = tuple(frame for frame in frames if not frame.is_native)
    for count, frame in enumerate(python):
        if frame.file.endswith("/multiprocessing/process.py") and function_of(frame) == "_bootstrap":
            return python[: count + 1]
    return python


def function_of(frame: Frame) -> str:
    """The bare name: newer Pythons tell `Trainer.fit.<locals>.step` where older ones tell `step`.

    >>> function_of(Frame(file="a.py", line=1, function="Trainer.fit.<locals>.step"))
    'step'
    """
    return frame.function.rpartition(".")[2]


def _own_step(frame: Frame) -> OwnStep | None:
    """What a frame of ours means; None for any other."""
    return step_of(frame.file, frame.function)


def _users_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of code that is neither a library nor Python's own: it says which call it was."""
    users = (frame for frame in frames if frame.file and not any(part in frame.file for part in _NOT_THE_USERS))
    return next(users, frames[0] if frames else None)


def _lies_in(frame: Frame, places: tuple[str, ...]) -> bool:
    """Whether a frame is of one of these files, or below one of these folders ("/tqdm/")."""
    return any(place in frame.file if place.endswith("/") else frame.file.endswith(place) for place in places)


def _is_torch(frame: Frame) -> bool:
    return "/torch/" in frame.file


def _is_loader(frame: Frame) -> bool:
    """The loop waits for a batch: a frame of a loader's iterator, whatever it does meanwhile."""
    is_loaders = _lies_in(frame, _LOADERS) or lies_in_room(frame.file, "loader")
    return is_loaders and not function_of(frame).startswith("__len__")


def _is_checkpoint(frame: Frame) -> bool:
    if frame.file.endswith("/torch/serialization.py"):
        return "save" in function_of(frame) or "Writer" in frame.function
    return _lies_in(frame, _CHECKPOINTS) or _CHECKPOINT_FUNCTION.match(function_of(frame)) is not None


def _is_synchronisation(frame: Frame) -> bool:
    is_cuda = frame.file.endswith("/torch/cuda/__init__.py")
    return _lies_in(frame, _SYNCHRONISATION) or (is_cuda and function_of(frame) == "synchronize")


def _is_evaluation(frame: Frame) -> bool:
    return not _is_torch(frame) and _EVALUATION.fullmatch(function_of(frame).lower()) is not None


def _is_training(frame: Frame) -> bool:
    return "/torch/optim/" in frame.file or (_is_torch(frame) and function_of(frame) == "backward")


def _is_importing(frame: Frame) -> bool:
    """Imports, also those of a spawned process that imports its parent's script."""
    spawns = frame.file.endswith("/multiprocessing/spawn.py") and not _is_torch(frame)
    return "<frozen importlib" in frame.file or (spawns and function_of(frame).startswith(("prepare", "_fixup_main")))


# What any frame of a stack decides, the first that fits.
_PHASES: tuple[tuple[Callable[[Frame], bool], TrainerActivity], ...] = (
    (_is_checkpoint, TrainerActivity.CHECKPOINT),
    (lambda frame: _lies_in(frame, _LOG_WRITERS), TrainerActivity.LOGGING),
    (_is_synchronisation, TrainerActivity.SYNCHRONISATION),
)


def read_trainer(frames: Sequence[Frame], source_line: SourceLine = _no_source) -> StackReading[TrainerActivity]:
    """Say what a training loop's thread is doing, from its frames, innermost first.

    A loader's frame anywhere decides first: whatever runs inside `next` (with `num_workers=0` the data set itself) is a
    wait for data. Then come the phases, and last the line that runs: `.item()` has no frame of its own.
    """
    own = own_frames(frames)
    if not own:
        return StackReading(TrainerActivity.UNKNOWN)
    reading = _innermost_activity(own, source_line)
    is_phase = reading.activity in (TrainerActivity.CHECKPOINT, TrainerActivity.LOGGING, TrainerActivity.OTHER)
    outside = next((count for count, frame in enumerate(own) if _is_evaluation(frame)), None)
    if outside is not None and any(_is_training(frame) for frame in own[:outside]):
        return StackReading(reading.activity, reading.at, Detail.TRAINING)
    if not is_phase and outside is not None:
        detail = Detail.WAITING_FOR_DATA if reading.activity is TrainerActivity.DATA_WAIT else Detail.NONE
        return StackReading(TrainerActivity.EVALUATION, reading.at, detail)
    return reading


def _innermost_activity(own: tuple[Frame, ...], source_line: SourceLine) -> StackReading[TrainerActivity]:
    at = _users_frame(own)
    is_copy = (_own_step(one) is OwnStep.COPY or function_of(one) in _COPY_FUNCTIONS for one in own)
    copies = next((i for i, copies in enumerate(is_copy) if copies), None)
    loads = next((i for i, frame in enumerate(own) if _is_loader(frame)), None)
    if copies is not None and (loads is None or copies < loads):
        return StackReading(TrainerActivity.H2D_COPY, at)
    if loads is not None:
        return StackReading(TrainerActivity.DATA_WAIT, _users_frame(own[loads:]), _detail_of_wait(own[loads:]))
    for is_it, activity in _PHASES:
        if any(is_it(frame) for frame in own):
            return StackReading(activity, at)
    if any(_is_importing(frame) for frame in own[:12]):
        return StackReading(TrainerActivity.OTHER, at)
    if _waits_in_next(own):
        return StackReading(TrainerActivity.DATA_WAIT, at)
    if _lies_in(own[0], _WAITS):
        return StackReading(TrainerActivity.OTHER, at)
    line = "" if _is_torch(own[0]) else source_line(own[0])
    said = next((activity for pattern, activity in _LINES.items() if re.search(pattern, line)), TrainerActivity.COMPUTE)
    is_step = said is TrainerActivity.OTHER and any(_is_torch(frame) for frame in own)  # whatever a module does
    return StackReading(TrainerActivity.COMPUTE if is_step else said, at)


def _waits_in_next(own: tuple[Frame, ...]) -> bool:
    """A queue that a `__next__` of the user's own reads: a loader we do not know by name."""
    if not own[0].file.endswith(("/threading.py", "/queue.py", "/multiprocessing/connection.py", "/selectors.py")):
        return False
    outside = (frame for frame in own if not _lies_in(frame, _WAITS) and "/multiprocessing/" not in frame.file)
    first = next(outside, None)
    return first is not None and function_of(first) in ("__next__", "next", "next_batch", "get_batch")


def _detail_of_wait(from_loader: tuple[Frame, ...]) -> Detail:
    names = {frame.function for frame in from_loader if _is_loader(frame)}
    bare = {name.rpartition(".")[2] for name in names}
    ours = {_own_step(frame) for frame in from_loader}
    if (bare & {"__iter__", "_get_iterator", "__init__"} or OwnStep.POOL_START in ours) and "__next__" not in bare:
        return Detail.STARTING_WORKERS
    if any(name.startswith("_SingleProcess") for name in names) or OwnStep.IN_PROCESS in ours:
        return Detail.IN_PROCESS
    return Detail.NONE


def training_thread(threads: Sequence[ThreadStack], source_line: SourceLine = _no_source) -> ThreadStack | None:
    """The thread that trains: the main one, unless that only waits while another computes or waits for data."""
    main = next((thread for thread in threads if thread.is_main), threads[0] if threads else None)
    if main is None:
        return None
    if read_trainer(main.frames, source_line).activity not in (TrainerActivity.OTHER, TrainerActivity.UNKNOWN):
        return main
    trains = {TrainerActivity.DATA_WAIT, TrainerActivity.EVALUATION, TrainerActivity.CHECKPOINT}
    for thread in threads:
        own = own_frames(thread.frames)
        activity = read_trainer(own, source_line).activity
        is_loop = any(_is_torch(frame) for frame in own) and activity is TrainerActivity.COMPUTE
        if (is_loop or activity in trains) and not thread.name.startswith("headrace-"):
            return thread
    return main


def read_trainer_look(look: KernelLook) -> StackReading[TrainerActivity]:
    """What a trainer does as far as the kernel tells: it waits for its workers' pipe, it computes, or nobody knows."""
    if look.is_fed:
        return StackReading(TrainerActivity.DATA_WAIT)
    return StackReading(TrainerActivity.COMPUTE if look.state == "R" else TrainerActivity.UNKNOWN)


_TORCH_LOOP = "/torch/utils/data/_utils/worker.py"
_TORCH_FETCH = "/torch/utils/data/_utils/fetch.py"
# What our own workers' frames say, where no sample's own code is above them.
_OWN = {
    OwnStep.LIFE: WorkerActivity.STARTING,
    OwnStep.STARTING: WorkerActivity.STARTING,
    OwnStep.TASK_WAIT: WorkerActivity.IDLE,
    OwnStep.ROOM_WAIT: WorkerActivity.IDLE,
    OwnStep.SAMPLE: WorkerActivity.DECODING,
    OwnStep.READ: WorkerActivity.READING,
    OwnStep.COLLATE: WorkerActivity.COLLATING,
    OwnStep.ROWS: WorkerActivity.SENDING,
    OwnStep.HAND_OVER: WorkerActivity.SENDING,
}
_READS = {
    *("read", "pread64", "readv", "preadv", "open", "openat", "stat", "fstat", "lstat", "newfstatat", "statx"),
    *("getdents64", "recvfrom", "recvmsg", "recvmmsg", "connect", "io_getevents", "io_uring_enter"),
}
_BLOCKS = {"futex", "nanosleep", "clock_nanosleep", "wait4", "waitid", "flock", "fcntl", "pause", "select", "pselect6"}


def _is_our_worker(own: Sequence[Frame]) -> bool:
    return any(_own_step(frame) is OwnStep.LIFE for frame in own)


def is_our_process(threads: Sequence[ThreadStack]) -> bool:
    return any(_own_step(frame) is OwnStep.HOST for thread in threads for frame in own_frames(thread.frames))


def _torch_loop_at(own: Sequence[Frame]) -> int | None:
    loops = (frame.file.endswith(_TORCH_LOOP) and function_of(frame) == "_worker_loop" for frame in own)
    return next((count for count, is_loop in enumerate(loops) if is_loop), None)


def worker_threads(threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The threads of a process that serve samples: one, or several where workers are threads."""
    stacks = [(thread, own_frames(thread.frames)) for thread in threads]
    return tuple(one for one, own in stacks if _torch_loop_at(own) is not None or _is_our_worker(own))


def read_worker(frames: Sequence[Frame], source_line: SourceLine = _no_source) -> StackReading[WorkerActivity]:
    """Say what a worker's stack tells; whether it reads or is blocked the kernel knows better (`refine`)."""
    own = own_frames(frames)
    if not own:
        return StackReading(WorkerActivity.UNKNOWN)
    if _is_our_worker(own):
        return _read_ours(own, source_line)
    loop = _torch_loop_at(own)
    if loop is None:
        return StackReading(WorkerActivity.STARTING, own[0])
    inner = own[:loop]
    at = _torch_sample_frame(inner)
    if any(_is_importing(frame) and "<frozen" in frame.file for frame in inner[:8]) and at is None:
        return StackReading(WorkerActivity.STARTING, inner[0])
    if any("/collate.py" in frame.file or "collate" in frame.function for frame in inner):
        return StackReading(WorkerActivity.COLLATING, at or inner[0])
    if at is None:
        return StackReading(_between_samples(inner), inner[0] if inner else None)
    return StackReading(_in_sample(inner, source_line), at)


def _read_ours(own: Sequence[Frame], source_line: SourceLine) -> StackReading[WorkerActivity]:
    """Our own worker: the innermost frame that has a meaning tells, and above it is the user's code."""
    steps = [(count, step) for count, frame in enumerate(own) if (step := _own_step(frame)) is not None]
    count, step = steps[0]
    in_sample = next((place for place, one in steps if one is OwnStep.SAMPLE), None)
    if step is OwnStep.READ and in_sample is not None:
        return StackReading(WorkerActivity.READING, _users_frame(own[:in_sample]) or own[0])
    at = _users_frame([frame for frame in own[:count] if not lies_in_room(frame.file, "engine")])
    if step is OwnStep.SAMPLE and at is not None:
        return StackReading(_in_sample(own, source_line), at)
    if step is OwnStep.SAMPLE and count:  # what the engine does around a sample
        return StackReading(WorkerActivity.SENDING, own[0])
    return StackReading(_OWN.get(step, WorkerActivity.UNKNOWN), at or own[0])


def _in_sample(inner: Sequence[Frame], source_line: SourceLine) -> WorkerActivity:
    is_reading = _READ_LINE.search(source_line(inner[0])) or inner[0].file.endswith(("/socket.py", "/ssl.py"))
    return WorkerActivity.READING if is_reading else WorkerActivity.DECODING


def _torch_sample_frame(inner: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the data set's own code, above torch's `fetch`."""
    for count, frame in enumerate(inner):
        if _TORCH_FETCH in frame.file and function_of(frame) not in ("__init__", "create_fetcher"):
            return _users_frame([one for one in inner[:count] if "/torch/utils/data/_utils/" not in one.file])
    return None


def _between_samples(inner: Sequence[Frame]) -> WorkerActivity:
    names = [function_of(frame) for frame in inner]
    if "put" in names or "_send_bytes" in names or any("/reductions.py" in frame.file for frame in inner):
        return WorkerActivity.SENDING
    if "get" in names or "poll" in names:
        return WorkerActivity.IDLE
    return WorkerActivity.STARTING if "init_fn" in " ".join(names) else WorkerActivity.UNKNOWN


# Where the kernel's word goes before what the stack says. One that reads may stand in a lock: another reads for it.
_KERNEL_DECIDES = {
    WorkerActivity.DECODING: (WorkerActivity.READING, WorkerActivity.BLOCKED),
    WorkerActivity.READING: (WorkerActivity.READING,),
    WorkerActivity.UNKNOWN: tuple(WorkerActivity),
}


def refine(reading: StackReading[WorkerActivity], look: KernelLook) -> StackReading[WorkerActivity]:
    """Let the kernel's word decide where a stack cannot: stopped, reading, blocked."""
    kernel = read_kernel(look)
    decides = kernel is WorkerActivity.STOPPED or kernel in _KERNEL_DECIDES.get(reading.activity, ())
    return StackReading(kernel, reading.at) if decides else reading


def read_kernel(look: KernelLook) -> WorkerActivity:
    """Say what the kernel alone tells of a worker's thread: its state and the system call that it is in."""
    name, kind = look.call.name if look.call else "", look.file.kind if look.file else "file"
    if look.state in "Tt":
        return WorkerActivity.STOPPED
    if look.state in "ZX":
        return WorkerActivity.UNKNOWN
    if name in _READS and kind in ("file", "socket"):
        return WorkerActivity.READING
    if name in _READS and kind == "pipe":
        return WorkerActivity.IDLE  # our worker waits for its task in a plain read
    if look.state == "D":
        return WorkerActivity.READING  # a page of a mapped file, or a call that we may not see
    if look.state == "R":
        return WorkerActivity.DECODING
    if name in ("poll", "ppoll", "epoll_wait", "epoll_pwait"):
        return WorkerActivity.IDLE  # torch's worker polls its index queue
    return WorkerActivity.BLOCKED if name in _BLOCKS else WorkerActivity.UNKNOWN
