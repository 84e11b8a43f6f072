"""How often does `headrace doctor` find what is wrong, and nothing where nothing is? Troubles made for real.

Each module of `doctor_cases/` holds data sets with one trouble each, and healthy ones; the truth stands beside them, in
`CASES`: the problem that must be found (`finds`, empty: none), those that may be found with it (`also`), the limits
under which it runs. Each case gets a fresh `headrace doctor TARGET --json` (and some `headrace quick`): right is who
finds the problem, no other one, within the time, and leaves no process, no file of /dev/shm and no temporary file.
Limits need to be root; packages that are not installed, and limits that cannot be set, are left out and said.

python benchmarks/doctor_score.py                                 # all of them
python benchmarks/doctor_score.py --only hangs --only healthy -v  # by a part of module:name
python benchmarks/doctor_score.py --json result.json --resume     # goes on where that ended
python benchmarks/doctor_score.py --json result.json --markdown docs/reference/doctor-score.md
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

if importlib.util.find_spec("headrace") is None:  # not installed: the source tree beside this folder
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "src"))

from probes import machine_facts
from recorded_runs.limits import CannotLimit, clean_up_when_ended, limited

CASES = Path(__file__).parent / "doctor_cases"
QUICK = ("healthy:tensors", "unpicklable:lambda_transform", "samples:raises_at_17")
_AFTERWARDS_S = 3.0  # for processes that are ending


@dataclass(frozen=True, kw_only=True)
class Case:
    """One target, and the truth about it."""

    module: str
    name: str
    finds: str  # empty: it is healthy; "a|b": either is right
    target: str = ""  # a name of the module; else the case's own
    path: str = ""  # shards among the files, in place of a target
    also: tuple[str, ...] = ()
    quick: str | None = None  # what `headrace quick` must find; None: it is not run
    limits: dict[str, float] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()
    options: tuple[str, ...] = ()
    needs: str = ""
    seconds: float = 120.0
    is_simulated: bool = False

    @property
    def id(self) -> str:
        return f"{self.module}:{self.name}"

    def target_in(self, data: Path) -> str:
        return str(data / self.path) if self.path else f"{CASES / self.module}.py:{self.target or self.name}"


def read_cases() -> list[Case]:
    """The truth of every module, read without importing it: some take their time, or do not come back."""
    found = []
    for path in sorted(CASES.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "CASES":
                for name, told in ast.literal_eval(node.value).items():
                    lists = {key: tuple(value) for key, value in told.items() if isinstance(value, list)}
                    found.append(Case(module=path.stem, name=name, **told | lists))
    return found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command said of a case."""

    command: str
    problems: tuple[str, ...] = ()
    exit_code: int | None = None
    seconds: float = 0.0
    left_behind: tuple[str, ...] = ()
    failed: str = ""  # no document came

    def wrong(self, expected: str, case: Case) -> list[str]:
        """What is wrong with it; nothing: it is right."""
        said = []
        if self.failed:
            said.append(self.failed)
        either = expected.split("|")
        if expected and not {*either} & {*self.problems}:
            said.append(f"did not find {expected}")
        others = [one for one in self.problems if one not in (*either, *case.also)]
        if others and not self.failed:
            said.append(f"found {', '.join(others)}")
        if self.seconds > case.seconds:
            said.append(f"took {self.seconds:.0f} s of {case.seconds:.0f}")
        return said + [f"left {thing}" for thing in self.left_behind]


def ask(command: str, case: Case, data: Path) -> Outcome:
    """Run one command on one case and look at what it leaves."""
    mark = uuid.uuid4().hex
    limits_but_shm = {name: value for name, value in case.limits.items() if name != "shm_bytes"}
    with _folder() as folder, _folder() as notes, limited(limits_but_shm, folder, cpus=case.cpus) as limits:
        environ = {**os.environ, **case.environ, "DOCTOR_CASES_DATA": str(data), "TMPDIR": str(folder)}
        environ |= {"DOCTOR_CASE_MARK": mark, "HF_HOME": str(data / "hf"), "PYTHONDONTWRITEBYTECODE": "1"}
        options = case.options if command == "doctor" else tuple(x for x in case.options if "workers" not in x)
        headrace = [sys.executable, "-m", "headrace", command, case.target_in(data), "--json", *options]
        apart = _with_own_shm(case.limits.get("shm_bytes"), notes / "shm")
        started = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            asked = subprocess.Popen([*apart, *limits.prefix, *headrace], stdout=out, stderr=err, env=environ, cwd=data)
            try:
                asked.wait(2 * case.seconds)
                failed = ""
            except subprocess.TimeoutExpired:
                asked.kill()
                asked.wait()
                failed = f"no answer after {2 * case.seconds:.0f} s"
            seconds = time.monotonic() - started
            out.seek(0)
            err.seek(0)
            document, said = _parse(out.read().decode("utf-8", "replace")), err.read().decode("utf-8", "replace")
        left = _left_behind(mark, notes / "shm", folder)
    if document is None and not failed:
        lines = said.strip().splitlines()
        failed = f"no document, exit code {asked.returncode}: {lines[-1] if lines else ''}"
    checks = [one for one in (document or {}).get("checks", []) if one["outcome"] != "note"]
    found = [one["problem"] for one in checks if one["problem"]]
    return Outcome(
        command=command,
        problems=tuple(dict.fromkeys(found)),
        exit_code=asked.returncode,
        seconds=round(seconds, 1),
        left_behind=left,
        failed=failed,
    )


