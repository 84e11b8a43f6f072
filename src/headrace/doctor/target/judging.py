"""What came of the stages, judged: a check for each, and a finding with its cause where one failed. Pure."""

import os
import re
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.knowledge import look_up
from headrace.model import (
    Confidence,
    Finding,
    Severity,
    Text,
    format_bytes,
    format_seconds,
    three_digits,
)

from ..checks import Check, Outcome
from .problems import PROBLEMS
from .stages import StageEnding, StageResult

_SLOW_IMPORT_S = 8.0
_COPIED_BYTES = 48 << 20  # for each worker
_PICKLED_BYTES = 256 << 20
_MOST_LINES = 3

TITLES = {
    "import": Text("import", "导入"),
    "sample": Text("single samples", "单个样本"),
    "loader": Text("loader in-process", "进程内加载"),
    "workers_fork": Text("workers by fork", "fork worker"),
    "handles": Text("handles across the fork", "跨 fork 的句柄"),
    "copies": Text("memory copied into workers", "worker 中的内存副本"),
    "random": Text("randomness in workers", "worker 中的随机数"),
    "split": Text("samples split between workers", "worker 之间的样本划分"),
    "workers_spawn": Text("workers by spawn", "spawn worker"),
    "benchmark": Text("benchmark", "基准测试"),
}
_BEFORE = Text("not run: what it needs failed before", "未运行：前面的步骤没有通过")

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


