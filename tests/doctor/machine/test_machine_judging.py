"""A healthy machine gets no warning; each trouble is found by its facts, with the value, its limit and what to do."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.doctor.checks import Check, Outcome
from headrace.doctor.machine import GpuFacts, Libraries, MachineFacts, judge
from headrace.signals.system import MachineSample, PressureSample
from headrace.storage import Medium, StorageKind

MIB, GIB = 1 << 20, 1 << 30
NODES = {0: frozenset(range(8)), 1: frozenset(range(8, 16))}
LIBRARIES = Libraries(cpus_before=16, cpus_after=16, torch_threads=16, opencv_threads=16, peak_bytes=300 * MIB)
IDLE = MachineSample(*[0] * (len(MachineSample._fields) - 1))._replace(
    shm_total_bytes=32 * GIB, shm_free_bytes=31 * GIB, swap_total_bytes=8 * GIB, swap_free_bytes=5 * GIB
)


WORKSTATION = MachineFacts(
    pressures=(),
    core_share=1.0,
    before=IDLE,
    libraries=LIBRARIES,
    now=IDLE,
    num_cpus=16,
    cpus=frozenset(range(16)),
    quota_cores=None,
    num_ranks=1,
    room=(50 * GIB, None),
    address_limit_bytes=None,
    files=(1024, 1 << 20),
    map_limit=65_530,
    tasks=(0, None, ""),
    start_method="fork",
    nodes=NODES,
    gpus=GpuFacts(),
    variables={},
    versions={"python": "3.12.3", "torch": "2.9.1+cu128", "torchdata": "0.11.0"},
)
LAPTOP = replace(
    WORKSTATION,
    num_cpus=8,
    cpus=frozenset(range(8)),
    libraries=replace(LIBRARIES, cpus_before=8, cpus_after=8, torch_threads=4, opencv_threads=8),
    room=(3 * GIB, None),
    nodes={0: frozenset(range(8))},
    tasks=(900, 60_000, "ulimit -u"),
)
CONTAINER = replace(  # with a quota that its user has thought of
    WORKSTATION,
    quota_cores=4.0,
    variables={"OMP_NUM_THREADS": "4"},
    room=(7 * GIB, 8 * GIB),
    now=IDLE._replace(shm_total_bytes=2 * GIB, shm_free_bytes=2 * GIB),
    tasks=(40, 1024, "pids.max"),
    pressures=(PressureSample("memory", "group", 0.1, 0.02, 0, 0), PressureSample("io", "machine", 0.6, 0.3, 0, 0)),
)
JOB = replace(  # of Slurm, bound to one socket, beside its GPU, data on Lustre
    WORKSTATION,
    cpus=frozenset(range(8)),
    libraries=replace(LIBRARIES, cpus_before=8, cpus_after=8, torch_threads=8, num_gpus=1, cuda_build="12.8"),
    variables={"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8", "SLURM_CPUS_ON_NODE": "8"},
    gpus=GpuFacts(names=("NVIDIA H200",), driver="570.86.15", nodes=(0,)),
)


def on(facts: MachineFacts, medium: Medium) -> MachineFacts:
    kind = StorageKind(medium=medium, name="ext4 → sda", evidence="sda: rotational=1")
    return replace(facts, data=Path("/data"), storage=kind, disk_node=0)


def problems(facts: MachineFacts) -> dict[str, Check]:
    checks = judge(facts)
    for check in checks:  # what holds for each of them
        is_trouble = check.outcome in (Outcome.WARN, Outcome.FAIL)
        assert is_trouble == (check.finding is not None)
        assert bool(check.problem) == (is_trouble or check.outcome is Outcome.NOTE)
        assert check.says.en
        assert check.says.zh
        assert "{" not in check.says.en + check.says.zh
        if check.finding is not None:
            assert "{" not in "".join(text.en + text.zh for text in check.finding.fix)
    return {check.problem: check for check in checks if check.problem}


@pytest.mark.parametrize(
    "facts",
    [
        WORKSTATION,
        LAPTOP,
        CONTAINER,
        JOB,
        on(JOB, Medium.LUSTRE),
        replace(
            WORKSTATION, cpus=frozenset({3}), libraries=replace(LIBRARIES, cpus_before=1, cpus_after=1, torch_threads=1)
        ),
        replace(JOB, libraries=replace(LIBRARIES, num_gpus=0), variables={"CUDA_VISIBLE_DEVICES": ""}),
        replace(WORKSTATION, gpus=GpuFacts(note="NVML: NVML Shared Library Not Found")),
        replace(WORKSTATION, files=(-1, -1), map_limit=None),
        replace(
            WORKSTATION, num_ranks=8, libraries=replace(LIBRARIES, torch_threads=1), variables={"OMP_NUM_THREADS": "1"}
        ),
        replace(WORKSTATION, quota_cores=0.5, core_share=0.5, libraries=replace(LIBRARIES, torch_threads=1)),
        replace(WORKSTATION, versions={"python": "3.14.5", "torchdata": "0.11.0"}),
    ],
)
def test_a_healthy_machine_gets_no_warning(facts: MachineFacts) -> None:
    assert problems(facts) == {}


@pytest.mark.parametrize(
    ("problem", "facts", "evidence", "fix"),
    [
        ("cpu_quota", replace(CONTAINER, variables={}), "gives 4 cores; torch starts 16", "OMP_NUM_THREADS=4"),
        (
            "known_bug",
            replace(WORKSTATION, libraries=replace(LIBRARIES, cpus_after=1), variables={"OMP_PROC_BIND": "close"}),
            "may use 16 cores, after it 1",
            "unset OMP_PROC_BIND",
        ),
        (
            "thread_oversubscription",
            replace(WORKSTATION, variables={"MKL_NUM_THREADS": "64"}),
            "MKL_NUM_THREADS: 64 threads in each of 1 rank, on 16",
            "MKL_NUM_THREADS=16",
        ),
        (
            "thread_oversubscription",
            replace(WORKSTATION, num_ranks=8),
            "16 threads in each of 8 ranks, on 16",
            "OMP_NUM_THREADS=2",
        ),
        (
            "memory_limit",
            replace(CONTAINER, room=(500 * MIB, 8 * GIB)),
            "500 MiB free below the limit of 8.00 GiB",
            "--mem",
        ),
        ("memory_limit", replace(WORKSTATION, address_limit_bytes=4 * GIB), "4.00 GiB", "ulimit -v unlimited"),
        (
            "small_shm",
            replace(WORKSTATION, now=IDLE._replace(shm_total_bytes=64 * MIB, shm_free_bytes=64 * MIB)),
            "64.0 MiB",
            "--shm-size",
        ),
        (
            "small_shm",
            replace(WORKSTATION, now=IDLE._replace(shm_free_bytes=9 * MIB)),
            "9.00 MiB free of 32.0 GiB",
            "ls -l /dev/shm",
        ),
        (
            "small_shm",
            replace(WORKSTATION, now=IDLE._replace(shm_total_bytes=None, shm_free_bytes=None)),
            "0 B",
            "--shm-size",
        ),
        ("fd_limit", replace(WORKSTATION, files=(256, 4096)), "256 (hard limit 4096)", "ulimit -n 4096"),
        ("map_limit", replace(WORKSTATION, map_limit=8192), "8192", "vm.max_map_count"),
        (
            "process_limit",
            replace(LAPTOP, tasks=(90, 100, "pids.max")),
            "90 of 100 are there (pids.max)",
            "--pids-limit",
        ),
        (
            "far_numa",
            replace(JOB, gpus=JOB.gpus._replace(nodes=(1,))),
            "node 0 alone, the GPUs are at node 1",
            "taskset -c 8,9,",
        ),
        ("slow_storage", on(WORKSTATION, Medium.HDD), "rotational=1", "headrace storage /data"),
        (
            "swap_in_use",
            replace(WORKSTATION, now=IDLE._replace(swap_in_pages=80 * MIB // resource.getpagesize())),
            "40.0 MiB a second",
            "ps aux",
        ),
        (
            "gpu_driver",
            replace(JOB, libraries=replace(LIBRARIES, cpus_before=8, cpus_after=8, torch_threads=8)),
            "driver 570.86.15 shows NVIDIA H200, torch 2.9.1+cu128 (CUDA: -) sees none",
            "pytorch.org",
        ),
        (
            "gpu_driver",
            replace(WORKSTATION, gpus=GpuFacts(note="NVML: Driver/library version mismatch")),
            "mismatch",
            "restart",
        ),
        (
            "slurm_mismatch",
            replace(JOB, cpus=frozenset({0})),
            "SLURM_CPUS_PER_TASK is 8, this process may use 1",
            "srun --cpus-per-task",
        ),
        (
            "slurm_mismatch",
            replace(WORKSTATION, variables={"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "4"}),
            "has 4 cores of this node, this process may use 16",
            "OMP_NUM_THREADS=4",
        ),
        ("known_bug", replace(WORKSTATION, versions={"python": "3.14.2"}), "cpython/issues/142516", "python 3.14.5"),
        ("known_bug", replace(WORKSTATION, versions={"torchdata": "0.10.1"}), "data/issues/1437", "torchdata 0.11"),
        (
            "import_fails",
            replace(WORKSTATION, libraries=Libraries(error="ImportError: libcudart.so")),
            "libcudart",
            "import",
        ),
    ],
)
def test_a_trouble_is_found_with_its_evidence(problem: str, facts: MachineFacts, evidence: str, fix: str) -> None:
    found: dict[str, Any] = problems(facts)
    assert list(found) == [problem]
    finding = found[problem].finding
    assert evidence in finding.evidence[0].en
    assert fix in finding.fix[0].en


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (replace(WORKSTATION, core_share=0.3), "got 30 % of a core before anything of ours ran: `top` shows who"),
        (
            replace(WORKSTATION, pressures=(PressureSample("memory", "machine", 0.4, 0.3, 0, 0),)),
            "waited for memory 30 % of the time (machine): end what else uses memory",
        ),
    ],
)
def test_a_busy_machine_is_a_note_and_no_finding(facts: MachineFacts, said: str) -> None:
    (check,) = problems(facts).values()
    assert (check.problem, check.outcome, check.finding) == ("under_pressure", Outcome.NOTE, None)
    assert said in check.says.en


def test_what_is_not_here_is_skipped() -> None:
    skipped = {check.name for check in judge(WORKSTATION) if check.outcome is Outcome.SKIP}
    assert skipped == {"storage", "gpu", "slurm"}
