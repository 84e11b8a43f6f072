"""Records stacks of the real trainings of `trainings.py` into `tests/data/watch/stacks.json.gz`: run it by hand.

    python -m tests.watch.record_stacks [SCENARIO…]

Paths of this machine are replaced; of each frame the text of its line is kept, as the reading of stacks asks for it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headrace.signals import Frame, ThreadStack, dump_with_py_spy
from headrace.watch.processes import TrainingTree

HERE = Path(__file__).parent
STORED = HERE.parent / "data" / "watch" / "stacks.json.gz"
SCENARIOS = (
    *("fork", "spawn", "forkserver", "in_process", "reading", "collating"),
    *("compute", "checkpoint", "evaluation", "evaluation_waits", "logs", "garbage", "own_loader", "in_a_thread"),
    *("spawned_ranks", "sleep", "torchrun"),
)
_LOOKS = 12


def record(scenario: str) -> list[dict[str, object]]:
    """Run one and return its processes with their stacks, a few times."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        script = [str(HERE / "trainings.py"), scenario, str(ready)]
        if scenario == "torchrun":
            script = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29613", script[0]]
            script += ["fork", str(ready)]
        process = subprocess.Popen([sys.executable, *script], start_new_session=True)
        try:
            deadline = time.monotonic() + 120
            while not ready.exists():
                assert time.monotonic() < deadline, f"{scenario} did not start"
                assert process.poll() is None, f"{scenario} ended"
                time.sleep(0.1)
            time.sleep(1.5)
            looks = []
            for _ in range(_LOOKS):
                looks += [_process(facts) for facts in TrainingTree().below([process.pid])]
                time.sleep(0.07)
            return _grouped(looks)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def _process(facts: object) -> dict[str, object]:
    pid = facts.pid  # type: ignore[attr-defined]
    stacks = dump_with_py_spy(pid, native=False, pauses=False)
    names = ("pid", "parent_pid", "started", "name", "is_python", "is_forked", "has_torch")
    return {
        **{name: getattr(facts, name) for name in names},
        "command": [_plain(word) for word in facts.command],  # type: ignore[attr-defined]
        "thread_names": list(facts.thread_names),  # type: ignore[attr-defined]
        "variables": {} if facts.rank is None else {"RANK": str(facts.rank)},  # type: ignore[attr-defined]
        "threads": [_thread(thread) for thread in stacks.threads],
    }


def _thread(thread: ThreadStack) -> dict[str, object]:
    return {
        "name": thread.name,
        "tid": thread.tid,
        "is_main": thread.is_main,
        "frames": [_frame(f) for f in thread.frames],
    }


def _frame(frame: Frame) -> list[object]:
    return [_plain(frame.file), frame.line, frame.function, linecache.getline(frame.file, frame.line).strip()]


def _plain(text: str) -> str:
    text = re.sub(r"\S*/site-packages/", "/env/lib/python3.11/site-packages/", text)
    text = re.sub(r"\S*/src/headrace/", "/env/lib/python3.11/site-packages/headrace/", text)
    text = re.sub(r"\S*/lib/python3\.(\d+)/(?!site-packages)", r"/base/lib/python3.\1/", text)
    text = re.sub(r"\S*/tests/launch/", "/job/", text)
    return re.sub(r"\S*/(python[\d.]*|ready)$", r"/env/bin/\1", text)


def _grouped(looks: list[dict[str, object]]) -> list[dict[str, object]]:
    """One entry per process, with its stacks look by look."""
    found: dict[object, dict[str, object]] = {}
    for look in looks:
        threads = look.pop("threads")
        entry = found.setdefault(look["pid"], {**look, "looks": []})
        entry["looks"].append(threads)  # type: ignore[attr-defined]
        entry["thread_names"] = look["thread_names"]
    return list(found.values())


def main() -> None:
    known = json.loads(gzip.decompress(STORED.read_bytes())) if STORED.exists() else {}
    for scenario in sys.argv[1:] or SCENARIOS:
        print(scenario, file=sys.stderr, flush=True)
        known[scenario] = record(scenario)
        STORED.parent.mkdir(parents=True, exist_ok=True)
        STORED.write_bytes(gzip.compress(json.dumps(known, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main()
