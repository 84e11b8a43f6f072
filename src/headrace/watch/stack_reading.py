"""From a Python stack to what a training process is doing. Pure: recorded stacks are read as living ones are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.model import OwnStep
from headrace.signals import Frame, ThreadStack

from . import stack_rules as rules

_NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "<frozen ", "/lib/python3", "/headrace/")

SourceLine = Callable[[Frame], str]  # the text of a frame's line; "" where the file cannot be read


class Activity(Enum):
    """What the training loop is at."""

    DATA_WAIT = "data_wait"  # inside the loader's `next`
    COMPUTE = "compute"
    H2D_COPY = "h2d_copy"
    SYNCHRONISATION = "synchronisation"  # `.item()`, a barrier: waits for the GPU or for other ranks
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    LOGGING = "logging"
    GC = "gc"
    OTHER = "other"  # imports, compiles, sleeps, waits for something that is no loader
    UNKNOWN = "unknown"  # no stack, and the kernel does not tell


class Detail(Enum):
    """What more is known of an activity."""

    NONE = ""
    STARTING_WORKERS = "starting_workers"
    STOPPING_WORKERS = "stopping_workers"
    IN_PROCESS = "in_process"  # num_workers=0: the training process loads itself
    WAITING_FOR_DATA = "waiting_for_data"  # of an evaluation
    IMPORTING = "importing"
    COMPILING = "compiling"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    STOPPED = "stopped"  # by a signal or a debugger


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a stack says, and the frame of the user's code where it stands."""

    activity: Activity
    at: Frame | None = None
    detail: Detail = Detail.NONE


def no_source(_frame: Frame) -> str:
    """For stacks without their source files."""
    return ""


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The Python frames of a process without those that its parent left on the stack when it forked.

    A forked worker has the training loop below its own frames: `evaluate` there says nothing about the worker.
    """
    python = [frame for frame in frames if not frame.is_native]
    for count, frame in enumerate(python):
        if frame.file.endswith("/multiprocessing/process.py") and rules.function_of(frame) == "_bootstrap":
            return tuple(python[: count + 1])
    return tuple(python)


def read_trainer(frames: Sequence[Frame], source_line: SourceLine = no_source) -> Reading:
    """Say what a training loop's thread is doing, from its frames, innermost first.

    A loader's frame anywhere decides first: whatever runs inside `next` (with `num_workers=0` the data set itself) is a
    wait for data. Then come the phases, and last the line that runs: `.item()` has no frame of its own.
    """
    own = own_frames(frames)
    if not own:
        return Reading(activity=Activity.UNKNOWN)
    reading = _innermost_activity(own, source_line)
    is_phase = reading.activity in (Activity.CHECKPOINT, Activity.LOGGING, Activity.OTHER)
    if not is_phase and any(rules.is_evaluation(frame) for frame in own):
        waits = reading.activity is Activity.DATA_WAIT
        detail = Detail.WAITING_FOR_DATA if waits else Detail.NONE
        return Reading(activity=Activity.EVALUATION, at=reading.at, detail=detail)
    return reading


def _innermost_activity(own: tuple[Frame, ...], source_line: SourceLine) -> Reading:
    at = _users_frame(own)
    copies = next((i for i, frame in enumerate(own) if rules.is_copy(frame)), None)
    loads = next((i for i, frame in enumerate(own) if rules.is_loader(frame)), None)
    if copies is not None and (loads is None or copies < loads):
        return Reading(activity=Activity.H2D_COPY, at=at)
    if loads is not None:
        return Reading(activity=Activity.DATA_WAIT, at=_users_frame(own[loads:]), detail=_detail_of_wait(own[loads:]))
    for is_it, activity in (
        (rules.is_checkpoint, Activity.CHECKPOINT),
        (rules.is_log_writer, Activity.LOGGING),
        (rules.is_synchronisation, Activity.SYNCHRONISATION),
    ):
        if any(is_it(frame) for frame in own):
            return Reading(activity=activity, at=at)
    if any(rules.is_importing(frame) for frame in own[:12]):
        return Reading(activity=Activity.OTHER, at=at, detail=Detail.IMPORTING)
    if any(rules.is_compiling(frame) for frame in own):
        return Reading(activity=Activity.OTHER, at=at, detail=Detail.COMPILING)
    if _waits_in_next(own):
        return Reading(activity=Activity.DATA_WAIT, at=at)
    if rules.is_wait(own[0]):
        return Reading(activity=Activity.OTHER, at=at, detail=Detail.WAITING)
    return _by_line(own[0], at, source_line)


def _by_line(innermost: Frame, at: Frame | None, source_line: SourceLine) -> Reading:
    """What the running line says; calls into C have no frame."""
    if not rules.is_torch(innermost):
        line = source_line(innermost)
        for says, activity in (
            (rules.line_collects, Activity.GC),
            (rules.line_copies, Activity.H2D_COPY),
            (rules.line_synchronises, Activity.SYNCHRONISATION),
            (rules.line_prints, Activity.LOGGING),
        ):
            if says(line):
                return Reading(activity=activity, at=at)
        if rules.line_sleeps(line):
            return Reading(activity=Activity.OTHER, at=at, detail=Detail.SLEEPING)
    return Reading(activity=Activity.COMPUTE, at=at)


def _waits_in_next(own: tuple[Frame, ...]) -> bool:
    """A queue that a `__next__` of the user's own reads: a loader we do not know by name."""
    if not own[0].file.endswith(("/threading.py", "/queue.py", "/multiprocessing/connection.py", "/selectors.py")):
        return False
    outside = next((frame for frame in own if not rules.is_wait(frame) and "/multiprocessing/" not in frame.file), None)
    return outside is not None and rules.function_of(outside) in ("__next__", "next", "next_batch", "get_batch")


