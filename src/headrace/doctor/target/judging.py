"""What came of the stages, judged: a check for each, a finding with its cause where one failed. Pure.

Its sentences are in `problems.toml`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.knowledge import look_up
from headrace.model import Text, format_bytes, format_seconds, three_digits

from ..checks import Check, Outcome
from .inspecting import is_theirs
from .stages import INIT_FN, WORDS, StageEnding, StageResult

_SLOW_IMPORT_S = 8.0
_COPIED_BYTES = 48 << 20  # for each worker
_PICKLED_BYTES = 256 << 20
_SLOW_S, _SLOW_TIMES, _FEW = 1.0, 20, 8  # one sample among so many others takes longer than they by so much
_BLANKS = ("at", "took", "path", "why", "size", "sample", "samples")  # what is in hand, unless they are told
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
        workers, told = {"workers_fork": self._workers, "workers_spawn": self._workers}, {""}
        for name, judge in {**in_process, **workers, "benchmark": self._benchmark}.items():
            if (result := self.results.get(name)) is None:
                yield WORDS.check(name, Outcome.SKIP, _said("before"))
                continue
            looks = self._looks(result) if name == "workers_fork" and result.is_done else ()
            for check in (judge(name, result), *looks):
                if name == "benchmark" and check.problem and told > {""}:  # it meets what was told before
                    check = replace(check, outcome=Outcome.SKIP, problem="")
                yield replace(check, finding=None) if check.problem in told else check
                told.add(check.problem)

    @property
    def _imported(self) -> Mapping[str, Any]:
        return self.results["import"].facts

    def _is_used(self, name: str) -> bool:
        """Whether a look is at workers as the user's are made; those of a forkserver start anew, too."""
        is_forked: bool = self._imported["start_method"] == "fork"
        return is_forked == (name != "workers_spawn")

    # ---------------------------------------------------------------------------------- making checks

    def _passed(self, name: str, result: StageResult, says: Text) -> Check:
        took = result.seconds if name in self.results else None  # else it is a look at what a stage did
        return WORDS.check(name, Outcome.PASS, says, seconds=took)

    def _wrong(
        self,
        name: str,
        problem: str,
        result: StageResult,
        *,
        evidence: tuple[Text, ...] = (),
        outcome: Outcome = Outcome.FAIL,
        is_certain: bool = True,
        **blanks: Any,
    ) -> Check:
        at, error = _in_hand(result), result.error
        known = {
            "said": _first_line(error.get("said", "")) or (_said("where", hang=result.hang) if result.hang else at),
            "how": result.death,
            "hang": result.hang,
            "limit": format_bytes(result.limit_bytes),
            "seconds": format_seconds(result.seconds),
            "target": self.target,
            "part": "dataset",
            "start": next(iter(self._imported.get("starts", ())), "?"),
        }
        lines = _trace(error.get("traceback") or (result.said if result.death is not None else ""))
        if "SystemExit" in (error.get("name"), *(one["name"] for one in result.facts.get("bad", ()))):
            lines += tuple(Text(one, one) for one in result.said.strip().splitlines()[-2:])  # what it printed says why
        outcome = outcome if name not in _OF_WORKERS or self._is_used(name) else Outcome.WARN
        return WORDS.trouble(
            name,
            problem,
            {**dict.fromkeys(_BLANKS, at), **known, **blanks},
            evidence=tuple(dict.fromkeys((*evidence, *lines))),
            outcome=outcome,
            share=1.0 if outcome is Outcome.FAIL else 0.0,
            is_certain=is_certain,
            seconds=result.seconds,
        )

    def _broken(self, name: str, result: StageResult, *, otherwise: str, hangs: str) -> Check:
        """A stage that did not come to its end: by what is known of how it ended, else `otherwise`."""
        named, when = recognised(result.error.get("traceback", ""), result.said), _said("when", at=_in_hand(result))
        if result.ending is StageEnding.MEMORY or "MEMORY" in result.death_cause:
            took = result.death or _said("took", took=format_bytes(result.peak_bytes), at=_in_hand(result))
            return self._wrong(name, "out_of_memory", result, took=took)
        if result.death is not None:
            named = "shm_full" if result.death_cause == "SHM_FULL" else named
            if named and result.death_cause != "MAPPED_FILE":
                return self._wrong(name, named, result, evidence=(result.death,))
            return self._wrong(name, "worker_dies", result, evidence=(when,))
        if result.ending is StageEnding.HUNG and named not in ("shm_full", "fd_limit"):
            if "in _feed" in result.said:  # a worker could not send its batch, and nobody tells the loader
                return self._wrong(name, "batch_not_sent", result, said=result.said.strip().splitlines()[-1])
            return self._wrong(name, hangs, result, evidence=(_said("where", hang=result.hang), when))
        if INIT_FN in result.in_hand.get("samples", ()) and "._init_fn(worker)" in result.error.get("traceback", ""):
            otherwise = "init_fn_fails"
        return self._wrong(name, named or otherwise, result)

    # ---------------------------------------------------------------------------------- the stages

    def _import(self, name: str, result: StageResult) -> Check:
        facts = result.facts
        if not result.is_done:
            return self._broken(name, result, otherwise="import_fails", hangs="import_fails")
        what = _said("imported", dataset=facts["dataset"], count=_length(facts), seconds=format_seconds(result.seconds))
        if facts["kind"] == "no_length":
            return self._wrong(name, "no_length", result, part=facts["dataset"])
        if facts["import_s"] >= _SLOW_IMPORT_S:
            took = format_seconds(facts["import_s"])
            return self._wrong(name, "slow_import", result, evidence=(what,), outcome=Outcome.WARN, took=took)
        return self._passed(name, result, what)

    def _sample(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            return self._broken(name, result, otherwise="sample_fails", hangs="sample_hangs")
        facts, bad, times, stated = result.facts, result.facts["bad"], result.facts["times"], self._imported["stated"]
        if bad:
            named = recognised(*(one["traceback"] for one in bad))
            keys = [str(one["sample"]) for one in bad]
            evidence = (_said("bad", bad=", ".join(keys), good=facts["num_good"]),)
            problem = named or ("corrupt_sample" if facts["num_good"] else "sample_fails")
            return self._wrong(name, problem, result, evidence=evidence, sample=keys[0], at=keys[0], took=keys[0])
        if not facts["num_good"]:
            return self._nothing(name, result)
        if facts["overwritten"]:
            before, behind = facts["overwritten"]
            return self._wrong(name, "shared_buffer", result, sample=before, at=behind)
        median, worst = sorted(times)[len(times) // 2], max(times)
        told = {"median": format_seconds(median), "worst": format_seconds(worst), "count": facts["num_good"]}
        if len(times) >= _FEW and worst >= max(_SLOW_S, _SLOW_TIMES * median) and worst > times[0]:  # which makes ready
            return self._wrong(name, "slow_sample", result, outcome=Outcome.NOTE, sample=facts["slowest"], **told)
        if stated is not None and (facts["num_good"] > stated or (facts["has_ended"] and facts["num_good"] < stated)):
            return self._wrong(name, "wrong_length", result, outcome=Outcome.NOTE, part=stated, **told)
        return self._passed(name, result, _said("samples", size=format_bytes(facts["sample_bytes"]), **told))

    def _loader(self, name: str, result: StageResult) -> Check:
        facts = result.facts
        if not result.is_done:
            return self._fails(name, result, hangs="sample_hangs")
        if not facts["times"]:
            return self._nothing(name, result)
        first, size = format_seconds(facts["times"][0]), format_bytes(facts["batch_bytes"])
        return self._passed(name, result, _said("batches", count=len(facts["times"]), first=first, size=size))

    def _fails(self, name: str, result: StageResult, *, hangs: str) -> Check:
        """No batch came: often the samples came, and could not be put together."""
        if not result.facts.get("in_collate"):
            return self._broken(name, result, otherwise="sample_fails", hangs=hangs)
        said, samples = result.error["said"], result.facts["samples"]
        nothing = [str(one["sample"]) for one in samples if any(kind == "NoneType" for _, kind, *_ in one["form"])]
        if "NoneType" in said and nothing:
            says = _said("is_none", samples=", ".join(dict.fromkeys(nothing)), said=_first_line(said))
            return self._wrong(name, "collate_fails", result, said=says)
        odd = _of_other_shape(samples)
        if (odd and self._imported["is_default"]) or _UNEQUAL.search(said):
            which = ", ".join(str(one["sample"]) for one in odd) or _said("of_one_batch")
            return self._wrong(name, "shapes_differ", result, evidence=tuple(map(_form, odd)), samples=which)
        return self._broken(name, result, otherwise="collate_fails", hangs=hangs)

    def _nothing(self, name: str, result: StageResult) -> Check:
        """No sample came; or they did, and none of the batches was full."""
        given = self._imported
        if name != "sample" and given["drop_last"]:
            some = _length(given) if given["length"] is not None else _said("samples_of_a_worker")
            return self._wrong(name, "no_batches", result, why=_said("dropped", size=given["batch_size"], some=some))
        why = "no_stream" if given["kind"] == "stream" else "len_is_0" if given["length"] == 0 else "no_keys"
        return self._wrong(name, "no_samples", result, why=_said(why))

    def _workers(self, name: str, result: StageResult) -> Check:
        facts, is_used = result.facts, self._is_used(name)
        is_forked, starts = name == "workers_fork", self._imported["starts"]
        if result.is_done:
            if not facts["times"]:
                return self._nothing(name, result)
            if is_used and (pickled := facts.get("pickled_bytes", 0)) >= _PICKLED_BYTES:
                size = format_bytes(pickled)
                return self._wrong(name, "copied_dataset", result, outcome=Outcome.WARN, size=size, part="dataset")
            # what the user's own loader has in /dev/shm: the batches of all its workers that are ahead
            given, free = self._imported, self._imported["shm_free_bytes"]
            ahead = given["num_workers"] * (given["prefetch_factor"] or 2) * self.results["loader"].facts["batch_bytes"]
            if is_used and free is not None and ahead > free:
                says = _said("ahead", need=format_bytes(ahead), free=format_bytes(free))
                return self._wrong(name, "shm_full", result, evidence=(says,), outcome=Outcome.WARN, is_certain=False)
            if not is_forked and starts:
                return self._wrong(name, "needs_main_guard", result)
            first = format_seconds(facts["times"][0])
            return self._passed(name, result, _said("worked", count=len(facts["times"]), first=first))
        part = facts.get("unpicklable", ())
        if part and recognised(result.error.get("traceback", "")) in ("", "unpicklable"):
            forked = self.results.get("workers_fork")
            handle = _shared(forked) if forked is not None else None
            if handle is not None and part[0].startswith(str(handle["part"])):  # one cause, which is told already
                check = self._wrong(name, "shared_handle", result, **handle)
                return replace(check, says=_said("unpicklable", part=part[0]), finding=None)
            return self._wrong(name, "unpicklable", result, evidence=(Text(part[1], part[1]),), part=part[0])
        if not is_forked and starts and result.ending in (StageEnding.FAILED, StageEnding.HUNG):
            return self._wrong(name, "needs_main_guard", result)
        if is_forked and (handle := _shared(result)) is not None:
            return self._wrong(name, "shared_handle", result, **handle)
        hangs, other = "worker_hangs", self.results.get("workers_spawn")
        if is_forked and other is not None and other.is_done:
            hangs = "fork_deadlock"
        elif is_forked and result.is_deadlock and (other is None or other.ending is not StageEnding.HUNG):
            hangs = "fork_deadlock_for_all"  # no other way yet
        return self._fails(name, result, hangs=hangs)

    def _benchmark(self, name: str, result: StageResult) -> Check:
        rates = {kind: three_digits(rate) for kind, rate in result.facts.get("rates", {}).items()}
        if result.is_done:
            return self._passed(name, result, _said("rates", count=result.facts["num_workers"], **rates))
        if result.ending is not StageEnding.HUNG and result.in_hand.get("what") == "torch":
            return self._broken(name, result, otherwise="sample_fails", hangs="")
        says = _said("unmeasured", said=_first_line(result.error.get("said", "")) or _in_hand(result))
        return WORDS.check(name, Outcome.SKIP, says, seconds=result.seconds)

    # ---------------------------------------------------------------------------------- looks at what the forks did

    def _looks(self, forked: StageResult) -> Iterator[Check]:
        facts = forked.facts
        if (handle := _shared(forked)) is not None:
            seen = bool(facts["moved"])
            outcome = Outcome.FAIL if seen else Outcome.WARN
            yield self._wrong("handles", "shared_handle", forked, is_certain=seen, outcome=outcome, **handle)
        else:
            yield self._passed("handles", forked, _said("no_handles"))
        copied = format_bytes(size := sum(size for size, _, _ in facts["copied"]))
        if size >= _COPIED_BYTES:
            _, part, count = facts["copied"][0]
            told: dict[str, Any] = {"part": part, "size": copied, "outcome": Outcome.WARN, "is_certain": False}
            evidence = (_said("copied", part=part, count=count, size=copied),)
            yield self._wrong("copies", "copied_dataset", forked, evidence=evidence, **told)
        else:
            yield self._passed("copies", forked, _said("not_copied", size=copied))
        if "drawn" in facts:
            first, second = facts["drawn"]
            are_alike = len(first) > 1 and first[0] == first[1]
            same = "same_workers" if are_alike else "same_passes" if first == second else ""
            if same and all(len(set(drawn)) > 1 for drawn in first):
                yield self._wrong("random", "frozen_random", forked, evidence=(_said(same, count=len(first[0])),))
            else:
                yield self._passed("random", forked, _said("varied"))
        workers = [set(digests) for digests in facts["by_worker"]]
        is_telling = all(len(set(digests)) > len(digests) / 2 for digests in facts["by_worker"])
        # samples that look alike tell nothing
        if self._imported["kind"] == "stream" and len(workers) > 1 and min(map(len, workers)) > 1 and is_telling:
            both = len(workers[0] & workers[1])
            if both >= min(len(workers[0]), len(workers[1])) / 2:
                yield self._wrong("split", "not_split", forked, evidence=(_said("both", count=both),))
            else:
                yield self._passed("split", forked, _said("split"))


# ------------------------------------------------------------------------------------------ in words


def _in_hand(result: StageResult) -> Text:
    at = result.in_hand
    if INIT_FN in (samples := at.get("samples", ())):
        return Text(INIT_FN, INIT_FN)
    if samples:
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
    handles, kept = result.facts.get("handles", ()), result.facts.get("kept", ())
    for path in result.facts.get("moved", ()):
        part = next((one["name"] for one in handles if one["path"] == path), _said("some_file"))
        return {"part": part, "path": path, "evidence": (_said("moved", path=path),), "why": _said("one_position")}
    for one in handles:
        if one["is_forbidden"] and (one in kept or not result.is_done):
            evidence = (_said("inherited", part=one["name"], kind=one["kind"]),)
            return {"part": one["name"], "path": one["path"], "evidence": evidence, "why": _said("forbidden")}
    return None


def _of_other_shape(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first sample, and one that has the same things in it, and not the same sizes of them."""
    parts = [([row[:2] for row in one["form"]], [row[2] for row in one["form"]]) for one in samples]
    odd = (at for at, (kinds, sizes) in enumerate(parts) if kinds == parts[0][0] and sizes != parts[0][1])
    return [samples[0], samples[at]] if (at := next(odd, 0)) else []


def _form(sample: dict[str, Any]) -> Text:
    rows = (f"{name} {kind}{tuple(shape) or ''}".strip() for name, kind, shape, *_ in sample["form"])
    said = f"{sample['sample']}: {', '.join(rows)[:200]}"
    return Text(f"sample {said}", f"样本 {said}")
