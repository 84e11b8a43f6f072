"""What does `headrace watch` cost the training that is watched?

One training, watched by `headrace watch PID --json` at its default rate. The watch is stopped by a signal, with its
py-spy, after six looks (twelve seconds: with the pause as long as from stacks to stacks) and goes on four later; each
window with it is compared with those beside it: time a step, and CPU time of the training's processes a step, both with
a 95 % interval of the median. The clock of the watch goes on while it is stopped, so it samples a third more often.
`compute`: a loop that computes on one core, its workers idle; `decode`: workers that decode in Python and a loop that
waits for them, on as many cores as there are; `small`: the shortest steps, where a pause would show. "neither" lets the
watch go on: it shows the method's error. "pauses" looks every millisecond whether a thread of the training is stopped
or traced, which a py-spy that pauses its target would show.
"""

from __future__ import annotations

import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import Bar, Contender, Options, Question, Result, ask
from probes import tree_pids
from switching import Window, added, cost, cpu_clock

CASES = {
    "compute": "a loop that computes on one of two cores",
    "decode": "two workers that decode on two cores",
    "small": "the shortest steps",
}
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROGRESS = struct.Struct("qq")  # steps, and when the last of them ended


class Samples:
    """Samples that cost nothing, or 5 ms of Python."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> int:
        ends = time.thread_time() + self.seconds  # processor time: what a watcher takes away makes it longer
        while self.seconds and time.thread_time() < ends:
            sum(range(200))
        return index


def train(case: str, path: str) -> None:
    """Count steps into a file for ever."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    with open(path, "r+b") as file:
        progress = mmap.mmap(file.fileno(), _PROGRESS.size)
    loader: Any = DataLoader(Samples(0.005 if case == "decode" else 0.0), batch_size=4, num_workers=2)  # type: ignore[arg-type]
    x = torch.randn(192, 192)
    for step, _ in enumerate(loader, start=1):
        for _ in range({"compute": 40, "decode": 0, "small": 1}[case]):
            x @ x
        _PROGRESS.pack_into(progress, 0, step, time.monotonic_ns())