def _detail_of_wait(from_loader: tuple[Frame, ...]) -> Detail:
    names = {frame.function for frame in from_loader if rules.is_loader(frame)}
    bare = {name.rpartition(".")[2] for name in names}
    ours = {rules.own_step(frame) for frame in from_loader}
    if bare & {"_shutdown_workers", "__del__"} or OwnStep.POOL_STOP in ours:
        return Detail.STOPPING_WORKERS
    if (bare & {"__iter__", "_get_iterator", "__init__"} or OwnStep.POOL_START in ours) and "__next__" not in bare:
        return Detail.STARTING_WORKERS
    if any(name.startswith("_SingleProcess") for name in names) or OwnStep.IN_PROCESS in ours:
        return Detail.IN_PROCESS
    return Detail.NONE


def _users_frame(own: Iterable[Frame]) -> Frame | None:
    """The innermost frame of code that is neither a library nor Python's own."""
    frames = tuple(own)
    users = (frame for frame in frames if frame.file and not any(part in frame.file for part in _NOT_THE_USERS))
    return next(users, frames[0] if frames else None)


# Threads that are never the training loop.
_HELPERS = (
    *("QueueFeederThread", "pin_memory", "tqdm_monitor", "pt_autograd", "asyncio", "headrace-", "IPythonHistory"),
    *("MsgRouterThr", "ChkStopThr", "NetStatThr", "IntMsgThr", "Thread-heartbeat"),
)


def training_thread(threads: Sequence[ThreadStack], source_line: SourceLine = no_source) -> ThreadStack | None:
    """The thread that trains: the main one, unless that only waits while another computes or waits for data."""
    main = next((thread for thread in threads if thread.is_main), threads[0] if threads else None)
    if main is None:
        return None
    if read_trainer(main.frames, source_line).activity not in (Activity.OTHER, Activity.UNKNOWN):
        return main
    for thread in threads:
        if thread is main or thread.name.startswith(_HELPERS) or not thread.frames:
            continue
        own = own_frames(thread.frames)
        if any(rules.function_of(frame) == "_pin_memory_loop" for frame in own):
            continue
        reading = read_trainer(own, source_line)
        is_loop = any(rules.is_torch(frame) for frame in own) and reading.activity is Activity.COMPUTE
        if is_loop or reading.activity in (Activity.DATA_WAIT, Activity.EVALUATION, Activity.CHECKPOINT):
            return thread
    return main
