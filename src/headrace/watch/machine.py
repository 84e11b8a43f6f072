"""The machine around a training, from two samples of the system. Pure."""

from __future__ import annotations

import os

from headrace.signals.system import MachineSample, SystemSample

from .look import GpuLook, MachineLook

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def machine_look(first: SystemSample | None, second: SystemSample) -> MachineLook:
    """What the later of two samples holds, and what happened between them."""
    machine = second.machine
    used, limit, source = _memory(second)
    before = first.machine if first is not None else None
    seconds = (second.at_ns - first.at_ns) / 1e9 if first is not None else 0.0
    swap_in = None
    if machine is not None and before is not None and seconds > 0:
        swap_in = max(0, machine.swap_in_pages - before.swap_in_pages) * _PAGE_BYTES / seconds
    shm_total = machine.shm_total_bytes if machine else None
    shm_free = machine.shm_free_bytes if machine else None
    return MachineLook(
        memory_used_bytes=used,
        memory_limit_bytes=limit,
        memory_source=source,
        tree_bytes=sum(_held(one.pss_bytes, one.rss_bytes) for one in second.processes),
        swap_in_bytes_per_s=swap_in,
        swap_used_bytes=machine.swap_total_bytes - machine.swap_free_bytes if machine else None,
        pressure={name: share for name in ("cpu", "memory", "io") if (share := _pressure(second, name)) is not None},
        shm_used_bytes=shm_total - shm_free if shm_total is not None and shm_free is not None else None,
        shm_total_bytes=shm_total,
        cpu_share=_cpu_share(before, machine),
        gpus=tuple(
            GpuLook(
                index=gpu.number,
                busy_share=gpu.utilisation,
                used_bytes=gpu.used_bytes,
                total_bytes=gpu.total_bytes,
            )
            for gpu in second.gpus or ()
        ),
    )


def _memory(sample: SystemSample) -> tuple[int | None, int | None, str]:
    """Use, limit and whose: the group or the machine, whichever is nearer to its end."""
    found = [
        (max(0, group.used_bytes - group.inactive_file_bytes), group.limit_bytes, f"cgroup v{group.version}")
        for group in sample.memory_groups
        if group.limit_bytes
    ]
    machine = sample.machine
    if machine is not None and machine.total_bytes:
        found.append((machine.total_bytes - machine.available_bytes, machine.total_bytes, "machine"))
    return max(found, key=lambda one: one[0] / one[1], default=(None, None, ""))


def _held(pss_bytes: int | None, rss_bytes: int) -> int:
    return rss_bytes if pss_bytes is None else pss_bytes


def _pressure(sample: SystemSample, resource: str) -> float | None:
    found = sample.pressure(resource, "group") or sample.pressure(resource)
    return None if found is None else found.some_avg10


def _cpu_share(first: MachineSample | None, second: MachineSample | None) -> float | None:
    if first is None or second is None:
        return None
    idle = second.cpu_idle_s + second.cpu_iowait_s - first.cpu_idle_s - first.cpu_iowait_s
    busy = second.cpu_user_s + second.cpu_system_s - first.cpu_user_s - first.cpu_system_s
    return busy / (busy + idle) if busy + idle > 0 else None
