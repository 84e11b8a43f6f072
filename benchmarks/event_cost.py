"""What does a recorded event cost, and what does the recorder?

Writers: one event at a time, and kept and written together, into a real lane that a recorder drains; beside them the
least that Python can do (an empty function with the same arguments) and what else one might have taken: a line to a
pipe, an item to a `multiprocessing.SimpleQueue`. The recorder: its share of one core while 40 processes write at a
rate each and are sampled once a second, its area and its file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Bar, Contender, Options, Question, Result, ask

if TYPE_CHECKING:
    from headrace.signals.recording import Lane

_WRITER = """
import select, sys, time
from headrace.signals.recording import open_lane
lane, rate = open_lane(role="worker"), float(sys.argv[1])
name = lane.name("load")
while not select.select([0], [], [], 0.01)[0]:  # until standard input ends
    start = time.perf_counter_ns()
    for number in range(max(1, int(rate / 100)) if rate else 0):
        lane.write(41, start, 1000, number, name)
"""


def per_event(write: Callable[[int], object], num: int, events_per_call: int = 1) -> Result:
    """The least of seven times, in nanoseconds: what disturbs it only adds."""
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter_ns()
        for number in range(num):
            write(number)
        best = min(best, (time.perf_counter_ns() - start) / num / events_per_call)
    return {"event_ns": best}


def in_lane(measure: Callable[[Lane], Result]) -> Result:
    """Measure with a lane that a recorder in another process drains."""
    from headrace.signals.recording import open_lane

    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import sys\nfrom headrace.signals.recording import Recorder\n"
            "recorder = Recorder(sys.argv[1]); recorder.start()\n"
            "print(recorder.area.place, flush=True)\nsys.stdin.read()\nrecorder.close()\n"
        )
        command = [sys.executable, "-c", code, f"{folder}/run"]
        recorder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert recorder.stdout is not None
        os.environ["HEADRACE_RECORDING"] = recorder.stdout.readline().strip()
        lane = open_lane(role="worker")
        assert lane is not None
        result = measure(lane)
        recorder.communicate()
        return result


def record_for(num_processes: int, rate_per_s: int, seconds: float) -> Result:
    """What a recorder uses while processes write: in a thread of this process, which does nothing else."""
    from headrace.signals.recording import Recorder, read_run

    with tempfile.TemporaryDirectory() as folder:
        with Recorder(Path(folder) / "run") as recorder:
            command = [sys.executable, "-c", _WRITER, str(rate_per_s)]
            environment = {**os.environ, **recorder.environment}
            theirs, ours = os.pipe()
            writers = [subprocess.Popen(command, env=environment, stdin=theirs) for _ in range(num_processes)]
            while len(recorder.area.claimed()) < num_processes:  # starting Python forty times is not its work
                assert all(writer.poll() is None for writer in writers)
                time.sleep(0.1)
            for _ in range(2):
                recorder.step()  # so that finding them is not measured, and imports are done
            used, start = time.process_time(), time.monotonic()
            while time.monotonic() - start < seconds:
                recorder.step()
                threading.Event().wait(recorder.pause_s)
            share = (time.process_time() - used) / (time.monotonic() - start)
            area_bytes = 512 * os.stat(recorder.area.place.rpartition(":")[0]).st_blocks  # of it, pages that exist
            for end in (theirs, ours):
                os.close(end)
            for writer in writers:
                writer.wait()
        run = read_run(Path(folder) / "run")
        file_bytes = (Path(folder) / "run" / "events.bin").stat().st_size
        return {
            "core_share": share,
            "area_mib": area_bytes / 2**20,
            "events": float(len(run.events)),
            "lost": float(run.lost_records),
            "file_mib": file_bytes / 2**20,
        }


def contenders(options: Options) -> list[Contender]:
    num = 2_000 if options.quick else 200_000
    processes, seconds = (3, 1.0) if options.quick else (40, 5.0)

    def nothing() -> Result:
        def write(kind: int, start_ns: int, duration_ns: int, value: int = 0, arg: int = 0) -> None:
            pass

        return per_event(lambda number: write(41, 1, 1000, number, 3), num)

    def single() -> Result:
        return in_lane(lambda lane: per_event(lambda number: lane.write(41, 1, 1000, number, 3), num))

    def bulk() -> Result:
        from headrace.signals.recording import KeptEvents

        def keep(lane: Lane) -> Result:
            kept = KeptEvents(lane)
            return per_event(lambda number: kept.keep(41, 1, 1000, number, 3), num)

        return in_lane(keep)

    def pipe() -> Result:
        reader, writer = os.pipe()

        def drain() -> None:
            while os.read(reader, 1 << 16):
                pass

        thread = threading.Thread(target=drain)
        thread.start()
        result = per_event(lambda number: os.write(writer, b"41 1 1000 %d 3\n" % number), num // 10)
        os.close(writer)
        thread.join()
        os.close(reader)
        return result

    def queue() -> Result:
        import multiprocessing

        items = multiprocessing.get_context("fork").SimpleQueue()

        def drain() -> None:
            while items.get() is not None:
                pass

        thread = threading.Thread(target=drain)
        thread.start()
        result = per_event(lambda number: items.put((41, 1, 1000, number, 3)), num // 10)
        items.put(None)
        thread.join()
        return result

    rates = (0, 100, 1000)
    return [
        Contender("an empty call", nothing, group="writer"),
        Contender("lane, one event", single, group="writer"),
        Contender("lane, kept and written together", bulk, group="writer"),
        Contender("a line to a pipe", pipe, group="writer"),
        Contender("SimpleQueue.put", queue, group="writer"),
        *(
            Contender(f"{rate} events/s each", partial(record_for, processes, rate, seconds), group="recorder")
            for rate in rates
        ),
    ]


def bars(_: Options) -> list[Bar]:
    return [
        Bar("an event in bulk, ns", "writer/lane, kept and written together", "event_ns", at_most=1000.0),
        Bar("a single event, ns", "writer/lane, one event", "event_ns", at_most=1000.0),
        Bar("recorder's share of a core, 40 silent processes", "recorder/0 events/s each", "core_share", at_most=0.01),
    ]


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    columns=("event_ns", "core_share", "area_mib", "events", "lost", "file_mib"),
    rounds=3,
    seconds=0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
