"""How fast is a log looked through for known messages?

`MessageScanner` over logs of several kinds, fed in pieces of 1 MiB as a reader of a large file would feed it, against
the two plain ways: one alternation of the same literals with `re`, and one `bytes.find` for each. All look for the same
literals in the same text, and find what was put there: one message in 20 MB. Beside it: the peak of the memory.
The bar is the pipeline's: `headrace explain` must do 50 MB/s in all, so this part must be well above it. Colours cost
the most, for they are taken out first; whoever has done that already feeds what is left.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness import Bar, Contender, Options, Question, Result, ask

PIECE_BYTES = 1 << 20
MESSAGE = b"\nRuntimeError: DataLoader worker (pid 2811) is killed by signal: Killed. \n"
KINDS = {
    "a logger's lines": "2025-11-15 19:26:{0:02d},537 INFO: [DATA LOAD] Recent 50: avg={1:.1f}ms, max={2:.1f}ms\n",
    "a progress bar": "\rEpoch 2:  65%|██████▍   | {3}/457000 [34:14<04:19,  6.25it/s, tb(ms)={0}]",
    "mmengine": "2024/03/01 10:00:{0:02d} - mmengine - INFO - Epoch(train) [1][{3}/9000]  time: {1:.4f}  memory: 10\n",
    "words of messages": "[worker {0}] process {3} loaded file /data/{3}.npz size 123 error 0 shared memory CUDA\n",
    "colours": "\x1b[34m\x1b[1mtrain: \x1b[0mEpoch {3} \x1b[32mloss\x1b[0m {1:.4f} time {2:.3f} lr 0.001 mem 10G\n",
}


def log_of(kind: str, size_bytes: int) -> list[bytes]:
    lines, length = [], 0
    for number in range(1 << 30):
        line = KINDS[kind].format(number % 60, number * 0.37 % 900, number * 7.1 % 25000, number)
        lines.append(line.encode())
        length += len(lines[-1])
        if length >= size_bytes:
            break
    text = b"".join(lines)
    text = text[: len(text) // 2] + MESSAGE + text[len(text) // 2 :]
    return [text[start : start + PIECE_BYTES] for start in range(0, len(text), PIECE_BYTES)]


def scanner(pieces: list[bytes]) -> int:
    from headrace.knowledge import MessageScanner

    scanner = MessageScanner()
    for piece in pieces:
        scanner.scan_chunk(piece)
    return sum(found.count for found in scanner.found())


def anchors() -> list[bytes]:
    from headrace.knowledge import entries

    return list(dict.fromkeys(pattern.anchor for entry in entries() for pattern in entry.patterns))


def alternation(pieces: list[bytes]) -> int:
    expression = re.compile(b"|".join(map(re.escape, anchors())))
    return sum(len(expression.findall(piece)) for piece in pieces)


def one_by_one(pieces: list[bytes]) -> int:
    return sum(anchor in piece for anchor in anchors() for piece in pieces)


WAYS: dict[str, Callable[[list[bytes]], int]] = {
    "MessageScanner": scanner,
    "one alternation": alternation,
    "literal by literal": one_by_one,
}


def measure(way: str, kind: str, size_bytes: int) -> Result:
    pieces = log_of(kind, size_bytes)
    WAYS[way](pieces[:2])  # imports, tables, the knowledge base
    before = peak_mib(reset=True)
    start = time.perf_counter()
    found = WAYS[way](pieces)
    seconds = time.perf_counter() - start
    if found < 1:
        raise AssertionError(f"{way} found nothing in {kind}")
    return {"mb_per_s": sum(map(len, pieces)) / 1e6 / seconds, "peak_growth_mib": peak_mib() - before}


def peak_mib(*, reset: bool = False) -> float:
    """Return the most memory this process has had; with `reset`, begin to look anew."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def contenders(options: Options) -> list[Contender]:
    size_bytes = options.megabytes * 1_000_000 // (10 if options.quick else 1)
    return [Contender(way, partial(measure, way, kind, size_bytes), kind) for kind in KINDS for way in WAYS]


def bars(_: Options) -> list[Bar]:
    found = [Bar(f"MB/s: {kind}", f"{kind}/MessageScanner", "mb_per_s", at_least=150.0) for kind in KINDS]
    others = [way for way in WAYS if way != "MessageScanner"]
    for kind in KINDS:
        over = tuple(f"{kind}/{way}" for way in others)
        found.append(Bar(f"faster than the better plain way: {kind}", f"{kind}/MessageScanner", "mb_per_s", over))
        found.append(Bar(f"memory grown, MiB: {kind}", f"{kind}/MessageScanner", "peak_growth_mib", at_most=32.0))
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=int, default=20, help="size of each log")


QUESTION = Question(
    doc=__doc__,
    contenders=contenders,
    bars=bars,
    arguments=arguments,
    columns=("mb_per_s", "peak_growth_mib"),
    rounds=3,
    seconds=0,
)

if __name__ == "__main__":
    sys.exit(ask(QUESTION))
