"""Finds the best candidate of a target: measures what a sample costs, then probes as the search says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.errors import UnusableInput
from headrace.model import Text, format_bytes, format_seconds, format_share, three_digits, with_error

from .measuring import Measured, measure_target
from .memory import Configuration, LoaderName, TermKind, peak_memory
from .model import Candidate, Limit, Service, ThroughputModel, candidates, torch_prefetch_factor, worker_counts
from .probing import ProbeHost, TargetFacts
from .search import HEADROOM, Failure, Probe, ProbeOutcome, Problem, TuneAnswer, answer_of, next_of_sweep, next_step

_OWN_BATCH = 8  # of a data set without a loader
_SERVICE_S = 0.8
_SWEEP_ROUNDS = 3
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
    service: Service
    model: ThroughputModel  # before anything was tried
    results: tuple[ProbeOutcome, ...]
    answer: TuneAnswer
    elapsed_s: float
    is_interrupted: bool


def tune(settings: TuneSettings, tell: Callable[[ProbeOutcome], None] = lambda _: None) -> TuneReport:
    """Search for the best candidate within the time; `tell` is called with each result as it comes.

    A KeyboardInterrupt ends the search with the best so far; before anything was measured, it is the caller's.
    """
    results: list[ProbeOutcome] = []
    problem, is_interrupted = None, False
    with ProbeHost(settings.target, memory_bytes=settings.memory_bytes, patience_s=max(20.0, settings.seconds)) as host:
        try:
            problem = _first_look(settings, host, results, tell)
            while isinstance(step := _next(settings, problem, results), Probe):
                results.append(host.run(step.candidate, step.seconds))
                tell(results[-1])
            answer = step
        except KeyboardInterrupt:
            if problem is None:
                raise
            is_interrupted, answer = True, answer_of(problem, results)
        assert host.service is not None
        return TuneReport(
            settings=settings,
            subject=host.subject,
            service=host.service,
            model=problem.model,
            results=tuple(results),
            answer=answer,
            elapsed_s=host.elapsed_s,
            is_interrupted=is_interrupted,
        )


def _next(settings: TuneSettings, problem: Problem, results: Sequence[ProbeOutcome]) -> Probe | TuneAnswer:
    return next_of_sweep(problem, results, rounds=_SWEEP_ROUNDS) if settings.sweep else next_step(problem, results)


def _first_look(
    settings: TuneSettings, host: ProbeHost, results: list[ProbeOutcome], tell: Callable[[ProbeOutcome], None]
) -> Problem:
    """Measure what a sample costs in-process; raise where that fails, for then nothing else works either."""
    subject = host.subject
    batches = settings.batch_sizes or (subject.batch_size or (_OWN_BATCH if subject.baseline is None else None),)
    alone = Candidate(loader=settings.loader, num_workers=0, batch_size=batches[0])
    found = host.run(alone, _SERVICE_S)
    if found.failure is not None or host.service is None:
        raise UnusableInput(
            f"{settings.target} gave no batch to a process without workers: {FAILURES[found.failure].en}",
            it_said=found.said or "nothing",
            waited=format_seconds(found.took_s),
            next_step="fetch one sample by hand: what stops that stops every loader",
        )
    results.append(found)
    tell(found)
    service, step_s = host.service, settings.step_s
    depths: tuple[int | None, ...] = (None,)
    if subject.reads_ahead and service.storage_depth:
        depths = (None, service.storage_depth, 2 * service.storage_depth, 4 * service.storage_depth)
    counts = {*worker_counts(settings.most_workers or max(_MOST_WORKERS, 2 * subject.cores))}
    demand = (batches[0] or 1) / step_s if step_s else None
    if demand is not None:
        counts.add(min(max(counts), math.ceil(HEADROOM * demand * service.sample_s)))  # as many as the model says
    space = tuple(
        candidates(
            sorted(counts), loader=settings.loader, backends=settings.backends, batch_sizes=batches, depths=depths
        )
    )
    if settings.sweep:
        space = tuple(replace(alone, num_workers=count) for count in settings.sweep)
    if settings.memory_bytes is not None:
        measured = measure_target(settings.target, memory_bytes=settings.memory_bytes)
        space = tuple(filter(None, (_within(settings.memory_bytes, measured, one) for one in space)))
        if not space:
            raise UnusableInput(
                f"nothing fits {format_bytes(settings.memory_bytes)}, not even a process without workers",
                next_step=f"`headrace plan {settings.target}`, to see what takes how much",
            )
    return Problem(
        space=space,
        model=ThroughputModel(service=service, cores=subject.cores),
        seconds=settings.seconds,
        baseline=subject.baseline,
        demand_per_s=demand,
        beside=not settings.sweep and settings.loader != "torch",
    )


def _within(limit_bytes: int, measured: Measured, one: Candidate) -> Candidate | None:
    """Return a candidate as it fits a limit: its queued batches get what is left. None where that is too little."""
    cost, workers, loader = measured.cost, one.num_workers, LoaderName(one.loader)
    if one.backend == "thread" and workers:  # one process for all of them
        cost = replace(cost, worker_bytes=cost.worker_bytes // workers, dataset_bytes=cost.dataset_bytes // workers)
    batch_size, factor = one.batch_size or 1, math.ceil(one.batches_ahead / workers) if one.batches_ahead else None
    rows = measured.uses_rows
    settings = Configuration(batch_size=batch_size, num_workers=workers, prefetch_factor=factor, uses_rows=rows)
    plan = peak_memory(cost, settings, loader)
    if loader is LoaderName.TORCH or not workers:
        return one if plan.rank_bytes <= limit_bytes else None
    queued = sum(term.bytes for term in plan.terms if term.kind is TermKind.QUEUE)
    left = limit_bytes - (plan.rank_bytes - queued)
    return (
        replace(one, memory_bytes=left >> 20 << 20)
        if left >= _FEWEST_AHEAD * batch_size * cost.batch_sample_bytes
        else None
    )


# ------------------------------------------------------------------------------------------------ in words


FAILURES = {
    None: Text("nothing came", "没有任何输出"),
    Failure.DIED: Text("it died", "进程中途死亡"),
    Failure.HUNG: Text("it hung, and was ended", "卡住，已被终止"),
    Failure.MEMORY: Text("it took more memory than allowed, and was ended", "内存超出限制，已被终止"),
    Failure.ERROR: Text("it raised", "抛出异常"),
}
_SAMPLE = Text(
    "a sample takes {sample} in-process, {cpu} of it on a processor{rest}",
    "单个样本在进程内耗时 {sample}，其中 {cpu} 在处理器上{rest}",
)
_CROWDED = Text(
    ", {share} waiting for one that others use: on an idle machine the answer may be another",
    "，{share} 在等被别人占用的处理器：换到空闲的机器上，答案可能不同",
)
_LOCK = Text("; the interpreter's lock is held for {share}", "；解释器锁（GIL）占用 {share}")
_STORED = Text("; files on {storage}", "；文件位于 {storage}")
_LIMITS = {
    Limit.WORKERS: Text(
        "each worker adds about {each} samples a second, up to the most that were allowed",
        "每增加一个 worker 约多 {each} 个样本/秒，直到允许的上限",
    ),
    Limit.PROCESSORS: Text(
        "processors are the limit: {cores} of them, {cpu_s} of their time a sample, so at most about {most} samples a "
        "second; more workers only share them",
        "瓶颈是处理器：共 {cores} 个，每个样本占用 {cpu_s}，因此每秒至多约 {most} 个样本；再加 worker 只是分摊",
    ),
    Limit.LOCK: Text(
        "the interpreter's lock is the limit of threads: at most about {most} samples a second",
        "线程的瓶颈是解释器锁（GIL）：每秒至多约 {most} 个样本",
    ),
    Limit.STORAGE: Text(
        "storage is the limit: it is worth about {depth} reads at a time, so at most about {most} samples a second",
        "瓶颈是存储：大约只值 {depth} 路并发读取，因此每秒至多约 {most} 个样本",
    ),
    Limit.TURNS: Text(
        "more workers bring no more than about {most} samples a second: they take turns at something that they share "
        "(a lock, a connection, a disk, processors that others use)",
        "再加 worker 也不超过约每秒 {most} 个样本：它们在轮流使用同一个东西（锁、连接、磁盘，或被别人占用的处理器）",
    ),
}
_INSIDE = Text(
    "in the training process itself: handing samples over costs more than making them",
    "直接在训练进程里取样：样本太便宜，传递的开销比取样本身还大",
)
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
_KEEP = Text(
    "nothing that was tried beats what is there by more than the noise ({gain} times as fast): keep it",
    "试过的配置都没有超出误差地胜过现有配置（{gain} 倍）：保持不变即可",
)
_UNSETTLED = Text(
    "the time was up before all that may be better was tried: more --seconds may find more",
    "时间用完，还有可能更好的配置没有试过：增大 --seconds 或许能找到更好的",
)
_EXPECTED = Text(
    "by the model, num_workers={workers} with backend {backend!r} would give about {rate} samples a second: an "
    "estimate, not measured",
    "按模型估计，num_workers={workers}、后端 {backend!r} 每秒约有 {rate} 个样本：只是估计，没有实测",
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


def reasons(report: TuneReport) -> Iterator[Text]:
    """Yield why the answer is what it is, the most important first."""
    answer, service = report.answer, report.service
    chosen, model = answer.candidate, answer.model or report.model
    if chosen is None:
        return
    demand = (chosen.batch_size or 1) / report.settings.step_s if report.settings.step_s else None
    if answer.gain is not None and not _is_kept(report):
        yield _BETTER.filled(gain=with_error(answer.gain, answer.gain_error))
    elif answer.gain is not None:
        yield _KEEP.filled(gain=with_error(answer.gain, answer.gain_error))
    if demand is not None and answer.meets_demand:
        yield _MEETS.filled(demand=three_digits(demand))
    elif demand is not None:
        share = format_share(max(0.0, 1 - answer.samples_per_s / demand))
        yield _FALLS_SHORT.filled(demand=three_digits(demand), share=share)
    rest = []
    if service.no_core_s > _CROWDED_FROM * service.sample_s:
        rest.append(_CROWDED.filled(share=format_share(service.no_core_s / service.sample_s)))
    if "thread" in report.settings.backends:
        rest.append(_LOCK.filled(share=format_share(service.lock_share)))
    if service.storage:
        rest.append(_STORED.filled(storage=service.storage))
    yield _SAMPLE.filled(
        sample=format_seconds(service.sample_s),
        cpu=format_share(service.cpu_share),
        rest=Text("".join(one.en for one in rest), "".join(one.zh for one in rest)),
    )
    most = max((one.num_workers for one in answer.rates if one.family == chosen.family), default=chosen.num_workers)
    beyond = replace(chosen, num_workers=most)  # what is in the way of more
    limit = model.limit(beyond)
    if not chosen.num_workers and answer.is_settled:
        yield _INSIDE
    elif chosen.num_workers and not answer.meets_demand:
        yield _LIMITS[limit].filled(
            each=three_digits(answer.samples_per_s / chosen.num_workers),
            cores=three_digits(model.cores * service.core_share),
            cpu_s=format_seconds(service.cpu_s),
            most=three_digits(model.limits(beyond)[limit]),
            depth=service.storage_depth,
        )
    if chosen.num_workers and chosen.backend == "thread":
        yield _THREADS
    if chosen.num_workers > 1 and not report.subject.is_indexed:
        yield _EACH_ITS_PART
    if not answer.is_settled and not report.settings.sweep:
        yield _UNSETTLED
    if answer.expected is not None and not report.settings.sweep:
        yield _EXPECTED.filled(
            workers=answer.expected.num_workers,
            backend=answer.expected.backend,
            rate=three_digits(model.per_s(answer.expected)),
        )


def _is_kept(report: TuneReport) -> bool:
    return report.answer.candidate == report.subject.baseline or not report.answer.is_better


def arguments(report: TuneReport) -> dict[str, str]:
    """Return the answer as code, for our loader and for torch's."""
    chosen = _told(report)
    if chosen is None:
        return {}
    workers, batch = chosen.num_workers, chosen.batch_size or 1
    service, rate = report.service, max(report.answer.samples_per_s, 1e-9)
    step_s = report.settings.step_s or batch / rate
    factor = torch_prefetch_factor(workers, service.sample_s * batch, service.worst_s * batch, step_s)
    ours = profile_settings(report)
    theirs = {"num_workers": workers, "prefetch_factor": (ours.get("prefetch_factor") or factor) if workers else None}
    return {
        "headrace.DataLoader": _call({"batch_size": chosen.batch_size} | ours),
        "torch.utils.data.DataLoader": _call({"batch_size": chosen.batch_size} | theirs),
    }


def profile_settings(report: TuneReport) -> dict[str, object]:
    """Return the answer as settings of our loader that a profile holds; those that are None it chooses by itself."""
    chosen = _told(report)
    if chosen is None:
        return {}
    workers, ahead, memory = chosen.num_workers, chosen.batches_ahead, chosen.memory_bytes
    return {
        "num_workers": workers,
        "backend": "thread" if chosen.backend == "thread" and workers else None,
        "prefetch_factor": math.ceil(ahead / workers) if ahead and workers else None,
        "io_depth": chosen.io_depth,
        "memory": f"{memory >> 20}MiB" if memory is not None else None,
    }


def _told(report: TuneReport) -> Candidate | None:
    """Return what is to be used: what is there, if nothing beats it."""
    is_kept = _is_kept(report) and report.answer.meets_demand is None
    return report.subject.baseline if is_kept and report.answer.gain is not None else report.answer.candidate


def _call(values: Mapping[str, object]) -> str:
    given = (f"{name}={value!r}" for name, value in values.items() if value is not None)
    return f"DataLoader(dataset, {', '.join(given)})"
