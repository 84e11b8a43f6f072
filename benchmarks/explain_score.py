"""How often is the first cause right? `headrace explain` on logs drawn at random and on stored logs of real packages.

python benchmarks/explain_score.py --seeds 600                # drawn logs, by kind and by cause
python benchmarks/explain_score.py --seeds 600 --from 1000000  # other ones: the held-out figure
python benchmarks/explain_score.py --stored                   # the stored logs of real trainings
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.causes.logs_drawn import KINDS, DrawnLog, draw_log  # noqa: E402
from tests.causes.runs_drawn import CAUSES, draw_run  # noqa: E402

from headrace.causes import explain_logs  # noqa: E402  # behind the line that makes it importable
from headrace.errors import UnusableInput  # noqa: E402

STORED = ROOT / "tests" / "causes" / "stored_logs"


def first_cause(files: list[bytes]) -> str:
    """Return the first cause that is found in some logs; empty where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, content in enumerate(files):
            path = Path(folder) / f"{number}.log"
            path.write_bytes(content)
            paths.append(str(path))
        try:
            found = explain_logs(paths).findings
        except UnusableInput as error:
            return f"unusable: {error.what}"
    return found[0].cause.value if found else ""


def drawn(seed: int) -> DrawnLog:
    """Return the log of a seed: causes and kinds in turn, everything else at random."""
    rng = random.Random(seed)
    cause = CAUSES[seed % len(CAUSES)]
    kinds = [kind for kind in KINDS.values() if kind.name != "slow_reports"]
    kind = rng.choice(kinds)
    if cause == "batch_lockstep" and rng.random() < 0.15:
        kind = KINDS["slow_reports"]
    return draw_log(rng, draw_run(rng, cause), kind)


def score_drawn(first: int, count: int, *, verbose: bool) -> dict[str, object]:
    """Return the shares by kind and by cause."""
    right: Counter[tuple[str, str]] = Counter()
    all_: Counter[tuple[str, str]] = Counter()
    healthy = false = wrong = 0
    for seed in range(first, first + count):
        log = drawn(seed)
        got = first_cause(log.files)
        is_right = got in log.right
        for key in (("kind", log.kind), ("cause", log.cause or "healthy"), ("all", "")):
            all_[key] += 1
            right[key] += is_right
        if log.cause in {"", "compute"}:
            healthy += 1
            false += got != ""
        wrong += not is_right
        if not is_right and verbose:
            print(
                f"seed {seed}: {log.kind} {log.cause or 'healthy'} {log.notes}: got {got!r}, right {sorted(log.right)}"
            )
    return {
        "first_seed": first,
        "logs": count,
        "right_share": right["all", ""] / all_["all", ""],
        "healthy_logs": healthy,
        "false_findings": false,
        "by_kind": {
            name: f"{right['kind', name]}/{total}" for (what, name), total in sorted(all_.items()) if what == "kind"
        },
        "by_cause": {
            name: f"{right['cause', name]}/{total}" for (what, name), total in sorted(all_.items()) if what == "cause"
        },
    }


def score_stored(*, verbose: bool) -> dict[str, object]:
    """Return how many stored logs get the first cause of their label."""
    labels = json.loads((STORED / "labels.json").read_text(encoding="utf-8"))
    right: Counter[str] = Counter()
    all_: Counter[str] = Counter()
    false = 0
    for name, label in sorted(labels.items()):
        content = gzip.decompress((STORED / f"{name}.log.gz").read_bytes())
        got = first_cause([content])
        package = name.rsplit("-", 1)[0]
        all_[package] += 1
        right[package] += got in label["right"]
        false += label["right"] == [""] and got != ""
        if got not in label["right"] and verbose:
            print(f"{name}: got {got!r}, right {label['right']}")
    return {
        "logs": sum(all_.values()),
        "right_share": sum(right.values()) / sum(all_.values()),
        "false_findings": false,
        "by_package": {name: f"{right[name]}/{total}" for name, total in sorted(all_.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=240, help="how many logs to draw")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--stored", action="store_true", help="the stored logs of real packages instead")
    parser.add_argument("--verbose", action="store_true", help="name each one that is wrong")
    parser.add_argument("--quick", action="store_true", help="a few logs only: does it still run?")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    if args.stored:
        result = score_stored(verbose=args.verbose)
    else:
        result = score_drawn(args.first, 24 if args.quick else args.seeds, verbose=args.verbose)
    print(json.dumps(result, indent=2, ensure_ascii=False))
    if args.json:
        args.json.write_text(
            json.dumps({"schema": "headrace/benchmark/1", **result}, indent=2) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
