"""Does `headrace run` see on a GPU what the script itself measures there?

Each case is a small training in its own process that times, around the very calls, what the report should show: waits
for the device, copies to it, steps. Its own CUDA events say what the device did: of each copy that blocks, what lies
between them is the copy, and the rest of the call is waiting for the device. The table compares both; a line fails when
they are further apart than its tolerance, when a finding is missing or should not be there, or when the training
computes something else than without `headrace run`. Needs torch and numpy alone; some ten seconds a case.

    PYTHONPATH=src python benchmarks/run_on_gpu.py                 # every case
    PYTHONPATH=src python benchmarks/run_on_gpu.py --case item --case compile --keep runs
    PYTHONPATH=src python benchmarks/run_on_gpu.py --json result.json

Without a CUDA device it says so and ends well. Exit code 1: something did not fit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STEPS, WIDTH, BATCH = 60, 4096, 2048
# The report's figure is taken inside the script's own, so it is never larger but for the clock; what lies between is
# our wrapper and a collection of garbage.
CLOSE, CLOSE_S = 0.10, 0.02
MOST_COPY_US = 10.0  # more that a copy of a few bytes may cost the host: its wrapper, its record
DEVICE_CLOSE = 0.25  # against CUDA events, which count what the device did and not what the host waited for


class Truth:
    """What the script measures itself."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.device_s: dict[str, float] = {}
        self.held_up_s: dict[str, float] = {}  # of each call, what the device took, as far as the host stood still
        self.counts: dict[str, int] = {}
        self.values: dict[str, float] = {}
        self._pending: list[tuple[str, float, Any, Any]] = []

    @contextmanager
    def timing(self, name: str, *, device: bool = False) -> Iterator[None]:
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if device:
            begin.record()
        start = time.monotonic()
        try:
            yield
        finally:
            host_s = time.monotonic() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + host_s
            self.counts[name] = self.counts.get(name, 0) + 1
            if device:
                end.record()
                self._pending.append((name, host_s, begin, end))

    def write(self, path: str) -> None:
        import torch

        torch.cuda.synchronize()
        for name, host_s, begin, end in self._pending:
            device_s = begin.elapsed_time(end) / 1e3
            self.device_s[name] = self.device_s.get(name, 0.0) + device_s
            self.held_up_s[name] = self.held_up_s.get(name, 0.0) + min(host_s, device_s)
        document = {
            "seconds": self.seconds,
            "device_s": self.device_s,
            "held_up_s": self.held_up_s,
            "counts": self.counts,
            "values": self.values,
        }
        Path(path).write_text(json.dumps(document), encoding="utf-8")


# ------------------------------------------------------------------------------------- the trainings (child processes)


