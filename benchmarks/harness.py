"""Run contenders side by side and compare them round by round.

Each contender runs in a fresh process: the script starts itself again with `--contender`, one at a time. Rounds
interleave (A B A B), so that what drifts on the machine drifts for all. A headline is the median of the ratios within
rounds, with the least and the greatest of them beside it; seconds from two different rounds are never compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes import MemoryWatch, machine_facts, shmem_bytes
from tables import Result, brief, number, print_bars, print_group

__all__ = ["Bar", "Contender", "Options", "Question", "Result", "ask"]

SCHEMA = "headrace/benchmark/1"
if importlib.util.find_spec("headrace") is None:  # not installed: the source tree beside this folder, in children too
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "src"))

Options = argparse.Namespace


@dataclass(frozen=True)
class Contender:
    """One way to do the work. `run` is called in a process of its own and returns what it measured."""

    name: str
    run: Callable[[], Result]
    group: str = ""  # contenders of one group are compared; groups run one after the other
    needs: tuple[str, ...] = ()  # modules without which it is skipped
    env: Mapping[str, str] = field(default_factory=dict)
    skip: str | None = None  # another reason to skip it
    exits_hard: bool = False  # end the process without Python's clean-up: threads of some peers abort in it

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name

    def missing(self) -> str | None:
        absent = [module for module in self.needs if not _is_installed(module)]
        return f"{', '.join(absent)} not installed" if absent else self.skip


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is absent
        return False


@dataclass(frozen=True)
class Bar:
    """A claim to check: `measure` of one contender, or its ratio to the same measure of the best of others."""

    title: str
    of: str
    measure: str
    over: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None  # neither: shown for information

    def values(self, rounds: Sequence[Mapping[str, Result]]) -> list[float]:
        """Return one value a round, from the rounds in which all that is needed was measured."""
        return [value for results in rounds if (value := self._value(results)) is not None]

    def _value(self, results: Mapping[str, Result]) -> float | None:
        ours = results.get(self.of, {}).get(self.measure)
        if ours is None or not self.over:
            return ours
        others = [value for key in self.over if (value := results.get(key, {}).get(self.measure)) is not None]
        if not others:
            return None
        best = min(others) if self.at_most is not None else max(others)
        return ours / best if best else float("inf")

    def verdict(self, value: float) -> str:
        if self.at_least is not None:
            return "pass" if value >= self.at_least else "MISS"
        if self.at_most is not None:
            return "pass" if value <= self.at_most else "MISS"
        return "-"

    def wanted(self) -> str:
        if self.at_least is not None:
            return f">= {number(self.at_least)}"
        return f"<= {number(self.at_most)}" if self.at_most is not None else "for information"


@dataclass(frozen=True)
class Question:
    """A benchmark: what it asks, who takes part, and what must come out."""

    doc: str
    contenders: Callable[[Options], list[Contender]]
    bars: Callable[[Options], list[Bar]]
    columns: tuple[str, ...]
    arguments: Callable[[argparse.ArgumentParser], object] = lambda parser: parser
    workloads: tuple[str, ...] = ()  # what `--workloads` means when a script has it and it is not given
    quick_workloads: tuple[str, ...] = ()
    files: Callable[[Options], Iterable[tuple[str, str]]] = lambda _: ()  # (workload, size) whose files are read
    rounds: int = 5
    seconds: float = 12.0  # 0: how long it takes is not a matter of seconds here
    quick_seconds: float = 1.0
    show_waits: bool = False
    watch_memory: bool = False
    remarks: Callable[[Options, Sequence[Mapping[str, Result]]], Iterable[str]] = lambda *_: ()


def ask(question: Question) -> int:
    """Answer a question from the command line; return the exit code.

    0: it ran, whatever the bars say (a speed is judged by its reader). 2: a contender could not run.
    """
    options = _parse(question)
    if options.contender:
        return _run_here(question, options)

    facts = machine_facts()
    _prepare_files(question, options)
    contenders = [c for c in question.contenders(options) if not options.only or _is_chosen(c, options.only)]
    if options.list:
        print("\n".join(contender.key for contender in contenders))
        return 0
    absent = {contender.key: reason for contender in contenders if (reason := contender.missing())}
    for reason in dict.fromkeys(absent.values()):
        _say(f"skipped, {reason}: {'; '.join(key for key in absent if absent[key] == reason)}")
    running = [contender for contender in contenders if contender.key not in absent]

    rounds: list[dict[str, Result]] = [{} for _ in range(options.rounds)]
    failures: dict[str, str] = {}
    for group in dict.fromkeys(contender.group for contender in running):
        for turn, results in enumerate(rounds, 1):
            for contender in (c for c in running if c.group == group):
                _cool_files(question, options)
                outcome = _run_apart(contender, question, options, turn)
                if isinstance(outcome, str):
                    failures[contender.key] = outcome
                    _say(f"round {turn}/{options.rounds}  {contender.key}: failed\n{outcome}")
                else:
                    results[contender.key] = outcome
                    _say(f"round {turn}/{options.rounds}  {contender.key}: {brief(outcome, question.columns)}")

    if options.add:
        _add_earlier(Path(options.json), rounds)
    bars = [_judge(bar, rounds) for bar in question.bars(options)]
    _print_answer(question, options, running, rounds, bars, failures)
    if options.json:
        document = {
            "schema": SCHEMA,
            "question": question.doc.strip().splitlines()[0],
            "script": Path(sys.argv[0]).name,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": facts,
            "settings": _settings(options),
            "cache": options.cache if list(question.files(options)) else "no files are read",
            "bars": bars,
            "rounds": rounds,
            "skipped": absent,
            "failed": failures,
        }
        Path(options.json).write_text(json.dumps(document, indent=1, default=str) + "\n")
        _say(f"wrote {options.json}")
    return 2 if failures else 0


def _parse(question: Question) -> Options:
    parser = argparse.ArgumentParser(description=question.doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help=f"rounds, each with every contender ({question.rounds})")
    if question.seconds:
        parser.add_argument("--seconds", type=float, help=f"measured seconds a contender ({question.seconds:g})")
    parser.add_argument("--quick", action="store_true", help="one short round: does it still run?")
    parser.add_argument("--json", metavar="FILE", help="also write figures, machine facts and settings there")
    parser.add_argument("--add", action="store_true", help="keep what that file holds of other contenders")
    parser.add_argument("--only", metavar="TEXT", help="only contenders whose name holds one of these, by comma")
    parser.add_argument("--list", action="store_true", help="name the contenders and stop")
    parser.add_argument("--cache", choices=["warm", "cold"], default="warm", help="page cache for the files read")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="a contender is ended after this long")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--round", type=int, default=1, help=argparse.SUPPRESS)  # which one, for whoever draws anew
    parser.add_argument("--json-out", help=argparse.SUPPRESS)
    question.arguments(parser)
    options = parser.parse_args()
    if options.add and not options.json:
        parser.error("--add needs --json FILE")
    options.rounds = options.rounds or (1 if options.quick else question.rounds)
    if question.seconds:
        options.seconds = options.seconds or (question.quick_seconds if options.quick else question.seconds)
    options.size = "quick" if options.quick else "full"
    if getattr(options, "workloads", "") is None:
        options.workloads = ",".join(question.quick_workloads if options.quick else question.workloads)
    return options


def _add_earlier(path: Path, rounds: list[dict[str, Result]]) -> None:
    """Put what a file holds of contenders that did not run now beside what was measured, round by round."""
    earlier = json.loads(path.read_text())["rounds"] if path.exists() else []
    ran = {key for results in rounds for key in results}
    rounds += [{} for _ in earlier[len(rounds) :]]
    for results, known in zip(rounds, earlier, strict=False):
        results.update({key: value for key, value in known.items() if key not in ran})


def _is_chosen(contender: Contender, only: str) -> bool:
    return any(text in contender.key for text in only.split(","))


# ------------------------------------------------------------------ one contender, one process


def _run_here(question: Question, options: Options) -> int:
    """Run one contender in this process and write what it measured: the child's side."""
    chosen = next(c for c in question.contenders(options) if c.key == options.contender)
    result = chosen.run()
    Path(options.json_out).write_text(json.dumps(result, default=str))
    if chosen.exits_hard:
        os._exit(0)
    return 0