def _parse(text: str) -> dict[str, Any] | None:
    with contextlib.suppress(json.JSONDecodeError):
        document = json.loads(text)
        return document if isinstance(document, dict) else None
    return None


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for temporary files that anybody may write into."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-doctor-case-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_own_shm(size: float | None, left: Path) -> list[str]:
    """A shell around a command that has a /dev/shm of its own, and notes what the command leaves there."""
    if os.geteuid() != 0:
        return []
    mount = f"mount -t tmpfs -o mode=1777{f',size={int(size)}' if size else ''} tmpfs /dev/shm"
    return [
        "unshare",
        "-m",
        "sh",
        "-c",
        f'{mount} && "$@"; code=$?; sleep 0.5; ls -A /dev/shm > {left}; exit $code',
        "sh",
    ]


def _left_behind(mark: str, noted: Path, folder: Path) -> tuple[str, ...]:
    """Processes, entries of /dev/shm and temporary files that are still there a moment later; processes are ended."""
    deadline = time.monotonic() + _AFTERWARDS_S
    while (pids := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [f"process {_command_of(pid)}" for pid in pids]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    left += [f"/dev/shm/{name}" for name in (noted.read_text().split() if noted.exists() else [])]
    files = [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor_")]  # torch's own cache
    return (*left, *(f"temporary file {name}" for name in files))


def _marked(mark: str) -> list[int]:
    """Processes that were started, at whatever remove, by a case."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and mark.encode() in Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
    return found


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:80]
    return str(pid)


# ---------------------------------------------------------------------------------------- score


class Score:
    """The results so far, kept in a file after each case."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.cases: dict[str, dict[str, Any]] = {}
        self.left_out: dict[str, str] = {}
        if options.resume and options.json and Path(options.json).exists():
            before = json.loads(Path(options.json).read_text())
            self.cases, self.left_out = before["cases"], before["left_out"]

    def run(self, case: Case, data: Path) -> None:
        if case.id in self.cases:
            return
        if case.needs and importlib.util.find_spec(case.needs) is None:
            self.left_out[case.id] = f"{case.needs} is not installed"
            return
        if "user_processes" in case.limits and not _is_for_all(Path(sys.executable).resolve()):
            self.left_out[case.id] = "another user may not run this Python"
            return
        try:
            asked = [(ask("doctor", case, data), case.finds)]
            if case.quick is not None:
                asked.append((ask("quick", case, data), case.quick))
        except CannotLimit as error:
            self.left_out[case.id] = str(error)
            return
        wrong = [f"{one.command}: {said}" for one, expected in asked for said in one.wrong(expected, case)]
        self.cases[case.id] = {
            "kind": case.finds.partition("|")[0] or "healthy",
            "is_simulated": case.is_simulated,
            "wrong": wrong,
            "asked": [asdict(one) for one, _ in asked],
        }
        if wrong or self._options.verbose:
            took = ", ".join(f"{one.seconds:.0f} s" for one, _ in asked)
            print(f"{'WRONG' if wrong else 'right'}  {case.id} ({took}): {'; '.join(wrong)}", flush=True)
        self.save()

    def save(self) -> None:
        if not self._options.json:
            return
        document = {
            "schema": "headrace/benchmark/1",
            "script": Path(__file__).name,
            "machine": machine_facts(),
            "right": sum(not one["wrong"] for one in self.cases.values()),
            "of": len(self.cases),
            "cases": dict(sorted(self.cases.items())),
            "left_out": self.left_out,
        }
        written = Path(self._options.json + ".new")
        written.write_text(json.dumps(document, indent=1) + "\n")
        written.replace(self._options.json)

    def table(self) -> list[str]:
        """A row for each kind: how many, how many of them right, the longest."""
        rows = ["| what is wrong | right | longest |", "| --- | --- | --- |"]
        kinds = sorted({_kind(one) for one in self.cases.values()}, key=lambda kind: (kind == "healthy", kind))
        for kind in kinds:
            these = [one for one in self.cases.values() if _kind(one) == kind]
            right = sum(not one["wrong"] for one in these)
            longest = max(asked["seconds"] for one in these for asked in one["asked"] if asked["command"] == "doctor")
            name = kind if kind == "healthy" else f"`{kind}`".replace(" (simulated)`", "` (simulated)")
            rows.append(f"| {name} | {right}/{len(these)} | {longest:.0f} s |")
        return rows

    def summary(self) -> list[str]:
        sick = [one for one in self.cases.values() if one["kind"] != "healthy"]
        well = [one for one in self.cases.values() if one["kind"] == "healthy"]
        left = sum(bool(asked["left_behind"]) for one in self.cases.values() for asked in one["asked"])
        return [
            f"Right: {sum(not one['wrong'] for one in sick)} of {len(sick)} with a trouble, "
            f"{sum(not one['wrong'] for one in well)} of {len(well)} healthy. Left something behind: {left}."
        ]

    def losses(self) -> list[str]:
        return [f"`{name}`: {'; '.join(one['wrong'])}" for name, one in sorted(self.cases.items()) if one["wrong"]]


def _is_for_all(program: Path) -> bool:
    return all(place.stat().st_mode & 1 for place in (program, *program.parents))


def _kind(case: dict[str, Any]) -> str:
    return str(case["kind"]) + (" (simulated)" if case["is_simulated"] else "")


_PAGE = """# How often `headrace doctor` is right

Written by [`benchmarks/doctor_score.py`](../../benchmarks/doctor_score.py): data sets with one trouble each, and
healthy ones, among them those of packages ([`doctor_cases`](../../benchmarks/doctor_cases)), each in a fresh `headrace
doctor TARGET --json`. The truth stands beside each case and was written before its first run. A case is right if the
problem is found, no other one that the case does not allow, within its time, and no process, no entry of `/dev/shm` and
no temporary file stays. Limits are set for real: control groups, `ulimit`, a small `/dev/shm` in a mount namespace.
That others use the machine is a note, and not counted.

"""
_NOTES = """
`cuda_in_worker` is simulated where there is no GPU: the mark that CUDA leaves in a forked child is set by hand, the
check and the error are torch's own. Not among the cases: swap, GPUs and their driver, NUMA, network storage; for these
the judgement alone is tested, by hand-made facts (`tests/doctor/machine`). OpenCV 5.0 does not hang after a fork any
more, so its case is among the healthy ones.
"""

_BY_HAND = "\n## At first sight\n"  # what follows it on the page is kept


def page(score: Score) -> str:
    facts = machine_facts()
    losses = ["", "## What it gets wrong", "", *(f"- {one}" for one in score.losses() or ["nothing"])]
    out = [f"- `{name}`: {why}" for name, why in sorted(score.left_out.items())]
    machine = f"On {facts['num_cpus_allowed']} cores ({facts['cpu']}), torch {facts['versions']['torch']}."
    parts = [*score.table(), "", *score.summary(), "", machine, _NOTES.rstrip("\n"), *losses]
    return _PAGE + "\n".join([*parts, *(["", "## Left out", "", *out] if out else [])]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="cases with this in module:name; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and their truth, and run nothing")
    parser.add_argument("--minutes", type=float, help="begin no case after so long")
    parser.add_argument("--quick", action="store_true", help="three cases: does it still run?")
    parser.add_argument("--resume", action="store_true", help="go on with what stands in the file of --json")
    parser.add_argument("--json", metavar="FILE", help="written after each case")
    parser.add_argument("--markdown", metavar="FILE", help="write the page of the reference there")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every case, not only the wrong ones")
    options = parser.parse_args(arguments)
    cases = [one for one in read_cases() if not options.only or any(text in one.id for text in options.only)]
    if options.quick:
        cases = [one for one in cases if one.id in QUICK]
    if options.list:
        print("\n".join(f"{one.id}: {one.finds or 'healthy'}" for one in cases))
        return 0
    clean_up_when_ended()
    score = Score(options)
    deadline = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    with _folder() as data:
        make = [sys.executable, str(CASES / "case_files.py")]
        subprocess.run(make, check=True, env={**os.environ, "DOCTOR_CASES_DATA": str(data)})
        for case in cases:
            if time.monotonic() < deadline:
                score.run(case, data)
    score.save()
    print("\n".join([*score.table(), *score.summary()]))
    for name, why in score.left_out.items():
        print(f"left out: {name}: {why}")
    if options.markdown:
        written = Path(options.markdown)
        _, head, kept = (written.read_text(encoding="utf-8") if written.exists() else "").partition(_BY_HAND)
        written.write_text(page(score) + head + kept, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