def training(case: str, steps: int, truth: Truth) -> None:
    """Run one case. Everything that is compared is timed by `truth`."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    torch.manual_seed(0)

    class Batches(Dataset[torch.Tensor]):
        """Whole batches that are there already: what is left is the copy."""

        data = torch.randn(4, BATCH, WIDTH)

        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> torch.Tensor:
            return self.data[index % 4]

    model: Any = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=case == "amp")
    kept = Batches.data.cuda() if case not in _COPYING else None
    loader = DataLoader(Batches(), batch_size=None, pin_memory=case == "pinned")
    if case == "compile":
        model = torch.compile(model)
    graphed = None
    if case == "graph":
        graphed = _graphed(torch, model, optimizer, kept[0].clone())  # type: ignore[index]  # it is there
    elif case == "captured":
        graphed = _graphed(torch, model, optimizer, Batches.data[0].pin_memory())
    if case == "cost":
        _copy_often(torch, truth)
    profiler = _profiler() if case == "profiled" else None
    loss = torch.zeros((), device="cuda")
    for step, host in enumerate(loader):
        batch = _to_device(torch, case, host, truth) if kept is None else kept[step % 4]
        with truth.timing("step", device=True):
            if graphed is not None:
                loss = graphed(batch)
            else:
                with torch.autocast("cuda", torch.float16, enabled=case == "amp"):
                    loss = model(batch).square().mean()
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                with truth.timing("optimizer"):
                    scaler.step(optimizer)
                scaler.update()
        _ask(torch, case, step, loss, truth)
    with truth.timing("last"):
        truth.values["loss"] = float(loss)
    if profiler is not None:
        profiler.stop()
        truth.values["memcpy_s"] = _memcpy_s(profiler)
    if case == "compile":
        from torch._dynamo.utils import counters

        truth.values["graphs"] = float(counters["stats"]["unique_graphs"])
        truth.values["breaks"] = float(sum(counters["graph_break"].values()))


def _to_device(torch: Any, case: str, host: Any, truth: Truth) -> Any:
    """Copy a batch as scripts do; `captured` copies in its graph."""
    if case == "captured":
        return host
    if case == "pinned":
        with truth.timing("h2d"):
            return host.to("cuda", non_blocking=True)
    if case == "labels":  # so few bytes that no copy is to be seen: all of it is waiting for the device
        with truth.timing("h2d"):
            labels = host[0, :BATCH].to("cuda")
        return torch.zeros(BATCH, WIDTH, device="cuda") + labels[:, None]
    if case == "idle":
        torch.cuda.synchronize()  # nothing is left to wait for: all of the call is copy
    if case == "many":
        parts = []
        for part in host.chunk(8):  # the first waits for the device, the others for themselves
            with truth.timing("h2d", device=True):
                parts.append(part.cuda())
        return torch.cat(parts)
    with truth.timing("h2d", device=True):
        return host.to("cuda", non_blocking=case == "pageable_async")


def _copy_often(torch: Any, truth: Truth) -> None:
    """Measure what a copy costs the host: a quarter of the stretches were faster than this.

    Whatever else runs on the machine only adds time, so the faster half says what the copies themselves cost.
    """
    for name, num_floats, count in (("small_us", 16, 100), ("large_us", 1 << 18, 40)):
        tensor = torch.ones(num_floats)
        torch.cuda.synchronize()
        took_us = []
        for _ in range(200):
            start = time.perf_counter()
            for _ in range(count):
                tensor.to("cuda")
            took_us.append(1e6 * (time.perf_counter() - start) / count)
        truth.values[name] = sorted(took_us)[len(took_us) // 4]


def _profiler() -> Any:
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CUDA])
    profiler.start()
    return profiler


def _memcpy_s(profiler: Any) -> float:
    """Return how long the device's copy engine ran, for copies from the host."""
    return float(sum(one.time_range.elapsed_us() for one in profiler.events() if "Memcpy HtoD" in one.name) / 1e6)


def _ask(torch: Any, case: str, step: int, loss: Any, truth: Truth) -> None:
    """Ask the device for something, in as many ways as scripts do."""
    asks: dict[str, tuple[Callable[[], Any], ...]] = {
        "item": (loss.item,),
        "values": (
            loss.item,
            loss.tolist,
            loss.cpu,
            lambda: float(loss),
            lambda: bool(loss > 0),
            lambda: loss.to("cpu"),
            lambda: loss.to(torch.device("cpu")),
            lambda: loss.to(device="cpu"),
            lambda: f"{loss:.3f}",
            lambda: int(loss > 0),
        ),
        "synchronize": (
            torch.cuda.synchronize,
            torch.cuda.current_stream().synchronize,
            _event(torch).synchronize,
        ),
    }
    if case in asks:
        with truth.timing("sync"):
            asks[case][step % len(asks[case])]()


def _event(torch: Any) -> Any:
    event = torch.cuda.Event()
    event.record()
    return event


