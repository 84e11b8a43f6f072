"""`headrace demo`: a training under `headrace run`, the same under `headrace run --feed`, and both side by side.

- `training`: the script that it runs.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from headrace import __version__
from headrace.errors import HeadraceError, InternalError
from headrace.model import EventKind, Text, format_bytes, format_seconds, format_share, three_digits

from ..arguments import Commands, add_command, add_language, whole
from ..terminal import EXIT_OK, EXIT_TERMINATED, Terminal, line, spoken, table_of

_DESCRIPTION = """\
A small training with torch's DataLoader under `headrace run`, which says why it waits; the same script, unchanged,
under `headrace run --feed`, which feeds it; then both side by side. It takes about a minute, simulates nothing (LiDAR
scans in a temporary folder), and leaves nothing behind.
"""
EPOCHS, BATCH, WORKERS = 12, 8, 2
_SIDES = ("torch", "headrace")
_NUM_SCANS, _SCAN_POINTS = 96, 65_536  # 1 MiB a file
_BARS, _MOST_BARS = "▁▂▃▄▅▆▇█", 72
_MEMORY_EVERY_S = 0.25


def add_parser(commands: Commands, shared: argparse.ArgumentParser) -> None:
    summary = "a small training that waits for data, why it does, and the same one fed"
    parser = add_command(commands, shared, "demo", run, summary, description=_DESCRIPTION)
    passes = f"passes over the {_NUM_SCANS} samples (1 to 1000, default: {EPOCHS})"
    parser.add_argument("--epochs", type=whole(1, 1000), default=EPOCHS, metavar="N", help=passes)
    add_language(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document, schema headrace/demo/3")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # which ends what was started
    runs = measure(args.epochs, terminal)
    if args.json:
        settings = {"workers": WORKERS, "batch_size": BATCH, "epochs": args.epochs}
        document = {"schema": "headrace/demo/3", "headrace": __version__, "settings": settings}
        waits = {side: one["waits_s"] for side, one in runs.items()}
        terminal.json({**document, "figures": summarise(runs), "losses_identical": True, "waits_s": waits})
    else:
        print_report(runs, terminal)
    return EXIT_OK


def measure(epochs: int, terminal: Terminal) -> dict[str, dict[str, Any]]:
    """Run the training with torch's loader and with ours: what was measured of each."""
    import numpy as np

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        scans = Path(folder, "scans")
        scans.mkdir()
        for number in range(_NUM_SCANS):
            random.normal(0.0, 20.0, (_SCAN_POINTS, 4)).astype(np.float32).tofile(scans / f"{number:04d}.bin")
        runs = {side: _run_one(side, Path(folder), epochs, terminal) for side in _SIDES}
    if runs["torch"]["output"] != runs["headrace"]["output"]:
        raise InternalError("the training printed other losses with headrace than with torch")
    return runs


