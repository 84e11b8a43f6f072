"""What is wrong with a machine, if anything: facts in, checks out.

A limit, a quota or a network disk is a fact. It is a trouble where something on this machine does not keep to it, or
where what torch's loader needs at least is not there; the sentence says what, and the value beside its limit. All
sentences are in `problems.toml`.
"""

import math
import re
from collections.abc import Iterable

from headrace.model import Text, format_bytes, format_share
from headrace.storage import Medium

from ..checks import Check, Outcome, Words, text_of
from .facts import THREAD_COUNTS, THREAD_PLACES, MachineFacts

_MIB, _GIB = 1 << 20, 1 << 30
_LEAST_SHM = 512 * _MIB  # Docker gives 64
_LEAST_ADDRESSES = 16 * _GIB  # libtorch maps gigabytes, each thread's heap and stack 72 MiB; CUDA far more
_LEAST_FILES = 1024  # what a plain shell has
_LEAST_MAPS = 65_530  # the kernel's own default
_LEAST_TASKS = 64  # a training process and two workers, with their threads
_LEAST_CORE = 0.6  # of a core, for a process that only computes
_MOST_STALLED = {"memory": 0.05, "io": 0.5}  # of the time
_MOST_SWAP_IN = 4 * _MIB  # a second
_SLOW = (Medium.HDD, Medium.SMB, Medium.SSHFS, Medium.OBJECT_STORE)
_WORDS = Words(__package__, "problems.toml")


def judge(facts: MachineFacts) -> tuple[Check, ...]:
    """Return one check for each thing looked at."""
    looks = (
        *(_cores, _threads, _memory, _shm, _files, _maps, _tasks, _start_method),
        *(_numa, _storage, _swap, _pressure, _gpu, _slurm, _versions),
    )
    return tuple(look(look.__name__.removeprefix("_"), facts) for look in looks)


def _fine(name: str, sentence: str = "", /, **values: object) -> Check:
    return _WORDS.check(name, Outcome.PASS, _WORDS.said(sentence or name, **values))


def _not_here(name: str, sentence: str, /, **values: object) -> Check:
    return _WORDS.check(name, Outcome.SKIP, _WORDS.said(sentence, **values))


def _trouble(name: str, which: str, /, **values: object) -> Check:
    return _WORDS.trouble(name, which, values)


def _cores(name: str, facts: MachineFacts) -> Check:
    asked, cores = facts.libraries, f"{facts.cores:g}"
    if 0 < asked.cpus_after < asked.cpus_before:
        bound = [name for name in THREAD_PLACES if name in facts.variables]
        lines = f"unset {' '.join(bound)}" if bound else "export KMP_AFFINITY=disabled"
        return _trouble(name, "lost_cores", lines=lines, before=asked.cpus_before, after=asked.cpus_after)
    is_asked_for = "OMP_NUM_THREADS" in facts.variables
    if facts.quota_cores is not None and not is_asked_for and asked.torch_threads > math.ceil(facts.cores):
        threads, each = asked.torch_threads, max(1, int(facts.cores))
        return _trouble(name, "cpu_quota", cores=cores, cpus=facts.num_cpus, threads=threads, each=each)
    if facts.cores < facts.num_cpus:
        return _fine(name, cores=cores, allowed=len(facts.cpus), cpus=facts.num_cpus)
    return _fine(name, "all_cores", cores=cores)


