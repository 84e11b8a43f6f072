"""What came of the stages, judged: a check for each, a finding with its cause where one failed. Pure.

Its sentences are in `problems.toml`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.knowledge import look_up
from headrace.model import Severity, Text, format_bytes, format_seconds, three_digits

from ..checks import Check, Outcome
from .inspecting import is_theirs
from .stages import WORDS, StageEnding, StageResult

_SLOW_IMPORT_S = 8.0
_COPIED_BYTES = 48 << 20  # for each worker
_PICKLED_BYTES = 256 << 20
_BLANKS = ("at", "took", "said", "how", "hang", "part", "path", "why", "size", "sample", "samples")
_said = WORDS.said


_UNEQUAL = re.compile(
    r"equal size|not resizable|same shape|same size|[Ss]izes of tensors must match|inhomogeneous shape"
)


def recognised(*texts: str) -> str:
    """Return the problem that an error or what was printed names itself; empty where they name none.

    >>> recognised("RuntimeError: Too many open files. Communication with the workers is no longer possible.")
    'fd_limit'
    """
    table = WORDS.tables["known"]
    for text in texts:
        names = {found.entry.name for found in look_up(text) if not found.is_partial}
        by_message = (known for known in table if names & {*known["messages"]})
        by_text = (known for known in table if re.search(known["text"], text, re.MULTILINE))
        for known in (*by_message, *by_text):
            return str(known["problem"])
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
            return WORDS.check(name, Outcome.SKIP, _said("before"))
        check: Check = judge(name, result)
        return check

    def _passed(self, name: str, says: Text, seconds: float | None = None) -> Check:
        return WORDS.check(name, Outcome.PASS, says, seconds=seconds)

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
        figures = {"limit": format_bytes(result.limit_bytes), "seconds": format_seconds(result.seconds)}
        blanks = {**dict.fromkeys(_BLANKS, _in_hand(result)), **figures, "target": self.target, **blanks}
        lines = _trace(result.error.get("traceback") or (result.said if result.death is not None else ""))
        failed = (result.error, *result.facts.get("bad", ()))
        if any(one.get("name") == "SystemExit" for one in failed):  # what it printed says why
            lines += tuple(Text(one, one) for one in result.said.strip().splitlines()[-2:])
        return WORDS.trouble(
            name,
            problem,
            blanks,
            evidence=tuple(dict.fromkeys((*evidence, *lines))),
            outcome=Outcome.WARN if is_warning else Outcome.FAIL,
            share=0.0 if is_warning else 1.0,
            is_certain=is_certain,
            seconds=result.seconds,
        )

    def _broken(self, name: str, result: StageResult, *, otherwise: str, hangs: str, **blanks: Any) -> Check:
        """A stage that did not come to its end: by what is known of how it ended, else `otherwise`."""
        named = recognised(result.error.get("traceback", ""), result.said)
        at = _in_hand(result)
        if result.ending is StageEnding.MEMORY:
            took = format_bytes(result.peak_bytes)
            return self._wrong(name, "out_of_memory", result, evidence=(_said("took", took=took, at=at),), took=took)
        if result.ending is StageEnding.HUNG:
            hang = result.hang or Text("", "")
            if named in ("shm_full", "fd_limit"):  # a worker could not send its batch, and nobody tells the loader
                return self._wrong(name, named, result)
            evidence = (_said("where", hang=hang), _said("when", at=at))
            return self._wrong(name, hangs, result, evidence=evidence, **{"said": at, **blanks, "hang": hang})
        if result.death is not None:
            if "MEMORY" in result.death_cause:
                return self._wrong(name, "out_of_memory", result, evidence=(result.death,), took=result.death)
            named = "shm_full" if result.death_cause == "SHM_FULL" else named
            if named and result.death_cause != "MAPPED_FILE":
                return self._wrong(name, named, result, evidence=(result.death,))
            return self._wrong(name, "worker_dies", result, evidence=(_said("when", at=at),), how=result.death)
        said: Any = _first_line(result.error.get("said", ""))
        if named == "needs_main_guard":
            said = next(iter(result.facts.get("starts", ())), said)
        return self._wrong(name, named or otherwise, result, **{**blanks, "said": said, "sample": at})

    # ---------------------------------------------------------------------------------- the stages

    def _import(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            hang = _said("where", hang=result.hang) if result.hang else ""
            return self._broken(name, result, otherwise="import_fails", hangs="import_fails", said=hang)
        facts = result.facts
        what = _said("imported", dataset=facts["dataset"], count=_length(facts), seconds=format_seconds(result.seconds))
        if facts["kind"] == "no_length":
            return self._wrong(name, "no_length", result, part=facts["dataset"])
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
            evidence = (_said("bad", bad=rest, good=facts["num_good"]), *_trace(first["traceback"]))
            problem = "corrupt_sample" if facts["num_good"] else "sample_fails"
            blanks = {"sample": first["sample"], "said": _first_line(first["said"]), "at": first["sample"]}
            return self._wrong(name, named or problem, result, evidence=evidence, took=first["sample"], **blanks)
        if not facts["num_good"]:
            return self._no_samples(name, result)
        if facts["overwritten"]:
            before, behind = facts["overwritten"]
            return self._wrong(name, "shared_buffer", result, sample=before, at=behind)
        times = facts["times"]
        typical = sorted(times)[len(times) // 2]
        says = _said(
            "samples",
            count=facts["num_good"],
            median=format_seconds(typical),
            worst=format_seconds(max(times)),
            size=format_bytes(facts["sample_bytes"]),
        )
        return self._passed(name, says, result.seconds)

    def _loader(self, name: str, result: StageResult) -> Check:
        if result.facts.get("in_collate"):
            return self._collation(name, result)
        if not result.is_done:
            return self._broken(name, result, otherwise="sample_fails", hangs="sample_hangs")
        facts = result.facts
        if not facts["num_batches"]:
            return self._no_batches(name, result)
        first, size = format_seconds(facts["times"][0]), format_bytes(facts["batch_bytes"])
        return self._passed(name, _said("batches", count=facts["num_batches"], first=first, size=size), result.seconds)

    def _collation(self, name: str, result: StageResult) -> Check:
        """The samples came, and could not be put together."""
        said, odd = result.error["said"], self.results["sample"].facts["odd"]
        if "NoneType" in said and (nothing := result.facts["nothing"]):
            says = _said("is_none", samples=", ".join(dict.fromkeys(nothing)), said=_first_line(said))
            return self._wrong(name, "collate_fails", result, said=says)
        is_known = self.results["import"].facts["is_default"] and _differ_in_shape(odd)
        if is_known or _UNEQUAL.search(said):
            samples = ", ".join(str(one["sample"]) for one in odd) or _said("of_one_batch")
            return self._wrong(name, "shapes_differ", result, evidence=_odd(odd), samples=samples)
        return self._broken(name, result, otherwise="collate_fails", hangs="")

    def _no_batches(self, name: str, result: StageResult) -> Check:
        given = self.results["import"].facts
        if not given["drop_last"]:
            return self._no_samples(name, result)
        some = _length(given) if given["length"] is not None else _said("samples_of_a_worker")
        return self._wrong(name, "no_batches", result, why=_said("dropped", size=given["batch_size"], some=some))

    def _no_samples(self, name: str, result: StageResult) -> Check:
        given = self.results["import"].facts
        why = "no_stream" if given["kind"] == "stream" else "len_is_0" if given["length"] == 0 else "no_keys"
        return self._wrong(name, "no_samples", result, why=_said(why))

    def _workers(self, name: str, result: StageResult) -> Check:
        method = name.removeprefix("workers_")
        is_used = self._is_used(method)
        starts = self.results["import"].facts["starts"]
        if result.is_done:
            if not result.facts["num_batches"]:
                return self._no_batches(name, result)
            if result.facts["cuda"]:
                return self._wrong(name, "cuda_in_worker", result, said=result.facts["cuda"], at=result.facts["cuda"])
            if is_used and (pickled := result.facts.get("pickled_bytes", 0)) >= _PICKLED_BYTES:
                size = format_bytes(pickled)
                return self._wrong(name, "copied_dataset", result, is_warning=True, size=size, part="dataset")
            ahead = self._bytes_ahead()
            if is_used and self.shm_free_bytes is not None and ahead > self.shm_free_bytes:
                sizes = {"need": format_bytes(ahead), "free": format_bytes(self.shm_free_bytes)}
                evidence = (_said("ahead", **sizes),)
                return self._wrong(name, "shm_full", result, evidence=evidence, is_warning=True, is_certain=False)
            if method != "fork" and starts:
                return self._wrong(name, "needs_main_guard", result, said=starts[0])
            first = format_seconds(result.facts["times"][0])
            return self._passed(name, _said("worked", count=result.facts["num_batches"], first=first), result.seconds)
        part = result.facts.get("unpicklable", ())
        if part and recognised(result.error.get("traceback", "")) in ("", "unpicklable"):
            evidence = (Text(part[1], part[1]),)
            forked = self.results.get("workers_fork")
            handle = _shared(forked) if forked is not None else None
            if handle is not None and part[0].startswith(str(handle["part"])):  # one cause, which is told already
                check = self._wrong(name, "shared_handle", result, is_warning=not is_used, **handle)
                return replace(check, says=_said("unpicklable", part=part[0]), finding=None)
            return self._wrong(name, "unpicklable", result, evidence=evidence, part=part[0])
        if method != "fork" and starts and result.ending in (StageEnding.FAILED, StageEnding.HUNG):
            return self._wrong(name, "needs_main_guard", result, said=starts[0])
        if method == "fork" and (handle := _shared(result)) is not None:
            return self._wrong(name, "shared_handle", result, **handle)
        if result.facts.get("in_collate"):
            return self._collation(name, result)
        hangs = "worker_hangs"
        if method == "fork" and result.ending is StageEnding.HUNG:
            other = self.results.get("workers_spawn")
            if other is not None and other.is_done:
                hangs = "fork_deadlock"
            elif result.is_deadlock and (other is None or other.ending is not StageEnding.HUNG):  # no other way yet
                hangs = "fork_deadlock_for_all"
        return self._broken(name, result, otherwise="sample_fails", hangs=hangs)

    def _bytes_ahead(self) -> int:
        """What the user's own loader has in /dev/shm: the batches of all its workers that are ahead."""
        given, batches = self.results["import"].facts, self.results["loader"].facts
        return (given["num_workers"] or 0) * (given["prefetch_factor"] or 2) * int(batches["batch_bytes"])

    def _benchmark(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            said = _first_line(result.error.get("said", ""))
            if result.ending is not StageEnding.HUNG and result.in_hand.get("what") == "torch":
                is_told = "in DataLoader worker process" in result.error.get("traceback", "")  # by a worker that lives
                lost, how = "sample_fails" if is_told else "worker_dies", _said("ended", said=said)
                return self._broken(name, result, otherwise=lost, hangs="", how=how)
            says = _said("unmeasured", said=said or _in_hand(result))
            return WORDS.check(name, Outcome.SKIP, says, seconds=result.seconds)
        rates = {kind: three_digits(rate) for kind, rate in result.facts["rates"].items()}
        return self._passed(name, _said("rates", count=result.facts["num_workers"], **rates), result.seconds)

    # ---------------------------------------------------------------------------------- looks at what the forks did

    def _looks(self, forked: StageResult) -> Iterator[Check]:
        facts = forked.facts
        if not forked.is_done:
            return
        if (handle := _shared(forked)) is not None:
            seen = bool(facts["moved"])
            yield self._wrong("handles", "shared_handle", forked, is_certain=seen, is_warning=not seen, **handle)
        else:
            yield self._passed("handles", _said("no_handles"))
        copied = sum(size for size, _, _ in facts["copied"])
        if copied >= _COPIED_BYTES:
            _, part, count = facts["copied"][0]
            told: dict[str, Any] = {"part": part, "size": format_bytes(copied)}
            evidence = (_said("copied", count=count, **told),)
            yield self._wrong("copies", "copied_dataset", forked, evidence=evidence, is_warning=True, **told)
        else:
            yield self._passed("copies", _said("not_copied", size=format_bytes(copied)))
        yield from self._random(forked)
        yield from self._split(forked)

    def _random(self, forked: StageResult) -> Iterator[Check]:
        if "drawn" not in forked.facts:
            return
        first, second = forked.facts["drawn"]
        is_varied = all(len(set(drawn)) > 1 for drawn in first)
        same = "same_workers" if len(first) > 1 and first[0] == first[1] else "same_passes" if first == second else ""
        if is_varied and same:
            yield self._wrong("random", "frozen_random", forked, evidence=(_said(same, count=len(first[0])),))
        else:
            yield self._passed("random", _said("varied"))

    def _split(self, forked: StageResult) -> Iterator[Check]:
        if self.results["import"].facts["kind"] != "stream":
            return
        workers = [set(digests) for digests in forked.facts["by_worker"]]
        is_telling = all(len(set(digests)) > len(digests) / 2 for digests in forked.facts["by_worker"])
        if len(workers) < 2 or min(map(len, workers)) < 2 or not is_telling:  # samples that look alike tell nothing
            return
        both = len(workers[0] & workers[1])
        if both >= min(len(workers[0]), len(workers[1])) / 2:
            yield self._wrong("split", "not_split", forked, evidence=(_said("both", count=both),))
        else:
            yield self._passed("split", _said("split"))


# ------------------------------------------------------------------------------------------ in words


def _in_hand(result: StageResult) -> Text:
    at = result.in_hand
    if samples := at.get("samples"):
        return _said("in_workers", samples=", ".join(samples))
    if "sample" in at:
        return _said("sample", sample=at["sample"])
    if "number" in at:
        return _said("batch", number=at["number"])
    return Text(at["what"], at["what"]) if "what" in at else _said("nothing_yet")


def _length(facts: Mapping[str, Any]) -> Text:
    return _said("length", count=facts["length"]) if facts["length"] is not None else _said(facts["kind"])


def _first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return lines[-1 if "in DataLoader worker process" in lines[0] else 0]  # torch's wrapper says nothing of the error


def _trace(traceback: str) -> tuple[Text, ...]:
    """The place of the user's code, and the error itself."""
    lines = [line.strip() for line in traceback.strip().splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ") and is_theirs(line)]
    return tuple(Text(line, line) for line in (*places[-1:], *lines[-1:]))


def _shared(result: StageResult) -> dict[str, Any] | None:
    """The handle that workers used though it was opened before them; None where there is none."""
    facts = result.facts
    by_fd = {one["fd"]: one for one in facts.get("handles", ())}
    for moved in facts.get("moved", ()):
        name = by_fd[moved["fd"]]["name"] if moved["fd"] in by_fd else _said("some_file")
        why, evidence = _said("one_position"), (_said("moved", path=moved["path"]),)
        return {"part": name, "path": moved["path"], "evidence": evidence, "why": why}
    marked = {(one["name"], one["fd"]) for one in facts.get("kept", ()) if one["is_marked"]}
    for one in by_fd.values():
        if one["is_forbidden"] and ((one["name"], one["fd"]) in marked or not result.is_done):
            evidence = (_said("inherited", part=one["name"], kind=one["kind"]),)
            return {"part": one["name"], "path": one["path"], "evidence": evidence, "why": _said("forbidden")}
    return None


def _differ_in_shape(odd: list[dict[str, Any]]) -> bool:
    """Whether two samples have the same things in them, and not the same sizes of them."""
    kinds = [{name: kind for name, kind, *_ in one["form"]} for one in odd]
    return len(kinds) > 1 and kinds[0] == kinds[1]


def _odd(odd: list[dict[str, Any]]) -> tuple[Text, ...]:
    said = [f"sample {one['sample']}: {_form(one['form'])}" for one in odd]
    return tuple(Text(one, one.replace("sample", "样本", 1)) for one in said)


def _form(form: list[Any]) -> str:
    return ", ".join(f"{name} {kind}{tuple(shape) if shape else ''}".strip() for name, kind, shape, *_ in form)[:200]
