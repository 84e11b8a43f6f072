"""The evidence of a recording in sentences, with its figures; what logs and recordings both tell is in `..wording`."""

from __future__ import annotations

import re

import numpy as np

from headrace.model import Bottleneck, Cause, Confidence, Text, format_bytes, format_seconds, format_share, three_digits

from ..steps import Loss
from ..wording import lockstep_rounds, supply_and_demand
from .ceiling_wording import ceiling_evidence
from .copies import copy_evidence
from .data_waits import DataVerdict
from .epoch_starts import EpochStarts
from .interruptions import Interruption
from .part_wording import heavy_evidence, parts_evidence
from .slow_steps import SlowSteps
from .workers import Pool, Resources

_WHAT = {
    Cause.CHECKPOINT: Text(
        "{count} saves ({calls}) took {lost} in all, {typical} each ({worst} at worst), and the loop stood still for "
        "them",
        "{count} 次保存（{calls}）共用 {lost}，每次约 {typical}（最长 {worst}），期间训练停住",
    ),
    Cause.EVALUATION: Text(
        "{count} evaluations ({calls}) took {lost} in all, {typical} each ({worst} at worst)",
        "{count} 次评估（{calls}）共用 {lost}，每次约 {typical}（最长 {worst}）",
    ),
    Cause.LOGGING: Text(
        "{count} writes ({calls}) took {lost} in all, {typical} each ({worst} at worst), in the training loop itself",
        "{count} 次写日志（{calls}）共用 {lost}，每次约 {typical}（最长 {worst}），都在训练循环里",
    ),
    Cause.GC: Text(
        "{count} garbage collections took {lost} in all, {typical} each ({worst} at worst)",
        "{count} 次垃圾回收共用 {lost}，每次约 {typical}（最长 {worst}）",
    ),
    Cause.H2D_COPY: Text(
        "{count} copies to the device took {lost} in all, {typical} each ({worst} at worst), and the loop stood still "
        "for them",
        "{count} 次拷贝到设备共用 {lost}，每次约 {typical}（最长 {worst}），期间训练停住",
    ),
}
_BY_MODE = Text("from `eval()` to `train()`", "从 `eval()` 到 `train()`")
_ONE = re.compile(r"^(1 (?:garbage )?(?:save|evaluation|write|collection))s")
_BOTTLENECKS = {
    Bottleneck.CPU_DECODE: Text(
        "a task spends {cpu} of its time on a core and {no_core} waiting for a free one: computing (decoding, "
        "transforms) "
        "is what takes long",
        "单个任务有 {cpu} 的时间在核心上运行，{no_core} 在等空闲核心：耗时的是计算（解码、变换）",
    ),
    Bottleneck.GIL: Text(
        "{at_once} tasks are under way at once in threads of one process, which together use {cpu} of one core: they "
        "take turns at the interpreter's lock",
        "同一进程里平均有 {at_once} 个任务在各自的线程中同时进行，合起来却只用了一个核心的 {cpu}：它们在轮流等解释器锁"
        "（GIL）",
    ),
    Bottleneck.IO_BANDWIDTH: Text(
        "a task stands still for {blocked} of its time and reads {rate}/s meanwhile: the storage's bandwidth is what "
        "it "
        "waits for",
        "单个任务有 {blocked} 的时间停住，期间读取 {rate}/s：等的是存储带宽",
    ),
    Bottleneck.IO_LATENCY: Text(
        "a task stands still for {blocked} of its time and reads only {rate}/s: it waits for answers, not for "
        "bandwidth (many small files, a network, a sleep or a lock)",
        "单个任务有 {blocked} 的时间停住，却只读取 {rate}/s：等的是响应而不是带宽（小文件多、网络、sleep 或锁）",
    ),
    Bottleneck.IPC_COPY: Text(
        "batches were ready for {ready} of the waiting, and workers sent for {sending} of it: copying between "
        "processes "
        "(pickling, mapping, unpickling) is what takes long",
        "等待中有 {ready} 的时间 batch 其实已经就绪，worker 有 {sending} 的时间在发送：耗时的是进程间传递（序列化、映"
        "射、反序列化）",
    ),
}
_STANDS_STILL = Text(
    "a task stands still for {blocked} of its time and reads nothing by `read`: a sleep, a lock, a service, or files "
    "that "
    "are mapped into memory",
    "单个任务有 {blocked} 的时间停住，且没有通过 `read` 读取数据：可能是 sleep、锁、外部服务，或内存映射的文件",
)


