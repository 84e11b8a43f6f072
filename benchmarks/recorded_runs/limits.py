"""Real limits around a command: control groups (v1 or v2), a small /dev/shm, swap, `ulimit`. Needs to be root."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_NOBODY = 54321  # a user without a name
Settings = dict[str, object]


def clean_up_when_ended() -> None:
    """Let whoever ends this process find it tidy: swap, control groups and files are taken away on SIGTERM, too."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


class CannotLimit(Exception):
    """A limit that this machine does not let us set."""


@dataclass
class Limited:
    """Limits that are set: what to put before a command to have it run under them, and what the kernel counted."""

    prefix: list[str]
    groups: list[Path]
    _swapped_in: int = field(default_factory=lambda: _counter(Path("/proc/vmstat"), "pswpin"))

    def counted(self) -> dict[str, int]:
        """What the kernel has counted since the limits were set; to be read while they are."""
        found = {"swapped_in_bytes": 4096 * (_counter(Path("/proc/vmstat"), "pswpin") - self._swapped_in)}
        for group in self.groups:
            for file, names in _COUNTERS.items():
                if (group / file).exists():
                    found |= {key: _counter(group / file, *lines) for key, lines in names.items()}
        return found


_COUNTERS: dict[str, dict[str, tuple[str, ...]]] = {
    "memory.stat": {"refault_pages": ("total_workingset_refault_file", "workingset_refault_file")},  # v1, v2
    "cpu.stat": {"periods": ("nr_periods",), "throttled_periods": ("nr_throttled",)},
}


def _counter(path: Path, *names: str) -> int:
    """The first of some counters that a file has; 0 where it has none."""
    lines = dict(line.split(None, 1) for line in path.read_text().splitlines() if " " in line)
    return next((int(lines[name]) for name in names if name in lines), 0)


@contextlib.contextmanager
def limited(limits: dict[str, float], folder: Path, *, cpus: Sequence[int] = ()) -> Iterator[Limited]:
    """Set limits for a command that is run meanwhile, on some processors only if they are named."""
    if limits and os.geteuid() != 0:
        raise CannotLimit("needs to be root")
    wanted: list[tuple[str, Settings, Settings]] = []  # controller, files of v1, files of v2
    swap = int(limits.get("swap_bytes", 0))
    if "cores" in limits:
        quota = int(limits["cores"] * _PERIOD_US)
        v1: Settings = {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": quota}
        wanted.append(("cpu", v1, {"cpu.max": f"{quota} {_PERIOD_US}"}))
    if "memory_bytes" in limits:
        memory = int(limits["memory_bytes"])
        v1 = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory + swap}
        wanted.append(("memory", v1, {"memory.max": memory, "memory.swap.max": swap}))
    if "tasks" in limits:
        most: Settings = {"pids.max": int(limits["tasks"])}
        wanted.append(("pids", most, most))
    if "read_bytes_per_s" in limits or "reads_per_s" in limits:
        device = _device_of(folder)
        bps, iops = int(limits.get("read_bytes_per_s", 0)), int(limits.get("reads_per_s", 0))
        v1 = {
            **({"blkio.throttle.read_bps_device": f"{device} {bps}"} if bps else {}),
            **({"blkio.throttle.read_iops_device": f"{device} {iops}"} if iops else {}),
        }
        line = device + (f" rbps={bps}" if bps else "") + (f" riops={iops}" if iops else "")
        wanted.append(("blkio", v1, {"io.max": line}))
    with contextlib.ExitStack() as stack:
        if swap:
            stack.enter_context(_swap_file(folder / "swap", swap))
        groups = [stack.enter_context(_group(path, settings)) for path, settings in _places(wanted, folder.name)]
        yield Limited(_prefix(limits, groups, cpus), groups)


def _prefix(limits: dict[str, float], groups: Sequence[Path], cpus: Sequence[int]) -> list[str]:
    """A shell that takes its place under the limits and becomes the command."""
    lines = [f"echo $$ > {group}/cgroup.procs" for group in groups]
    if "shm_bytes" in limits:
        lines.append(f"mount -t tmpfs -o size={int(limits['shm_bytes'])} tmpfs /dev/shm")
    if "open_files" in limits:
        lines.append(f"ulimit -n {int(limits['open_files'])}")
    if "address_bytes" in limits:
        lines.append(f"ulimit -v {int(limits['address_bytes']) // 1024}")
    user = []
    if "user_processes" in limits:  # root passes over it
        nobody = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        user = ["prlimit", f"--nproc={int(limits['user_processes'])}", *nobody]
    shell = ["sh", "-c", " && ".join([*lines, 'exec "$@"']), "sh"] if lines else []
    apart = ["unshare", "-m"] if "shm_bytes" in limits else []
    chosen = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    return [*chosen, *apart, *shell, *user]


def _places(wanted: list[tuple[str, Settings, Settings]], name: str) -> list[tuple[Path, Settings]]:
    """One group a controller (v1), or one for all of them (v2), where a process has only one."""
    if not wanted:
        return []
    if all((GROUPS / controller).is_dir() for controller, _, _ in wanted):
        return [(GROUPS / controller / name, v1) for controller, v1, _ in wanted]
    with contextlib.suppress(OSError):
        (GROUPS / "cgroup.subtree_control").write_text("+cpu +memory +io +pids")
    return [(GROUPS / name, {key: value for _, _, v2 in wanted for key, value in v2.items()})]


@contextlib.contextmanager
def _group(path: Path, settings: Settings) -> Iterator[Path]:
    """A control group with these settings, removed at the end with whatever is in it."""
    try:
        path.mkdir()
    except OSError as error:
        raise CannotLimit(f"{path}: {error}") from error
    try:
        for name, value in settings.items():
            try:
                (path / name).write_text(str(value))
            except OSError as error:
                if "swap" not in name and "memsw" not in name:
                    raise CannotLimit(f"{path / name}: {error}") from error
        yield path
    finally:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for pid in (path / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@contextlib.contextmanager
def _swap_file(path: Path, size: int) -> Iterator[None]:
    if shutil.which("swapon") is None:
        raise CannotLimit("swapon is not installed")
    with open(path, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        os.posix_fallocate(file.fileno(), 0, size)
    try:
        for command in (["mkswap", str(path)], ["swapon", str(path)]):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                raise CannotLimit(f"{' '.join(command)}: {done.stderr.strip()}")
        yield
    finally:
        subprocess.run(["swapoff", str(path)], check=False, capture_output=True)
        path.unlink(missing_ok=True)


def _device_of(folder: Path) -> str:
    """Return major:minor of the whole disk under a folder: a throttle does not take a partition."""
    number = os.stat(folder).st_dev
    name = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not name.exists():
        raise CannotLimit(f"{folder} is on no block device")
    disk = name.resolve()
    if (disk / "partition").exists():
        disk = disk.parent
    return (disk / "dev").read_text().strip()
