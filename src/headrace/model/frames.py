"""What a frame of ours means in a stack that somebody reads from outside: one table of our functions, and names.

`tests/engine/test_frames.py` finds each function where the table says it is, and reads live workers by it.
"""

from __future__ import annotations

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


_FRAMES: Mapping[str, Mapping[str, OwnStep]] = {
    "headrace.engine.worker.host": {
        "run_host": OwnStep.HOST,
        "_run_worker": OwnStep.LIFE,
        "prepare": OwnStep.STARTING,
    },
    "headrace.engine.worker.worker": {
        "run": OwnStep.TASK_WAIT,  # between two tasks
        "_next_message": OwnStep.TASK_WAIT,
        "_take_up": OwnStep.HAND_OVER,
        "_serve": OwnStep.HAND_OVER,
    },
    "headrace.engine.worker.chunks": {"_serve_one": OwnStep.SAMPLE, "_hand_over": OwnStep.HAND_OVER},
    "headrace.engine.worker.fetch": {
        "_patiently": OwnStep.SAMPLE,
        "_plain": OwnStep.SAMPLE,
        "_one_by_one": OwnStep.SAMPLE,
        "_getitems": OwnStep.SAMPLE,
    },
    "headrace.engine.worker.own_iterator": {
        "begin": OwnStep.SAMPLE,
        "restart": OwnStep.SAMPLE,
        "serve": OwnStep.SAMPLE,
        "_next": OwnStep.SAMPLE,
        "pass_over": OwnStep.SAMPLE,
    },
    "headrace.engine.worker.rows": {"place": OwnStep.ROWS, "put": OwnStep.ROWS, "_bind": OwnStep.ROOM_WAIT},
    "headrace.engine.worker.sharing": {
        "share": OwnStep.HAND_OVER,
        "_gather": OwnStep.COLLATE,
        "_collate_to_block": OwnStep.COLLATE,
    },
    "headrace.engine.worker.room_for_blocks": {"dump": OwnStep.HAND_OVER, "_wait": OwnStep.ROOM_WAIT},
    "headrace.engine.worker.workbench": {
        "answer": OwnStep.HAND_OVER,
        "fail": OwnStep.HAND_OVER,
        "account": OwnStep.HAND_OVER,
    },
    "headrace.engine.device": {"start": OwnStep.COPY, "take": OwnStep.COPY},
    "headrace.storage.reading.block_source": {"_wait": OwnStep.READ, "_read_aside": OwnStep.READ},
    "headrace.storage.reading.extents": {"read_file": OwnStep.READ},
    "headrace.loader.dataloader": {"_get_iterator": OwnStep.POOL_START},
    "headrace.loader.workers": {
        "_launch": OwnStep.POOL_START,
        "_stop_pool": OwnStep.POOL_STOP,
        "close": OwnStep.POOL_STOP,
        "_next_local": OwnStep.IN_PROCESS,
    },
    "headrace.loader.local": {"_fetch": OwnStep.IN_PROCESS},
}
OWN_FRAMES: Mapping[tuple[str, str], OwnStep] = {
    (module, function): step for module, functions in _FRAMES.items() for function, step in functions.items()
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
