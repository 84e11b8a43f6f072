"""Does our loader pass torch's own tests of its loader?

    git clone https://github.com/pytorch/data
    pip install expecttest psutil
    python benchmarks/torch_suite.py data                   # with our class in place of theirs
    python benchmarks/torch_suite.py data --loader torch    # the comparison

The tests are those of `test/stateful_dataloader/test_dataloader.py`, slow ones too, fetched by whoever runs this. They
run one after the other, each with a limit: one that does not end in time is ended with all its processes, and counts as
failed. Those that fail because something differs on purpose are told beside the others, with the reason
(docs/guides/differs-from-torch.md); the exit code is 1 where any other one fails. About 20 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from probes import machine_facts

SOURCE = str(Path(__file__).resolve().parent.parent / "src")  # first on the path, installed or not
PLACE = "test/stateful_dataloader/test_dataloader.py"
THEIRS = "from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader"
OURS = {"headrace": "from headrace import DataLoader", "torch": "from torch.utils.data import DataLoader"}

_INFO = "not the loader's affair: in this torch, who writes to a worker's info gets another error than the test expects"
_SEED = "samples draw random numbers by their position, whatever a worker was seeded with"
_TURN = "a sample goes to the worker that is free"
_LAST = f"{_TURN}: the last one, which is to fail, may get none"
_BOTH = ("TestDataLoader", "TestDataLoaderPersistentWorkers")
EXPECTED = {
    "torch": {f"{name}::test_get_worker_info": _INFO for name in _BOTH},
    "headrace": {
        **{f"{name}::test_get_worker_info": _INFO for name in _BOTH},
        **{f"{name}::test_worker_init_fn": _SEED for name in _BOTH},
        **{f"{name}::test_proper_exit": _LAST for name in _BOTH},
        "TestIndividualWorkerQueue::test_ind_worker_queue": _TURN,
        "TestOutOfOrderDataLoader::test_in_order_index_ds": _TURN,
        "TestOutOfOrderDataLoader::test_out_of_order_index_ds": _TURN,
    },
}


def main() -> int:
    options = _parse()
    if options.tell:
        return _run_tests(Path(options.path), Path(options.tell), options.only or "")
    missing = [name for name in ("pytest", "expecttest", "psutil") if importlib.util.find_spec(name) is None]
    file = Path(options.path, PLACE) if Path(options.path).is_dir() else Path(options.path)
    if not options.path or missing or not file.is_file():
        lacks = f"pip install {' '.join(missing)}" if missing else f"a clone of pytorch/data, or its {PLACE}"
        print(f"this needs {lacks}", file=sys.stderr)
        return 0 if options.quick else 2  # what is fetched by hand is not there in a first look at all benchmarks
    only = "TestStackDataset or test_sequential_batch" if options.quick else options.only
    told = run_suite(file, options.loader, limit_s=options.limit, only=only or "")
    unexpected = report(told, EXPECTED[options.loader])
    if options.json:
        facts = {"schema": "headrace/benchmark/1", "script": Path(__file__).name, "machine": machine_facts()}
        results = {name: one["outcome"] for name, one in told.items()}
        texts = {name: one["text"] for name, one in told.items() if one["outcome"] == "failed"}
        document = {**facts, "loader": options.loader, "results": results, "texts": texts, "unexpected": unexpected}
        Path(options.json).write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    return 1 if unexpected or not told else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", default="", help="a clone of pytorch/data, or the file of its tests")
    parser.add_argument("--loader", choices=[*OURS], default="headrace", help="whose class the tests are run with")
    parser.add_argument("--limit", type=float, default=600.0, metavar="S", help="seconds that a test may take (600)")
    parser.add_argument("--only", metavar="TEXT", help="a part of the tests, as pytest's -k takes it")
    parser.add_argument("--quick", action="store_true", help="a few tests: does it still run?")
    parser.add_argument("--json", metavar="FILE", help="write the outcomes there")
    parser.add_argument("--tell", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_suite(file: Path, loader: str, *, limit_s: float, only: str) -> dict[str, dict[str, Any]]:
    """Run the tests of a file with a loader's class; returns what came of each."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        tests, tell = Path(folder, "test_dataloader.py"), Path(folder, "told.jsonl")
        text = file.read_text(encoding="utf-8")
        if THEIRS not in text:
            raise SystemExit(f"{file} does not import the loader as it did: {THEIRS}")
        tests.write_text(text.replace(THEIRS, OURS[loader]), encoding="utf-8")
        tell.touch()
        command = [sys.executable, __file__, str(tests), "--tell", str(tell), "--only", only]
        paths = [SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTORCH_TEST_WITH_SLOW": "1"}
        while not _is_over(command, env, tell, limit_s):
            pass
        return _read(tell)


def _is_over(command: list[str], env: dict[str, str], tell: Path, limit_s: float) -> bool:
    """Run the tests that have not run yet; False: one of them was ended, and the rest is still to be run."""
    log, num_said, num_lines, since = tell.with_suffix(".log"), len(_read(tell)), 0, time.monotonic()
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, env=env, cwd=tell.parent)
        try:
            is_over = False
            while not is_over:
                time.sleep(0.2)
                is_over = child.poll() is not None or time.monotonic() > since + limit_s
                told = [(name, one) for name, one in _read(tell).items() if one["outcome"] != "running"]
                for name, one in told[num_said:]:
                    print(f"{one['outcome']:>8}  {name}  {one['seconds']:.1f} s", file=sys.stderr)
                num_said = len(told)
                if num_lines != (num_lines := len(tell.read_text(encoding="utf-8").splitlines())):
                    since = time.monotonic()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    running = [name for name, one in _read(tell).items() if one["outcome"] == "running"]
    for name in running:
        how = "its process ended" if child.returncode != -signal.SIGKILL else f"it did not end within {limit_s:g} s"
        _write(tell, name, "failed", text=how)
        print(f"  failed  {name}  {how}", file=sys.stderr)
    if not _read(tell):
        print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
    return not running


