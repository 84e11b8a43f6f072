"""Every control group above a process is read, v1 and v2, inside containers too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.signals.system.cgroups import memory_groups, read_group, read_limits, read_oom_counts
from headrace.signals.system.machine import read_pressures, read_swapped_in

DATA = Path(__file__).parents[2] / "data" / "guard"
GIB = 1 << 30


def test_slurm_v2_all_levels_innermost_first() -> None:
    groups = memory_groups(DATA / "slurm-v2-before")
    assert [group.folder.name for group in groups] == ["task_0", "user", "step_0", "job_8123", "system.slice"]
    (limit,) = read_limits(groups)
    assert (limit.group.folder.name, limit.limit_bytes, limit.group.name) == ("job_8123", 2 * GIB, "cgroup v2")
    assert limit.hard_bytes == limit.used_bytes - limit.inactive_file_bytes - limit.active_file_bytes
    assert limit.inactive_file_bytes > limit.active_file_bytes > 0
    assert limit.throttle_bytes is None
    assert limit.peak_bytes == limit.used_bytes


def test_slurm_v2_a_kill_is_seen_and_the_limit_that_was_hit() -> None:
    def counts(name: str) -> dict[str, tuple[int | None, int | None]]:
        root = DATA / name
        read = read_oom_counts(memory_groups(root), root)
        return {k.group.folder.name: (k.kills, k.limit_hits) for k in read.groups} | {"": (read.machine, None)}

    before, after = counts("slurm-v2-before"), counts("slurm-v2-after")
    assert before["task_0"] == (0, 0)
    assert after["task_0"] == (1, 0)  # killed here, but for a limit further out
    assert after["job_8123"] == (1, 1)
    assert (before["system.slice"][0], after["system.slice"][0]) == (6, 7)  # other jobs' kills count here
    assert (before[""][0], after[""][0]) == (7, 8)


def test_docker_v2_with_a_throttle() -> None:
    (group,) = memory_groups(DATA / "docker-v2")
    memory = read_group(group)
    assert memory is not None
    assert (memory.limit_bytes, memory.throttle_bytes, memory.peak_bytes) == (4 * GIB, 3 * GIB, None)
    assert memory.hard_bytes == GIB - GIB // 4
    (kills,) = read_oom_counts((group,), DATA / "docker-v2").groups
    assert (kills.kills, kills.limit_hits) == (0, 0)  # without the local file, the hierarchical count stands in


def test_kubernetes_v1_the_mounted_group_is_the_containers() -> None:
    root = DATA / "kubernetes-v1"
    (group,) = memory_groups(root)
    memory = read_group(group)
    assert memory is not None
    assert (group.version, memory.limit_bytes, memory.peak_bytes) == (1, 8 * GIB, 7 * GIB)
    assert memory.working_set_bytes == 5 * GIB
    (kills,) = read_oom_counts((group,), root).groups
    assert (kills.kills, kills.limit_hits) == (2, 12)


def test_a_path_above_the_namespace_is_the_mounts_root(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/../../elsewhere\n")
    top = tmp_path / "sys/fs/cgroup"
    top.mkdir(parents=True)
    (top / "memory.max").write_text("1024\n")
    assert [group.folder for group in memory_groups(tmp_path)] == [top]


def test_v2_beside_v1_under_its_own_mount(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/a\n0::/b\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
        "garbage\n"
    )
    for folder, name in (("memory/a", "memory.limit_in_bytes"), ("unified/b", "memory.max")):
        (tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup" / folder / name).write_text("1\n")
    assert [(g.version, g.folder.name) for g in memory_groups(tmp_path)] == [(1, "a"), (2, "b")]


def test_nothing_readable_is_no_group_and_no_count(tmp_path: Path) -> None:
    assert memory_groups(tmp_path) == ()
    counts = read_oom_counts((), tmp_path)
    assert (counts.groups, counts.machine) == ((), None)
    assert read_pressures(("memory",), (), tmp_path) == ()
    assert read_swapped_in(tmp_path) is None


def test_a_group_that_vanished(tmp_path: Path) -> None:
    (group,) = memory_groups(DATA / "docker-v2")
    assert read_group(type(group)(2, tmp_path / "gone")) is None


def test_this_process_here() -> None:
    assert memory_groups() == memory_groups(pid=os.getpid())
    assert read_oom_counts(memory_groups()).machine is not None


def test_pressure_of_the_group_and_of_the_machine() -> None:
    root = DATA / "slurm-v2-before"
    own, machine = read_pressures(("memory",), memory_groups(root), root)
    assert (own.scope, own.some_avg10, own.full_avg10) == ("group", 0.145, 0.0925)
    assert (machine.scope, machine.some_avg10) == ("machine", pytest.approx(0.0012))
    assert own.some_total_s == pytest.approx(1.843021)
    assert read_pressures(("cpu",), memory_groups(root), root) == ()
    assert read_swapped_in(root) == 512


@pytest.mark.parametrize("text", ["", "some avg10=x total=1\n", "full avg10=1.0 total=1\n", "some\n"])
def test_a_pressure_file_that_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/memory").write_text(text)
    assert read_pressures(("memory",), (), tmp_path) == ()
