"""What does `headrace run` cost? The same training with and without it, interleaved; the loop times itself.

Three loops on CPU: samples of a few milliseconds that are decoded by workers (data-bound), a step of some
milliseconds with a small convolution (compute-bound), and tiny samples (the worst case: an event for every few
microseconds of work). Ratios are of the loops' own time from the first batch on, and of the CPU time of the training
thread over the same stretch, which a busy machine disturbs less. Starting up is not in them: it is told in seconds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

CASES = ("decode", "compute", "tiny")


def loop(case: str, steps: int) -> None:
    """Train and print the seconds from the first batch to the last."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Samples(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return (steps + 1) * 8

        def __getitem__(self, index: int) -> torch.Tensor:
            if case == "decode":
                values = np.random.default_rng(index).random((96, 96, 3), np.float32)
                for _ in range(6):
                    values = np.sqrt(values + 0.1)
                return torch.from_numpy(values).permute(2, 0, 1).contiguous()
            return torch.full((3, 32, 32), float(index % 7))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(
            torch.nn.Conv2d(3 if not depth else 16, 16, 3, stride=2 if depth < 3 else 1, padding=1)
            for depth in range(5)
        ),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    repeats = {"decode": 1, "compute": 8, "tiny": 0}[case]
    started = cpu = 0.0
    for batch in DataLoader(Samples(), batch_size=8, num_workers=1):
        if not started:
            started, cpu = time.perf_counter(), time.thread_time()
        for _ in range(repeats):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    print("seconds", time.perf_counter() - started, time.thread_time() - cpu)


def measure(case: str, steps: int, *, is_recorded: bool) -> tuple[float, float, float]:
    """Run the loop in a process of its own; return its seconds, its CPU seconds, and those of the whole command."""
    own = [str(Path(__file__)), "--loop", case, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *own]
        if is_recorded:
            command = [sys.executable, "-m", "headrace", "-q", "run", "--out", f"{folder}/run", *own]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        whole_s = time.perf_counter() - began
    loop_s, cpu_s = map(float, done.stdout.split()[-2:])
    return loop_s, cpu_s, whole_s


def main() -> None:
    """Run the rounds and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help="steps a loop (default: depends on the case)")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=CASES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round: does it still run?")
    parser.add_argument("--json", metavar="FILE", help="store the result there")
    args = parser.parse_args()
    if args.loop:
        loop(args.loop, args.steps)
        return
    rounds = 1 if args.quick else args.rounds
    results: dict[str, Any] = {}
    for case in args.cases:
        steps = args.steps or ({"decode": 300, "compute": 200, "tiny": 3000}[case] if not args.quick else 20)
        pairs = []
        for number in range(rounds):
            order = (False, True) if number % 2 == 0 else (True, False)
            taken = {is_recorded: measure(case, steps, is_recorded=is_recorded) for is_recorded in order}
            pairs.append((taken[False], taken[True]))
        results[case] = {"steps": steps, "rounds": rounds}
        for place, what in enumerate(("loop", "loop_cpu")):
            ratios = [with_it[place] / without[place] for without, with_it in pairs]
            results[case][what] = {
                "seconds_without": [round(one[place], 4) for one, _ in pairs],
                "seconds_with": [round(one[place], 4) for _, one in pairs],
                "ratio": round(statistics.median(ratios), 4),
                "ratios": [round(one, 4) for one in ratios],
            }
            shown = ", ".join(f"{one:.3f}" for one in ratios)
            print(f"{case}, {what}: {statistics.median(ratios):.3f} (rounds: {shown})", flush=True)
        added = [with_it[2] - with_it[0] - (without[2] - without[0]) for without, with_it in pairs]
        results[case]["start_and_report_s"] = round(statistics.median(added), 3)
        print(f"{case}, start and report: {statistics.median(added):+.2f} s", flush=True)
    if args.json:
        from probes import machine_facts

        document = {"question": "what does headrace run cost?", "machine": machine_facts(), "results": results}
        Path(args.json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
