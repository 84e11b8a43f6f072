"""The budget follows the tightest limit that holds for this process, and says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.engine.limits import DEFAULT_SHARE, find_budget, free_memory

GIB = 1 << 30


def write(root: Path, files: dict[str, object]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def machine(root: Path, cgroup: str, *, available: int = 32 * GIB) -> Path:
    meminfo = f"MemTotal:       99999999 kB\nMemFree: 1 kB\nMemAvailable:   {available // 1024} kB"
    return write(root, {"proc/meminfo": meminfo, "proc/self/cgroup": cgroup})


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert free_memory(machine(tmp_path, "0::/user.slice")) == (32 * GIB, "MemAvailable")


def test_v2_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job")
    write(root / "sys/fs/cgroup/job", {"memory.max": 8 * GIB, "memory.current": 3 * GIB})
    assert free_memory(root) == (5 * GIB, "cgroup v2 limit 8.00 GiB, 3.00 GiB in use")


def test_v2_limit_of_an_outer_group_counts_too(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/slurm/job/step")
    top = root / "sys/fs/cgroup"
    write(top / "slurm/job/step", {"memory.max": "max", "memory.current": 1 * GIB})
    write(top / "slurm/job", {"memory.max": 16 * GIB, "memory.current": 12 * GIB})
    write(top / "slurm", {"memory.max": 64 * GIB, "memory.current": 59 * GIB})
    assert free_memory(root)[0] == 4 * GIB


def test_v2_inside_a_container_the_mount_is_the_group(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/docker/abcdef")  # the host's path: not there in the container
    write(root / "sys/fs/cgroup", {"memory.max": 2 * GIB, "memory.current": GIB // 2})
    assert free_memory(root)[0] == 3 * GIB // 2


def test_v2_own_namespace(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/")
    write(root / "sys/fs/cgroup", {"memory.max": 2 * GIB, "memory.current": GIB})
    assert free_memory(root)[0] == GIB


def test_v1_limit_with_other_controllers_beside_it(tmp_path: Path) -> None:
    root = machine(tmp_path, "12:cpu,cpuacct:/box\n5:memory:/box\n1:name=systemd:/box")
    group = {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": GIB}
    write(root / "sys/fs/cgroup/memory/box", group)
    assert free_memory(root) == (3 * GIB, "cgroup v1 limit 4.00 GiB, 1.00 GiB in use")


def test_v1_no_limit_is_a_huge_number(tmp_path: Path) -> None:
    root = machine(tmp_path, "5:memory:/")
    write(root / "sys/fs/cgroup/memory", {"memory.limit_in_bytes": 9223372036854771712, "memory.usage_in_bytes": 1})
    assert free_memory(root)[1] == "MemAvailable"


def test_v1_and_v2_side_by_side(tmp_path: Path) -> None:
    root = machine(tmp_path, "5:memory:/a\n0::/a")
    write(root / "sys/fs/cgroup/memory/a", {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": 0})
    write(root / "sys/fs/cgroup/a", {"cgroup.procs": ""})
    assert free_memory(root)[0] == 4 * GIB


def test_cache_that_the_kernel_drops_first_is_not_in_use(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job")
    files = {"memory.max": 8 * GIB, "memory.current": 7 * GIB, "memory.stat": f"anon 5\ninactive_file {2 * GIB}"}
    write(root / "sys/fs/cgroup/job", files)
    assert free_memory(root)[0] == 3 * GIB


def test_the_machine_may_be_tighter_than_the_group(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job", available=GIB)
    write(root / "sys/fs/cgroup/job", {"memory.max": 8 * GIB, "memory.current": 0})
    assert free_memory(root) == (GIB, "MemAvailable")


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job")
    write(root / "sys/fs/cgroup/job", {"memory.max": GIB, "memory.current": 2 * GIB})
    assert free_memory(root)[0] == 0


@pytest.mark.parametrize("cgroup", ["", "0::/gone", "garbage", "0::/a\nnot a line"])
def test_strange_files_do_not_stop_it(tmp_path: Path, cgroup: str) -> None:
    root = machine(tmp_path, cgroup)
    write(root / "sys/fs/cgroup/a", {"memory.max": "?", "memory.current": ""})
    assert free_memory(root) == (32 * GIB, "MemAvailable")


def test_nothing_readable_at_all(tmp_path: Path) -> None:
    assert free_memory(tmp_path)[0] == 4 * GIB


def test_what_was_asked_for_is_kept_and_said() -> None:
    budget = find_budget("1.5GiB")
    assert (budget.bytes, budget.reason) == (3 * GIB // 2, "1.50 GiB, as asked for")


def test_the_default_is_a_share_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = find_budget(None)
    assert alone.bytes <= free_memory()[0] * DEFAULT_SHARE * 1.5
    assert "a quarter of" in alone.reason
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    shared = find_budget(None)
    assert shared.bytes == pytest.approx(alone.bytes / 8, rel=0.2)
    assert "shared by 8 ranks" in shared.reason


def test_a_budget_in_dev_shm_is_bounded_by_it() -> None:
    assert find_budget(None, in_dev_shm=True).bytes <= find_budget(None).bytes * 1.2
