"""What is wrong with a machine, if anything: facts in, checks out.

A limit, a quota or a network disk is a fact. It is a trouble where something on this machine does not keep to it, or
where what torch's loader needs at least is not there; the sentence says what, and the value beside its limit. All
sentences are in `problems.toml`.
"""

import math
import re
import resource
from collections.abc import Iterable

from headrace.model import format_bytes, format_share
from headrace.storage import Medium

from ..checks import Check, Seen, Words, text_of
from .facts import MachineFacts

_MIB, _GIB = 1 << 20, 1 << 30
_LEAST_SHM = 512 * _MIB  # Docker gives 64
_LEAST_ADDRESSES = 16 * _GIB  # libtorch maps gigabytes, each thread's heap and stack 72 MiB; CUDA far more
_LEAST_FILES = 1024  # what a plain shell has
_LEAST_MAPS = 65_530  # the kernel's own default
_LEAST_TASKS = 64  # a training process and two workers, with their threads
_LEAST_CORE = 0.6  # of a core, for a process that only computes; the pressure of a large host says nothing of ours
_MOST_STALLED = {"memory": 0.05, "io": 0.5}  # of the time
_MOST_SWAP_IN = 4 * _MIB  # a second
_THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_THREAD_PLACES = ("OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
_SLOW = (Medium.HDD, Medium.SMB, Medium.SSHFS, Medium.OBJECT_STORE)
_WORDS = Words(__package__, "problems.toml")


def judge(facts: MachineFacts) -> tuple[Check, ...]:
    """Return one check for each thing looked at."""
    looks = (
        *(_cores, _threads, _memory, _shm, _files, _maps, _tasks, _start_method),
        *(_numa, _storage, _swap, _pressure, _gpu, _slurm, _versions),
    )
    return tuple(_WORDS.check(look.__name__.removeprefix("_"), look(facts)) for look in looks)


def _cores(facts: MachineFacts) -> Seen:
    asked, bound = facts.libraries, [name for name in _THREAD_PLACES if name in facts.variables]
    if 0 < asked.cpus_after < asked.cpus_before:
        lines = f"unset {' '.join(bound)}" if bound else "export KMP_AFFINITY=disabled"
        return Seen("lost_cores", {"lines": lines, "before": asked.cpus_before, "after": asked.cpus_after})
    told = {"cores": f"{facts.cores:g}", "allowed": len(facts.cpus), "cpus": facts.num_cpus}
    is_asked_for = "OMP_NUM_THREADS" in facts.variables
    if facts.quota_cores is not None and not is_asked_for and asked.torch_threads > math.ceil(facts.cores):
        return Seen("cpu_quota", {**told, "threads": asked.torch_threads, "each": max(1, int(facts.cores))})
    return Seen("cores" if facts.cores < facts.num_cpus else "all_cores", told)


def _threads(facts: MachineFacts) -> Seen:
    asked, ranks, most = facts.libraries, facts.num_ranks, math.ceil(facts.cores)
    wanted = {each: _count(facts.variables.get(each, "").partition(",")[0]) or 0 for each in _THREAD_COUNTS}
    too_many = [(each, each, threads) for each, threads in wanted.items() if threads * ranks > most]
    if ranks > 1 and asked.torch_threads * ranks > 2 * most:
        too_many.append(("torch", _THREAD_COUNTS[0], asked.torch_threads))
    for who, variable, threads in () if asked.error else too_many:
        told = {"name": who, "variable": variable, "threads": threads, "each": max(1, most // ranks)}
        return Seen("thread_oversubscription", {**told, "ranks": ranks, "cores": f"{facts.cores:g}"})
    opencv = _WORDS.said("opencv", threads=asked.opencv_threads) if asked.opencv_threads else ""
    return Seen("not_asked" if asked.error else "threads", {"threads": asked.torch_threads, "opencv": opencv})


def _memory(facts: MachineFacts) -> Seen:
    asked, addresses, (below, limit) = facts.libraries, facts.address_limit_bytes, facts.room
    if addresses is not None and (addresses < _LEAST_ADDRESSES or asked.error):
        error = f": {asked.error}" if asked.error else ""
        return Seen("address_limit", {"limit": format_bytes(addresses), "error": error})
    under = _WORDS.said("under", limit=format_bytes(limit)) if limit else ""
    is_short = asked.peak_bytes and below < 3 * asked.peak_bytes
    told = {"room": format_bytes(below), "under": under, "each": format_bytes(asked.peak_bytes)}
    return Seen("memory_limit" if is_short else "memory", told)


def _shm(facts: MachineFacts) -> Seen:
    total, free = facts.now.shm_total_bytes or 0, facts.now.shm_free_bytes or 0
    which = "small_shm" if total < _LEAST_SHM else "full_shm" if free < _LEAST_SHM // 2 else "shm"
    return Seen(which, {"total": format_bytes(total), "free": format_bytes(free)})


def _files(facts: MachineFacts) -> Seen:
    soft, hard = facts.files
    told = {"soft": soft, "hard": hard, "most": hard if hard > soft else 65536}
    return Seen("fd_limit" if 0 <= soft < _LEAST_FILES else "files", told)  # -1: no limit


def _maps(facts: MachineFacts) -> Seen:
    is_low = facts.map_limit is not None and facts.map_limit < _LEAST_MAPS
    return Seen("map_limit" if is_low else "maps", {"limit": "?" if facts.map_limit is None else facts.map_limit})


def _tasks(facts: MachineFacts) -> Seen:
    (tasks, limit, by), threads = facts.tasks, facts.libraries.torch_threads
    is_near = limit is not None and limit - tasks < _LEAST_TASKS + threads
    which = "no_limit" if limit is None else "process_limit" if is_near else "tasks"
    return Seen(which, {"tasks": tasks, "limit": limit, "by": by, "threads": threads})


def _start_method(facts: MachineFacts) -> Seen:
    return Seen("start_method", {"how": facts.start_method})


def _numa(facts: MachineFacts) -> Seen:
    ours = {node for node, cpus in facts.nodes.items() if cpus & facts.cpus}
    gpus, disks = {*facts.gpus.nodes}, {facts.disk_node}
    is_far = gpus and None not in gpus and not gpus & ours
    cpus = _listed(cpu for node in gpus for cpu in facts.nodes.get(node or 0, ()))
    told = {"ours": _listed(ours), "gpus": _listed(gpus), "disks": _listed(disks), "count": len(facts.nodes)}
    return Seen("one_node" if len(facts.nodes) < 2 else "far_numa" if is_far else "numa", {**told, "cpus": cpus})


def _storage(facts: MachineFacts) -> Seen:
    kind = facts.storage
    if kind is None:
        return Seen("no_path")
    told = {"path": facts.data, "name": kind.name, "evidence": kind.evidence, "reason": kind.depth_reason}
    return Seen("slow_storage" if kind.medium in _SLOW else "storage", {**told, "medium": kind.medium.label})


def _swap(facts: MachineFacts) -> Seen:
    came_back, total = facts.now.swap_in_pages - facts.before.swap_in_pages, facts.now.swap_total_bytes
    rate = came_back * resource.getpagesize() / facts.libraries.asked_s
    told = {"used": format_bytes(total - facts.now.swap_free_bytes), "total": format_bytes(total)}
    which = "swap_in_use" if rate >= _MOST_SWAP_IN else "swap" if total else "no_swap"
    return Seen(which, {**told, "rate": format_bytes(rate)})


def _pressure(facts: MachineFacts) -> Seen:
    if facts.core_share < _LEAST_CORE * min(1.0, facts.quota_cores or 1.0):
        return Seen("contended", {"share": format_share(facts.core_share)})
    for one in facts.pressures:
        if one.full_avg10 >= _MOST_STALLED[one.resource]:
            return Seen(f"stalled_{one.resource}", {"share": format_share(one.full_avg10), "scope": one.scope})
    waits = ", ".join(f"{one.resource} {format_share(one.full_avg10)}" for one in facts.pressures)
    return Seen("pressure", {"waits": waits or "?"})


def _gpu(facts: MachineFacts) -> Seen:
    asked, note = facts.libraries, facts.gpus.note
    are_hidden = facts.variables.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1", "NoDevFiles")
    told = {
        "names": ", ".join(facts.gpus.names),
        "driver": facts.gpus.driver,
        "torch": facts.versions.get("torch", "?"),
        "build": asked.cuda_build or "-",
        "error": f": {asked.cuda_error}" if asked.cuda_error else "",
    }
    if "mismatch" in note.lower():  # the driver was upgraded while its old modules are loaded
        return Seen("driver_mismatch", {"note": note})
    if facts.gpus.names and not asked.num_gpus and not asked.error and not are_hidden:
        return Seen("gpu_driver", told)
    which = "gpu" if facts.gpus.names else "torch_sees" if asked.num_gpus else "no_gpu"
    return Seen(which, {**told, "count": asked.num_gpus, "note": note})


def _slurm(facts: MachineFacts) -> Seen:
    a_task, on_node = (_count(facts.variables.get(f"SLURM_CPUS_{each}")) for each in ("PER_TASK", "ON_NODE"))
    told = {"task": a_task, "node": on_node, "allowed": len(facts.cpus), "cores": f"{facts.cores:g}"}
    if "SLURM_JOB_ID" not in facts.variables:
        return Seen("no_job", told)
    if a_task is not None and facts.cores < a_task:
        return Seen("few_slurm_cores", told)
    # Slurm may count cores where the kernel counts their two threads
    return Seen("many_slurm_cores" if on_node is not None and len(facts.cpus) > 2 * on_node else "slurm", told)


def _versions(facts: MachineFacts) -> Seen:
    for bug in _WORDS.tables["bug"]:
        version = facts.versions.get(bug["package"], "")
        if _release(bug["first"]) <= _release(version) < _release(bug["fixed"]):
            return Seen("known_bug", {**bug, "version": version, "what": text_of(bug["what"])})
    said = ", ".join(f"{each} {version}" for each, version in facts.versions.items())
    return Seen("import_fails" if facts.libraries.error else "versions", {"error": facts.libraries.error, "said": said})


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: "2.13.0+cpu" is (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _listed(numbers: Iterable[int | None]) -> str:
    return ",".join(map(str, sorted(one for one in numbers if one is not None))) or "?"
