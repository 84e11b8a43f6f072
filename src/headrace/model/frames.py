"""What a frame of ours means in a stack that somebody reads from outside: one table of our functions, and names.

`tests/engine/test_frames.py` finds each function where the table says it is, and reads live workers by it.
"""

from collections.abc import Mapping
from enum import Enum

WORKER_THREAD = "headrace-w"  # and the worker's number: the kernel's name of the thread that a worker runs in


class OwnStep(Enum):
    """What the innermost frame of ours that has a meaning says of its thread."""

    # a worker of the engine
    HOST = "host"  # a process of the loader: its worker, or the threads that are its workers, are inside or beside it
    LIFE = "life"  # all of a worker's life is in it: it starts or ends where nothing else is said
    STARTING = "starting"  # `worker_init_fn`
    TASK_WAIT = "task_wait"
    ROOM_WAIT = "room_wait"  # for a slot or for memory: the loop holds what it needs
    SAMPLE = "sample"  # the data set's own code, above this frame or in C
    READ = "read"  # inside a sample: a file, or a wait for the process that reads ahead
    COLLATE = "collate"
    ROWS = "rows"  # a sample is written into its row
    HAND_OVER = "hand_over"  # a sample or a batch goes into shared memory, or is told of
    # the training loop
    POOL_START = "pool_start"
    POOL_STOP = "pool_stop"
    IN_PROCESS = "in_process"  # the training process fetches by itself
    COPY = "copy"  # to the device


# by module: what its functions mean
_FRAMES: Mapping[str, Mapping[OwnStep, str]] = {
    "engine.worker.host": {OwnStep.HOST: "run_host", OwnStep.LIFE: "_run_worker", OwnStep.STARTING: "prepare"},
    # `run`: between two tasks
    "engine.worker.worker": {OwnStep.TASK_WAIT: "run _next_message", OwnStep.HAND_OVER: "_take_up _serve"},
    "engine.worker.chunks": {OwnStep.SAMPLE: "_serve_one", OwnStep.HAND_OVER: "_hand_over"},
    "engine.worker.fetch": {OwnStep.SAMPLE: "_patiently _plain _one_by_one _getitems"},
    "engine.worker.own_iterator": {OwnStep.SAMPLE: "begin restart serve _next pass_over"},
    "engine.worker.rows": {OwnStep.ROWS: "place put", OwnStep.ROOM_WAIT: "_bind"},
    "engine.worker.sharing": {OwnStep.HAND_OVER: "share", OwnStep.COLLATE: "_gather _collate_to_block"},
    "engine.worker.room_for_blocks": {OwnStep.HAND_OVER: "dump", OwnStep.ROOM_WAIT: "_wait"},
    "engine.worker.workbench": {OwnStep.HAND_OVER: "answer fail account"},
    "engine.device": {OwnStep.COPY: "start take"},
    "storage.reading.block_source": {OwnStep.READ: "_wait _read_aside"},
    "storage.reading.extents": {OwnStep.READ: "read_file"},
    "loader.dataloader": {OwnStep.POOL_START: "_get_iterator"},
    "loader.workers": {
        OwnStep.POOL_START: "_launch",
        OwnStep.POOL_STOP: "_close_pool close",
        OwnStep.IN_PROCESS: "_next_local",
    },
    "loader.local": {OwnStep.IN_PROCESS: "_fetch"},
}
OWN_FRAMES: Mapping[tuple[str, str], OwnStep] = {
    (f"headrace.{module}", function): step
    for module, steps in _FRAMES.items()
    for step, functions in steps.items()
    for function in functions.split()
}


def step_of(file: str, function: str) -> OwnStep | None:
    """Return what a frame means, by its file and its name, bare or with its class; None for one that says nothing.

    >>> step_of("/env/lib/headrace/engine/worker/worker.py", "Worker._next_message")
    <OwnStep.TASK_WAIT: 'task_wait'>
    """
    return OWN_FRAMES.get((_module_of(file), function.rpartition(".")[2]))


def lies_in_room(file: str, room: str) -> bool:
    """Whether a file is one of ours, and in this room.

    >>> lies_in_room("/env/lib/headrace/loader/workers.py", "loader")
    True
    """
    return _module_of(file).startswith(f"headrace.{room}.")


def worker_number(thread_name: str) -> int | None:
    """Return which worker of ours runs in a thread of this name; None: none does.

    >>> worker_number("headrace-w3"), worker_number("headrace-watch")
    (3, None)
    """
    number = thread_name.removeprefix(WORKER_THREAD)
    return int(number) if number != thread_name and number.isdigit() else None


def _module_of(file: str) -> str:
    at = file.rfind("/headrace/")
    return file[at + 1 :].removesuffix(".py").replace("/", ".") if at >= 0 else ""