def recognised(*texts: str) -> str:
    """Return the problem that an error or what was printed names itself; empty where they name none.

    >>> recognised("RuntimeError: unable to allocate shared memory(shm) for file </torch_1>: No space left on device")
    'shm_full'
    """
    for text in texts:
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
        """Yield a check for each stage, and for each look that a stage allows."""
        for name in ("import", "sample", "loader"):
            yield self._stage(name, getattr(self, f"_{name}"))
        yield self._stage("workers_fork", self._workers)
        if (forked := self.results.get("workers_fork")) is not None:
            yield from self._looks(forked)
        yield self._stage("workers_spawn", self._workers)
        yield self._stage("benchmark", self._benchmark)

    # ---------------------------------------------------------------------------------- making checks

    def _stage(self, name: str, judge: Any) -> Check:
        if (result := self.results.get(name)) is None:
            return Check(name=name, title=TITLES[name], outcome=Outcome.SKIP, says=_BEFORE)
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
        seen = {"target": self.target, "limit": format_bytes(result.limit_bytes), "at": at, "took": at, "said": at}
        blanks = {**seen, "seconds": format_seconds(result.seconds), **blanks}
        title = words.title.filled(**blanks)
        lines = [Text(line, line) for line in _telling_lines(result)]
        finding = Finding(
            cause=words.cause,
            share=0.0 if is_warning else 1.0,
            evidence=(*evidence, *lines) or (title,),
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
            return self._wrong(name, "out_of_memory", result, evidence=(_TOOK.filled(took=took, at=at),), took=took)
        if result.ending is StageEnding.HUNG:
            hang = result.hang or Text("", "")
            if named in ("shm_full", "fd_limit"):  # a worker could not send its batch, and nobody tells the loader
                return self._wrong(name, named, result)
            evidence = (_WHERE.filled(hang=hang), _WHEN.filled(at=at))
            return self._wrong(name, hangs, result, evidence=evidence, **{"said": at, **blanks, "hang": hang})
        if result.death is not None:
            if "MEMORY" in result.death_cause:
                return self._wrong(name, "out_of_memory", result, evidence=(result.death,), took=result.death)
            if result.death_cause == "SHM_FULL" or named in ("shm_full", "fd_limit", "needs_main_guard"):
                return self._wrong(name, named or "shm_full", result, evidence=(result.death,))
            return self._wrong(name, "worker_dies", result, evidence=(_WHEN.filled(at=at),), how=result.death)
        said = result.error.get("said", "")
        said = said.splitlines()[0] if said else ""
        return self._wrong(name, named or otherwise, result, **{**blanks, "said": said, "sample": at})

    # ---------------------------------------------------------------------------------- the stages

    def _import(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            hang = _WHERE.filled(hang=result.hang) if result.hang else ""
            return self._broken(name, result, otherwise="import_fails", hangs="import_fails", said=hang)
        facts = result.facts
        what = _IMPORTED.filled(dataset=facts["dataset"], count=_length(facts), seconds=format_seconds(result.seconds))
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
            evidence = (_BAD.filled(bad=rest, good=facts["num_good"]), *_trace(first["traceback"]))
            problem = "corrupt_sample" if facts["num_good"] else "sample_fails"
            blanks = {"sample": first["sample"], "said": _first_line(first["said"]), "at": first["sample"]}
            return self._wrong(name, named or problem, result, evidence=evidence, took=first["sample"], **blanks)
        if not facts["num_good"]:
            return self._wrong(name, "sample_fails", result, said=_EMPTY, sample="-")
        times = facts["times"]
        typical = sorted(times)[len(times) // 2]
        says = _SAMPLES.filled(
            count=facts["num_good"],
            median=format_seconds(typical),
            worst=format_seconds(max(times)),
            size=format_bytes(facts["sample_bytes"]),
        )
        return self._passed(name, says, result.seconds)

    def _loader(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            odd = self.results["sample"].facts["odd"]
            if result.facts.get("in_collate") and _differ_in_shape(odd):
                return self._wrong(name, "shapes_differ", result, evidence=_odd(odd), **_differing(odd))
            collates = bool(result.facts.get("in_collate"))
            return self._broken(
                name, result, otherwise="collate_fails" if collates else "sample_fails", hangs="sample_hangs"
            )
        facts = result.facts
        if not facts["num_batches"]:
            return self._wrong(name, "sample_fails", result, said=_EMPTY, sample="-")
        first, size = format_seconds(facts["times"][0]), format_bytes(facts["batch_bytes"])
        return self._passed(name, _BATCHES.filled(count=facts["num_batches"], first=first, size=size), result.seconds)

    def _workers(self, name: str, result: StageResult) -> Check:
        method = name.removeprefix("workers_")
        is_used = self.results["import"].facts["start_method"] == method
        if result.is_done:
            first = format_seconds(result.facts["times"][0]) if result.facts["times"] else "-"
            says = _WORKED.filled(count=result.facts["num_batches"], first=first)
            if result.facts["cuda"]:
                return self._wrong(name, "cuda_in_worker", result, said=result.facts["cuda"], at=result.facts["cuda"])
            pickled = result.facts.get("pickled_bytes", 0)
            if is_used and pickled >= _PICKLED_BYTES:
                size = format_bytes(pickled)
                return self._wrong(name, "copied_dataset", result, is_warning=True, size=size, part="dataset")
            return self._passed(name, says, result.seconds)
        part = result.facts.get("unpicklable", ())
        if part and recognised(result.error.get("traceback", "")) in ("", "unpicklable"):
            evidence = (Text(part[1], part[1]),)
            forked = self.results.get("workers_fork")
            handle = _shared(forked) if forked is not None else None
            if handle is not None and part[0].startswith(handle["part"]):  # one cause, which is told already
                check = self._wrong(name, "shared_handle", result, is_warning=not is_used, **handle)
                return replace(check, says=PROBLEMS["unpicklable"].title.filled(part=part[0]), finding=None)
            return self._wrong(name, "unpicklable", result, evidence=evidence, is_warning=not is_used, part=part[0])
        starts = self.results["import"].facts["starts"]
        if method != "fork" and starts and result.ending in (StageEnding.FAILED, StageEnding.HUNG):
            return self._wrong(name, "needs_main_guard", result, is_warning=not is_used, said=starts[0])
        if method == "fork" and (handle := _shared(result)) is not None:
            return self._wrong(name, "shared_handle", result, **handle)
        hangs = "worker_hangs"
        if method == "fork" and result.ending is StageEnding.HUNG:
            other = self.results.get("workers_spawn")
            if result.is_deadlock or (other is not None and other.is_done):
                hangs = "fork_deadlock"
        collates = bool(result.facts.get("in_collate"))
        return self._broken(name, result, otherwise="collate_fails" if collates else "sample_fails", hangs=hangs)

    def _benchmark(self, name: str, result: StageResult) -> Check:
        if not result.is_done:
            says = _UNMEASURED.filled(said=_first_line(result.error.get("said", "")) or str(_in_hand(result)))
            return Check(name=name, title=TITLES[name], outcome=Outcome.SKIP, says=says, seconds=result.seconds)
        rates = {kind: three_digits(rate) for kind, rate in result.facts["rates"].items()}
        return self._passed(name, _RATES.filled(count=result.facts["num_workers"], **rates), result.seconds)

    # ---------------------------------------------------------------------------------- looks at what the forks did

    def _looks(self, forked: StageResult) -> Iterator[Check]:
        facts = forked.facts
        if "handles" in facts and forked.is_done:
            if (handle := _shared(forked)) is not None:
                certain = bool(facts["moved"])
                yield self._wrong("handles", "shared_handle", forked, is_certain=certain, **handle)
            else:
                yield self._passed("handles", _NO_HANDLES)
        if forked.is_done:
            copied = facts.get("copied_bytes", 0)
            if copied >= _COPIED_BYTES:
                part, count = facts["largest"]
                blanks = {"size": format_bytes(copied), "part": part}
                evidence = (_COPIED.filled(part=part, count=count, size=format_bytes(copied)),)
                yield self._wrong("copies", "copied_dataset", forked, evidence=evidence, is_warning=True, **blanks)
            else:
                yield self._passed("copies", _NOT_COPIED.filled(size=format_bytes(copied)))
            yield from self._random(forked)
            yield from self._split(forked)

    def _random(self, forked: StageResult) -> Iterator[Check]:
        passes = forked.facts.get("drawn", ())
        if not passes:
            return
        first, second = passes
        is_varied = all(len(set(drawn)) > 1 for drawn in first)
        if is_varied and len(first) > 1 and first[0] == first[1]:
            yield self._wrong("random", "frozen_random", forked, evidence=(_SAME_WORKERS.filled(count=len(first[0])),))
        elif is_varied and first == second:
            yield self._wrong("random", "frozen_random", forked, evidence=(_SAME_PASSES.filled(count=len(first[0])),))
        else:
            yield self._passed("random", _VARIED)

    def _split(self, forked: StageResult) -> Iterator[Check]:
        if self.results["import"].facts["is_indexed"]:
            return
        workers = [set(digests) for digests in forked.facts["by_worker"]]
        if len(workers) < 2 or min(map(len, workers)) < 2:
            return
        both = len(workers[0] & workers[1])
        if both >= min(len(workers[0]), len(workers[1])) / 2:
            yield self._wrong("split", "not_split", forked, evidence=(_BOTH.filled(count=both),))
        else:
            yield self._passed("split", _SPLIT)


# ------------------------------------------------------------------------------------------ what is said

_IMPORTED = Text("{dataset}, {count}, in {seconds}", "{dataset}，{count}，用时 {seconds}")
_SAMPLES = Text(
    "{count:sample(s)}: typically {median}, at most {worst}, up to {size} each",
    "{count} 个样本：通常 {median}，最慢 {worst}，最大 {size}",
)
_BATCHES = Text(
    "{count:batch(es)}, the first in {first}, {size} each", "{count} 个 batch，首个用时 {first}，每个 {size}"
)
_WORKED = Text("{count:batch(es)}, the first after {first}", "{count} 个 batch，首个在 {first} 后到达")
_RATES = Text(
    "samples/s: {in_process} in-process, {torch} torch and {headrace} headrace with {count:worker(s)}",
    "每秒样本数：进程内 {in_process}；{count} 个 worker 时 torch {torch}，headrace {headrace}",
)
_UNMEASURED = Text("not measured: {said}", "没有测得：{said}")
_NO_HANDLES = Text("none is read on both sides", "没有两边同时读取的句柄")
_NOT_COPIED = Text("{size} of Python objects for each worker", "每个 worker 复制 {size} 的 Python 对象")
_VARIED = Text("other draws in each worker and each pass", "各 worker、各轮的随机结果互不相同")
_SPLIT = Text("each worker gives others", "各 worker 给出的样本互不相同")
_EMPTY = Text("it has no samples", "数据集里没有样本")
_TOOK = Text("it took {took} ({at})", "占用 {took}（{at}）")
_WHERE = Text("the process {hang}", "该进程{hang}")
_WHEN = Text("in hand: {at}", "当时正在处理：{at}")
_BAD = Text("failed: {bad}; {good:other(s) (is|are)} fine", "失败的样本：{bad}；另有 {good} 个正常")
_COPIED = Text(
    "{part} has {count} objects in it; a forked process that looked at each of them once took {size} of its own",
    "{part} 里有 {count} 个对象；fork 出的进程逐个看一遍后，自身多占了 {size}",
)
_SAME_WORKERS = Text(
    "two workers fetched one sample {count} times each, and drew the same; in-process the draws differ",
    "两个 worker 各取同一个样本 {count} 次，随机结果完全一样；而在同一进程内每次都不同",
)
_SAME_PASSES = Text(
    "two passes over one sample, {count} times in each worker, drew the same; in-process the draws differ",
    "同一个样本取两轮（每个 worker 各 {count} 次），随机结果完全一样；而在同一进程内每次都不同",
)
_BOTH = Text("{count:sample(s)} came from both of two workers", "有 {count} 个样本在两个 worker 里都出现了")
_MOVED = Text("workers moved its position in {path}", "worker 移动了它在 {path} 中的读取位置")
_NOTHING_YET = Text("before the first sample", "尚未取到第一个样本")
_SAMPLE = Text("sample {sample}", "样本 {sample}")
_BATCH = Text("batch {number}", "第 {number} 个 batch")


def _in_hand(result: StageResult) -> Text:
    at = result.in_hand
    if "sample" in at:
        return _SAMPLE.filled(sample=at["sample"])
    if "number" in at:
        return _BATCH.filled(number=at["number"])
    return Text(at["what"], at["what"]) if "what" in at else _NOTHING_YET


def _length(facts: Mapping[str, Any]) -> Text:
    if facts["length"] is None:
        return Text("an IterableDataset", "IterableDataset")
    return Text("{count:sample(s)}", "{count} 个样本").filled(count=facts["length"])


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]


_NOT_THEIRS = ("site-packages", sysconfig.get_path("stdlib"), os.path.dirname(__file__), "<frozen")


def _trace(traceback: str) -> tuple[Text, ...]:
    """The place of the user's code, and the error itself."""
    lines = [line.strip() for line in traceback.strip().splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ") and not any(one in line for one in _NOT_THEIRS)]
    return tuple(Text(line, line) for line in (*places[-1:], *lines[-1:]))


def _telling_lines(result: StageResult) -> Iterator[str]:
    """Of an error: where it was raised, and the error itself."""
    if trace := result.error.get("traceback"):
        yield from (text.en for text in _trace(trace))


def _shared(result: StageResult) -> dict[str, Any] | None:
    """The handle that workers used though it was opened before them."""
    facts = result.facts
    handles, kept = facts.get("handles", ()), facts.get("kept", ())
    for moved in facts.get("moved", ()):
        name = next((one["name"] for one in handles if one["fd"] == moved["fd"]), "a file that the module holds")
        return {"part": name, "path": moved["path"], "evidence": (_MOVED.filled(path=moved["path"]),)}
    same = {(one["name"], one["fd"]) for one in kept}
    for one in handles:
        if one["is_forbidden"] and ((one["name"], one["fd"]) in same or not result.is_done):
            path = one["path"] or one["kind"]
            evidence = (_INHERITED.filled(part=one["name"], kind=one["kind"]),)
            return {"part": one["name"], "path": path, "evidence": evidence}
    return None


_INHERITED = Text(
    "{part} is a {kind} that was opened before the workers, and they still have it",
    "{part} 是在 worker 之前打开的 {kind}，worker 里用的仍是它",
)


def _differ_in_shape(odd: list[dict[str, Any]]) -> bool:
    """Whether two samples have the same things in them, and not the same sizes of them."""
    kinds = [{name: kind for name, kind, *_ in one["form"]} for one in odd]
    return len(kinds) > 1 and all(kinds[1].get(name, kind) == kind for name, kind in kinds[0].items())


def _odd(odd: list[dict[str, Any]]) -> tuple[Text, ...]:
    said = [f"sample {one['sample']}: {_form(one['form'])}" for one in odd]
    return tuple(Text(one, one.replace("sample", "样本", 1)) for one in said)


def _form(form: list[Any]) -> str:
    return ", ".join(f"{name} {kind}{tuple(shape) if shape else ''}".strip() for name, kind, shape, *_ in form)[:200]


def _differing(odd: list[dict[str, Any]]) -> dict[str, Any]:
    return {"samples": ", ".join(str(one["sample"]) for one in odd)}
