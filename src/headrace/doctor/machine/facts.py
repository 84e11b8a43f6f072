"""All that is read of a machine, as one value: cores, memory, limits, storage, GPUs, what libraries make of it."""

import contextlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import NamedTuple

from headrace.model import num_local_ranks
from headrace.signals import system
from headrace.signals.recording import RunFacts
from headrace.storage import StorageKind

_SPIN_S = 0.2
_IMPORT_S = 120.0  # for torch, on a slow network disk
# Run in a process of its own: what libraries do when they are imported is what we ask for. A line a library, so that
# one that cannot be imported takes nothing away from those before it.
_ASK = """
import importlib.util, json, os, resource, warnings
warnings.simplefilter("ignore")
before = len(os.sched_getaffinity(0))
import torch
told, tell = os.pipe()
if not os.fork():
    os.write(tell, str(len(os.sched_getaffinity(0))).encode())
    os._exit(0)
os.wait()
after = int(os.read(told, 16))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
cores = {"cpus_before": before, "cpus_after": after, "torch_threads": torch.get_num_threads(), "peak_bytes": peak}
error, gpus = "", torch.cuda.device_count() if torch.cuda.is_available() else 0
if torch.version.cuda and not gpus:
    try:
        torch.cuda.init()
    except Exception as raised:
        error = str(raised).partition("\\n")[0]
gpu = {"cuda_build": torch.version.cuda or torch.version.hip or "", "cuda_error": error, "num_gpus": gpus}
print(json.dumps(cores | gpu), flush=True)
if importlib.util.find_spec("cv2"):
    import cv2
    print(json.dumps({"opencv_threads": cv2.getNumThreads()}), flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Libraries:
    """What torch and OpenCV make of this machine, asked in a fresh process."""

    error: str = ""  # torch cannot be imported
    asked_s: float = 2.0  # how long that took
    cpus_before: int = 0  # that the process might use before torch was imported …
    cpus_after: int = 0  # … and that one forked from it may use afterwards
    torch_threads: int = 0
    opencv_threads: int = 0  # 0: it is not installed
    peak_bytes: int = 0  # of memory, torch imported
    cuda_build: str = ""  # empty: a torch without GPUs
    cuda_error: str = ""
    num_gpus: int = 0


class GpuFacts(NamedTuple):
    """What the driver says of its GPUs; without one, why."""

    names: tuple[str, ...] = ()
    note: str = ""
    driver: str = ""
    nodes: tuple[int | None, ...] = ()  # of NUMA

    @classmethod
    def read(cls) -> "GpuFacts":
        with contextlib.closing(system.GpuReader()) as gpus:
            return cls(gpus.names or (), gpus.note, gpus.driver, tuple(map(system.read_pci_node, gpus.addresses)))


def _read_machine() -> system.MachineSample:
    if (machine := system.read_machine()) is None:
        raise OSError("/proc tells nothing of this machine")
    return machine


def _spin() -> float:
    """The share of a core that this process gets while it only computes."""
    wall, cpu = time.perf_counter(), time.thread_time()
    while (passed := time.perf_counter() - wall) < _SPIN_S:
        pass
    return min(1.0, (time.thread_time() - cpu) / passed)


def _ask_libraries() -> Libraries:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path)}
    command, began = [sys.executable, "-P", "-c", _ASK], time.monotonic()
    try:
        asked = subprocess.run(command, capture_output=True, check=False, text=True, timeout=_IMPORT_S, env=environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Libraries(error=str(error), asked_s=time.monotonic() - began)
    told: dict[str, int] = {}
    for line in asked.stdout.splitlines():
        told |= json.loads(line) if line.startswith("{") else {}
    said = asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"]
    asked_s = time.monotonic() - began
    return Libraries(error="" if told else said[-1], asked_s=asked_s, **told)  # type: ignore[arg-type]  # its own names and kinds


def _read_tasks() -> tuple[int, int | None, str]:
    """Processes and threads, the most of them, and who says so: `ulimit -u` (which root passes over) or a group."""
    group, soft = system.read_task_limit(), _read_limit(resource.RLIMIT_NPROC)
    found = [(*group, "pids.max")] if group is not None else []
    if os.geteuid() != 0 and soft is not None:
        found.append((system.count_tasks(os.geteuid()), soft, "ulimit -u"))
    return min(found, key=lambda one: one[1] - one[0], default=(0, None, ""))


def _read_versions() -> dict[str, str]:
    here = RunFacts.here()
    return {"python": here.python, "kernel": here.kernel, **here.versions}


def _read_limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """One look: each fact is read unless it is given. None: there is no such limit, or the machine does not say."""

    # what others do to the machine, read before anything of ours runs
    pressures: tuple[system.PressureSample, ...] = field(
        default_factory=lambda: system.read_pressures(("memory", "io"), system.memory_groups())
    )
    core_share: float = field(default_factory=_spin)  # of a core that a process which only computes got
    before: system.MachineSample = field(default_factory=_read_machine)
    libraries: Libraries = field(default_factory=_ask_libraries)
    now: system.MachineSample = field(default_factory=_read_machine)  # after torch's import
    num_cpus: int = field(default_factory=lambda: os.cpu_count() or 1)  # what scripts ask for
    cpus: frozenset[int] = field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))
    quota_cores: float | None = field(default_factory=system.read_quota)
    num_ranks: int = field(default_factory=num_local_ranks)
    room: tuple[int, int | None] = field(default_factory=system.read_room)
    address_limit_bytes: int | None = field(default_factory=lambda: _read_limit(resource.RLIMIT_AS))  # `ulimit -v`
    files: tuple[int, int] = field(default_factory=lambda: resource.getrlimit(resource.RLIMIT_NOFILE))  # soft, hard
    map_limit: int | None = field(default_factory=system.read_map_limit)
    tasks: tuple[int, int | None, str] = field(default_factory=_read_tasks)
    start_method: str = field(default_factory=lambda: multiprocessing.get_context().get_start_method())
    nodes: Mapping[int, frozenset[int]] = field(default_factory=system.read_numa_nodes)
    data: Path | None = None  # where it lies, and on what
    storage: StorageKind | None = None
    disk_node: int | None = None  # of NUMA
    gpus: GpuFacts = field(default_factory=GpuFacts.read)
    variables: Mapping[str, str] = field(default_factory=os.environ.copy, repr=False)  # it may hold secrets
    versions: Mapping[str, str] = field(default_factory=_read_versions)  # of Python, the kernel and packages

    @property
    def cores(self) -> float:
        """What may truly be used at a time."""
        return min(len(self.cpus), self.quota_cores or inf)