def data_evidence(verdict: DataVerdict, share: float) -> tuple[Text, ...]:
    """Return the sentences that carry a wait for data."""
    said: list[Text] = []
    slow = verdict.wait_s[verdict.is_slow]
    pool, cause = verdict.pool, verdict.cause
    num_workers = verdict.loader.num_workers
    if cause is Cause.BATCH_LOCKSTEP:
        loss = Loss(
            cause=cause,
            lost_s=verdict.lost_s,
            confidence=Confidence.CERTAIN,
            count=len(slow),
            typical_s=float(np.median(slow)) if len(slow) else 0.0,
            worst_s=float(verdict.wait_s.max()),
            period=verdict.period,
        )
        said += lockstep_rounds(loss, num_workers)
    elif cause is Cause.STRAGGLER_SAMPLE:
        said.append(
            Text(
                "{count} of {all} batches come late and hold {held} of all waiting: {typical} each ({worst} at worst)",
                "{all} 个 batch 中有 {count} 个迟到，占全部等待的 {held}：每次约 {typical}（最长 {worst}）",
            ).filled(
                count=len(slow),
                all=len(verdict.wait_s),
                held=format_share(float(slow.sum() / verdict.wait_s.sum())),
                typical=format_seconds(float(np.median(slow)) if len(slow) else 0.0),
                worst=format_seconds(float(verdict.wait_s.max())),
            )
        )
    else:
        said.append(
            Text(
                "the loop waits for data for {share} of the time: {median} typically, {worst} at worst",
                "训练循环有 {share} 的时间在等数据：通常 {median}，最长 {worst}",
            ).filled(
                share=format_share(share),
                median=format_seconds(float(np.median(verdict.wait_s))),
                worst=format_seconds(float(verdict.wait_s.max())),
            )
        )
    if cause is not Cause.STRAGGLER_SAMPLE:
        said.append(supply_and_demand(verdict.supply_per_s, verdict.demand_per_s))
    if verdict.ceiling is not None:
        said.append(ceiling_evidence(verdict.ceiling))
    if pool is not None:
        if verdict.bottleneck is not Bottleneck.IPC_COPY:
            said += _pool_evidence(pool, num_workers, is_straggler=cause is Cause.STRAGGLER_SAMPLE)
    elif num_workers == 0:
        said.append(
            Text(
                "num_workers=0: samples are fetched by the training process itself, one after the other",
                "num_workers=0：样本由训练进程自己逐个读取",
            )
        )
    if verdict.is_collating:
        said.append(
            Text(
                "while the loop waits, the workers collate for {share} of the time: `collate_fn` is what takes long",
                "训练循环等待时，worker 有 {share} 的时间在组 batch：耗时的是 `collate_fn`",
            ).filled(share=format_share(verdict.collating))
        )
        return tuple(said)
    if verdict.parts is not None and verdict.bottleneck is not Bottleneck.IPC_COPY:
        said += parts_evidence(verdict.parts) if cause is not Cause.STRAGGLER_SAMPLE else heavy_evidence(verdict.parts)
    if verdict.resources is not None and cause is not Cause.STRAGGLER_SAMPLE:
        said += _resource_evidence(verdict, verdict.resources)
    return tuple(said)


def _pool_evidence(pool: Pool, num_workers: int, *, is_straggler: bool) -> list[Text]:
    said = [
        Text(
            "the {workers} workers were busy for {busy} of their time: the whole pool is too slow"
            if not is_straggler
            else "the {workers} workers were busy for {busy} of their time: there was throughput to spare",
            "{workers} 个 worker 有 {busy} 的时间在工作：是整个 worker 池太慢"
            if not is_straggler
            else "{workers} 个 worker 只有 {busy} 的时间在工作：产能有富余",
        ).filled(workers=num_workers or pool.num_seen, busy=format_share(pool.busy))
    ]
    if is_straggler and pool.heavy_share >= 0.4 and pool.busy >= 0.8:
        said = []
    if not is_straggler and pool.busy < 0.8:
        said = [
            Text(
                "the {workers} workers were busy for {busy} of their time",
                "{workers} 个 worker 有 {busy} 的时间在工作",
            ).filled(workers=num_workers or pool.num_seen, busy=format_share(pool.busy))
        ]
    if len(pool.sample_s) >= 8:
        worst = int(np.argmax(pool.sample_s))
        index = int(pool.sample_index[worst])
        said.append(
            Text(
                "a sample takes {median} typically, {worst} at worst{which}",
                "单个样本通常 {median}，最长 {worst}{which}",
            ).filled(
                median=format_seconds(float(np.median(pool.sample_s))),
                worst=format_seconds(float(pool.sample_s[worst])),
                which=f" ({index})" if index >= 0 and is_straggler else "",
            )
        )
    if is_straggler and len(pool.sample_s) >= 20:
        heavy = np.flatnonzero(pool.sample_s > 5 * np.median(pool.sample_s))
        indices = sorted({int(pool.sample_index[one]) for one in heavy} - {-1})
        if indices:
            shown = ", ".join(map(str, indices[:8])) + (" …" if len(indices) > 8 else "")
            said.append(
                Text(
                    "samples of more than five times that: {count}, with the indices {indices}",
                    "超过其五倍的样本：{count} 个，索引为 {indices}",
                ).filled(count=len(heavy), indices=shown)
            )
    return said


