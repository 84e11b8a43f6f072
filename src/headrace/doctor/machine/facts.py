"""All that is read of a machine, as one value: cores, memory, limits, storage, GPUs, what libraries make of it."""

import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from math import inf
from pathlib import Path

from headrace.model import num_local_ranks
from headrace.signals import system
from headrace.storage import StorageKind, kind_of

_SPIN_S = 0.2
_IMPORT_S = 120.0  # for torch, on a slow network disk
_PACKAGES = (
    *("torch", "numpy", "torchdata", "webdataset", "datasets", "monai", "h5py", "zarr", "lmdb", "pillow"),
    *("opencv-python", "opencv-python-headless", "opencv-contrib-python"),
)
THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
THREAD_PLACES = ("OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
_SLURM = ("SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
_VARIABLES = (*THREAD_COUNTS, *THREAD_PLACES, *_SLURM, "CUDA_VISIBLE_DEVICES")
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
    cpus_before: int = 0  # that the process might use before torch was imported …
    cpus_after: int = 0  # … and that one forked from it may use afterwards
    torch_threads: int = 0
    opencv_threads: int = 0  # 0: it is not installed
    peak_bytes: int = 0  # of memory, torch imported
    cuda_build: str = ""  # empty: a torch without GPUs
    cuda_error: str = ""
    num_gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class PlaceFacts:
    """Where some of the data lies."""

    path: str
    kind: StorageKind
    node: int | None = None  # of NUMA


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """One look. None: there is no such limit, or the machine does not say."""

    num_cpus: int  # `os.cpu_count()`: what scripts ask for
    cpus: frozenset[int]  # that this process may use
    quota_cores: float | None = None
    core_share: float = 1.0  # of a core that a process which only computes got
    num_ranks: int = 1
    libraries: Libraries = field(default_factory=Libraries)
    available_bytes: int
    limit_bytes: int | None = None  # of the control group with the least room
    room_bytes: int  # below that limit, or available on the machine: the lesser
    address_limit_bytes: int | None = None  # `ulimit -v`
    shm_total_bytes: int | None
    shm_free_bytes: int | None
    files_soft: int
    files_hard: int
    map_limit: int | None = None
    tasks: int = 0  # processes and threads, where they are limited
    task_limit: int | None = None
    task_limit_by: str = ""  # what sets it
    start_method: str = "fork"
    nodes: Mapping[int, frozenset[int]] = field(default_factory=dict)
    gpu_nodes: tuple[int | None, ...] = ()
    places: tuple[PlaceFacts, ...] = ()
    swap_total_bytes: int = 0
    swap_used_bytes: int = 0
    swapped_in_bytes_per_s: float = 0.0
    pressures: tuple[system.PressureSample, ...] = ()
    gpu_names: tuple[str, ...] | None = None
    gpu_note: str = ""
    gpu_driver: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  # of Python, the kernel and packages

    @property
    def cores(self) -> float:
        """What may truly be used at a time."""
        return min(len(self.cpus), self.quota_cores or inf)


def read_facts(data_paths: Sequence[Path] = ()) -> MachineFacts:
    """Read everything; what others do to the machine is read before anything of ours runs."""
    groups = system.memory_groups()
    pressures = system.read_pressures(("memory", "io"), groups)
    core_share, before, started = _spin(), system.read_machine(), time.monotonic()
    libraries = _ask_libraries()
    now, seconds = system.read_machine(), time.monotonic() - started
    if before is None or now is None:
        raise OSError("/proc tells nothing of this machine")
    quotas = [one.quota_cores for one in system.read_quotas(system.cpu_groups()) if one.quota_cores is not None]
    limits = [(one.limit_bytes or 0, (one.limit_bytes or 0) - one.hard_bytes) for one in system.read_limits(groups)]
    limit, room = min(limits, key=lambda one: one[1], default=(None, now.available_bytes))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    address = resource.getrlimit(resource.RLIMIT_AS)[0]
    tasks, task_limit, task_limit_by = _read_tasks()
    gpus = system.GpuReader()
    try:
        gpu_nodes = tuple(system.read_pci_node(address) for address in gpus.addresses)
    finally:
        gpus.close()
    kinds = [(str(path), kind_of(path)) for path in data_paths]
    return MachineFacts(
        num_cpus=os.cpu_count() or 1,
        cpus=frozenset(os.sched_getaffinity(0)),
        quota_cores=min(quotas, default=None),
        core_share=core_share,
        num_ranks=num_local_ranks(),
        libraries=libraries,
        available_bytes=now.available_bytes,
        limit_bytes=limit,
        room_bytes=min(room, now.available_bytes),
        address_limit_bytes=None if address == resource.RLIM_INFINITY else address,
        shm_total_bytes=now.shm_total_bytes,
        shm_free_bytes=now.shm_free_bytes,
        files_soft=soft,
        files_hard=hard,
        map_limit=system.read_map_limit(),
        tasks=tasks,
        task_limit=task_limit,
        task_limit_by=task_limit_by,
        start_method=multiprocessing.get_context().get_start_method(),
        nodes=system.read_numa_nodes(),
        gpu_nodes=gpu_nodes,
        places=tuple(PlaceFacts(path=path, kind=kind, node=system.read_disk_node(kind.device)) for path, kind in kinds),
        swap_total_bytes=now.swap_total_bytes,
        swap_used_bytes=now.swap_total_bytes - now.swap_free_bytes,
        swapped_in_bytes_per_s=(now.swap_in_pages - before.swap_in_pages) * resource.getpagesize() / seconds,
        pressures=pressures,
        gpu_names=gpus.names,
        gpu_note=gpus.note,
        gpu_driver=gpus.driver,
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        versions={"python": platform.python_version(), "kernel": platform.release(), **_read_versions()},
    )


def _spin() -> float:
    """The share of a core that this process gets while it only computes."""
    wall, cpu = time.perf_counter(), time.thread_time()
    while (passed := time.perf_counter() - wall) < _SPIN_S:
        pass
    return min(1.0, (time.thread_time() - cpu) / passed)


def _ask_libraries() -> Libraries:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path)}
    command = [sys.executable, "-P", "-c", _ASK]
    try:
        asked = subprocess.run(command, capture_output=True, check=False, text=True, timeout=_IMPORT_S, env=environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Libraries(error=str(error))
    told: dict[str, int] = {}
    for line in asked.stdout.splitlines():
        told |= json.loads(line) if line.startswith("{") else {}
    said = asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"]
    return Libraries(error="" if told else said[-1], **told)  # type: ignore[arg-type]  # its own names and kinds


def _read_tasks() -> tuple[int, int | None, str]:
    """Processes and threads, the most of them, and who says so: `ulimit -u` (which root passes over) or a group."""
    found = []
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY:
        found.append((system.count_tasks(os.geteuid()), soft, "ulimit -u"))
    group = system.read_task_limit()
    if group is not None:
        found.append((*group, "pids.max"))
    return min(found, key=lambda one: one[1] - one[0], default=(0, None, ""))


def _read_versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
