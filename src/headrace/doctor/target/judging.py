"""What came of the stages, judged: a check for each, a finding with its cause where one failed. Pure.

Its sentences are in `problems.toml`.
"""

import re
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from headrace.knowledge import look_up
from headrace.model import (
    Cause,
    Confidence,
    Finding,
    Severity,
    Text,
    format_bytes,
    format_seconds,
    three_digits,
)

from ..checks import Check, Outcome
from .stages import StageEnding, StageResult

_SLOW_IMPORT_S = 8.0
_COPIED_BYTES = 48 << 20  # for each worker
_PICKLED_BYTES = 256 << 20
_BLANKS = ("at", "took", "said", "how", "hang", "part", "path", "why", "size", "sample", "samples")


@dataclass(frozen=True)
class TargetProblem:
    """What can be wrong, in words; its blanks are filled with what was seen."""

    cause: Cause
    title: Text
    fix: tuple[Text, ...]
    change: Text | None


def _text(said: Any) -> Text:
    return Text(said, said) if isinstance(said, str) else Text(**said)


def _problem(words: dict[str, Any]) -> TargetProblem:
    fix, change = tuple(map(_text, words["fix"])), words.get("change")
    return TargetProblem(Cause(words["cause"]), _text(words["title"]), fix, _text(change) if change else None)


_WORDS = tomllib.loads(files(__package__).joinpath("problems.toml").read_text(encoding="utf-8"))
PROBLEMS = {name: _problem(words) for name, words in _WORDS["problem"].items()}
SAID, TITLES = ({name: _text(said) for name, said in _WORDS[part].items()} for part in ("said", "title"))


# What a message of the knowledge base says is wrong, by its name; the first that is found counts.
_BY_MESSAGE = {
    "cuda_in_forked_worker": "cuda_in_worker",
    "received_ancdata": "fd_limit",
    "too_many_open_files": "fd_limit",
    "unable_to_open_shm": "fd_limit",
    "unable_to_write_shm": "shm_full",
    "unable_to_allocate_shm": "shm_full",
    "unable_to_allocate_shm_odd_errno": "shm_full",
    "unable_to_resize_shm": "shm_full",
    "no_main_guard": "needs_main_guard",
    "cannot_pickle": "unpicklable",
    "host_allocation_failed": "out_of_memory",
    "fork_refused": "out_of_memory",
    "worker_bus_error": "shm_full",
}
_BY_TEXT = {
    r"daemonic processes are not allowed to have children": "needs_main_guard",
    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available": "cuda_in_worker",
    r"^(?:\w+\.)*MemoryError|Unable to allocate .* for an array|std::bad_alloc": "out_of_memory",
    r"\[Errno 24\]": "fd_limit",
    r"/dev/shm.*\[Errno 28\]|\[Errno 28\].*/dev/shm": "shm_full",
}
_UNEQUAL = re.compile(
    r"equal size|not resizable|same shape|same size|[Ss]izes of tensors must match|inhomogeneous shape"
)
_NO_SHM_ERROR = re.compile(
    r"unable to resize file .*\(22\)"
)  # torch 2.13 sends a Generator to no worker that starts anew


def recognised(*texts: str) -> str:
    """Return the problem that an error or what was printed names itself; empty where they name none.

    >>> recognised("RuntimeError: Too many open files. Communication with the workers is no longer possible.")
    'fd_limit'
    """
    for text in texts:
        if _NO_SHM_ERROR.search(text):
            return "unpicklable"
        names = {found.entry.name for found in look_up(text) if not found.is_partial}
        known = next((problem for name, problem in _BY_MESSAGE.items() if name in names), "")
        plain = (problem for pattern, problem in _BY_TEXT.items() if re.search(pattern, text, re.MULTILINE))
        if known or (known := next(plain, "")):
            return known
    return ""


