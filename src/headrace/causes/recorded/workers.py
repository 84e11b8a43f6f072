"""What a loader's workers did: how busy they were, on which resource, and which of them hung. Pure.

A heavy sample and a hung one look alike as long as both last. What decides: the run was ended while the loop waited,
and a worker was in one task all that time, far longer than any task took before.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.model import Bottleneck, Cause, EventKind, Finding, Severity, Text, format_seconds, three_digits

from ..remedies import make_finding
from ..steps import report_from
from .processes import ProcessEvents, Times, covering, ends_of, family_of, starts_of
from .trainer import LoaderWaits, Trainer

_LATE_NS = 50_000_000  # a process's birth is known to a clock tick, and `iter()` may return before a worker lives
_CPU_FROM = 0.6  # of a task's time on a core, or ready for one
_BLOCKED_FROM = 0.5
_CHILD_FROM = 0.1  # of that time on a core: on full ones a program waits for most of its own
_AT_ONCE_FROM = 1.5  # tasks of one process: fewer need no second core,
_ONE_CORE = 1.2  # and more than one core's worth is no lock that only one can hold
_NO_CORE_FROM = 0.3  # of a task's time: so much is more than the moment that it takes to be woken
_THREADS_FROM = 1.2  # of a core, used and waited for: more than one thread can; a thread that sends takes some, too
_OWN_THREADS, _MANY_THREADS, _MANY_FROM = 3, 6, 1.05  # unless so many are seen: a worker has three by itself
_BESIDE_FROM = 0.3  # of a core: sending takes less
_PARALLEL_FROM = 1.4  # samples that end in the time of the shortest one: one at a time would be 1
_GROWN_FROM = 2.0  # times the shortest: samples that take so long on average may wait for each other
_APART_FROM = 0.4  # of the mean distance of their ends: what comes by chance comes closer together
_LARGE_FROM = 256 << 10  # bytes of a sample: reading so much is transfer, on any disk, not the way to it
_BANDWIDTH_FROM = 50e6  # bytes a second and worker; what a single reader with small requests hardly gets
_FEWEST_SAMPLES = 20
ALL_BUSY = 0.8  # of the loop's waits: above, there is no throughput to spare
_STUCK_FROM_S = 5.0
_TIMES_LONGEST = 3.0  # of what any task took before
_MOSTLY = 0.8  # of the loop's last wait


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What tasks spent their time on, as shares of it."""

    cpu: float  # on a core; above 1 with threads of a library
    no_core: float  # ready to run, and no core was free
    bytes_per_s: float  # read, per worker, over the time of its tasks; 0 where most tasks read nothing
    at_once: float = 1.0  # tasks under way at a time in one process: above 1 with threads
    bytes_per_sample: float = 0.0  # read; 0 where that is not known
    beside: float = 0.0  # of the cores' time: by other threads of the process than the one of the task
    threads: int = 0  # of a worker; 0: not known
    cores_are_full: bool = False
    child: float = 0.0  # of a core, by programs that a worker started and waited for

    @property
    def waits_for_child(self) -> bool:
        """Whether a task stands still for a program of its own, which computes."""
        still = max(0.0, 1 - self.cpu - self.no_core)
        return still >= _BLOCKED_FROM and self.child >= _CHILD_FROM * still

    @property
    def blocked(self) -> float:
        """Return the share for which a task stood still: for the disk, the network, a lock, a sleep."""
        return 0.0 if self.waits_for_child else max(0.0, 1 - self.cpu - self.no_core)

    @property
    def bottleneck(self) -> Bottleneck | None:
        """Return what holds the tasks back, where that can be told."""
        # who waits for the interpreter's lock sleeps; who is ready and has no core waits for a core
        if self.at_once >= _AT_ONCE_FROM and _CPU_FROM <= self.cpu <= _ONE_CORE and self.no_core < _NO_CORE_FROM:
            return Bottleneck.GIL
        several = _MANY_FROM if self.threads >= _MANY_THREADS else _THREADS_FROM
        is_beside = self.cpu + self.no_core >= several or self.beside >= _BESIDE_FROM
        is_beside = is_beside and not 0 < self.threads <= _OWN_THREADS
        if self.at_once < _AT_ONCE_FROM and is_beside and (self.cores_are_full or self.no_core >= _NO_CORE_FROM):
            return Bottleneck.THREADS
        if self.cpu + self.no_core >= _CPU_FROM or self.waits_for_child:
            return Bottleneck.CPU_DECODE
        if self.blocked >= _BLOCKED_FROM and self.bytes_per_s > 0:
            is_wide = self.bytes_per_s / self.blocked >= _BANDWIDTH_FROM or self.bytes_per_sample >= _LARGE_FROM
            return Bottleneck.IO_BANDWIDTH if is_wide else Bottleneck.IO_LATENCY
        return None