def _resource_evidence(verdict: DataVerdict, resources: Resources) -> list[Text]:
    bottleneck, pool = verdict.bottleneck, verdict.pool
    blocked = format_share(resources.blocked)
    if bottleneck is not None:
        rate = resources.bytes_per_s / max(0.01, resources.blocked)
        return [
            _BOTTLENECKS[bottleneck].filled(
                cpu=format_share(min(1.0, resources.cpu)),
                at_once=three_digits(resources.at_once),
                no_core=format_share(resources.no_core),
                blocked=blocked,
                rate=format_bytes(int(rate)),
                ready=format_share(verdict.ready_share),
                sending=format_share(pool.during_waits.get("sending", 0.0) if pool is not None else 0.0),
            )
        ]
    return [_STANDS_STILL.filled(blocked=blocked)] if resources.blocked >= 0.5 else []


def interruption_evidence(found: Interruption) -> tuple[Text, ...]:
    """Return the sentences that carry something beside training."""
    what = _WHAT[found.cause]
    calls = ", ".join(found.calls[:3]) or "-"
    named = Text(calls, calls) if found.calls or found.cause is not Cause.EVALUATION else _BY_MODE
    said = [
        Text(what.en.replace("{calls}", named.en), what.zh.replace("{calls}", named.zh)).filled(
            count=found.count,
            lost=format_seconds(found.lost_s),
            typical=format_seconds(found.typical_s),
            worst=format_seconds(found.worst_s),
        )
    ]
    if found.count == 1:
        said = [Text(_ONE.sub(r"\1", said[0].en).replace("1 copies", "1 copy", 1), said[0].zh)]
    if found.typical_bytes and found.typical_s > 0:
        said.append(
            Text("each writes {size}, {rate}/s", "每次写入 {size}，速度 {rate}/s").filled(
                size=format_bytes(found.typical_bytes), rate=format_bytes(int(found.typical_bytes / found.typical_s))
            )
        )
    if found.untimed_s >= 0.05 * found.lost_s:
        said.append(
            Text(
                "{untimed} of that lie right before and after these calls, and hardly in any other step: nothing is "
                "timed there, and it is taken for what goes with a save (gathering the state; opening, writing, "
                "closing, uploading the file)",
                "其中 {untimed} 紧挨在这些调用前后，其他步几乎没有这样的停顿：这段时间没有被计时，视为保存的一部分（"
                "收集状态，打开、写入、关闭、上传文件）",
            ).filled(untimed=format_seconds(found.untimed_s))
        )
    if found.copies is not None:
        said += copy_evidence(found.copies)
    if found.period is not None:
        said.append(Text("they come every {period} steps", "每 {period} 步一次").filled(period=found.period.steps))
    return tuple(said)


def epoch_start_evidence(starts: EpochStarts) -> tuple[Text, ...]:
    """Return the sentences that carry slow starts of epochs."""
    said = [
        Text(
            "the starts of {count} epochs cost {lost}, {typical} each ({worst} at worst), of which {iter} in stopping "
            "and starting workers (`iter(loader)`), the rest in waiting for the first batch",
            "{count} 个 epoch 的开头共损失 {lost}，每次约 {typical}（最长 {worst}），其中 {iter} 用于停止和启动 "
            "worker（"
            "`iter(loader)`），其余在等第一个 batch",
        ).filled(
            count=starts.count,
            lost=format_seconds(starts.lost_s),
            typical=format_seconds(starts.typical_s),
            worst=format_seconds(starts.worst_s),
            iter=format_seconds(starts.iter_s),
        )
    ]
    if not starts.is_persistent:
        said.append(
            Text(
                "persistent_workers is off: each epoch starts its workers anew",
                "persistent_workers 未开启：每个 epoch 都重新启动 worker",
            )
        )
    return tuple(said)


def slow_step_evidence(slow: SlowSteps) -> tuple[Text, ...]:
    """Return the sentences that carry slow steps without a cause."""
    return (
        Text(
            "{count} slow steps ({where}) cost {lost} in all, {typical} each ({worst} at worst)",
            "{count} 个慢步（{where}）共损失 {lost}，每次约 {typical}（最长 {worst}）",
        ).filled(
            count=slow.count,
            where=", ".join(map(str, slow.steps)) + (" …" if slow.count > len(slow.steps) else ""),
            lost=format_seconds(slow.lost_s),
            typical=format_seconds(slow.typical_s),
            worst=format_seconds(slow.worst_s),
        ),
        Text(
            "nothing that is timed happened there: no wait for data, no save, no evaluation, no log, no collection",
            "当时没有发生任何被计时的事：没有等数据、保存、评估、写日志或垃圾回收",
        ),
    )
