"""One look at the system tells what the kernel tells, of a real tree of processes and of recorded machines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from headrace.signals.recording import SystemSampler
from headrace.signals.recording.system_samples import SystemFile, read_samples
from headrace.signals.system import (
    MemoryGroupSample,
    ProcessSample,
    ProcessTree,
    SystemSample,
    cpu_groups,
    find_disks,
    memory_groups,
    read_disks,
    read_machine,
    read_quotas,
)

DATA = Path(__file__).parents[2] / "data" / "guard"
DEADLINE_S = 60.0

_BUSY = """
import os, subprocess, sys, time
kept = bytearray(b"x" * (64 << 20))
with open(sys.argv[1], "wb") as file:
    file.write(kept[: 8 << 20])
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
while sum(os.times()[:2]) < 0.3:
    pass
print(child.pid, flush=True)
sys.stdin.read()
child.communicate()
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """(a process that used 64 MiB and 0.3 s of a processor and now reads a pipe, its child)."""
    command = [sys.executable, "-c", _BUSY, str(tmp_path / "file")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.pid, int(process.stdout.readline())
    process.communicate(timeout=DEADLINE_S)


def sample_until(
    tree: ProcessTree, is_enough: Callable[[tuple[ProcessSample, ...]], bool]
) -> tuple[ProcessSample, ...]:
    deadline = time.monotonic() + DEADLINE_S
    while not is_enough(found := tree.sample()):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_a_tree_of_processes(busy: tuple[int, int]) -> None:
    pid, child_pid = busy
    tree = ProcessTree(pid, dear_share=1.0)
    parent, child = sample_until(tree, lambda found: all(one.state == "S" and one.pss_bytes for one in found))
    assert (parent.pid, parent.parent, child.pid, child.parent) == (pid, os.getpid(), child_pid, pid)
    assert parent.cpu_user_s + parent.cpu_system_s >= 0.25
    assert parent.rss_bytes > 64 << 20
    assert parent.uss_bytes is not None
    assert parent.pss_bytes is not None
    assert 64 << 20 < parent.uss_bytes <= parent.pss_bytes <= parent.rss_bytes + (1 << 20)
    assert parent.minor_faults > 1000
    assert parent.write_calls_bytes is not None
    assert parent.write_calls_bytes >= 8 << 20
    assert parent.threads == 1
    assert parent.voluntary_switches is not None
    assert parent.run_delay_s is not None
    assert parent.swap_bytes == 0 or psutil.swap_memory().total


def test_a_process_that_ends_leaves_the_tree_and_one_that_starts_joins(busy: tuple[int, int]) -> None:
    tree = ProcessTree(os.getpid())
    first = {one.pid for one in tree.sample()}
    assert set(busy) <= first
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert child.pid in {one.pid for one in tree.sample()}
    child.communicate()
    assert child.pid not in {one.pid for one in tree.sample()}


def test_an_orphan_stays_in_the_tree() -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()']).pid)"
    script = f"{code}; sys.stdout.flush(); sys.stdin.readline()"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    orphan = int(process.stdout.readline())
    tree = ProcessTree(process.pid)
    assert {one.pid for one in tree.sample()} == {process.pid, orphan}
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait(DEADLINE_S)
    (left,) = tree.sample()
    assert left.pid == orphan
    process.stdin.close()
    process.stdout.close()
    sample_until(tree, lambda found: not found or found[0].state == "Z")


def test_a_process_that_is_not_there_has_no_tree() -> None:
    assert ProcessTree(999_999_999).sample() == ()


def test_the_machine_now() -> None:
    machine = read_machine()
    assert machine is not None
    assert machine.total_bytes == psutil.virtual_memory().total
    assert 0 < machine.available_bytes <= machine.total_bytes
    assert 0 < machine.page_cache_bytes < machine.total_bytes
    assert machine.cpu_user_s > 0
    assert machine.cpu_idle_s > 0
    room = shutil.disk_usage("/dev/shm")
    assert machine.shm_total_bytes == room.total
    again = read_machine()
    assert again is not None
    assert again.cpu_user_s + again.cpu_idle_s >= machine.cpu_user_s + machine.cpu_idle_s


def test_disks_are_those_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "diskstats").write_text(
        "   7       0 loop0 74 0 508 5 32 7 60 32 0 40 67 0 0 0 0 24 28\n"
        " 259       0 nvme0n1 1277110 54691 76043426 4945901 77595 473398 73043680 203173 3 296060 5168600 0 0 0\n"
        " 259       1 nvme0n1p1 100 0 800 10 0 0 0 0 0 10 10 0 0 0 0 0 0\n"
        "   8       0 sdb 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    (disk,) = read_disks(["nvme0n1"], tmp_path)
    assert (disk.name, disk.reads, disk.read_bytes, disk.read_s) == ("nvme0n1", 1277110, 76043426 * 512, 4945.901)
    assert (disk.writes, disk.write_bytes, disk.write_s) == (77595, 73043680 * 512, 203.173)
    assert (disk.in_flight, disk.busy_s, disk.queue_s) == (3, 296.06, 5168.6)
    assert read_disks(["nvme0n1"], tmp_path / "nowhere") == ()


def test_a_real_write_shows_on_some_disk(tmp_path: Path) -> None:
    before = {one.name: one.write_bytes for one in read_disks(find_disks())}
    if not before:
        pytest.skip("no block device is visible here")
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(4 << 20))
        file.flush()
        os.fsync(file.fileno())
    if os.statvfs(tmp_path).f_fsid == os.statvfs("/dev/shm").f_fsid:
        pytest.skip("the temporary folder lies in memory")
    device = os.stat(tmp_path).st_dev
    if not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():
        pytest.skip("the temporary folder lies on no block device")
    assert sum(one.write_bytes - before.get(one.name, 0) for one in read_disks(find_disks())) >= 4 << 20