def _graphed(torch: Any, model: Any, optimizer: Any, given: Any) -> Callable[[Any], Any]:
    """Return a step that is captured once and replayed; what is given in page-locked memory is copied in the graph."""
    static = given.to("cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(static).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        if given.is_cpu:
            static.copy_(given, non_blocking=True)
        loss = model(static).square().mean()
        loss.backward()
        optimizer.step()

    def step(batch: Any) -> Any:
        if given.is_cpu:
            torch.cuda.synchronize()  # the last replay may still read it
        given.copy_(batch)  # on the device it is the static one itself
        graph.replay()
        return loss

    return step


# --------------------------------------------------------------------------------------------------- what must be seen


class Check:
    """Lines of the table, and whether they fit."""

    def __init__(self, case: str) -> None:
        self.case, self.lines = case, list[dict[str, Any]]()

    def close(self, what: str, shown: float, true: float, *, part: float = CLOSE) -> None:
        self.add(what, shown, true, abs(shown - true) <= max(part * true, CLOSE_S), "s")

    def equal(self, what: str, shown: Any, wanted: Any) -> None:
        self.add(what, shown, wanted, shown == wanted, "")

    def add(self, what: str, shown: Any, true: Any, fits: bool, unit: str) -> None:
        self.lines.append({"case": self.case, "what": what, "shown": shown, "true": true, "unit": unit, "fits": fits})


def check(case: str, found: dict[str, Any], truth: dict[str, Any], plain: dict[str, Any] | None, steps: int) -> Check:
    """Compare what the report shows with what the script measured."""
    lines = Check(case)
    rows = {row["activity"]: row for row in found["times"]}
    seconds = {name: row["seconds"] for name, row in rows.items()}
    causes = [one["cause"] for one in found["findings"]]
    wall_s = sum(seconds.values())
    lines.close("sum of the table, against the wall clock", wall_s, found["figures"]["wall_s"], part=0.001)
    lines.equal("batches", rows.get("wait", {}).get("count", 0) + 1, steps)
    if case in {"item", "values", "synchronize"}:
        lines.close("waiting for the device", seconds.get("sync", 0.0), truth["seconds"]["sync"])
        lines.equal("times that the device was waited for", rows.get("sync", {}).get("count", 0) > 0.9 * steps, True)
    if case == "item":
        shown = sum(seconds.get(name, 0.0) for name in ("forward", "backward", "optimizer", "sync", "other"))
        device_s = truth["device_s"]["step"]
        lines.close("a step with all its waiting, against CUDA events", shown, device_s, part=DEVICE_CLOSE)
    if case in _TIMED_COPIES:
        copies_s, waits_s = truth["held_up_s"]["h2d"], truth["seconds"]["h2d"] - truth["held_up_s"]["h2d"]
        lines.close("copies, against the script's own CUDA events", seconds.get("h2d", 0.0), copies_s)
        host_s = seconds.get("h2d", 0.0) + seconds.get("sync", 0.0) - truth["seconds"]["last"]
        if case != "idle":  # that one waits in `synchronize`, too
            lines.close("copies and their waits, against the script's clock", host_s, copies_s + waits_s)
        share = copies_s / found["figures"]["train_s"]
        lines.equal("finding h2d_copy (from 5 % on)", "h2d_copy" in causes, share >= 0.05)
        said = " ".join(text for one in found["findings"] for text in one["evidence"])
        lines.equal("copies are called an upper bound", "upper bound" in said, False)
    if case == "profiled":  # the copy engine rests while the driver stages the next piece: less than the copy
        engine_s = truth["values"]["memcpy_s"]
        fits = 0 < engine_s <= 1.1 * seconds.get("h2d", 0.0)
        lines.add("copies, at least torch.profiler's memcpy", seconds.get("h2d", 0.0), engine_s, fits, "s")
    elif case == "labels":
        shown = seconds.get("sync", 0.0) - truth["seconds"]["last"]
        lines.close("waits of small copies, against the script's clock", shown, truth["seconds"]["h2d"])
        lines.equal("findings about data, copies or saves", [one for one in causes if one != "unknown"], [])
    elif case == "pinned":
        lines.close("copies to the device, as the host sees them", seconds.get("h2d", 0.0), truth["seconds"]["h2d"])
    elif case == "cost" and plain is not None:
        for name, most_us in (("small_us", MOST_COPY_US), ("large_us", 3 * MOST_COPY_US)):
            with_us, without_us = (one["values"].pop(name) for one in (truth, plain))
            what = f"a {'copy of 64 B' if name == 'small_us' else 'copy of 1 MiB'}, with and without headrace run"
            lines.add(what, with_us, without_us, with_us - without_us <= most_us, "µs")
    if case in {"compute", "amp", "item", "values", "synchronize", "graph"}:
        lines.equal("findings about data, copies or saves", [one for one in causes if one != "unknown"], [])
    if case not in {"graph", "captured"}:
        lines.equal("backward", rows.get("backward", {}).get("count", 0), steps)
        lines.equal("forward", rows.get("forward", {}).get("count", 0) >= steps - 1, True)
        lines.equal(
            "optimizer", rows.get("optimizer", {}).get("count", 0) >= steps - 3, True
        )  # amp skips some at first
    if plain is not None:
        for name in plain["values"]:
            shown, wanted = (float(f"{one['values'][name]:.5g}") for one in (truth, plain))
            lines.equal(f"{name}, with and without headrace run", shown, wanted)
    return lines


CASES = (
    "compute",
    "item",
    "values",
    "synchronize",
    "pageable",
    "pageable_async",
    "idle",
    "many",
    "profiled",
    "labels",
    "pinned",
    "amp",
    "compile",
    "graph",
    "captured",
    "cost",
)
_TIMED_COPIES = ("pageable", "pageable_async", "idle", "many", "profiled")
_COPYING = (*_TIMED_COPIES, "labels", "pinned", "captured")
_TWICE = ("compile", "graph", "captured", "cost")  # run without us, too: these must not see the hooks


def run_case(case: str, steps: int, keep: Path) -> tuple[Check, dict[str, Any]]:
    """Run a training under `headrace run`, and plain where that is compared."""
    words = [str(Path(__file__).resolve()), "--training", case, "--steps", str(steps)]
    folder = keep / case
    folder.mkdir(parents=True)
    truths: list[dict[str, Any]] = []
    for is_plain in (False, True) if case in _TWICE else (False,):
        path = folder / ("plain.json" if is_plain else "truth.json")
        own = (
            [sys.executable]
            if is_plain
            else [sys.executable, "-m", "headrace", "-q", "run", "--out", str(folder / "run")]
        )
        done = subprocess.run([*own, *words, "--truth", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
            failed = Check(case)
            failed.equal("exit code", done.returncode, 0)
            return failed, {}
        truths.append(json.loads(path.read_text(encoding="utf-8")))
    found = json.loads((folder / "run" / "findings.json").read_text(encoding="utf-8"))
    found.pop("source", None)  # paths of this machine
    plain = truths[1] if len(truths) > 1 else None
    return check(case, found, truths[0], plain, steps), {"found": found, "truth": truths[0], "plain": plain}


def main() -> int:
    """Run the cases and print what fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--quick", action="store_true", help="fewer steps, to prove that it still runs")
    parser.add_argument("--keep", help="a folder for the recordings (default: a temporary one)")
    parser.add_argument("--json", help="write everything that was measured there")
    parser.add_argument("--training", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--truth", help=argparse.SUPPRESS)
    args = parser.parse_args()
    steps = 20 if args.quick else args.steps
    if args.training:
        truth = Truth()
        training(args.training, args.steps, truth)
        truth.write(args.truth)
        return 0
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: nothing was run")
        return 0
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent.parent / "src"))
    checks: list[Check] = []
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for case in args.case or CASES:
            start = time.monotonic()
            checked, raw[case] = run_case(case, steps, Path(args.keep or scratch))
            checks.append(checked)
            for line in checked.lines:
                shown, true = (
                    f"{one:.4g}" if isinstance(one, float) else str(one) for one in (line["shown"], line["true"])
                )
                mark = "fits" if line["fits"] else "DOES NOT FIT"
                print(f"{case:12} {line['what']:52} {shown:>10} {true:>10} {line['unit']:2} {mark}", flush=True)
            print(f"{case:12} took {time.monotonic() - start:.0f} s", flush=True)
    if args.json:
        document = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "steps": steps,
            "lines": [line for one in checks for line in one.lines],
            "measured": raw,
        }
        Path(args.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(line["fits"] for one in checks for line in one.lines) else 1


if __name__ == "__main__":
    sys.exit(main())