@dataclass(frozen=True)
class Judge:
    """All that came of a target's stages."""

    target: str
    results: Mapping[str, StageResult]
    shm_free_bytes: int | None = None

    def checks(self) -> Iterator[Check]:
        """Yield a check for each stage, and for each look that a stage allows; of each problem one finding."""
        told = {""}
        for check in self._all():
            if check.name == "benchmark" and check.problem and told > {""}:  # it meets what was told before
                check = replace(check, outcome=Outcome.SKIP, problem="")
            yield replace(check, finding=None) if check.problem in told else check
            told.add(check.problem)

    def _all(self) -> Iterator[Check]:
        for name in ("import", "sample", "loader"):
            yield self._stage(name, getattr(self, f"_{name}"))
        yield from self._of_method("fork")
        yield from self._of_method("spawn")
        yield self._stage("benchmark", self._benchmark)

    def _of_method(self, method: str) -> Iterator[Check]:
        """Workers made in one way, and what they did; where the user's are made in another way, a warning at most."""
        name = f"workers_{method}"
        checks = [self._stage(name, self._workers)]
        if method == "fork" and name in self.results:
            checks += self._looks(self.results[name])
        for check in checks:
            if check.finding is None or self._is_used(method):
                yield check
            else:
                finding = replace(check.finding, severity=Severity.MEDIUM, share=0.0)
                yield replace(check, outcome=Outcome.WARN, finding=finding)

    def _is_used(self, method: str) -> bool:
        """Whether the user's workers are made in this way; those of a forkserver start anew, too."""
        given = self.results["import"].facts["start_method"]
        return bool((given == "fork") == (method == "fork"))

    # ---------------------------------------------------------------------------------- making checks

    def _stage(self, name: str, judge: Any) -> Check:
        if (result := self.results.get(name)) is None:
            return Check(name=name, title=TITLES[name], outcome=Outcome.SKIP, says=SAID["before"])
        check: Check = judge(name, result)
        return check

    def _passed(self, name: str, says: Text, seconds: float | None = None) -> Check:
        return Check(name=name, title=TITLES[name], outcome=Outcome.PASS, says=says, seconds=seconds)

    def _wrong(
        self,
        name: str,
        problem: str,
        result: StageResult,
        *,
        evidence: tuple[Text, ...] = (),
        is_warning: bool = False,
        is_certain: bool = True,
        **blanks: Any,
    ) -> Check:
        words = PROBLEMS[problem]
        at = _in_hand(result)
        figures = {"limit": format_bytes(result.limit_bytes), "seconds": format_seconds(result.seconds)}
        blanks = {**dict.fromkeys(_BLANKS, at), **figures, "target": self.target, **blanks}
        title = words.title.filled(**blanks)
        lines = _trace(result.error.get("traceback") or (result.said if result.death is not None else ""))
        if result.error.get("name") == "SystemExit":  # what it printed says why
            lines += tuple(Text(one, one) for one in result.said.strip().splitlines()[-2:])
        finding = Finding(
            cause=words.cause,
            share=0.0 if is_warning else 1.0,
            evidence=tuple(dict.fromkeys((*evidence, *lines))) or (title,),
            fix=tuple(text.filled(**blanks) for text in words.fix),
            severity=Severity.MEDIUM if is_warning else Severity.HIGH,
            confidence=Confidence.CERTAIN if is_certain else Confidence.LIKELY,
            title=title,
            change=words.change.filled(**blanks) if words.change else None,
        )
        outcome = Outcome.WARN if is_warning else Outcome.FAIL
        return Check(
            name=name,
            title=TITLES[name],
            outcome=outcome,
            says=title,
            seconds=result.seconds,
            problem=problem,
            finding=finding,
        )

    def _broken(self, name: str, result: StageResult, *, otherwise: str, hangs: str, **blanks: Any) -> Check:
        """A stage that did not come to its end: by what is known of how it ended, else `otherwise`."""
        named = recognised(result.error.get("traceback", ""), result.said)
        at = _in_hand(result)
        if result.ending is StageEnding.MEMORY:
            took = format_bytes(result.peak_bytes)
            return self._wrong(
                name, "out_of_memory", result, evidence=(SAID["took"].filled(took=took, at=at),), took=took
            )
        if result.ending is StageEnding.HUNG:
            hang = result.hang or Text("", "")
            if named in ("shm_full", "fd_limit"):  # a worker could not send its batch, and nobody tells the loader
                return self._wrong(name, named, result)
            evidence = (SAID["where"].filled(hang=hang), SAID["when"].filled(at=at))
            return self._wrong(name, hangs, result, evidence=evidence, **{"said": at, **blanks, "hang": hang})
        if result.death is not None:
            if "MEMORY" in result.death_cause:
                return self._wrong(name, "out_of_memory", result, evidence=(result.death,), took=result.death)
            named = "shm_full" if result.death_cause == "SHM_FULL" else named
            if named and result.death_cause != "MAPPED_FILE":
                return self._wrong(name, named, result, evidence=(result.death,))
            return self._wrong(name, "worker_dies", result, evidence=(SAID["when"].filled(at=at),), how=result.death)
        said: Any = _first_line(result.error.get("said", ""))
        if named == "needs_main_guard":
            said = next(iter(result.facts.get("starts", ())), said)
        return self._wrong(name, named or otherwise, result, **{**blanks, "said": said, "sample": at})

    # ---------------------------------------------------------------------------------- the stages

    def _import(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            hang = SAID["where"].filled(hang=result.hang) if result.hang else ""
            return self._broken(name, result, otherwise="import_fails", hangs="import_fails", said=hang)
        facts = result.facts
        what = SAID["imported"].filled(
            dataset=facts["dataset"], count=_length(facts), seconds=format_seconds(result.seconds)
        )
        if facts["import_s"] >= _SLOW_IMPORT_S:
            took = format_seconds(facts["import_s"])
            return self._wrong(name, "slow_import", result, evidence=(what,), is_warning=True, took=took)
        return self._passed(name, what, result.seconds)

    def _sample(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            return self._broken(name, result, otherwise="sample_fails", hangs="sample_hangs")
        facts, bad = result.facts, result.facts["bad"]
        if bad:
            first = bad[0]
            named = recognised(*(one["traceback"] for one in bad))
            rest = ", ".join(str(one["sample"]) for one in bad)
            evidence = (SAID["bad"].filled(bad=rest, good=facts["num_good"]), *_trace(first["traceback"]))
            problem = "corrupt_sample" if facts["num_good"] else "sample_fails"
            blanks = {"sample": first["sample"], "said": _first_line(first["said"]), "at": first["sample"]}
            return self._wrong(name, named or problem, result, evidence=evidence, took=first["sample"], **blanks)
        if not facts["num_good"]:
            return self._wrong(name, "sample_fails", result, said=SAID["empty"], sample="-")
        times = facts["times"]
        typical = sorted(times)[len(times) // 2]
        says = SAID["samples"].filled(
            count=facts["num_good"],
            median=format_seconds(typical),
            worst=format_seconds(max(times)),
            size=format_bytes(facts["sample_bytes"]),
        )
        return self._passed(name, says, result.seconds)

    def _loader(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            odd, collates = self.results["sample"].facts["odd"], bool(result.facts.get("in_collate"))
            is_known = self.results["import"].facts["is_default"] and _differ_in_shape(odd)
            if collates and (is_known or _UNEQUAL.search(result.error.get("said", ""))):
                samples = ", ".join(str(one["sample"]) for one in odd) or SAID["of_one_batch"]
                return self._wrong(name, "shapes_differ", result, evidence=_odd(odd), samples=samples)
            return self._broken(
                name, result, otherwise="collate_fails" if collates else "sample_fails", hangs="sample_hangs"
            )
        facts = result.facts
        if not facts["num_batches"]:
            return self._wrong(name, "sample_fails", result, said=SAID["empty"], sample="-")
        first, size = format_seconds(facts["times"][0]), format_bytes(facts["batch_bytes"])
        return self._passed(
            name, SAID["batches"].filled(count=facts["num_batches"], first=first, size=size), result.seconds
        )

    def _workers(self, name: str, result: StageResult) -> Check:
        method = name.removeprefix("workers_")
        is_used = self._is_used(method)
        starts = self.results["import"].facts["starts"]
        if result.is_done:
            first = format_seconds(result.facts["times"][0]) if result.facts["times"] else "-"
            says = SAID["worked"].filled(count=result.facts["num_batches"], first=first)
            if result.facts["cuda"]:
                return self._wrong(name, "cuda_in_worker", result, said=result.facts["cuda"], at=result.facts["cuda"])
            if is_used and (pickled := result.facts.get("pickled_bytes", 0)) >= _PICKLED_BYTES:
                size = format_bytes(pickled)
                return self._wrong(name, "copied_dataset", result, is_warning=True, size=size, part="dataset")
            ahead = self._bytes_ahead()
            if is_used and self.shm_free_bytes is not None and ahead > self.shm_free_bytes:
                sizes = {"need": format_bytes(ahead), "free": format_bytes(self.shm_free_bytes)}
                evidence = (SAID["ahead"].filled(**sizes),)
                return self._wrong(name, "shm_full", result, evidence=evidence, is_warning=True, is_certain=False)
            if method != "fork" and starts:
                return self._wrong(name, "needs_main_guard", result, said=starts[0])
            return self._passed(name, says, result.seconds)
        part = result.facts.get("unpicklable", ())
        if part and recognised(result.error.get("traceback", "")) in ("", "unpicklable"):
            evidence = (Text(part[1], part[1]),)
            forked = self.results.get("workers_fork")
            handle = _shared(forked) if forked is not None else None
            if handle is not None and part[0].startswith(str(handle["part"])):  # one cause, which is told already
                check = self._wrong(name, "shared_handle", result, is_warning=not is_used, **handle)
                return replace(check, says=PROBLEMS["unpicklable"].title.filled(part=part[0]), finding=None)
            return self._wrong(name, "unpicklable", result, evidence=evidence, part=part[0])
        if method != "fork" and starts and result.ending in (StageEnding.FAILED, StageEnding.HUNG):
            return self._wrong(name, "needs_main_guard", result, said=starts[0])
        if method == "fork" and (handle := _shared(result)) is not None:
            return self._wrong(name, "shared_handle", result, **handle)
        hangs = "worker_hangs"
        if method == "fork" and result.ending is StageEnding.HUNG:
            other = self.results.get("workers_spawn")
            if result.is_deadlock or (other is not None and other.is_done):
                hangs = "fork_deadlock"
        collates = bool(result.facts.get("in_collate"))
        return self._broken(name, result, otherwise="collate_fails" if collates else "sample_fails", hangs=hangs)

    def _bytes_ahead(self) -> int:
        """What the user's own loader has in /dev/shm: the batches of all its workers that are ahead."""
        given, batches = self.results["import"].facts, self.results["loader"].facts
        return (given["num_workers"] or 0) * (given["prefetch_factor"] or 2) * int(batches["batch_bytes"])

    def _benchmark(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            said = _first_line(result.error.get("said", ""))
            if result.ending is not StageEnding.HUNG and result.in_hand.get("what") == "torch":
                is_told = "in DataLoader worker process" in result.error.get("traceback", "")  # by a worker that lives
                lost, how = "sample_fails" if is_told else "worker_dies", SAID["ended"].filled(said=said)
                return self._broken(name, result, otherwise=lost, hangs="", how=how)
            says = SAID["unmeasured"].filled(said=said or _in_hand(result))
            return Check(name=name, title=TITLES[name], outcome=Outcome.SKIP, says=says, seconds=result.seconds)
        rates = {kind: three_digits(rate) for kind, rate in result.facts["rates"].items()}
        return self._passed(name, SAID["rates"].filled(count=result.facts["num_workers"], **rates), result.seconds)

    # ---------------------------------------------------------------------------------- looks at what the forks did

    def _looks(self, forked: StageResult) -> Iterator[Check]:
        facts = forked.facts
        if "handles" in facts and forked.is_done:
            if (handle := _shared(forked)) is not None:
                seen = bool(facts["moved"])
                yield self._wrong("handles", "shared_handle", forked, is_certain=seen, is_warning=not seen, **handle)
            else:
                yield self._passed("handles", SAID["no_handles"])
        if forked.is_done:
            copied = facts.get("copied_bytes", 0)
            if copied >= _COPIED_BYTES:
                part, count = facts["largest"]
                blanks = {"size": format_bytes(copied), "part": part}
                evidence = (SAID["copied"].filled(part=part, count=count, size=format_bytes(copied)),)
                yield self._wrong("copies", "copied_dataset", forked, evidence=evidence, is_warning=True, **blanks)
            else:
                yield self._passed("copies", SAID["not_copied"].filled(size=format_bytes(copied)))
            yield from self._random(forked)
            yield from self._split(forked)

    def _random(self, forked: StageResult) -> Iterator[Check]:
        passes = forked.facts.get("drawn", ())
        if not passes:
            return
        first, second = passes
        is_varied = all(len(set(drawn)) > 1 for drawn in first)
        if is_varied and len(first) > 1 and first[0] == first[1]:
            yield self._wrong(
                "random", "frozen_random", forked, evidence=(SAID["same_workers"].filled(count=len(first[0])),)
            )
        elif is_varied and first == second:
            yield self._wrong(
                "random", "frozen_random", forked, evidence=(SAID["same_passes"].filled(count=len(first[0])),)
            )
        else:
            yield self._passed("random", SAID["varied"])

    def _split(self, forked: StageResult) -> Iterator[Check]:
        if self.results["import"].facts["is_indexed"]:
            return
        workers = [set(digests) for digests in forked.facts["by_worker"]]
        is_telling = all(len(set(digests)) > len(digests) / 2 for digests in forked.facts["by_worker"])
        if len(workers) < 2 or min(map(len, workers)) < 2 or not is_telling:  # samples that look alike tell nothing
            return
        both = len(workers[0] & workers[1])
        if both >= min(len(workers[0]), len(workers[1])) / 2:
            yield self._wrong("split", "not_split", forked, evidence=(SAID["both"].filled(count=both),))
        else:
            yield self._passed("split", SAID["split"])


# ------------------------------------------------------------------------------------------ in words


def _in_hand(result: StageResult) -> Text:
    at = result.in_hand
    if samples := at.get("samples"):
        return SAID["in_workers"].filled(samples=", ".join(samples))
    if "sample" in at:
        return SAID["sample"].filled(sample=at["sample"])
    if "number" in at:
        return SAID["batch"].filled(number=at["number"])
    return Text(at["what"], at["what"]) if "what" in at else SAID["nothing_yet"]


def _length(facts: Mapping[str, Any]) -> Text:
    if facts["length"] is None:
        return Text("an IterableDataset", "IterableDataset")
    return Text("{count:sample(s)}", "{count} 个样本").filled(count=facts["length"])


def _first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return lines[-1 if "in DataLoader worker process" in lines[0] else 0]  # torch's wrapper says nothing of the error


_NOT_THEIRS = ("site-packages", sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]), "<frozen")


def _trace(traceback: str) -> tuple[Text, ...]:
    """The place of the user's code, and the error itself."""
    lines = [line.strip() for line in traceback.strip().splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ") and not any(one in line for one in _NOT_THEIRS)]
    return tuple(Text(line, line) for line in (*places[-1:], *lines[-1:]))


def _shared(result: StageResult) -> dict[str, Any] | None:
    """The handle that workers used though it was opened before them; None where there is none."""
    facts = result.facts
    by_fd = {one["fd"]: one for one in facts.get("handles", ())}
    for moved in facts.get("moved", ()):
        name = by_fd[moved["fd"]]["name"] if moved["fd"] in by_fd else SAID["some_file"]
        why, evidence = SAID["one_position"], (SAID["moved"].filled(path=moved["path"]),)
        return {"part": name, "path": moved["path"], "evidence": evidence, "why": why}
    marked = {(one["name"], one["fd"]) for one in facts.get("kept", ()) if one["is_marked"]}
    for one in by_fd.values():
        if one["is_forbidden"] and ((one["name"], one["fd"]) in marked or not result.is_done):
            evidence = (SAID["inherited"].filled(part=one["name"], kind=one["kind"]),)
            return {"part": one["name"], "path": one["path"], "evidence": evidence, "why": SAID["forbidden"]}
    return None


def _differ_in_shape(odd: list[dict[str, Any]]) -> bool:
    """Whether two samples have the same things in them, and not the same sizes of them."""
    kinds = [{name: kind for name, kind, *_ in one["form"]} for one in odd]
    return len(kinds) > 1 and all(kinds[1].get(name, kind) == kind for name, kind in kinds[0].items())


def _odd(odd: list[dict[str, Any]]) -> tuple[Text, ...]:
    said = [f"sample {one['sample']}: {_form(one['form'])}" for one in odd]
    return tuple(Text(one, one.replace("sample", "样本", 1)) for one in said)


def _form(form: list[Any]) -> str:
    return ", ".join(f"{name} {kind}{tuple(shape) if shape else ''}".strip() for name, kind, shape, *_ in form)[:200]
