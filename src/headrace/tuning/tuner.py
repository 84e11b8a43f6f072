"""Finds the best candidate of a target: measures what a sample costs, then probes as the search says; and says why."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headrace.errors import UnusableInput
from headrace.model import Count, Text, format_bytes, format_seconds, format_share, three_digits, with_error
from headrace.signals.system import read_numa_nodes

from .memory import Configuration, SampleCost, TermKind, peak_memory
from .model import Candidate, Limit, candidates, worker_counts
from .probing import ProbeHost, TargetFacts
from .search import HEADROOM, Probe, ProbeOutcome, Problem, TuneAnswer, answer_of, next_step, times

_OWN_BATCH = 8  # of a data set without a loader
_SERVICE_S = 0.8
_LEAST_S = 3.0  # for a probe to begin, where none of the time is left
_CROWDED_FROM = 0.1  # of a sample's time
_FEWEST_AHEAD = 2  # batches: one that is filled beside one that is full
_MOST_WORKERS = 16  # unless told, or twice the processors if that is more


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """What to search for, and within which bounds."""

    target: str
    seconds: float = 30.0
    memory_bytes: int | None = None  # of the process that iterates and its workers
    step_s: float | None = None  # how fast the training takes batches
    batch_sizes: tuple[int, ...] = ()  # to choose from; else the loader's own
    most_workers: int | None = None
    backends: tuple[str, ...] = ("process", "thread")
    loader: str = "headrace"
    sweep: tuple[int, ...] = ()  # numbers of workers to measure, and no others


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """What was measured, and what follows from it."""

    settings: TuneSettings
    subject: TargetFacts
    problem: Problem
    results: tuple[ProbeOutcome, ...]
    answer: TuneAnswer
    elapsed_s: float
    is_interrupted: bool

    @property
    def is_kept(self) -> bool:
        """Whether nothing beats what is there."""
        return self.answer.candidate == self.subject.baseline or not self.answer.is_better

    @property
    def chosen(self) -> Candidate | None:
        """Return what is to be used: what is there, if nothing beats it."""
        stays = self.is_kept and self.answer.meets_demand is None
        return self.subject.baseline if stays else self.answer.candidate

    def reasons(self) -> Iterator[Text]:
        """Yield why the answer is what it is, the most important first."""
        answer, service, chosen = self.answer, self.problem.service, self.answer.candidate
        if chosen is None:
            return
        if answer.gain is not None:
            yield (_KEEP if self.is_kept else _BETTER).filled(gain=with_error(answer.gain, answer.gain_error))
        if (demand := self.problem.demand_per_s) is not None:
            short = format_share(max(0.0, 1 - answer.samples_per_s / demand))
            yield (_MEETS if answer.meets_demand else _FALLS_SHORT).filled(demand=three_digits(demand), share=short)
        no_core = service.no_core_s / service.sample_s
        yield _SAMPLE.filled(
            sample=format_seconds(service.sample_s),
            cpu=format_share(min(1.0, service.cpu_s / service.sample_s)),
            crowded=_CROWDED.filled(share=format_share(no_core)) if no_core > _CROWDED_FROM else "",
            lock=format_share(service.lock_share),
            stored=_STORED.filled(storage=service.storage) if service.storage else "",
        )
        # that workers would bring less is said where some were tried, or the search has ruled them out
        if not answer.meets_demand and (chosen.num_workers or answer.is_settled):
            like = {one: rate for one, (rate, _) in answer.rates.items() if one.family == chosen.family}
            limit, per_s = service.limit(max(like, key=lambda one: one.num_workers))  # what is in the way of more
            if answer.samples_per_s < per_s and service.take_turns(like):
                limit, per_s = Limit.TURNS, answer.samples_per_s
            why = limit.value.filled(
                each=three_digits(answer.samples_per_s / max(1, chosen.num_workers)),
                cores=three_digits(service.own_cores),
                cpu_s=format_seconds(service.cpu_s),
                depth=service.storage_depth,
            )
            yield _LIMIT.filled(most=three_digits(per_s), limit=why)
        if chosen.num_workers and chosen.backend == "thread":
            yield _THREADS
        if chosen.num_workers > 1 and not self.subject.is_indexed:
            yield _EACH_ITS_PART
        if not answer.is_settled and not self.settings.sweep:
            yield _UNSETTLED
        for one, rate in answer.rates.items():
            plain = replace(one, keeps_heap=False, threads=0, cpus=None)
            if one != plain and plain in answer.rates:
                (said,) = (text for name, text in _BESIDE.items() if getattr(one, name))
                yield said.filled(times=with_error(*times(rate, answer.rates[plain])))

    def arguments(self) -> dict[str, str]:
        """Return the answer as code, for our loader and for torch's."""
        chosen = self.chosen
        if chosen is None:
            return {}
        factor = (chosen.prefetch_factor or 2) if chosen.num_workers else None
        theirs: dict[str, object] = {"num_workers": chosen.num_workers, "prefetch_factor": factor}
        code = {}
        for name, settings in (("headrace", self.profile_settings()), ("torch.utils.data", theirs)):
            values = {"batch_size": chosen.batch_size, **settings}.items()
            given = ", ".join(f"{key}={value!r}" for key, value in values if value is not None)
            code[f"{name}.DataLoader"] = f"DataLoader(dataset, {given})"
        return code

    def profile_settings(self) -> dict[str, object]:
        """Return the answer as settings of our loader, as a profile holds them; what is None it chooses by itself."""
        chosen = self.chosen
        if chosen is None:
            return {}
        return {
            "num_workers": chosen.num_workers,
            "backend": "thread" if chosen.backend == "thread" and chosen.num_workers else None,
            "prefetch_factor": chosen.prefetch_factor,
            "io_depth": chosen.io_depth,
            "memory": f"{chosen.memory_bytes >> 20}MiB" if chosen.memory_bytes is not None else None,
        }


