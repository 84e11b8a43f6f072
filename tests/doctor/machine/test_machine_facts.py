"""What is read of this machine is true: under limits that are set for real, the check of each says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.doctor.machine import MachineFacts
from headrace.signals.system import read_disk_node, read_task_limit

ASK = """
import json, sys
from pathlib import Path
from headrace.doctor.machine import check_machine
print(json.dumps([check.as_json() for check in check_machine(Path(sys.argv[1]) if sys.argv[1:] else None)]))
"""


def look(*prefix: str, data: tuple[Path, ...] = (), **environ: str) -> dict[str, dict[str, Any]]:
    """What a fresh process says of the machine, by the name of the check."""
    command = [*prefix, sys.executable, "-c", ASK, *map(str, data)]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=120)
    if "Operation not permitted" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip(f"such a limit cannot be set here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)}


def under(line: str) -> tuple[str, ...]:
    return "sh", "-c", f'{line} && exec "$@"', "sh"


def test_what_is_read_of_this_machine() -> None:
    facts = MachineFacts()
    assert facts.cpus == os.sched_getaffinity(0)
    assert 0 < facts.cores <= facts.num_cpus
    assert 0 < facts.core_share <= 1
    assert facts.libraries.error == ""
    assert facts.libraries.torch_threads > 0
    assert facts.libraries.cpus_after == facts.libraries.cpus_before == len(facts.cpus)
    assert 100 << 20 < facts.libraries.peak_bytes < 4 << 30
    assert facts.libraries.opencv_threads > 0
    assert 0 < facts.room[0] <= facts.now.total_bytes
    assert facts.map_limit
    assert facts.versions["torch"]


def test_open_files_and_addresses_that_are_limited(tmp_path: Path) -> None:
    said = look(*under("ulimit -n 200"), data=(tmp_path,), OMP_NUM_THREADS="64")
    assert said["storage"]["says"].startswith(f"{tmp_path}: ")
    assert said["files"]["problem"] == "fd_limit"
    assert "200" in said["files"]["says"]
    assert said["threads"]["problem"] == "thread_oversubscription"
    said = look(*under("ulimit -v 700000"))
    assert said["memory"]["problem"] == "memory_limit"
    assert "684 MiB" in said["memory"]["says"]


def test_a_torch_that_ties_workers_to_one_core_is_found() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    said = look(OMP_PROC_BIND="true")
    assert said["cores"]["problem"] == "known_bug"
    assert f"may use {len(os.sched_getaffinity(0))} cores, after it 1" in said["cores"]["says"]


def test_a_small_shm_is_found() -> None:
    said = look("unshare", "-m", *under("mount -t tmpfs -o size=64m tmpfs /dev/shm"))
    assert said["shm"]["problem"] == "small_shm"
    assert "64.0 MiB" in said["shm"]["says"]


@pytest.mark.parametrize(
    ("controller", "files", "check", "problem"),
    [
        ("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}, "cores", "cpu_quota"),
        ("memory", {"memory.limit_in_bytes": str(600 << 20)}, "memory", "memory_limit"),
        ("pids", {"pids.max": "40"}, "tasks", "process_limit"),
    ],
)
def test_a_control_group_is_seen(controller: str, files: dict[str, str], check: str, problem: str) -> None:
    group = Path("/sys/fs/cgroup") / controller / f"headrace-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups of version 1 cannot be made here: {error}")
    try:
        for name, value in files.items():
            (group / name).write_text(value)
        said = look(*under(f"echo $$ > {group}/cgroup.procs"))
        assert said[check]["problem"] == problem, said[check]
        others = {name: one["problem"] for name, one in said.items() if one["problem"] not in (None, problem)}
        assert set(others) <= {"pressure"}  # the tests themselves are a load
    finally:
        group.rmdir()


def test_limits_of_tasks_are_read_in_all_groups_above(tmp_path: Path) -> None:
    folder = tmp_path / "sys/fs/cgroup"
    for name, now, most in (("job", "7", "max"), ("job/step", "3", "100"), ("job/step/task", "3", "max")):
        (folder / name).mkdir(parents=True)
        (folder / name / "pids.current").write_text(now)
        (folder / name / "pids.max").write_text(most)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job/step/task\n")
    assert read_task_limit(tmp_path) == (3, 100)
    assert read_task_limit(tmp_path / "elsewhere") is None


def test_the_node_of_a_disk_is_that_of_the_bus_it_is_on(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/pci0000:3a/nvme/nvme0n1/nvme0n1p2"
    disk.mkdir(parents=True)
    (tmp_path / "sys/devices/pci0000:3a/numa_node").write_text("1\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/259:2").symlink_to(disk)
    assert read_disk_node("259:2", tmp_path) == 1
    assert read_disk_node("server:/export", tmp_path) is None
