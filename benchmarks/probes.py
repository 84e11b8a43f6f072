"""What a process tree costs and what machine it ran on, read from /proc.

Nothing here imports torch: the process that watches a contender's memory must stay small and quiet.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PACKAGES = (
    *("torch", "torchvision", "numpy", "headrace", "simplejpeg", "opencv-python-headless"),
    *("grain", "torchdata", "spdl", "deflate", "zstandard", "pillow"),
)


# ------------------------------------------------------------------ CPU and page faults of a tree


@dataclass(frozen=True)
class Usage:
    """What a tree has used since it started, its dead and waited-for children included."""

    user_s: float
    system_s: float
    minor_faults: int
    num_processes: int

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage(
            self.user_s - earlier.user_s,
            self.system_s - earlier.system_s,
            self.minor_faults - earlier.minor_faults,
            self.num_processes,
        )


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree_pids(root: int) -> list[int]:
    """Return `root` and every living process below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(int(_stat_fields(int(entry))[1]), []).append(int(entry))
            except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
                continue
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def tree_usage(root: int) -> Usage:
    user = system = faults = num = 0
    for pid in tree_pids(root):
        try:
            fields = _stat_fields(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        # own and waited-for children's: a child that ends moves from its own column into its parent's
        faults += int(fields[7]) + int(fields[8])
        user += int(fields[11]) + int(fields[13])
        system += int(fields[12]) + int(fields[14])
        num += 1
    return Usage(user / TICKS_PER_S, system / TICKS_PER_S, faults, num)


# ------------------------------------------------------------------ memory of a tree


@dataclass(frozen=True)
class Memory:
    """Bytes that a tree holds: `pss_bytes` in all, `pss_shared_bytes` of it in shared memory."""

    pss_bytes: int
    pss_shared_bytes: int


def tree_memory(root: int) -> Memory:
    total = shared = 0
    for pid in tree_pids(root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        for line in rollup.splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
            elif line.startswith("Pss_Shmem:"):
                shared += int(line.split()[1]) * 1024
    return Memory(total, shared)


def shmem_bytes() -> int:
    """Return the bytes of shared memory that exist on the machine, mapped or not."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Shmem:"):
            return int(line.split()[1]) * 1024
    return 0


class MemoryWatch:
    """Watch a tree's memory from outside, four times a second, and keep the peaks.

    It runs as a thread of the process that started the contender, never in the contender: a walk through page
    tables takes milliseconds, and they must not be the loop's. PSS misses what torch's loader has queued: a
    batch on its way lies in shared memory that no process maps. `peak_held_bytes` counts that too, from the
    growth of the machine's Shmem, so it is right only while nothing else on the machine uses shared memory.
    """

    def __init__(self, pid: int, *, shmem_before_bytes: int, every_s: float = 0.25) -> None:
        self._pid, self._shmem_before_bytes, self._every_s = pid, shmem_before_bytes, every_s
        self._stop = threading.Event()
        self._peaks = {"peak_pss_bytes": 0, "peak_shmem_growth_bytes": 0, "peak_held_bytes": 0}
        self._num_looks, self._looking_s = 0, 0.0
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            start = time.perf_counter()
            memory, growth = tree_memory(self._pid), max(0, shmem_bytes() - self._shmem_before_bytes)
            now = {
                "peak_pss_bytes": memory.pss_bytes,
                "peak_shmem_growth_bytes": growth,
                "peak_held_bytes": memory.pss_bytes - memory.pss_shared_bytes + max(growth, memory.pss_shared_bytes),
            }
            self._peaks = {name: max(peak, now[name]) for name, peak in self._peaks.items()}
            self._num_looks += 1
            self._looking_s += time.perf_counter() - start

    def result(self) -> dict[str, float]:
        looking_ms = 1e3 * self._looking_s / max(1, self._num_looks)
        return {**self._peaks, "memory_looks": self._num_looks, "memory_look_ms": looking_ms}


# ------------------------------------------------------------------ the machine


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return None


def _field(path: str, name: str) -> str | None:
    try:
        for line in Path(path).read_text().splitlines():
            if line.split(":")[0].strip() == name:
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    if found["headrace"] is None:  # run from its source tree; importing it loads no torch
        try:
            import headrace

            found["headrace"] = f"{headrace.__version__} (source tree)"
        except (ImportError, AttributeError):
            pass
    return found


def machine_facts() -> dict[str, Any]:
    """Return what a reader needs to judge a figure: the machine, its memory settings, the versions."""
    huge_pages = "/sys/kernel/mm/transparent_hugepage"
    shm = os.statvfs("/dev/shm") if Path("/dev/shm").exists() else None
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "num_cpus": os.cpu_count(),
        "num_cpus_allowed": len(os.sched_getaffinity(0)),
        "cgroup_cpu_max": _first_line("/sys/fs/cgroup/cpu.max"),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "memory_available_at_start": _field("/proc/meminfo", "MemAvailable"),
        "cgroup_memory_max": _first_line("/sys/fs/cgroup/memory.max"),
        "dev_shm_bytes": shm.f_blocks * shm.f_frsize if shm else None,
        "load_average_at_start": os.getloadavg()[0],
        "kernel": platform.release().partition("-")[0],
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "thp_enabled": _first_line(f"{huge_pages}/enabled"),
        "thp_shmem_enabled": _first_line(f"{huge_pages}/shmem_enabled"),
        "malloc_environment": {
            name: value for name, value in os.environ.items() if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))
        },
        "versions": _versions(),
    }