def tune(settings: TuneSettings, tell: Callable[[ProbeOutcome], None] = lambda _: None) -> TuneReport:
    """Search for the best candidate within the time; `tell` is called with each result as it comes.

    A KeyboardInterrupt ends the search with the best so far; before anything was measured, it is the caller's.
    """
    results: list[ProbeOutcome] = []
    problem = answer = None
    with ProbeHost(settings.target, memory_bytes=settings.memory_bytes) as host:
        try:
            problem = _first_look(settings, host, results)
            tell(results[0])
            while isinstance(step := next_step(problem, results), Probe):
                host.patience_s = max(_LEAST_S, settings.seconds - host.elapsed_s)
                results.append(host.run(step.candidate, step.seconds))
                tell(results[-1])
            answer = step
        except KeyboardInterrupt:
            if problem is None:
                raise
        return TuneReport(
            settings=settings,
            subject=host.subject,
            problem=problem,
            results=tuple(results),
            answer=answer or answer_of(problem, results),
            elapsed_s=host.elapsed_s,
            is_interrupted=answer is None,
        )


def _first_look(settings: TuneSettings, host: ProbeHost, results: list[ProbeOutcome]) -> Problem:
    """Measure what a sample costs in-process; raise where that fails, for then nothing else works either."""
    subject = host.subject
    sizes = settings.batch_sizes or (subject.batch_size or (_OWN_BATCH if subject.baseline is None else None),)
    alone = Candidate(loader=settings.loader, num_workers=0, batch_size=sizes[0])
    if subject.num_samples is not None and subject.num_samples < (2 * (sizes[0] or 1) if not subject.baseline else 1):
        what = f"{settings.target} could not be measured: it has {Count(subject.num_samples):sample(s)}"
        raise UnusableInput(f"{what}, fewer than two batches", next_step="more samples, or a smaller --batch-size")
    host.patience_s = max(_LEAST_S, settings.seconds - host.elapsed_s)
    found = host.run(alone, _SERVICE_S)
    if found.failure is not None:
        raise UnusableInput(
            f"{settings.target} gave no batch to a process without workers: {found.failure.label.en}",
            it_said=found.said or "nothing",
            waited=format_seconds(found.took_s),
            next_step="fetch one sample by hand: what stops that stops every loader; more --seconds, if it is slow",
        )
    results.append(found)
    service = host.service
    assert service is not None  # which comes with a probe without workers
    most = settings.most_workers or max(_MOST_WORKERS, 2 * int(service.cores))
    counts = {*worker_counts(most)}
    demand = (sizes[0] or 1) / settings.step_s if settings.step_s else None
    if demand is not None:
        counts.add(min(most, math.ceil(HEADROOM * demand * service.sample_s)))  # as many as the model says
    factors = (1, 2, 4) if subject.reads_ahead and service.storage_depth else ()
    depths = (None, *(factor * service.storage_depth for factor in factors))
    space = tuple(replace(alone, num_workers=count) for count in settings.sweep) or tuple(
        candidates(sorted(counts), loader=settings.loader, backends=settings.backends, batch_sizes=sizes, depths=depths)
    )
    if settings.memory_bytes is not None:
        cost = host.measure().cost
        space = tuple(filter(None, (_within(settings.memory_bytes, cost, one) for one in space)))
        if not space:
            raise UnusableInput(
                f"nothing fits {format_bytes(settings.memory_bytes)}, not even a process without workers",
                next_step=f"`headrace plan {settings.target}`, to see what takes how much",
            )
    return Problem(
        space=space,
        service=service,
        seconds=settings.seconds,
        baseline=subject.baseline,
        demand_per_s=demand,
        is_sweep=bool(settings.sweep),
        nodes=sum(bool(cpus & os.sched_getaffinity(0)) for cpus in read_numa_nodes().values()),
    )


