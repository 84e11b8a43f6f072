"""What is wrong with a machine, if anything: facts in, checks out.

A limit, a quota or a network disk is a fact. It is a trouble where something on this machine does not keep to it, or
where what torch's loader needs at least is not there; the sentence says what, and the value beside its limit.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files

from headrace.model import Cause, Confidence, Finding, Severity, Text, format_bytes, format_share
from headrace.storage import Medium

from ..checks import Check, Outcome
from .facts import MachineFacts

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
_BINDING = ("OMP_PROC_BIND", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")
_COUNTING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# What can be wrong, in words, and versions that are known to be bad.
_WORDS = tomllib.loads(files(__package__).joinpath("troubles.toml").read_text(encoding="utf-8"))


class _Subject:
    """One thing that is looked at: its name, and how what was seen becomes a check."""

    def __init__(self, name: str, en: str, zh: str) -> None:
        self._name, self._title = name, Text(en, zh)

    def fine(self, en: str, zh: str, **values: object) -> Check:
        return self._check(Outcome.PASS, Text(en, zh).filled(**values))

    def not_here(self, en: str, zh: str, **values: object) -> Check:
        return self._check(Outcome.SKIP, Text(en, zh).filled(**values))

    def trouble(self, which: str, values: Mapping[str, object], *, problem: str = "") -> Check:
        """Say which of the troubles it is; several of them may be one problem to a script."""
        one = _WORDS["trouble"][which]
        title, evidence, fix = (_text(one[part]).filled(**values) for part in ("title", "evidence", "fix"))
        outcome = Outcome(one.get("outcome", "warn"))
        finding = Finding(
            cause=Cause(one["cause"]),
            share=0,
            title=title,
            evidence=(evidence,),
            fix=(fix,),
            severity=Severity.HIGH if outcome is Outcome.FAIL else Severity.MEDIUM,
            confidence=Confidence.CERTAIN,
        )
        return self._check(outcome, evidence, problem or which, finding)

    def _check(self, outcome: Outcome, says: Text, problem: str = "", finding: Finding | None = None) -> Check:
        return Check(name=self._name, title=self._title, outcome=outcome, says=says, problem=problem, finding=finding)


def judge(facts: MachineFacts) -> tuple[Check, ...]:
    """Return one check for each thing looked at."""
    looks = (
        *(_cores, _threads, _memory, _shm, _files, _maps, _tasks, _start_method),
        *(_numa, _storage, _swap, _pressure, _gpu, _slurm, _versions),
    )
    return tuple(look(facts) for look in looks)


def _cores(facts: MachineFacts) -> Check:
    look, asked = _Subject("cores", "cores", "CPU 核心"), facts.libraries
    told: dict[str, object] = {
        "cores": f"{facts.cores:g}",
        "cpus": f"{facts.num_cpus}",
        "allowed": f"{len(facts.cpus)}",
    }
    if 0 < asked.cpus_after < asked.cpus_before:
        bound = [name for name in _BINDING if name in facts.variables]
        lines = f"unset {' '.join(bound)}" if bound else "export KMP_AFFINITY=disabled"
        cores = {"before": f"{asked.cpus_before}", "after": f"{asked.cpus_after}"}
        return look.trouble("lost_cores", {"lines": lines, **cores}, problem="known_bug")
    is_asked_for = "OMP_NUM_THREADS" in facts.variables
    if facts.quota_cores is not None and not is_asked_for and asked.torch_threads > math.ceil(facts.cores):
        threads, each = f"{asked.torch_threads}", f"{max(1, int(facts.cores))}"
        return look.trouble("cpu_quota", told | {"threads": threads, "each": each})
    if facts.cores < facts.num_cpus:
        en = "{cores} may be used ({allowed} by affinity), though os.cpu_count() says {cpus}"
        return look.fine(en, "可用 {cores} 个（亲和性允许 {allowed} 个），而 os.cpu_count() 显示 {cpus} 个", **told)
    return look.fine("{cores}, all of them", "{cores} 个，全部可用", **told)


def _threads(facts: MachineFacts) -> Check:
    look, asked, ranks = _Subject("threads", "threads of libraries", "各库的线程数"), facts.libraries, facts.num_ranks
    if asked.error:
        return look.not_here("torch cannot be asked", "无法询问 torch")
    most = math.ceil(facts.cores)
    told: dict[str, object] = {"ranks": ranks, "cores": f"{facts.cores:g}", "each": f"{max(1, most // ranks)}"}
    for name in _COUNTING:
        wanted = _count(facts.variables.get(name, "").partition(",")[0]) or 0
        if wanted * ranks > most:
            return look.trouble("thread_oversubscription", told | {"name": name, "variable": name, "threads": wanted})
    told |= {"name": "torch", "variable": _COUNTING[0], "threads": asked.torch_threads}
    if ranks > 1 and asked.torch_threads * ranks > 2 * most:
        return look.trouble("thread_oversubscription", told)
    opencv = Text("; OpenCV: {n} in every process", "；OpenCV：每个进程 {n} 个").filled(n=f"{asked.opencv_threads}")
    return look.fine(
        "torch: {threads} in a training process, 1 in each of its workers{opencv}",
        "torch：训练进程 {threads} 个，每个 worker 1 个{opencv}",
        opencv=opencv if asked.opencv_threads else "",
        threads=f"{asked.torch_threads}",
    )


def _memory(facts: MachineFacts) -> Check:
    look, asked = _Subject("memory", "memory and its limits", "内存与内存上限"), facts.libraries
    addresses, limit = facts.address_limit_bytes, facts.limit_bytes
    if addresses is not None and (addresses < _LEAST_ADDRESSES or asked.error):
        error = f": {asked.error}" if asked.error else ""
        return look.trouble("address_limit", {"limit": format_bytes(addresses), "error": error}, problem="memory_limit")
    under = Text(" below the limit of {limit}", "（上限 {limit}）").filled(limit=format_bytes(limit)) if limit else ""
    told: dict[str, object] = {"room": format_bytes(facts.room_bytes), "under": under}
    if asked.peak_bytes and facts.room_bytes < 3 * asked.peak_bytes:
        return look.trouble("memory_limit", told | {"each": format_bytes(asked.peak_bytes)})
    return look.fine("{room} free{under}", "可用 {room}{under}", **told)


def _shm(facts: MachineFacts) -> Check:
    look = _Subject("shm", "shared memory (/dev/shm)", "共享内存（/dev/shm）")
    total, free = facts.shm_total_bytes or 0, facts.shm_free_bytes or 0
    told: dict[str, object] = {"total": format_bytes(total), "free": format_bytes(free)}
    if total < _LEAST_SHM:
        return look.trouble("small_shm", told)
    if free < _LEAST_SHM // 2:
        return look.trouble("full_shm", told, problem="small_shm")
    return look.fine("{free} free of {total}", "共 {total}，剩 {free}", **told)


def _files(facts: MachineFacts) -> Check:
    look, soft, hard = _Subject("files", "open files", "可打开文件数"), facts.files_soft, facts.files_hard
    told: dict[str, object] = {"soft": f"{soft}", "hard": f"{hard}"}
    if 0 <= soft < _LEAST_FILES:  # -1: no limit
        return look.trouble("fd_limit", told | {"most": f"{hard if hard > soft else 65536}"})
    return look.fine("{soft} a process (hard limit {hard})", "每进程 {soft}（硬上限 {hard}）", **told)


def _maps(facts: MachineFacts) -> Check:
    look, limit = _Subject("maps", "memory maps", "内存映射数"), facts.map_limit
    if limit is not None and limit < _LEAST_MAPS:
        return look.trouble("map_limit", {"limit": f"{limit}"})
    return look.fine("{limit} a process", "每进程 {limit}", limit="?" if limit is None else f"{limit}")


def _tasks(facts: MachineFacts) -> Check:
    look, limit = _Subject("tasks", "processes and threads", "进程与线程数"), facts.task_limit
    if limit is None:
        return look.fine("no limit", "无上限")
    told: dict[str, object] = {"tasks": f"{facts.tasks}", "limit": f"{limit}", "by": facts.task_limit_by}
    if limit - facts.tasks < _LEAST_TASKS + facts.libraries.torch_threads:
        return look.trouble("process_limit", told | {"threads": f"{facts.libraries.torch_threads}"})
    return look.fine("{tasks} of {limit} ({by})", "{tasks} / {limit}（{by}）", **told)


def _start_method(facts: MachineFacts) -> Check:
    return _Subject("start_method", "how workers are started", "worker 启动方式").fine(
        "{how}", "{how}", how=facts.start_method
    )


def _numa(facts: MachineFacts) -> Check:
    look, ours = (
        _Subject("numa", "NUMA nodes", "NUMA 节点"),
        [n for n, cpus in facts.nodes.items() if cpus & facts.cpus],
    )
    if len(facts.nodes) < 2:
        return look.fine("one node", "单个节点")
    gpus, disks = {*facts.gpu_nodes}, {place.node for place in facts.places} - {None}
    told: dict[str, object] = {"ours": _listed(ours), "gpus": _listed(gpus - {None}), "disks": _listed(disks)}
    if gpus and None not in gpus and not gpus & {*ours}:
        cpus = _listed(cpu for node in gpus for cpu in facts.nodes.get(node or 0, ()))
        return look.trouble("far_numa", told | {"cpus": cpus})
    en = "{count} nodes; our cores: {ours}; GPUs: {gpus}; disks of the data: {disks}"
    zh = "{count} 个节点；可用核心：{ours}；GPU：{gpus}；数据盘：{disks}"
    return look.fine(en, zh, count=f"{len(facts.nodes)}", **told)


def _storage(facts: MachineFacts) -> Check:
    look = _Subject("storage", "storage under the data", "数据所在的存储")
    if not facts.places:
        return look.not_here("no path of the data is known", "不知道数据的路径")
    for path, kind in ((place.path, place.kind) for place in facts.places):
        if kind.medium in _SLOW:
            told = {"path": path, "medium": kind.medium.label, "evidence": kind.evidence, "reason": kind.depth_reason}
            return look.trouble("slow_storage", told)
    en, zh = (
        "; ".join(f"{one.path}: {one.kind.medium.label.of(language)} ({one.kind.name})" for one in facts.places)
        for language in ("en", "zh")
    )
    return look.fine("{said}", "{said}", said=Text(en, zh))


def _swap(facts: MachineFacts) -> Check:
    look = _Subject("swap", "swap", "交换区")
    told: dict[str, object] = {
        "used": format_bytes(facts.swap_used_bytes),
        "total": format_bytes(facts.swap_total_bytes),
    }
    if facts.swapped_in_bytes_per_s >= _MOST_SWAP_IN:
        return look.trouble("swap_in_use", told | {"rate": format_bytes(facts.swapped_in_bytes_per_s)})
    if not facts.swap_total_bytes:
        return look.fine("none", "没有")
    return look.fine("{used} of {total} in use, little comes back", "已用 {used} / {total}，几乎没有读回", **told)


def _pressure(facts: MachineFacts) -> Check:
    look = _Subject("pressure", "what else runs here", "机器上的其他负载")
    if facts.core_share < _LEAST_CORE * min(1.0, facts.quota_cores or 1.0):
        return look.trouble("contended", {"share": format_share(facts.core_share)}, problem="under_pressure")
    for one in facts.pressures:
        if one.full_avg10 >= _MOST_STALLED[one.resource]:
            told = {"share": format_share(one.full_avg10), "scope": one.scope}
            return look.trouble(f"stalled_{one.resource}", told, problem="under_pressure")
    waits = ", ".join(f"{one.resource} {format_share(one.full_avg10)}" for one in facts.pressures) or "?"
    return look.fine("little; all tasks waited for: {waits}", "很少；所有任务等待：{waits}", waits=waits)


def _gpu(facts: MachineFacts) -> Check:
    look, asked = _Subject("gpu", "GPUs and driver", "GPU 与驱动"), facts.libraries
    if "mismatch" in facts.gpu_note.lower():  # the driver was upgraded while its old modules are loaded
        return look.trouble("driver_mismatch", {"note": facts.gpu_note}, problem="gpu_driver")
    told: dict[str, object] = {"names": ", ".join(facts.gpu_names or ()), "driver": facts.gpu_driver}
    are_hidden = facts.variables.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1", "NoDevFiles")
    if facts.gpu_names and not asked.num_gpus and not asked.error and not are_hidden:
        told |= {"torch": facts.versions.get("torch", "?"), "build": asked.cuda_build or "-"}
        return look.trouble("gpu_driver", told | {"error": f": {asked.cuda_error}" if asked.cuda_error else ""})
    if facts.gpu_names:
        return look.fine("{names}; driver {driver}", "{names}；驱动 {driver}", **told)
    if asked.num_gpus:
        return look.fine("torch sees {count:GPU(s)}", "torch 看到 {count} 个 GPU", count=asked.num_gpus)
    return look.not_here("none ({note})", "没有（{note}）", note=facts.gpu_note)


def _slurm(facts: MachineFacts) -> Check:
    look, variables = _Subject("slurm", "Slurm allocation", "Slurm 分配"), facts.variables
    if "SLURM_JOB_ID" not in variables:
        return look.not_here("not in a job", "不在作业中")
    a_task, on_node = (_count(variables.get(name)) for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"))
    allowed = len(facts.cpus)
    told: dict[str, object] = {
        "task": f"{a_task}",
        "node": f"{on_node}",
        "allowed": f"{allowed}",
        "cores": f"{facts.cores:g}",
    }
    if a_task is not None and facts.cores < a_task:
        return look.trouble("few_slurm_cores", told, problem="slurm_mismatch")
    if on_node is not None and allowed > 2 * on_node:  # Slurm may count cores where the kernel counts their two threads
        return look.trouble("many_slurm_cores", told, problem="slurm_mismatch")
    en = "{task} cores a task, {node} on this node, {allowed} may be used"
    return look.fine(en, "每任务 {task} 核，本节点 {node} 核，可用 {allowed} 核", **told)


def _versions(facts: MachineFacts) -> Check:
    look = _Subject("versions", "versions", "版本")
    for bug in _WORDS["bug"]:
        version = facts.versions.get(bug["package"], "")
        if _release(bug["first"]) <= _release(version) < _release(bug["fixed"]):
            return look.trouble("known_bug", {**bug, "version": version, "what": _text(bug["what"])})
    if facts.libraries.error:
        return look.trouble("import_fails", {"error": facts.libraries.error})
    said = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return look.fine("{said}", "{said}", said=said)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: "2.13.0+cpu" is (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _text(words: str | dict[str, str]) -> Text:
    return Text(words, words) if isinstance(words, str) else Text(**words)


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _listed(numbers: Iterable[int | None]) -> str:
    return ",".join(map(str, sorted(one for one in numbers if one is not None))) or "?"