def _run_apart(contender: Contender, question: Question, options: Options, turn: int) -> Result | str:
    """Run one contender in a fresh process; return what it measured, or why it could not."""
    environment = {**os.environ, **contender.env}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        out, err = Path(folder, "result.json"), Path(folder, "stderr")
        here = ["--contender", contender.key, "--round", str(turn), "--json-out", str(out)]
        command = [sys.executable, *sys.argv, *here]
        shmem_before_bytes = shmem_bytes()
        with err.open("wb") as stderr:
            child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, start_new_session=True
            )
            watch = MemoryWatch(child.pid, shmem_before_bytes=shmem_before_bytes) if question.watch_memory else None
            try:
                if watch is None:
                    child.wait(options.timeout_s)
                else:
                    with watch:
                        child.wait(options.timeout_s)
            except subprocess.TimeoutExpired:
                return f"not done after {options.timeout_s:g} s; it printed:\n{_tail(err)}"
            finally:
                _end_session(child)
        if child.returncode != 0 or not out.exists():
            return f"exit code {child.returncode}; it printed:\n{_tail(err)}"
        result: Result = json.loads(out.read_text())
        return result | watch.result() if watch else result


def _end_session(child: subprocess.Popen[bytes]) -> None:
    """End what a contender may have left behind: its session is its own, so nothing else is hit."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def _tail(path: Path, num_lines: int = 25) -> str:
    lines = path.read_text(errors="replace").splitlines()[-num_lines:]
    return "\n".join(f"    {line}" for line in lines)


def _prepare_files(question: Question, options: Options) -> None:
    import synthetic

    for workload, size in question.files(options):
        synthetic.ensure(workload, size)
        if options.cache == "warm":
            synthetic.warm(synthetic.files_of(workload, size))


def _cool_files(question: Question, options: Options) -> None:
    import synthetic

    if options.cache == "cold":
        for workload, size in question.files(options):
            synthetic.cool(synthetic.files_of(workload, size))


def _judge(bar: Bar, rounds: Sequence[Mapping[str, Result]]) -> dict[str, Any]:
    values = bar.values(rounds)
    judged: dict[str, Any] = {
        "title": bar.title,
        "of": bar.of,
        "over": list(bar.over),
        "measure": bar.measure,
        "wanted": bar.wanted(),
        "value": None,
    }
    if values:
        value = statistics.median(values)
        judged |= {"value": value, "min": min(values), "max": max(values), "verdict": bar.verdict(value)}
    return judged


def _print_answer(
    question: Question,
    options: Options,
    contenders: Sequence[Contender],
    rounds: Sequence[Mapping[str, Result]],
    bars: Sequence[Mapping[str, Any]],
    failures: Mapping[str, str],
) -> None:
    print(question.doc.strip().splitlines()[0])
    print(f"rounds: {options.rounds}; figures are medians over rounds, ratios are taken within each round")
    for group in dict.fromkeys(contender.group for contender in contenders):
        print(f"\n{group}" if group else "")
        members = [contender for contender in contenders if contender.group == group]
        names = {member.key: member.name + (" (failed)" if member.key in failures else "") for member in members}
        print_group(names, question.columns, rounds, show_waits=question.show_waits)
    for remark in question.remarks(options, rounds):
        print(f"\n{remark}")
    if bars:
        print_bars(bars)


def _settings(options: Options) -> dict[str, Any]:
    hidden = {"contender", "round", "json_out", "json", "list", "add", *(("only",) if options.add else ())}
    return {name: value for name, value in vars(options).items() if name not in hidden}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