def _within(limit_bytes: int, cost: SampleCost, one: Candidate) -> Candidate | None:
    """Return a candidate as it fits a limit: its queued batches get what is left. None where that is too little."""
    workers, size = one.num_workers, one.batch_size or 1
    if one.backend == "thread" and workers:  # one process for all of them
        cost = replace(cost, worker_bytes=cost.worker_bytes // workers, dataset_bytes=cost.dataset_bytes // workers)
    plan = peak_memory(cost, Configuration(batch_size=size, num_workers=workers), one.loader)
    if one.loader == "torch" or not workers:
        return one if plan.rank_bytes <= limit_bytes else None
    queued = sum(term.bytes for term in plan.terms if term.kind in (TermKind.QUEUE, TermKind.COLLATION))
    left = limit_bytes - (plan.rank_bytes - queued)
    least = _FEWEST_AHEAD * cost.times_queued * size * cost.batch_sample_bytes
    return replace(one, memory_bytes=left >> 20 << 20) if left >= least else None


# ------------------------------------------------------------------------------------------------ in words

_SAMPLE = Text(
    "a sample takes {sample} in-process, {cpu} of it on a processor{crowded}; the interpreter's lock is held for {lock}"
    "{stored}",
    "单个样本在进程内耗时 {sample}，其中 {cpu} 在处理器上{crowded}；解释器锁（GIL）占用 {lock}{stored}",
)
_CROWDED = Text(
    ", {share} waiting for one that others use: on an idle machine the answer may be another",
    "，{share} 在等被别人占用的处理器：换到空闲的机器上，答案可能不同",
)
_STORED = Text("; files on {storage}", "；文件位于 {storage}")
_MEETS = Text(
    "the cheapest that gives the {demand} samples a second which the training takes, with 5 % to spare",
    "满足训练所需的每秒 {demand} 个样本（留 5 % 余量）且最省的配置",
)
_FALLS_SHORT = Text(
    "nothing that was tried gives the {demand} samples a second which the training takes: this comes nearest, and the "
    "training waits for {share} of its time",
    "试过的配置都达不到训练所需的每秒 {demand} 个样本：这是最接近的，训练仍有 {share} 的时间在等待",
)
_BETTER = Text("{gain} times what is there now", "是现有配置的 {gain} 倍")
_LIMIT = Text("the limit, about {most} samples a second: {limit}", "上限约每秒 {most} 个样本：{limit}")
_KEEP = Text(
    "nothing that was tried beats what is there by more than the noise ({gain} times as fast): keep it",
    "试过的配置都没有超出误差地胜过现有配置（{gain} 倍）：保持不变即可",
)
_UNSETTLED = Text(
    "the time was up before all that may be better was tried: more --seconds may find more",
    "时间用完，还有可能更好的配置没有试过：增大 --seconds 或许能找到更好的",
)
_EACH_ITS_PART = Text(
    "an IterableDataset comes whole from every worker unless its __iter__ splits by get_worker_info(): check that",
    "IterableDataset 若不在 __iter__ 里按 get_worker_info() 切分，每个 worker 都会给出全部数据：请确认",
)
_THREADS = Text(
    "threads share one process: the data set must bear being called by several at once, and global random generators "
    "are shared",
    "线程共用一个进程：数据集必须能被多个线程同时调用，全局随机数发生器也是共用的",
)
_BESIDE = {
    "keeps_heap": Text(
        "torch's loader under `headrace run --malloc keep`: {times} times as fast",
        "torch 的加载器加 `headrace run --malloc keep`：{times} 倍",
    ),
    "threads": Text(
        "torch's loader under `headrace run --worker-threads 1`: {times} times as fast",
        "torch 的加载器加 `headrace run --worker-threads 1`：{times} 倍",
    ),
    "cpus": Text('cpus="numa": {times} times as fast', 'cpus="numa"：{times} 倍'),
}
