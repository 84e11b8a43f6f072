"""Whether the device is the limit, or the host that should keep it busy, and what the host lost its time to. Pure.

The driver says for how much of the time a device had anything to do. Where that is little, and the loop did not wait
for data, the device waits for the host: for a core, the interpreter's lock, launches, or the script's own Python. Only
stretches are looked at in which the training went on at its usual pace: no warming up, evaluation or save.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from headrace.model import Activity, Cause, Confidence, EventKind, Finding, Text, format_share, three_digits

from ..remedies import HostLoss, make_finding
from .processes import ends_of
from .trainer import Trainer

if TYPE_CHECKING:
    from headrace.signals.system import SystemSample

_LOST_FROM = 0.15  # of the time, of the device
_FEWEST_LOOKS = 3
_USUAL_PACE = 0.5  # of the median number of steps between two looks
_REASON_FROM = 0.1  # of the time
_UNTIMED = {Activity.OTHER, Activity.BETWEEN_STEPS, Activity.STARTUP, Activity.ENDING}
_ASLEEP = (Activity.BACKWARD, Activity.SYNC, Activity.RANKS, Activity.WAIT)  # where the thread sleeps without any lock


def read_host_time(trainer: Trainer, samples: Sequence[SystemSample]) -> dict[str, float] | None:
    """Return where the time of the host went while the training went on at its usual pace: shares of that, and cores.

    None where nobody told of a device, or for too few looks at it.
    """
    if not len(trainer.process.of(EventKind.H2D, EventKind.SYNC)):
        return None  # it trains on the processor, whatever device there may be
    inside = [one for one in samples if trainer.train_start_ns <= one.at_ns <= trainer.train_end_ns]
    # of several devices the busiest: which of them is this process's is not known
    told = [
        max((gpu.utilisation for gpu in one.gpus or () if gpu.utilisation is not None), default=-1.0) for one in inside
    ]
    looks = [(*pair, busy) for pair, busy in zip(pairwise(inside), told[1:], strict=False) if busy >= 0]
    at = np.array([(first.at_ns, last.at_ns) for first, last, _ in looks], np.int64).reshape(-1, 2)
    done = np.sort(ends_of(trainer.process.of(EventKind.OPTIMIZER, thread=trainer.thread)))
    steps = np.searchsorted(done, at[:, 1]) - np.searchsorted(done, at[:, 0])
    other = trainer.covered_by(Activity.EVALUATION, Activity.CHECKPOINT, Activity.REPLAY, Activity.EPOCH_START)
    length = at[:, 1] - at[:, 0]
    is_usual = (steps >= _USUAL_PACE * np.median(steps[steps > 0]) if steps.any() else steps > 0) & (
        other.between(at[:, 0], at[:, 1]) < 0.1 * length
    )
    if is_usual.sum() < _FEWEST_LOOKS:
        return None
    chosen, total = np.flatnonzero(is_usual).tolist(), float(length[is_usual].sum())

    def share(*activities: Activity) -> float:
        return float(trainer.covered_by(*activities).between(*at[is_usual].T).sum()) / total

    used = [_used(trainer.process.pid, *looks[one][:2]) for one in chosen]
    delay_s, cpu_s, idle_s = map(sum, zip(*used, strict=True))
    if trainer.thread != 0:  # what is counted is the main thread
        delay_s = cpu_s = 0
    timed = tuple(one for one in Activity if one not in _UNTIMED)
    no_core = 1e9 * delay_s / total  # the training thread was ready to go on
    found = {
        "gpu_busy_share": float(np.average([looks[one][2] for one in chosen], weights=length[is_usual])),  # had work
        "wait_share": share(Activity.WAIT),
        "device_wait_share": share(Activity.SYNC),
        "no_core_share": no_core,
        "python_share": max(0.0, 1 - share(*timed)),  # of the loop, not timed
        "launch_share": share(Activity.FORWARD, Activity.BACKWARD, Activity.OPTIMIZER),
        "idle_cores": 1e9 * idle_s / total,  # cores
    }
    if cpu_s > 0 and trainer.is_fed:  # it slept where nothing lets it sleep but a lock
        found["locked_share"] = max(0.0, 1 - 1e9 * cpu_s / total - no_core - share(*_ASLEEP))
    return found


def _used(pid: int, first: SystemSample, last: SystemSample) -> tuple[float, float, float]:
    """Return seconds for which the main thread had no core, and was on one, and idle seconds of all cores."""
    before, now, idle_s = first.process(pid), last.process(pid), 0.0
    if first.machine is not None and last.machine is not None:
        idle_s = last.machine.cpu_idle_s - first.machine.cpu_idle_s
    if before is None or now is None:
        return 0.0, 0.0, idle_s
    cpu_s = (now.main_cpu_s or 0.0) - (before.main_cpu_s or 0.0)
    return (now.run_delay_s or 0.0) - (before.run_delay_s or 0.0), cpu_s, idle_s


_NOT_KEPT_BUSY = Text(
    "the GPU had something to do for {gpu_busy_share} of the time (the driver's count), the loop waited for data for "
    "{wait_share} and for the device for {device_wait_share}: the host does not keep the GPU busy",
    "GPU 只有 {gpu_busy_share} 的时间有活干（驱动统计），训练循环等数据占 {wait_share}，等设备占 {device_wait_share}："
    "主机端喂不满 GPU",
)
_PYTHON_OR_LAUNCHES = Text(
    "the loop's own Python takes {python_share} of the time, forward, backward and optimizer take {launch_share} on "
    "the host, which mostly launches kernels there",
    "循环自身的 Python 占 {python_share}；前向、反向和优化器在主机端占 {launch_share}，主要是在下发 kernel",
)
_LOST_TO = {
    HostLoss.CORES: Text(
        "hardly a core is idle ({idle_cores} of them), and the training thread waits for one for {no_core_share} of "
        "the time: {workers:worker(s)} and it share what there is",
        "几乎没有空闲核心（{idle_cores} 个），训练线程有 {no_core_share} 的时间在等核心：{workers} 个 worker 与它争抢",
    ),
    HostLoss.LOCK: Text(
        "for {locked_share} of the time the training thread stands still outside of all waits that are timed: other "
        "threads of its process hold the interpreter's lock (the one that pins batches, a logger, a prefetcher)",
        "训练线程有 {locked_share} 的时间停在各种已计时的等待之外：同进程的其他线程占着解释器锁（锁页线程、日志、预取等"
        "）",
    ),
    HostLoss.SYNC: Text(
        "the loop stops for the device for {device_wait_share} of the time, so it never runs ahead of it: `.item()`, "
        "printing a loss, copies that block",
        "训练循环有 {device_wait_share} 的时间停下来等设备，始终无法提前下发：`.item()`、打印 loss、阻塞式拷贝",
    ),
    HostLoss.PYTHON: _PYTHON_OR_LAUNCHES,
    HostLoss.LAUNCHES: _PYTHON_OR_LAUNCHES,
}


def find_host_bound(host: Mapping[str, float], *, num_workers: int) -> Iterator[Finding]:
    """Yield that the device waits for the host, and for what there; nothing where it is busy, or waits for data."""
    lost = 1 - host["gpu_busy_share"] - host["wait_share"]
    if lost < _LOST_FROM:
        return
    lost_to = {HostLoss.CORES: max(host["no_core_share"], _REASON_FROM if host["idle_cores"] < 1 else 0.0)}
    lost_to |= {HostLoss.LOCK: host.get("locked_share", 0.0), HostLoss.SYNC: host["device_wait_share"]}
    losses = sorted((one for one in lost_to if lost_to[one] >= _REASON_FROM), key=lambda one: -lost_to[one])
    is_python = host["python_share"] >= max(host["launch_share"] / 2, _REASON_FROM)
    losses.append(HostLoss.PYTHON if is_python else HostLoss.LAUNCHES)
    shares = {name: format_share(share) for name, share in host.items()}
    blanks = shares | {"idle_cores": three_digits(host["idle_cores"]), "workers": num_workers}
    evidence = [text.filled(**blanks) for text in (_NOT_KEPT_BUSY, *(_LOST_TO[one] for one in losses))]
    figures = {name: value for name, value in host.items() if name != "wait_share"}
    likely, fix, gain = Confidence.LIKELY, tuple(one.value for one in losses), 1 / max(0.05, 1 - lost)
    yield make_finding(Cause.HOST_BOUND, lost, evidence, figures=figures, confidence=likely, fix=fix, gain=gain)