def _threads(name: str, facts: MachineFacts) -> Check:
    asked, ranks, most = facts.libraries, facts.num_ranks, math.ceil(facts.cores)
    if asked.error:
        return _not_here(name, "not_asked")
    wanted = {each: _count(facts.variables.get(each, "").partition(",")[0]) or 0 for each in THREAD_COUNTS}
    too_many = [(each, each, threads) for each, threads in wanted.items() if threads * ranks > most]
    if ranks > 1 and asked.torch_threads * ranks > 2 * most:
        too_many.append(("torch", THREAD_COUNTS[0], asked.torch_threads))
    for who, variable, threads in too_many:
        told = {"name": who, "variable": variable, "threads": threads, "each": max(1, most // ranks)}
        return _trouble(name, "thread_oversubscription", ranks=ranks, cores=f"{facts.cores:g}", **told)
    opencv = _WORDS.said("opencv", threads=asked.opencv_threads) if asked.opencv_threads else ""
    return _fine(name, threads=asked.torch_threads, opencv=opencv)


def _memory(name: str, facts: MachineFacts) -> Check:
    asked, addresses, limit = facts.libraries, facts.address_limit_bytes, facts.limit_bytes
    if addresses is not None and (addresses < _LEAST_ADDRESSES or asked.error):
        error = f": {asked.error}" if asked.error else ""
        return _trouble(name, "address_limit", limit=format_bytes(addresses), error=error)
    under = _WORDS.said("under", limit=format_bytes(limit)) if limit else ""
    room, each = format_bytes(facts.room_bytes), format_bytes(asked.peak_bytes)
    if asked.peak_bytes and facts.room_bytes < 3 * asked.peak_bytes:
        return _trouble(name, "memory_limit", room=room, under=under, each=each)
    return _fine(name, room=room, under=under)


def _shm(name: str, facts: MachineFacts) -> Check:
    total, free = facts.shm_total_bytes or 0, facts.shm_free_bytes or 0
    told = {"total": format_bytes(total), "free": format_bytes(free)}
    if total < _LEAST_SHM or free < _LEAST_SHM // 2:
        return _trouble(name, "small_shm" if total < _LEAST_SHM else "full_shm", **told)
    return _fine(name, **told)


def _files(name: str, facts: MachineFacts) -> Check:
    soft, hard = facts.files_soft, facts.files_hard
    if 0 <= soft < _LEAST_FILES:  # -1: no limit
        return _trouble(name, "fd_limit", soft=soft, hard=hard, most=hard if hard > soft else 65536)
    return _fine(name, soft=soft, hard=hard)


def _maps(name: str, facts: MachineFacts) -> Check:
    if facts.map_limit is not None and facts.map_limit < _LEAST_MAPS:
        return _trouble(name, "map_limit", limit=facts.map_limit)
    return _fine(name, limit="?" if facts.map_limit is None else facts.map_limit)


def _tasks(name: str, facts: MachineFacts) -> Check:
    limit, threads = facts.task_limit, facts.libraries.torch_threads
    if limit is None:
        return _fine(name, "no_limit")
    told = {"tasks": facts.tasks, "limit": limit, "by": facts.task_limit_by}
    if limit - facts.tasks < _LEAST_TASKS + threads:
        return _trouble(name, "process_limit", threads=threads, **told)
    return _fine(name, **told)


def _start_method(name: str, facts: MachineFacts) -> Check:
    return _fine(name, how=facts.start_method)


def _numa(name: str, facts: MachineFacts) -> Check:
    if len(facts.nodes) < 2:
        return _fine(name, "one_node")
    ours = [node for node, cpus in facts.nodes.items() if cpus & facts.cpus]
    gpus, disks = {*facts.gpu_nodes}, {place.node for place in facts.places}
    if gpus and None not in gpus and not gpus & {*ours}:
        cpus = _listed(cpu for node in gpus for cpu in facts.nodes.get(node or 0, ()))
        return _trouble(name, "far_numa", ours=_listed(ours), gpus=_listed(gpus), cpus=cpus)
    return _fine(name, count=len(facts.nodes), ours=_listed(ours), gpus=_listed(gpus), disks=_listed(disks))


def _storage(name: str, facts: MachineFacts) -> Check:
    if not facts.places:
        return _not_here(name, "no_path")
    for path, kind in ((place.path, place.kind) for place in facts.places):
        if kind.medium in _SLOW:
            told = {"path": path, "medium": kind.medium.label, "evidence": kind.evidence, "reason": kind.depth_reason}
            return _trouble(name, "slow_storage", **told)
    en, zh = (
        "; ".join(f"{one.path}: {one.kind.medium.label.of(language)} ({one.kind.name})" for one in facts.places)
        for language in ("en", "zh")
    )
    return _fine(name, said=Text(en, zh))


def _swap(name: str, facts: MachineFacts) -> Check:
    told = {"used": format_bytes(facts.swap_used_bytes), "total": format_bytes(facts.swap_total_bytes)}
    if facts.swapped_in_bytes_per_s >= _MOST_SWAP_IN:
        return _trouble(name, "swap_in_use", rate=format_bytes(facts.swapped_in_bytes_per_s), **told)
    return _fine(name, "swap" if facts.swap_total_bytes else "no_swap", **told)


def _pressure(name: str, facts: MachineFacts) -> Check:
    if facts.core_share < _LEAST_CORE * min(1.0, facts.quota_cores or 1.0):
        return _trouble(name, "contended", share=format_share(facts.core_share))
    for one in facts.pressures:
        if one.full_avg10 >= _MOST_STALLED[one.resource]:
            return _trouble(name, f"stalled_{one.resource}", share=format_share(one.full_avg10), scope=one.scope)
    waits = ", ".join(f"{one.resource} {format_share(one.full_avg10)}" for one in facts.pressures) or "?"
    return _fine(name, waits=waits)


def _gpu(name: str, facts: MachineFacts) -> Check:
    asked, names = facts.libraries, ", ".join(facts.gpu_names or ())
    if "mismatch" in facts.gpu_note.lower():  # the driver was upgraded while its old modules are loaded
        return _trouble(name, "driver_mismatch", note=facts.gpu_note)
    are_hidden = facts.variables.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1", "NoDevFiles")
    if names and not asked.num_gpus and not asked.error and not are_hidden:
        torch, error = facts.versions.get("torch", "?"), f": {asked.cuda_error}" if asked.cuda_error else ""
        told = {"names": names, "driver": facts.gpu_driver, "torch": torch, "build": asked.cuda_build or "-"}
        return _trouble(name, "gpu_driver", error=error, **told)
    if names:
        return _fine(name, names=names, driver=facts.gpu_driver)
    if asked.num_gpus:
        return _fine(name, "torch_sees", count=asked.num_gpus)
    return _not_here(name, "no_gpu", note=facts.gpu_note)


def _slurm(name: str, facts: MachineFacts) -> Check:
    variables, allowed = facts.variables, len(facts.cpus)
    if "SLURM_JOB_ID" not in variables:
        return _not_here(name, "no_job")
    a_task, on_node = (_count(variables.get(each)) for each in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"))
    if a_task is not None and facts.cores < a_task:
        return _trouble(name, "few_slurm_cores", task=a_task, cores=f"{facts.cores:g}")
    if on_node is not None and allowed > 2 * on_node:  # Slurm may count cores where the kernel counts their two threads
        return _trouble(name, "many_slurm_cores", node=on_node, allowed=allowed)
    return _fine(name, task=a_task, node=on_node, allowed=allowed)


def _versions(name: str, facts: MachineFacts) -> Check:
    for bug in _WORDS.tables["bug"]:
        version = facts.versions.get(bug["package"], "")
        if _release(bug["first"]) <= _release(version) < _release(bug["fixed"]):
            return _trouble(name, "known_bug", **{**bug, "version": version, "what": text_of(bug["what"])})
    if facts.libraries.error:
        return _trouble(name, "import_fails", error=facts.libraries.error)
    return _fine(name, said=", ".join(f"{each} {version}" for each, version in facts.versions.items()))


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: "2.13.0+cpu" is (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _listed(numbers: Iterable[int | None]) -> str:
    return ",".join(map(str, sorted(one for one in numbers if one is not None))) or "?"
