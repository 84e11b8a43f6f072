"""What came of the stages, judged: a check for each, a finding with its cause where one failed. Pure.

Its sentences are in `problems.toml`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.knowledge import look_up
from headrace.model import Text, format_bytes, format_seconds, three_digits

from ..checks import Check, Outcome, Seen, text_of
from .inspecting import is_theirs
from .stages import WORDS, StageEnding, StageResult

_SLOW_IMPORT_S = 8.0
_COPIED_BYTES = 48 << 20  # for each worker
_PICKLED_BYTES = 256 << 20
_SLOW_S, _SLOW_TIMES, _FEW = 1.0, 20, 8  # one sample among so many others takes longer than they by so much
_OF_WORKERS = ("workers_fork", "workers_spawn", "handles", "copies", "random", "split")
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
        for known in table:
            if names & {*known["messages"]} or re.search(known["text"], text, re.MULTILINE):
                return str(known["problem"])
    return ""


@dataclass(frozen=True)
class Judge:
    """All that came of a target's stages."""

    target: str
    results: Mapping[str, StageResult]

    def checks(self) -> Iterator[Check]:
        """Yield a check for each stage, and for each look that a stage allows; of each problem one finding."""
        in_process = {"import": self._import, "sample": self._sample, "loader": self._loader}
        workers = {"workers_fork": self._workers, "workers_spawn": self._workers}
        looks = {"handles": _handles, "copies": _copies, "random": _random, "split": self._split}
        told = {""}
        for stage, judge in {**in_process, **workers, "benchmark": self._benchmark}.items():
            if (result := self.results.get(stage)) is None:
                yield WORDS.check(stage, Seen("before"))
                continue
            seen = {stage: judge(stage, result)}
            if stage == "workers_fork" and result.is_done:
                seen |= {name: found for name, look in looks.items() if (found := look(result)) is not None}
            for name, one in seen.items():
                check = self._check(name, one, result)
                if name == "benchmark" and check.problem and told > {""}:  # it meets what was told before
                    check = replace(check, outcome=Outcome.SKIP, problem="")
                yield replace(check, finding=None) if check.problem in told else check
                told.add(check.problem)

    def _check(self, name: str, seen: Seen, result: StageResult) -> Check:
        """Fill in what all problems have in common: what was in hand, what was said, where in the user's code."""
        at, error = _in_hand(result), result.error
        known = {
            **dict.fromkeys(("at", "took"), at),
            "said": _first_line(error.get("said", "")) or (_said("where", hang=result.hang) if result.hang else at),
            "how": result.death,
            "hang": result.hang,
            "limit": format_bytes(result.limit_bytes),
            "seconds": format_seconds(result.seconds),
            "target": self.target,
            "part": "dataset",
        }
        lines = _trace(error.get("traceback") or (result.said if result.death is not None else ""))
        if "SystemExit" in (error.get("name"), *(one["name"] for one in result.facts.get("bad", ()))):
            lines += tuple(map(text_of, result.said.strip().splitlines()[-2:]))  # what it printed says why
        # what fails only by the start method that the user's workers do not have is a warning
        outcome = seen.outcome if name not in _OF_WORKERS or self._is_used(name) else Outcome.WARN
        evidence = tuple(dict.fromkeys((*seen.evidence, *lines)))
        seen = seen._replace(blanks={**known, **seen.blanks}, evidence=evidence, outcome=outcome)
        return WORDS.check(name, seen, seconds=result.seconds if name in self.results else None)

    @property
    def _imported(self) -> Mapping[str, Any]:
        return self.results["import"].facts

    def _is_used(self, name: str) -> bool:
        """Whether a look is at workers as the user's are made; those of a forkserver start anew, too."""
        is_forked: bool = self._imported["start_method"] == "fork"
        return is_forked == (name != "workers_spawn")

    def _broken(self, result: StageResult, *, otherwise: str, hangs: str) -> Seen:
        """A stage that did not come to its end: by what is known of how it ended, else `otherwise`."""
        named, when = recognised(result.error.get("traceback", ""), result.said), _said("when", at=_in_hand(result))
        if result.ending is StageEnding.MEMORY or "MEMORY" in result.death_cause:
            took = result.death or _said("took", took=format_bytes(result.peak_bytes), at=_in_hand(result))
            return Seen("out_of_memory", {"took": took})
        if result.death is not None:
            named = "shm_full" if result.death_cause == "SHM_FULL" else named
            is_named = named and result.death_cause != "MAPPED_FILE"
            return Seen(named, {}, (result.death,)) if is_named else Seen("worker_dies", {}, (when,))
        if result.ending is StageEnding.HUNG and named not in ("shm_full", "fd_limit"):
            if "in _feed" in result.said:  # a worker could not send its batch, and nobody tells the loader
                return Seen("batch_not_sent", {"said": result.said.strip().splitlines()[-1]})
            return Seen(hangs, {}, (_said("where", hang=result.hang), when))
        is_of_start = "._init_fn(worker)" in result.error.get("traceback", "")  # a line of `WorkerStart`
        return Seen(named or ("init_fn_fails" if is_of_start else otherwise))

    # ---------------------------------------------------------------------------------- the stages

    def _import(self, _: str, result: StageResult) -> Seen:
        facts = result.facts
        if not result.is_done:
            return self._broken(result, otherwise="import_fails", hangs="import_fails")
        if facts["kind"] == "no_length":
            return Seen("no_length", {"part": facts["dataset"]})
        what = {"dataset": facts["dataset"], "count": _length(facts), "seconds": format_seconds(result.seconds)}
        if facts["import_s"] >= _SLOW_IMPORT_S:
            return Seen("slow_import", {"took": format_seconds(facts["import_s"])}, (_said("imported", **what),))
        return Seen("imported", what)

    def _sample(self, name: str, result: StageResult) -> Seen:
        if not result.is_done:
            return self._broken(result, otherwise="sample_fails", hangs="sample_hangs")
        facts, bad, times, stated = result.facts, result.facts["bad"], result.facts["times"], self._imported["stated"]
        if bad:
            named = recognised(*(one["traceback"] for one in bad))
            keys = [str(one["sample"]) for one in bad]
            evidence = (_said("bad", bad=", ".join(keys), good=facts["num_good"]),)
            problem = named or ("corrupt_sample" if facts["num_good"] else "sample_fails")
            return Seen(problem, dict.fromkeys(("sample", "at", "took"), keys[0]), evidence)
        if not facts["num_good"]:
            return self._nothing(name)
        if facts["overwritten"]:
            before, behind = facts["overwritten"]
            return Seen("shared_buffer", {"sample": before, "at": behind})
        median, worst = sorted(times)[len(times) // 2], max(times)
        told = {"median": format_seconds(median), "worst": format_seconds(worst), "count": facts["num_good"]}
        if len(times) >= _FEW and worst >= max(_SLOW_S, _SLOW_TIMES * median) and worst > times[0]:  # which makes ready
            return Seen("slow_sample", {**told, "sample": facts["slowest"]})
        if stated is not None and (facts["num_good"] > stated or (facts["has_ended"] and facts["num_good"] < stated)):
            return Seen("wrong_length", {**told, "part": stated})
        return Seen("samples", {**told, "size": format_bytes(facts["sample_bytes"])})

    def _loader(self, name: str, result: StageResult) -> Seen:
        facts = result.facts
        if not result.is_done:
            return self._fails(result, hangs="sample_hangs")
        if not facts["times"]:
            return self._nothing(name)
        first, size = format_seconds(facts["times"][0]), format_bytes(facts["batch_bytes"])
        return Seen("batches", {"count": len(facts["times"]), "first": first, "size": size})

    def _fails(self, result: StageResult, *, hangs: str) -> Seen:
        """No batch came: often the samples came, and could not be put together."""
        if not result.facts.get("in_collate"):
            return self._broken(result, otherwise="sample_fails", hangs=hangs)
        said, samples = result.error["said"], result.facts["samples"]
        nothing = [str(one["sample"]) for one in samples if any(kind == "NoneType" for _, kind, *_ in one["form"])]
        if "NoneType" in said and nothing:
            says = _said("is_none", samples=", ".join(dict.fromkeys(nothing)), said=_first_line(said))
            return Seen("collate_fails", {"said": says})
        odd = _of_other_shape(samples)
        if (odd and self._imported["is_default"]) or _UNEQUAL.search(said):
            which = ", ".join(str(one["sample"]) for one in odd) or _said("of_one_batch")
            return Seen("shapes_differ", {"samples": which}, tuple(map(_form, odd)))
        return self._broken(result, otherwise="collate_fails", hangs=hangs)

    def _nothing(self, name: str) -> Seen:
        """No sample came; or they did, and none of the batches was full."""
        given = self._imported
        if name != "sample" and given["drop_last"]:
            some = _length(given) if given["length"] is not None else _said("samples_of_a_worker")
            return Seen("no_batches", {"why": _said("dropped", size=given["batch_size"], some=some)})
        why = "no_stream" if given["kind"] == "stream" else "len_is_0" if given["length"] == 0 else "no_keys"
        return Seen("no_samples", {"why": _said(why)})

    def _workers(self, name: str, result: StageResult) -> Seen:
        facts, is_used = result.facts, self._is_used(name)
        is_forked, starts = name == "workers_fork", self._imported["starts"]
        if result.is_done:
            if not facts["times"]:
                return self._nothing(name)
            if is_used and (pickled := facts.get("pickled_bytes", 0)) >= _PICKLED_BYTES:
                return Seen("copied_dataset", {"size": format_bytes(pickled)})
            # what the user's own loader has in /dev/shm: the batches of all its workers that are ahead
            given, free = self._imported, self._imported["shm_free_bytes"]
            ahead = given["num_workers"] * (given["prefetch_factor"] or 2) * self.results["loader"].facts["batch_bytes"]
            if is_used and free is not None and ahead > free:
                says = _said("ahead", need=format_bytes(ahead), free=format_bytes(free))
                return Seen("shm_full", {}, (says,), Outcome.WARN, is_certain=False)
            if not is_forked and starts:
                return Seen("needs_main_guard")
            return Seen("worked", {"count": len(facts["times"]), "first": format_seconds(facts["times"][0])})
        part, forked = facts.get("unpicklable", ()), self.results.get("workers_fork")
        if part and recognised(result.error.get("traceback", "")) in ("", "unpicklable"):
            if forked and (handle := _shared_handle(forked)) and part[0].startswith(str(handle.blanks["part"])):
                return Seen("unpicklable_handle", {"part": part[0]})  # one cause, which is told already
            return Seen("unpicklable", {"part": part[0]}, (text_of(part[1]),))
        if not is_forked and starts and result.ending in (StageEnding.FAILED, StageEnding.HUNG):
            return Seen("needs_main_guard")
        if is_forked and (handle := _shared_handle(result)) is not None:
            return handle
        hangs, other = "worker_hangs", self.results.get("workers_spawn")
        if is_forked and other is not None and other.is_done:
            hangs = "fork_deadlock"
        elif is_forked and result.is_deadlock and (other is None or other.ending is not StageEnding.HUNG):
            hangs = "fork_deadlock_for_all"  # no other way yet
        return self._fails(result, hangs=hangs)

    def _benchmark(self, _: str, result: StageResult) -> Seen:
        rates = {kind: three_digits(rate) for kind, rate in result.facts.get("rates", {}).items()}
        if result.is_done:
            return Seen("rates", {"count": result.facts["num_workers"], **rates})
        if result.ending is not StageEnding.HUNG and result.in_hand.get("what") == "torch":
            return self._broken(result, otherwise="sample_fails", hangs="")
        return Seen("unmeasured", {"said": _first_line(result.error.get("said", "")) or _in_hand(result)})

    def _split(self, forked: StageResult) -> Seen | None:
        """Whether the workers of a stream give other samples each; samples that look alike tell nothing."""
        workers = [set(digests) for digests in forked.facts["by_worker"]]
        is_telling = all(len(set(digests)) > len(digests) / 2 for digests in forked.facts["by_worker"])
        if self._imported["kind"] != "stream" or len(workers) < 2 or min(map(len, workers)) < 2 or not is_telling:
            return None
        both = len(workers[0] & workers[1])
        is_split = both < min(len(workers[0]), len(workers[1])) / 2
        return Seen("split") if is_split else Seen("not_split", {}, (_said("both", count=both),))


# ------------------------------------------------------------------------------------------ looks at what the forks did


def _handles(forked: StageResult) -> Seen:
    return _shared_handle(forked) or Seen("no_handles")


def _shared_handle(result: StageResult) -> Seen | None:
    """The handle that workers used though it was opened before them; None where there is none."""
    handles, kept = result.facts.get("handles", ()), result.facts.get("kept", ())
    for path in result.facts.get("moved", ()):
        part = next((one["name"] for one in handles if one["path"] == path), _said("some_file"))
        blanks = {"part": part, "path": path, "why": _said("one_position")}
        return Seen("shared_handle", blanks, (_said("moved", path=path),))
    for one in handles:
        if one["is_forbidden"] and (one in kept or not result.is_done):
            blanks = {"part": one["name"], "path": one["path"], "why": _said("forbidden")}
            evidence = (_said("inherited", part=one["name"], kind=one["kind"]),)
            outcome = Outcome.WARN if result.is_done else Outcome.FAIL
            return Seen("shared_handle", blanks, evidence, outcome, is_certain=not result.is_done)
    return None


def _copies(forked: StageResult) -> Seen:
    copied = forked.facts["copied"]
    size = sum(size for size, _, _ in copied)
    if size < _COPIED_BYTES:
        return Seen("not_copied", {"size": format_bytes(size)})
    _, part, count = copied[0]
    blanks = {"part": part, "count": count, "size": format_bytes(size)}
    return Seen("copied_dataset", blanks, (_said("copied", **blanks),), is_certain=False)


def _random(forked: StageResult) -> Seen | None:
    if "drawn" not in forked.facts:
        return None
    first, second = forked.facts["drawn"]
    are_alike = len(first) > 1 and first[0] == first[1]
    same = "same_workers" if are_alike else "same_passes" if first == second else ""
    is_frozen = same and all(len(set(drawn)) > 1 for drawn in first)
    return Seen("frozen_random", {}, (_said(same, count=len(first[0])),)) if is_frozen else Seen("varied")


# ------------------------------------------------------------------------------------------ in words


def _in_hand(result: StageResult) -> Text:
    at = result.in_hand
    if samples := at.get("samples"):
        return _said("in_workers", samples=", ".join(samples))
    if "sample" in at:
        return _said("sample", sample=at["sample"])
    if "number" in at:
        return _said("batch", number=at["number"])
    return text_of(at["what"]) if "what" in at else _said("nothing_yet")


def _length(facts: Mapping[str, Any]) -> Text:
    return _said("length", count=facts["length"]) if facts["length"] is not None else _said(facts["kind"])


def _first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return lines[-1 if "in DataLoader worker process" in lines[0] else 0]  # torch's wrapper says nothing of the error


def _trace(traceback: str) -> tuple[Text, ...]:
    """The place of the user's code, and the error itself."""
    lines = [line.strip() for line in traceback.strip().splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ") and is_theirs(line)]
    return tuple(map(text_of, (*places[-1:], *lines[-1:])))


def _of_other_shape(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first sample, and one that has the same things in it, and not the same sizes of them."""
    parts = [([row[:2] for row in one["form"]], [row[2] for row in one["form"]]) for one in samples]
    odd = (at for at, (kinds, sizes) in enumerate(parts) if kinds == parts[0][0] and sizes != parts[0][1])
    return [samples[0], samples[at]] if (at := next(odd, 0)) else []


def _form(sample: dict[str, Any]) -> Text:
    rows = (f"{name} {kind}{tuple(shape) or ''}".strip() for name, kind, shape, *_ in sample["form"])
    return _said("sample", sample=f"{sample['sample']}: {', '.join(rows)[:200]}")