# ------------------------------------------------------------------------------------------- control groups


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_cpu_quota_v2_of_all_levels(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/step\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/job/cpu.stat": "usage_usec 1\nnr_periods 50\nnr_throttled 20\nthrottled_usec 1500000\n",
            "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
            "sys/fs/cgroup/job/step/cpu.stat": "usage_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        },
    )
    (group,) = read_quotas(cpu_groups(tmp_path))
    assert (group.version, group.depth, group.quota_cores) == (2, 1, 2.5)
    assert (group.periods, group.throttled_periods, group.throttled_s) == (50, 20, 1.5)


def test_cpu_quota_v1_by_files(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/docker/abc"
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n",
            "proc/self/mountinfo": "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
            f"{folder}/cpu.cfs_quota_us": "50000\n",
            f"{folder}/cpu.cfs_period_us": "100000\n",
            f"{folder}/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us": "100000\n",
        },
    )
    (group,) = read_quotas(cpu_groups(tmp_path))
    assert (group.version, group.depth, group.quota_cores) == (1, 0, 0.5)
    assert (group.periods, group.throttled_periods, group.throttled_s) == (10, 4, 2.5)


_BURN = """
import os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
print("in", flush=True)
while True:
    pass
"""


@pytest.mark.root
def test_a_real_v1_cpu_quota_throttles() -> None:
    top = Path("/sys/fs/cgroup/cpu")
    if not (top / "cpu.cfs_quota_us").exists() or not os.access(top, os.W_OK):
        pytest.skip("needs a writable v1 cpu hierarchy")
    folder = top / f"headrace-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "cpu.cfs_quota_us").write_text("20000")
        process = subprocess.Popen([sys.executable, "-c", _BURN, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        sampler = SystemSampler(process.pid, gpus=False)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            (group,) = [one for one in sampler.sample().cpu_groups if one.depth == 0]
            if group.throttled_periods >= 2:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert group.quota_cores == 0.2
        assert group.throttled_s > 0
        process.kill()
        process.communicate()
    finally:
        deadline = time.monotonic() + DEADLINE_S
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:  # the kernel is still taking the last process out of it
                assert time.monotonic() < deadline
                time.sleep(0.02)


@pytest.mark.root
def test_a_real_v1_memory_limit_is_hit() -> None:
    groups = memory_groups()
    if not groups or groups[0].version != 1 or not os.access(groups[0].folder, os.W_OK):
        pytest.skip("needs a writable v1 memory hierarchy")
    folder = groups[0].folder / f"headrace-test-{os.getpid()}"
    folder.mkdir()
    # files read through a small group fill it with cache: the limit is hit, and nobody is killed
    code = """
import os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
with open(sys.argv[2], "wb") as file:
    for _ in range(64):
        file.write(bytes(1 << 20))
        file.flush()
        os.fdatasync(file.fileno())
print("done", flush=True)
sys.stdin.read()
"""
    file = Path(__file__).parent / f".headrace-test-{os.getpid()}"
    try:
        (folder / "memory.limit_in_bytes").write_text(str(32 << 20))
        command = [sys.executable, "-c", code, str(folder), str(file)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        sample = SystemSampler(process.pid, gpus=False).sample()
        process.communicate()
    finally:
        file.unlink(missing_ok=True)
        deadline = time.monotonic() + DEADLINE_S
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
    group = sample.memory_groups[0]
    assert (group.version, group.limit_bytes, group.kills) == (1, 32 << 20, 0)
    assert group.limit_hits is not None
    assert group.limit_hits > 0
    assert group.inactive_file_bytes + group.active_file_bytes > 0


def test_a_recorded_v2_machine() -> None:
    sampler = SystemSampler(999_999_999, root=DATA / "slurm-v2-after", gpus=False)
    sample = sampler.sample()
    limited = [one for one in sample.memory_groups if one.limit_bytes is not None]
    assert [(one.limit_bytes, one.depth, one.ooms, one.kills) for one in limited] == [(2 << 30, 3, 1, 1)]
    assert sample.processes == ()
    assert sample.gpus is None


# --------------------------------------------------------------------------------------------- whole samples


def test_a_whole_sample_and_its_line(tmp_path: Path, busy: tuple[int, int]) -> None:
    sampler = SystemSampler(busy[0])
    file = SystemFile(tmp_path / "system.jsonl", limit_bytes=1 << 20, start_s=0.0, interval_s=1.0)
    samples = [sampler.sample(), sampler.sample()]
    sampler.close()
    for sample in samples:
        file.write(sample, now_s=1.0)
    file.close()
    first = samples[0]
    assert first.process(busy[1]) is not None
    assert first.process(1) is None
    if Path("/proc/pressure/cpu").exists():
        pressure = first.pressure("cpu")
        assert pressure is not None
        assert 0 <= pressure.some_avg10 <= 1
    assert first.at_ns < samples[1].at_ns
    assert read_samples((tmp_path / "system.jsonl").read_bytes()) == (samples, [])


def test_lines_of_another_version_give_what_is_known(tmp_path: Path) -> None:
    file = SystemFile(tmp_path / "system.jsonl", limit_bytes=1 << 20, start_s=0.0, interval_s=1.0)
    group = MemoryGroupSample(2, 0, 5, None, None, 1, 2, None, None, 3, 4, 5, 6)
    file.write(SystemSample(at_ns=7, machine=None, memory_groups=(group,)), now_s=0.0)
    file.close()
    text = (tmp_path / "system.jsonl").read_text()
    newer = text.replace('"used_bytes",', '"new_in_2030","used_bytes",').replace("[[2,0,5,", "[[2,0,99,5,")
    newer = newer.replace(',"kills"', "").replace(",5,6,null]", ",5,null]")
    (sample,), problems = read_samples(newer.encode())
    assert sample.memory_groups == (group._replace(kills=None),)
    assert problems == []


def test_damaged_lines_are_said() -> None:
    samples, problems = read_samples(b'{"at_ns": 1}\nnonsense\n')
    assert samples == []
    assert problems == ["system.jsonl: 2 lines cannot be read, the first is line 1"]


def test_past_a_quarter_of_its_limit_the_system_is_sampled_less_often(tmp_path: Path) -> None:
    limit = 20_000
    file = SystemFile(tmp_path / "system.jsonl", limit_bytes=limit, start_s=0.0, interval_s=1.0)
    group = MemoryGroupSample(2, 0, 5, None, None, 1, 2, None, None, 3, 4, 5, 6)
    now_s, looks = 0.0, 0
    while now_s < 10 * 86_400:
        if file.is_due(now_s):
            file.write(SystemSample(at_ns=int(now_s * 1e9), machine=None, memory_groups=(group,)), now_s=now_s)
            looks += 1
        now_s += 1.0 if now_s < 1000 else 100.0
    assert (tmp_path / "system.jsonl").stat().st_size < limit
    (problem,) = file.problems
    assert "sampled less often" in problem
    samples, _ = read_samples((tmp_path / "system.jsonl").read_bytes())
    assert len(samples) <= looks
    assert samples[-1].at_ns > 5 * 86_400 * 10**9  # it goes on to the end
    file.close()


def test_the_reference_names_every_field(tmp_path: Path) -> None:
    file = SystemFile(tmp_path / "system.jsonl", limit_bytes=1 << 20, start_s=0.0, interval_s=1.0)
    file.close()
    fields = json.loads((tmp_path / "system.jsonl").read_text())["fields"]
    text = Path(__file__).parents[3].joinpath("docs/reference/run-directory.md").read_text(encoding="utf-8")
    table = text.partition("| row | fields |")[2].partition("\n\n")[0]
    rows = {row.split("`")[1]: set(row.split("`")[3::2]) for row in table.splitlines() if row.startswith("| `")}
    assert {name: [one for one in names if one not in rows[name]] for name, names in fields.items()} == {
        name: [] for name in fields
    }
