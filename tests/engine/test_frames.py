"""What `model.frames` says of our functions is true: each is where the table says, and live workers are read by it."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.model import OwnStep, step_of, worker_number
from headrace.model.frames import OWN_FRAMES
from headrace.signals import ThreadStack, dump_with_py_spy, find_py_spy

SCRIPT = Path(__file__).parent.parent / "own_loader.py"
WITHIN_S = 90.0
LOOKS = 12


@pytest.mark.parametrize(("module", "function"), sorted(OWN_FRAMES), ids=":".join)
def test_a_function_is_where_the_table_says(module: str, function: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert step_of(spec.origin, f"Some.<locals>.{function}") is OWN_FRAMES[module, function]


@contextlib.contextmanager
def loading(case: str, backend: str, folder: Path) -> Iterator[list[int]]:
    """The pids of the workers of a loop over our loader that goes on for ever."""
    ready = folder / "ready"
    process = subprocess.Popen([sys.executable, str(SCRIPT), case, backend, str(ready)], start_new_session=True)
    try:
        deadline = time.monotonic() + WITHIN_S
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def step_of_stack(thread: ThreadStack) -> OwnStep | None:
    """What the innermost frame that means anything says, of a thread that is a worker of ours; else None."""
    steps = [step for frame in thread.frames if (step := step_of(frame.file, frame.function)) is not None]
    return steps[0] if OwnStep.LIFE in steps else None


CASES = [
    ("decode", "process", OwnStep.SAMPLE),
    ("decode", "thread", OwnStep.SAMPLE),
    ("collate", "process", OwnStep.COLLATE),
    ("rows", "process", OwnStep.ROWS),
]
MORE_CASES = [
    ("items", "process", OwnStep.SAMPLE),
    ("iterable", "process", OwnStep.SAMPLE),
    ("iterable", "thread", OwnStep.SAMPLE),
    ("idle", "process", OwnStep.TASK_WAIT),
    ("idle", "thread", OwnStep.TASK_WAIT),
    ("collate", "thread", OwnStep.COLLATE),
    ("rows", "thread", OwnStep.ROWS),
    ("room", "process", OwnStep.ROOM_WAIT),
    ("send", "process", OwnStep.HAND_OVER),
    ("init", "process", OwnStep.STARTING),
]


@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is missing")
@pytest.mark.parametrize(
    ("case", "backend", "step"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_CASES)]
)
def test_a_live_worker_is_where_its_data_set_keeps_it(case: str, backend: str, step: OwnStep, tmp_path: Path) -> None:
    with loading(case, backend, tmp_path) as workers:
        seen: Counter[OwnStep] = Counter()
        for _ in range(LOOKS):
            for pid in workers:
                stacks = dump_with_py_spy(pid, native=False, pauses=False)
                seen.update(found for one in stacks.threads if (found := step_of_stack(one)) is not None)
            time.sleep(0.02)
        names = [path.read_text().strip() for pid in workers for path in Path(f"/proc/{pid}/task").glob("*/comm")]
    assert seen.most_common(1)[0][0] is step, seen
    assert seen[step] >= 0.6 * seen.total(), seen
    assert 0 in {worker_number(name) for name in names}