class Training:
    """The watched process, its workers and its steps."""

    def __init__(self, case: str) -> None:
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115  # closed in `close`
        self._file.write(bytes(_PROGRESS.size))
        self._file.flush()
        command = [sys.executable, __file__, "--train", case, self._file.name]
        self.process = subprocess.Popen(command)
        while self.progress()[0] < 50:
            if self.process.poll() is not None:
                raise RuntimeError(f"the training ended with {self.process.returncode}")
            time.sleep(0.05)
        time.sleep(1.0)
        self.pids = tree_pids(self.process.pid)

    def progress(self) -> tuple[int, int]:
        """Steps, and when the last of them ended."""
        while True:  # it may be half written
            one, other = (os.pread(self._file.fileno(), _PROGRESS.size, 0) for _ in range(2))
            if one == other:
                steps, at_ns = _PROGRESS.unpack(one)
                return steps, at_ns

    def cpu_s(self) -> float:
        return sum(time.clock_gettime(cpu_clock(pid)) for pid in self.pids)

    def close(self) -> None:
        for pid in tree_pids(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self._file.close()


class Watch:
    """`headrace watch`, stopped and continued."""

    def __init__(self, pid: int) -> None:
        import headrace

        source = str(Path(headrace.__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "headrace", "watch", str(pid), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def next_look(self) -> None:
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            assert self.process.stderr is not None
            raise RuntimeError(f"the watch ended: {self.process.stderr.read().decode()}")

    def tell(self, number: signal.Signals) -> None:
        for pid in tree_pids(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def cpu_s(self) -> float:
        """Of the watch and of the children that it has waited for: a py-spy for every look."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) * _TICK_S

    def close(self) -> None:
        self.tell(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


@contextmanager
def watched(case: str) -> Iterator[tuple[Training, Watch]]:
    training = Training(case)
    try:
        watch = Watch(training.process.pid)
        try:
            for _ in range(4):  # the first seconds are all sampled
                watch.next_look()
            yield training, watch
        finally:
            watch.close()
    finally:
        training.close()


def switched(case: str, options: Options, *, switches: bool) -> Callable[[], Result]:
    def run() -> Result:
        with watched(case) as (training, watch):
            windows, watch_s, taken_s = [], 0.0, 0.0
            stopped_s, num_looks = (0.2, 1) if options.quick else (4.0, 6)
            number, end = 0, time.monotonic() + options.seconds
            while time.monotonic() < end or number % 2 == 0:
                is_on = bool(number % 2)
                if switches:
                    watch.tell(signal.SIGCONT if is_on else signal.SIGSTOP)
                (steps, start_ns), cpu_s, used_s = training.progress(), training.cpu_s(), watch.cpu_s()
                if is_on or not switches:
                    for _ in range(num_looks if is_on else 2):
                        watch.next_look()
                    watch_s, taken_s = watch_s + watch.cpu_s() - used_s, taken_s + time.monotonic() - start_ns / 1e9
                else:
                    time.sleep(stopped_s)
                (steps_after, end_ns), cpu_after_s = training.progress(), training.cpu_s()
                done = steps_after - steps
                windows.append(Window(is_on, start_ns, end_ns, done, {"training": cpu_after_s - cpu_s}))
                number += 1
        steps_s = [one.step_s for one in windows]
        cpu_s_per_step = [one.cpu_step_s(("training",)) for one in windows]
        return {
            "step_ms": 1e3 * statistics.median(steps_s),
            **cost(steps_s),
            **cost(cpu_s_per_step, "cpu_"),
            "added_us": 1e6 * added(steps_s),
            "watcher_core_percent": 100 * watch_s / taken_s,
            "seconds": options.seconds,
            "on_s": statistics.median((one.end_ns - one.start_ns) / 1e9 for one in windows[1::2]),
            "num_windows": len(windows),
        }

    return run


def pauses(case: str, options: Options) -> Callable[[], Result]:
    """Count the looks at which a thread of the training was stopped or had a tracer."""

    def run() -> Result:
        with watched(case) as (training, _):
            paths = [
                f"/proc/{pid}/task/{task}/status" for pid in training.pids for task in os.listdir(f"/proc/{pid}/task")
            ]
            looks = stopped = traced = 0
            end = time.monotonic() + min(options.seconds, 10.0)
            while time.monotonic() < end:
                for path in paths:
                    with open(path, "rb") as file:
                        text = file.read()
                    looks += 1
                    stopped += text.partition(b"State:\t")[2][:1] in b"tT"
                    traced += text.partition(b"TracerPid:\t")[2].split(None, 1)[0] != b"0"
                time.sleep(0.001)
        return {"num_looks": looks, "num_stopped": stopped, "num_traced": traced}

    return run


def contenders(options: Options) -> list[Contender]:
    found = []
    for case, group in CASES.items():
        found += [
            Contender("stopped and continued", switched(case, options, switches=True), group, needs=("torch",)),
            Contender("neither", switched(case, options, switches=False), group, needs=("torch",)),
            Contender("pauses", pauses(case, options), group, needs=("torch",)),
        ]
    return found


def bars(_: Options) -> list[Bar]:
    found = []
    for group in CASES.values():
        of = f"{group}/stopped and continued"
        found += [
            Bar(f"{group}: the watch adds, % of a step", of, "cost_percent", at_most=2.0),
            Bar(f"{group}: the watch adds, % of the training's CPU time", of, "cpu_cost_percent"),
            Bar(f"{group}: the watch takes, % of a core", of, "watcher_core_percent", at_most=3.0),
            Bar(f"{group}: the same where nothing is stopped, %", f"{group}/neither", "cost_percent"),
            Bar(f"{group}: looks at which a thread was stopped", f"{group}/pauses", "num_stopped", at_most=0.0),
        ]
    return found


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    columns=(
        *("step_ms", "cost_percent", "cost_low_percent", "cost_high_percent"),
        *("cpu_cost_percent", "cpu_cost_low_percent", "cpu_cost_high_percent"),
        *("added_us", "watcher_core_percent", "num_windows", "num_looks", "num_stopped", "num_traced"),
    ),
    rounds=1,
    seconds=160.0,
    quick_seconds=6.0,
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(*sys.argv[2:4])
    sys.exit(ask(QUESTION))