@dataclass(frozen=True, kw_only=True)
class SampleEnds:
    """How samples end, whichever worker they are from: beside each other, or one after the other."""

    gap_s: float  # from one end to the next
    least_gap_s: float  # but for the closest ones
    shortest_s: float  # of all samples: it had to wait for nobody
    mean_s: float

    @property
    def are_taken(self) -> bool | None:
        """Whether workers take turns at something that serves one at a time; None where that cannot be told."""
        is_beside = self.shortest_s >= _PARALLEL_FROM * self.gap_s
        if is_beside and self.mean_s >= _GROWN_FROM * self.shortest_s:
            return None  # side by side for a part, and longer than alone
        if is_beside or self.mean_s < _AT_ONCE_FROM * self.gap_s:
            return False
        return True if self.least_gap_s >= _APART_FROM * self.gap_s else None

    @property
    def blanks(self) -> dict[str, str]:
        """Return it for a sentence with `{gap}`, `{shortest}`, `{mean}` and `{under_way}`."""
        gap, shortest, mean = map(format_seconds, (self.gap_s, self.shortest_s, self.mean_s))
        return {"gap": gap, "shortest": shortest, "mean": mean, "under_way": three_digits(self.mean_s / self.gap_s)}


def read_turns(workers: Sequence[ProcessEvents]) -> SampleEnds | None:
    """Return how the samples of several workers end; None for one worker, or too few samples."""
    samples = [one for one in (worker.of(EventKind.SAMPLE) for worker in workers) if len(one)]
    if len(samples) < 2 or sum(map(len, samples)) < _FEWEST_SAMPLES:
        return None
    gaps = np.diff(np.sort(np.concatenate([ends_of(one) for one in samples]))) / 1e9
    gaps = gaps[gaps <= 10 * max(np.median(gaps), gaps.mean())]  # between epochs nobody works
    lengths = np.concatenate([one["duration_ns"] for one in samples]) / 1e9
    return SampleEnds(
        gap_s=float(gaps.mean()),
        least_gap_s=float(np.quantile(gaps, 0.05)),
        shortest_s=float(lengths.min()),
        mean_s=float(lengths.mean()),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolWork:
    """The workers of one loader, over the time in which it was waited for."""

    num_seen: int
    each_busy: tuple[float, ...]  # of the loop's waits: who rests with a full queue could not work
    batch_s: float  # of the pool's work, for a batch
    num_tasks: int  # but the first ones, which open files and fill caches
    sample_s: NDArray[np.float64]
    sample_index: NDArray[np.int64]
    resources: Resources | None
    turns: SampleEnds | None
    during_waits: Mapping[str, float]  # what the workers did while the loop waited, as shares

    @property
    def busy(self) -> float:
        """Return the share of the loop's waits for which workers were not idle."""
        return 1 - self.during_waits.get("idle", 1.0)

    @property
    def is_one_busy(self) -> bool:
        """Whether one worker always works, and most of the time of the others is left."""
        *others, most = sorted(self.each_busy) or [0.0]
        return bool(others) and most >= ALL_BUSY and sum(others) <= 0.5 * len(others)

    @property
    def is_heavy(self) -> NDArray[np.bool_]:
        """Return which samples took more than five times the median; none of too few to tell."""
        return np.asarray(self.sample_s > (5 * np.median(self.sample_s) if len(self.sample_s) >= 20 else np.inf))

    @property
    def heavy_share(self) -> float:
        """Return the share of all sample time that lies in heavy ones."""
        return float(self.sample_s[self.is_heavy].sum() / max(self.sample_s.sum(), 1e-9))


def workers_of(
    loader: LoaderWaits, trainer: ProcessEvents, processes: Sequence[ProcessEvents]
) -> tuple[ProcessEvents, ...]:
    """Return the workers that a loader started: those born after its `iter()` and before the next loader's."""
    family = family_of(trainer.pid, {one.pid: one.parent_pid for one in processes}) - {trainer.pid}
    children = [one for one in processes if one.role == "worker" and one.pid in family]
    epochs = trainer.of(EventKind.EPOCH)
    names = [trainer.names.get(int(arg), "loader") for arg in epochs["arg"]]
    settings = trainer.loader_settings()
    with_workers = {name for name in names if name not in settings or settings[name].num_workers != 0}
    if len(with_workers) < 2:
        return tuple(children) if loader.name in with_workers else ()
    starts = starts_of(epochs)
    chosen = []
    for child in children:
        started = child.of(EventKind.WORKER_START)
        born = int(started["start_ns"][0]) if len(started) else int(child.events["start_ns"][0])
        place = int(np.searchsorted(starts, born + _LATE_NS, side="right")) - 1
        if place >= 0 and names[place] == loader.name:
            chosen.append(child)
    return tuple(chosen)


def read_pool(loader: LoaderWaits, workers: Sequence[ProcessEvents]) -> PoolWork | None:
    """Return what the workers did between the loader's first batch and its last; None where none was recorded."""
    if not workers or not len(loader.start_ns):
        return None
    first, last = int(loader.end_ns[0]), int(loader.end_ns[-1])
    later = loader.batch > 0
    parts: dict[str, float] = dict.fromkeys(("samples", "collate", "sending", "starting", "idle"), 0.0)
    busy_ns = 0.0
    during_ns, idle_ns = defaultdict[int, float](float), defaultdict[int, float](float)  # of each place in a round
    for worker in workers:
        start = max(first, int(worker.events["start_ns"][0]))
        end = min(last, int(ends_of(worker.events).max()))
        if end <= start:
            continue
        whole = np.array([start]), np.array([end])
        waits = loader.start_ns[later].clip(start, end), loader.end_ns[later].clip(start, end)
        tasks = worker.of(EventKind.FETCH)
        place = int(tasks["value"][:1].sum()) % max(1, loader.num_workers)
        for thread in np.unique(tasks["thread"]).tolist() or [0]:  # a process, or threads of one
            busy_ns += (end - start) - _did(worker, thread, whole)["idle"]
            during_ns[place] += float((waits[1] - waits[0]).sum())
            did = _did(worker, thread, waits)
            idle_ns[place] += did["idle"]
            for name, ns in did.items():
                parts[name] += ns
        parts["starting"] += float(covering(worker.of(EventKind.WORKER_START)).between(*waits).sum())
    samples, fetches = ([worker.of(kind) for worker in workers] for kind in (EventKind.SAMPLE, EventKind.FETCH))
    waited_ns = sum(during_ns.values())
    return PoolWork(
        num_seen=len(workers),
        each_busy=tuple(1 - idle_ns[place] / ns for place, ns in during_ns.items() if ns),
        batch_s=busy_ns / 1e9 / max(1, int(later.sum())) / max(1, loader.num_workers or len(workers)),
        num_tasks=sum(int((starts_of(one) >= first).sum()) or len(one) for one in fetches),
        # several that were asked for at once count as one of their mean
        sample_s=np.concatenate([one["duration_ns"] / 1e9 / np.maximum(1, -one["value"]) for one in samples]),
        sample_index=np.concatenate([one["value"].astype(np.int64).clip(-1) for one in samples]),
        resources=read_resources(workers),
        turns=read_turns(workers),
        during_waits={name: ns / waited_ns for name, ns in parts.items()} if waited_ns else {},
    )


def _did(worker: ProcessEvents, thread: int, stretches: tuple[Times, Times]) -> dict[str, float]:
    """Return what a worker did in some stretches of time, in nanoseconds."""
    # What it sends itself lies inside its tasks. torch's workers send in a thread of their own, beside the next task:
    # only what lies between tasks is told of it.

    def covered(*events: NDArray[Any]) -> float:
        return float(covering(*events).between(*stretches).sum())

    kinds = EventKind.FETCH, EventKind.COLLATE, EventKind.SEND, EventKind.IDLE
    fetch, collate, send, idle = (worker.of(kind, thread=thread) for kind in kinds)
    sends = worker.of(EventKind.SEND)
    beside = sends[~np.isin(sends["thread"], worker.of(EventKind.FETCH)["thread"])]
    fetching, collating, sending, working = covered(fetch), covered(collate), covered(send), covered(fetch, beside)
    waiting = fetching + covered(idle) - covered(fetch, idle)  # inside a task: for room
    return {
        "samples": max(0.0, fetching - collating - sending - waiting),
        "collate": collating,
        "sending": sending + working - fetching,
        "idle": covered(fetch, beside, idle) - working + waiting,
    }


def read_resources(processes: Sequence[ProcessEvents]) -> Resources | None:
    """Return what fetching spent its time on; None where that was not recorded."""
    tasks = [process.of(EventKind.CPU) for process in processes]
    total_ns = sum(float(one["duration_ns"].sum()) for one in tasks)
    if total_ns <= 0:
        return None
    reads = [process.of(EventKind.READ) for process in processes]
    # A first task reads what it imports; what counts is whether tasks as such read.
    is_reading = sum(map(len, reads)) >= 0.5 * sum(map(len, tasks))
    read = sum(float(one["value"].sum()) for one in reads) if is_reading else 0.0
    samples = sum(int(np.maximum(1, -process.of(EventKind.SAMPLE)["value"]).sum()) for process in processes)
    # Our own workers' tasks say how many they were where samples are too small to be timed.
    samples = samples or sum(len(process.of(EventKind.FETCH)) for process in processes)
    cpu = sum(float(one["value"].sum()) for one in tasks) / total_ns
    return Resources(
        cpu=cpu,
        beside=cpu - _on_core(processes, cpu),
        no_core=min(1.0, sum(float(one["arg"].sum()) for one in tasks) * 1e3 / total_ns),
        bytes_per_s=read / (total_ns / 1e9),
        at_once=max((_at_once(process) for process in processes), default=1.0),
        bytes_per_sample=read / max(1, samples),
    )


def _on_core(processes: Sequence[ProcessEvents], unknown: float) -> float:
    """Return the share of their time for which the threads that fetch samples were on a core themselves."""
    looks = [one.of(EventKind.OFF_CORE) for one in processes]
    looks = [one[one["arg"] == 0] for one in looks]
    samples = [one.of(EventKind.SAMPLE) for one in processes]
    of_them = (one[np.isin(one["start_ns"], look["start_ns"])] for one, look in zip(samples, looks, strict=True))
    looked_ns = sum(float(one["duration_ns"].sum()) for one in of_them)
    return 1 - sum(float(one["duration_ns"].sum()) for one in looks) / looked_ns if looked_ns > 0 else unknown


def _at_once(process: ProcessEvents) -> float:
    """Return how many tasks a process had under way at a time, while it had any."""
    tasks = process.of(EventKind.FETCH)
    if not len(tasks):
        return 1.0
    covered = float(covering(tasks).between(np.array([starts_of(tasks).min()]), np.array([ends_of(tasks).max()]))[0])
    return float(tasks["duration_ns"].sum()) / covered if covered > 0 else 1.0


def stuck_finding(
    trainer: Trainer, processes: Sequence[ProcessEvents], exit_code: int | None, end_ns: int
) -> Finding | None:
    """Return the worker that a run was waiting for when it was ended; None for a run that ended by itself."""
    workers = {one.pid: one for loader in trainer.loaders for one in workers_of(loader, trainer.process, processes)}
    wait = _last_wait(trainer, end_ns)
    if not exit_code or wait is None or wait[1] - wait[0] < _STUCK_FROM_S * 1e9:
        return None
    longest_ns = 0  # of the tasks that did end, in any worker
    epoch_ns = int(starts_of(trainer.process.of(EventKind.EPOCH)).max(initial=0))
    open_tasks: list[tuple[int, ProcessEvents]] = []  # since when
    for worker in workers.values():
        fetches = worker.of(EventKind.FETCH)
        is_last = ends_of(fetches) >= wait[1] - 0.02 * (wait[1] - wait[0])  # ended by what ended the run
        longest_ns = max(longest_ns, int(fetches["duration_ns"][~is_last].max(initial=0)))
        since = int(ends_of(worker.of(EventKind.IDLE)).max(initial=0))  # it took a task that has not ended,
        if is_last.any():
            since = int(starts_of(fetches)[is_last].min())
        elif int(starts_of(fetches).max(initial=0)) >= since - 1_000_000:
            continue  # or it waits for work
        if since >= epoch_ns:  # workers of earlier epochs were told to end
            open_tasks.append((since, worker))
    if not open_tasks:
        return None
    since, worker = min(open_tasks, key=lambda one: one[0])
    stuck_ns = wait[1] - since
    if stuck_ns < max(_STUCK_FROM_S * 1e9, _TIMES_LONGEST * longest_ns):
        return None
    if wait[1] - max(since, wait[0]) < _MOSTLY * (wait[1] - wait[0]):
        return None
    said = [
        Text(
            "when the run was ended, the loop had waited for {waited}, and worker {pid} had been in one task for "
            "{stuck}",
            "运行被终止时，训练循环已经等了 {waited}，worker {pid} 在同一个任务里停了 {stuck}",
        ).filled(waited=format_seconds((wait[1] - wait[0]) / 1e9), pid=worker.pid, stuck=format_seconds(stuck_ns / 1e9))
    ]
    if longest_ns > 0:
        longest = Text("the longest task that did end took {longest}", "在此之前，最长的任务也只用了 {longest}")
        said.append(longest.filled(longest=format_seconds(longest_ns / 1e9)))
    samples = worker.of(EventKind.SAMPLE)
    samples = samples[starts_of(samples) >= since]
    if len(samples) and samples["value"][-1] >= 0:
        stood_at = Text("the sample that it stood at: {index}", "停在的样本：{index}（索引）")
        said.append(stood_at.filled(index=int(samples["value"][-1])))
    figures = {"stuck_s": stuck_ns / 1e9, "pid": float(worker.pid)}
    return make_finding(Cause.WORKER_HANG, 1.0, said, figures=figures, severity=Severity.FATAL)


def _last_wait(trainer: Trainer, end_ns: int) -> tuple[int, int] | None:
    """Return the wait with which the run ended: recorded where the interpreter could, else seen by its looks."""
    process = trainer.process
    others = process.of(EventKind.FORWARD, EventKind.BACKWARD, EventKind.OPTIMIZER, EventKind.EPOCH)
    waits, looks = process.of(EventKind.WAIT), process.of(EventKind.QUEUE_GET)
    last_work = int(ends_of(others).max(initial=0))
    open_looks = starts_of(looks)[starts_of(looks) >= max(last_work, int(ends_of(waits).max(initial=0)))]
    if len(open_looks):
        return int(open_looks[0]), end_ns
    if not len(waits):
        return None
    place = int(np.argmax(ends_of(waits)))
    if int(waits["value"][place]) < 0 or int(ends_of(waits)[place]) < last_work:
        return None
    return int(starts_of(waits)[place]), int(ends_of(waits)[place])


def replaced_workers_finding(trainer: Trainer, loader: LoaderWaits) -> Finding | None:
    """Return the hangs that our loader got over, and what the loop waited meanwhile; None where that is little."""
    hangs = trainer.process.of(EventKind.WORKER_HANG)
    lost_s = float(covering(hangs).between(loader.start_ns, loader.end_ns).sum()) / 1e9
    if not len(hangs) or lost_s / trainer.train_s < report_from(Cause.WORKER_HANG, len(hangs)):
        return None
    said = Text(
        "{count:time(s)} a worker stood still ({worst} at worst) until the loader ended and replaced it; the loop "
        "waited for {lost} meanwhile",
        "有 {count} 次 worker 停住不动（最长 {worst}），直到加载器将其终止并替换；其间训练循环等了 {lost}",
    ).filled(
        count=len(hangs), worst=format_seconds(float(hangs["duration_ns"].max()) / 1e9), lost=format_seconds(lost_s)
    )
    figures = {"count": float(len(hangs))}
    return make_finding(Cause.WORKER_HANG, lost_s / trainer.train_s, [said], figures=figures)