def report(told: dict[str, dict[str, Any]], expected: dict[str, str]) -> list[str]:
    """Print the counts and what fails; returns those that should not."""
    of: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for name, one in told.items():
        of[one["outcome"]].append(name)
    num_run = len(of["passed"]) + len(of["failed"])
    print(f"{len(of['passed'])} of {num_run} pass, {len(of['skipped'])} are skipped")
    unexpected = [name for name in of["failed"] if name not in expected]
    for name in of["failed"]:
        print(f"  {name}: {expected.get(name, 'UNEXPECTED')}")
    for name in unexpected:
        print(f"\n{name}\n{told[name]['text']}")
    for name in of["passed"]:
        if name in expected:
            print(f"  {name} passes, though it need not")
    return unexpected


# ---------------------------------------------------------------------------------------- in the process of the tests


class Teller:
    """Writes down what becomes of each test, and leaves out those of which that is known."""

    def __init__(self, tell: Path) -> None:
        self._tell, self._known = tell, _read(tell)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if _name(item.nodeid) not in self._known]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        _write(self._tell, _name(nodeid), "running")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or not report.passed:
            _write(self._tell, _name(report.nodeid), report.outcome, report.duration, report.longreprtext[-2000:])


def _run_tests(tests: Path, tell: Path, only: str) -> int:
    import pytest

    options = ["-c", os.devnull, f"--rootdir={tests.parent}", "-p", "no:cacheprovider", "-W", "ignore", "-k", only]
    return int(pytest.main([str(tests), *options], plugins=[Teller(tell)]))


def _name(node: str) -> str:
    return node.partition("::")[2]


def _write(tell: Path, name: str, outcome: str, seconds: float = 0.0, text: str = "") -> None:
    with tell.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"name": name, "outcome": outcome, "seconds": seconds, "text": text}) + "\n")


def _read(tell: Path) -> dict[str, dict[str, Any]]:
    """What was told of each test, the last word last."""
    told: dict[str, dict[str, Any]] = {}
    for line in tell.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # half a line, of a process that was ended
            one = json.loads(line)
            told.pop(one["name"], None)
            told[one["name"]] = one
    return told


if __name__ == "__main__":
    sys.exit(main())
