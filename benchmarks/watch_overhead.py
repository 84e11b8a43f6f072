"""What does `headrace watch` cost the training that is watched?

One training runs all the time; stretches with the watch attached and without it alternate (A B A B), and the steps of
each are counted. The headline is the median over rounds of (steps watched / steps unwatched), so a figure of 0.99 is a
loss of 1 %. Cases: `compute`, a loop that computes on one core with idle workers (the watch runs on another core);
`decode`, workers that decode in Python and a loop that waits for them, on as many cores as there are (the watch takes
its share of a core that is wanted); `small`, the shortest steps, where a pause would show.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from probes import machine_facts

CASES = ("compute", "decode", "small")
_BAR = 0.98  # at most 2 %


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
        counter = mmap.mmap(file.fileno(), 8)
    loader = DataLoader(Samples(0.005 if case == "decode" else 0.0), batch_size=4, num_workers=2)  # type: ignore[arg-type]
    x = torch.randn(192, 192)
    for step, _ in enumerate(loader, start=1):
        for _ in range({"compute": 40, "decode": 0, "small": 1}[case]):
            x @ x
        counter[:8] = struct.pack("q", step)


class Training:
    """The watched process and its counter."""

    def __init__(self, case: str) -> None:
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115  # closed in `close`
        self._file.write(bytes(8))
        self._file.flush()
        command = [sys.executable, __file__, "--train", case, self._file.name]
        self.process = subprocess.Popen(command, start_new_session=True)
        while self.steps() < 50:
            time.sleep(0.05)

    def steps(self) -> int:
        return int(struct.unpack("q", os.pread(self._file.fileno(), 8, 0))[0])

    def rate(self, seconds: float) -> float:
        first, start = self.steps(), time.perf_counter()
        time.sleep(seconds)
        return (self.steps() - first) / (time.perf_counter() - start)

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._file.close()


def watched_rate(training: Training, seconds: float) -> tuple[float, float]:
    """Steps a second while the watch is attached, and the share of a core that the watch takes."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent / "src")}
    command = [sys.executable, "-m", "headrace", "watch", str(training.process.pid), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()  # it has attached and looked once
        start = time.perf_counter()
        used = _cpu_s(watch.pid)
        rate = training.rate(seconds)
        used = _cpu_s(watch.pid) - used
        seconds = time.perf_counter() - start
        watch.send_signal(signal.SIGINT)
        watch.communicate()
    return rate, used / seconds


def _cpu_s(pid: int) -> float:
    """Processor time of a process and of the children that it has waited for (py-spy, once a stretch)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measure(case: str, rounds: int, seconds: float) -> dict[str, object]:
    """Alternate; the first of a pair is the watched one in every second round."""
    training = Training(case)
    ratios, shares, rates = [], [], []
    try:
        time.sleep(1.0)
        for number in range(rounds):
            if number % 2:
                plain = training.rate(seconds)
                rate, share = watched_rate(training, seconds)
            else:
                rate, share = watched_rate(training, seconds)
                plain = training.rate(seconds)
            ratios.append(rate / plain)
            shares.append(share)
            rates.append(plain)
    finally:
        training.close()
    return {
        "case": case,
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "greatest": max(ratios),
        "steps_per_s": statistics.median(rates),
        "watch_share_of_a_core": statistics.median(shares),
        "rounds": rounds,
        "seconds": seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a stretch (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="does it still run? its figures mean nothing")
    parser.add_argument("--json", type=Path, help="write the result; cases that are there already stay")
    parser.add_argument("--train", nargs=2, metavar=("CASE", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(*options.train)
        return 0
    rounds, seconds = (1, 1.0) if options.quick else (options.rounds, options.seconds)
    results = [measure(case, rounds, seconds) for case in options.cases]
    line = (
        "{case}: {ratio:.4f} of the steps ({least:.4f} to {greatest:.4f}), {bar} 2 %; it takes {core:.1f} % of a core"
    )
    for result in results:
        bar = "within" if float(str(result["ratio"])) >= _BAR else "BEYOND"
        print(line.format(**result, bar=bar, core=100 * float(str(result["watch_share_of_a_core"]))))
    if options.json:
        known = json.loads(options.json.read_text())["results"] if options.json.exists() else []
        kept = [one for one in known if one["case"] not in options.cases]
        document = {"machine": machine_facts(), "bar": _BAR, "results": [*kept, *results]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