def _run_one(side: str, folder: Path, epochs: int, terminal: Terminal) -> dict[str, Any]:
    """Run the training under `headrace run`, and look at the memory of its processes from outside."""
    from headrace.signals.system import read_tree_memory

    record, output, log = folder / side, folder / f"{side}.out", folder / f"{side}.log"
    feed, script = ["--feed"] if side == "headrace" else [], Path(__file__).resolve().with_name("training.py")
    command = [sys.executable, "-m", "headrace", "run", "--out", record, *feed, script, folder / "scans"]
    # what torch's compiler and killed workers leave lies in our folder, if sockets there may have a path so long
    left = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "compiler")}
    left |= {"TMPDIR": str(folder)} if len(str(folder)) < 60 else {}
    running, peak = Text(f"training with {side}'s loader", f"正在用 {side} 的加载器训练"), 0
    with terminal.progress(running), output.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(
            [*map(str, (*command, epochs, BATCH, WORKERS))],
            start_new_session=True,  # Ctrl-C reaches us alone, and its group is the whole tree
            env={**os.environ, **left},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            while process.poll() is None:
                peak = max(peak, read_tree_memory(process.pid) or 0)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_MEMORY_EVERY_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whoever is left
            process.wait()
    if process.returncode != 0:
        said = log.read_text(errors="replace").strip()
        what = f"the demo's training stopped in the middle, with {side}'s loader\n{said}"
        raise HeadraceError(what, exit_code=process.returncode, next_step="`headrace run` on a script of yours")
    return {"output": output.read_text(), "peak_memory_bytes": peak or None, **_measured(record)}


def _measured(record: Path) -> dict[str, Any]:
    """What the recording tells: the waits of the loop, how fast it was, and the findings."""
    from headrace.causes.recorded import explain_recording
    from headrace.signals.recording import read_run

    recording = read_run(record)
    waits = recording.events_of(EventKind.WAIT)
    waits = waits[waits["value"] >= 0]
    waits_s, ends = waits["duration_ns"] / 1e9, waits["start_ns"] + waits["duration_ns"]
    span_s = float(ends[-1] - ends[0]) / 1e9
    return {
        "first_batch_s": float(ends[0] - recording.events_of(EventKind.EPOCH)["start_ns"].min()) / 1e9,
        "waits_s": waits_s.tolist(),
        "steps_per_s": (len(waits) - 1) / span_s,
        "waiting_share": float(waits_s[1:].sum()) / span_s,
        "findings": explain_recording(recording, exit_code=0),
    }


# the figures of a run: their names in the table, how they are shown, and whether more is better
_ROWS: dict[str, tuple[Text, Any]] = {
    "steps_per_s": (Text("steps per second", "每秒步数"), three_digits),
    "waiting_share": (Text("share of the time waiting for data", "等数据所占时间"), format_share),
    "wait_median_s": (Text("wait for a batch, median", "等待一个 batch，中位数"), format_seconds),
    "wait_worst_s": (Text("wait for a batch, worst", "等待一个 batch，最长"), format_seconds),
    "first_batch_s": (Text("first batch", "首个 batch 用时"), format_seconds),
    "peak_memory_bytes": (Text("peak memory of all processes", "全部进程的内存峰值"), format_bytes),
}


def summarise(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return each figure of both sides, and ours to torch's; `None`: the machine does not tell."""
    summary, of_waits = {}, {"wait_median_s": median, "wait_worst_s": max}  # but for the first batch's
    for name in _ROWS:
        how: Any = of_waits.get(name)
        torch, ours = (runs[side][name] if how is None else how(runs[side]["waits_s"][1:]) for side in _SIDES)
        summary[name] = {"torch": torch, "headrace": ours, "ratio": ours / torch if torch and ours else None}
    return summary


def bars(waits_s: list[float], highest_s: float) -> str:
    """Draw waits, one bar a step, the last ones of the training."""
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, round(top * wait / highest_s))] for wait in waits_s[-_MOST_BARS:])


_OPENING = Text(
    "A training on LiDAR sequences with torch's DataLoader: {sizes}. Nothing is simulated.",
    "一个激光雷达序列的训练，用 torch 的 DataLoader：{sizes}。没有任何模拟的成分。",
)
_FED = Text(
    "feeds the same script, not a line of it changed. Waits of the last steps, one bar a step:",
    "喂饱同一个脚本，一行代码都不用改。最后若干步的等待，一步一格：",
)
_CLOSING = Text(
    "One run each. Where the GPU is the limit, not the loader, no loader helps; `headrace run` says so.\n"
    "Next: your own script: `headrace run train.py`, then `headrace run --feed train.py`.",
    "每种各运行一次。如果瓶颈是 GPU 而不是加载器，换加载器没有用；`headrace run` 会直说。\n"
    "下一步：换成自己的脚本：先 `headrace run train.py`，再 `headrace run --feed train.py`。",
)


def print_report(runs: dict[str, dict[str, Any]], terminal: Terminal) -> None:
    from rich.console import Group
    from rich.padding import Padding

    from headrace.reports import opening_of

    sizes = f"{WORKERS} workers, batches of {BATCH}, {len(os.sched_getaffinity(0))} cores"
    highest_s = max(max(one["waits_s"][-_MOST_BARS:]) for one in runs.values())
    styles = {"torch": "yellow", "headrace": "green"}
    drawn = [line(f"{side:10}{bars(runs[side]['waits_s'], highest_s)}", style) for side, style in styles.items()]
    why = map(line, opening_of(runs["torch"]["findings"], spoken()))
    heads = [line(f"\n{number}  headrace run {option}train.py", "bold") for number, option in ((1, ""), (2, "--feed "))]
    first, second = ([Padding(one, (0, 0, 0, 3)) for one in part] for part in (why, (line(_FED), *drawn)))
    table, opening = table_of(f",{','.join(_SIDES)},headrace / torch", _rows(runs)), line(_OPENING.filled(sizes=sizes))
    terminal.result(Group(opening, heads[0], *first, heads[1], *second, "", table, "", line(_CLOSING)))


def _rows(runs: dict[str, dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for name, figures in summarise(runs).items():
        (row, show), ratio = _ROWS[name], figures["ratio"]
        shown = ["-" if figures[side] is None else show(figures[side]) for side in _SIDES]
        is_better = ratio is not None and (ratio > 1) == (name == "steps_per_s")
        yield row, *shown, line("" if ratio is None else f"{three_digits(ratio)}x", "green" if is_better else "yellow")
    count = runs["torch"]["output"].count("\n")
    same = line(Text(f"yes, all {count}", f"一致，共 {count} 个"), "green")
    yield Text("losses identical", "loss 是否一致"), "", same, ""
