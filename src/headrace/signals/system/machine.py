"""The whole machine: processors, memory, swap, /dev/shm, disks, how long tasks wait for them (PSI), and its GPUs."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .cgroups import MemoryGroup, memory_groups, read_limits
from .kernel_files import find_bytes, find_number, read_int, read_start, read_text
from .samples import DiskSample, GpuSample, MachineSample, PressureSample

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SECTOR = 512  # whatever the device says of itself
_NOT_DISKS = ("loop", "ram", "zram", "sr", "fd")


def read_machine(root: Path = Path("/")) -> MachineSample | None:
    """The machine now; None where /proc tells nothing."""
    memory = read_start(root / "proc/meminfo", 4096).decode("ascii", "replace")
    stat, counts = read_text(root / "proc/stat"), read_text(root / "proc/vmstat")
    ticks = [int(number) for number in stat.partition("\n")[0].split()[1:]]
    if not memory or not ticks:
        return None
    ticks += [0] * (8 - len(ticks))
    shm = None
    with contextlib.suppress(OSError):
        shm = os.statvfs(root / "dev/shm")
    return MachineSample(
        cpu_user_s=(ticks[0] + ticks[1]) * _TICK_S,
        cpu_system_s=(ticks[2] + ticks[5] + ticks[6]) * _TICK_S,
        cpu_idle_s=ticks[3] * _TICK_S,
        cpu_iowait_s=ticks[4] * _TICK_S,
        cpu_steal_s=ticks[7] * _TICK_S,
        running=find_number(stat, "procs_running ") or 0,
        blocked=find_number(stat, "procs_blocked ") or 0,
        total_bytes=find_bytes(memory, "MemTotal:") or 0,
        available_bytes=find_bytes(memory, "MemAvailable:") or 0,
        free_bytes=find_bytes(memory, "MemFree:") or 0,
        page_cache_bytes=find_bytes(memory, "Cached:") or 0,
        dirty_bytes=find_bytes(memory, "Dirty:") or 0,
        writeback_bytes=find_bytes(memory, "Writeback:") or 0,
        shared_bytes=find_bytes(memory, "Shmem:") or 0,
        swap_total_bytes=find_bytes(memory, "SwapTotal:") or 0,
        swap_free_bytes=find_bytes(memory, "SwapFree:") or 0,
        swap_in_pages=find_number(counts, "pswpin ") or 0,
        swap_out_pages=find_number(counts, "pswpout ") or 0,
        major_faults=find_number(counts, "pgmajfault ") or 0,
        read_ahead_bytes=find_bytes(counts, "pgpgin ") or 0,
        shm_total_bytes=shm.f_frsize * shm.f_blocks if shm else None,
        shm_free_bytes=shm.f_frsize * shm.f_bavail if shm else None,
        refault_pages=find_number(counts, "workingset_refault_file "),
    )


def read_disks(names: Iterable[str], root: Path = Path("/")) -> tuple[DiskSample, ...]:
    wanted, disks = set(names), []
    for line in read_text(root / "proc/diskstats").splitlines():
        _, _, name, *numbers = line.split()
        if len(numbers) < 11 or name not in wanted:
            continue
        n = [int(number) for number in numbers[:11]]
        disk = DiskSample(
            name, n[0], n[2] * _SECTOR, n[3] / 1e3, n[4], n[6] * _SECTOR, n[7] / 1e3, n[8], n[9] / 1e3, n[10] / 1e3
        )
        disks.append(disk)
    return tuple(disks)


def find_disks(root: Path = Path("/")) -> list[str]:
    """The names of whole block devices that a training may read from: no partitions, loops or memory disks."""
    try:
        names = sorted(os.listdir(root / "sys/block"))
    except OSError:
        return []
    return [name for name in names if not name.startswith(_NOT_DISKS)]


def read_available(root: Path = Path("/")) -> tuple[int | None, int | None]:
    """(available, total) bytes of the machine: all that a look several times a second needs."""
    memory = read_start(root / "proc/meminfo", 256).decode("ascii", "replace")  # both stand in the first three lines
    return find_bytes(memory, "MemAvailable:"), find_bytes(memory, "MemTotal:")


def read_room() -> tuple[int, int | None]:
    """Bytes below the limit of the control group with the least room, or available on the machine, and that limit."""
    available = read_available()[0] or 0
    rooms = [((one.limit_bytes or 0) - one.hard_bytes, one.limit_bytes) for one in read_limits(memory_groups())]
    room, limit = min(rooms, key=lambda one: one[0], default=(available, None))
    return min(room, available), limit


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the processors of a list as the kernel and `taskset` write it.

    >>> sorted(parse_cpu_list("0-2,8"))
    [0, 1, 2, 8]
    """
    spans = (part.partition("-") for part in text.strip().split(",") if part.strip())
    return frozenset(cpu for first, dash, last in spans for cpu in range(int(first), int(last if dash else first) + 1))


def read_numa_nodes(root: Path = Path("/")) -> dict[int, frozenset[int]]:
    """The processors of each NUMA node that has some; empty where the kernel knows of none."""
    folders = sorted((root / "sys/devices/system/node").glob("node[0-9]*"))
    nodes = {int(folder.name[4:]): parse_cpu_list(read_text(folder / "cpulist")) for folder in folders}
    return {node: cpus for node, cpus in nodes.items() if cpus}


def read_pci_node(address: str, root: Path = Path("/")) -> int | None:
    """The NUMA node that a PCI device ("0000:3b:00.0") is attached to; None where the machine does not say."""
    return read_int(root / "sys/bus/pci/devices" / address.lower() / "numa_node")  # None for -1: it does not say


def read_disk_node(device: str, root: Path = Path("/")) -> int | None:
    """The NUMA node that a block device ("259:2") is attached to; None where the machine does not say."""
    place = Path(os.path.realpath(root / "sys/dev/block" / device))
    texts = (read_text(folder / "numa_node").strip() for folder in (place, *place.parents))
    found = next((text for text in texts if text), "")
    return int(found) if found.isdigit() else None


def read_map_limit(root: Path = Path("/")) -> int | None:
    """How many stretches of memory one process may map (`vm.max_map_count`)."""
    return read_int(root / "proc/sys/vm/max_map_count")


def read_swapped_in(root: Path = Path("/")) -> int | None:
    """Pages that came back from swap since the machine started; None where /proc/vmstat is not readable."""
    return find_number(read_text(root / "proc/vmstat"), "pswpin ")


def read_pressures(
    resources: Iterable[str], groups: tuple[MemoryGroup, ...], root: Path = Path("/")
) -> tuple[PressureSample, ...]:
    """Pressure ("cpu", "memory", "io") where it can be read: the innermost v2 group that tells it, the machine."""
    found: list[PressureSample | None] = []
    for resource in resources:
        own = (_read_psi(g.folder / f"{resource}.pressure", resource, "group") for g in groups if g.version == 2)
        found.append(next((psi for psi in own if psi is not None), None))
        found.append(_read_psi(root / "proc/pressure" / resource, resource, "machine"))
    return tuple(psi for psi in found if psi is not None)


def _read_psi(path: Path, resource: str, scope: str) -> PressureSample | None:
    """None where the kernel offers none: switched off (`psi=0`) the file exists, and reading it fails."""
    rows: dict[str, dict[str, float]] = {}
    try:
        for line in read_text(path).splitlines():
            kind, *fields = line.split()
            rows[kind] = {name: float(value) for name, _, value in (field.partition("=") for field in fields)}
        some, full = rows["some"], rows.get("full", {})  # older kernels have no `full` for processors
        return PressureSample(
            resource=resource,
            scope=scope,
            some_avg10=some["avg10"] / 100,
            full_avg10=full.get("avg10", 0.0) / 100,
            some_total_s=some["total"] / 1e6,
            full_total_s=full.get("total", 0.0) / 1e6,
        )
    except (ValueError, KeyError):
        return None


# ---------------------------------------------------------------------------------------- GPUs

_NO_PACKAGE = "nvidia-ml-py is not installed (pip install 'headrace[gpu]')"


class GpuReader:
    """Holds the NVIDIA driver's library open. Without GPUs `names` is None, and `note` says why."""

    driver = ""  # its version
    addresses: tuple[str, ...] = ()  # of the GPUs on the PCI bus: "0000:3b:00.0"

    def __init__(self) -> None:
        self.names: tuple[str, ...] | None = None
        self.note = ""
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            import pynvml
        except ImportError:
            self.note = _NO_PACKAGE
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.note = f"NVML: {error}"
            return
        self._nvml = pynvml
        count = self._ask(pynvml.nvmlDeviceGetCount) or 0
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        told = [self._ask(pynvml.nvmlDeviceGetName, handle) for handle in self._handles]
        self.names = tuple(map(_text, told))
        self.driver = _text(self._ask(pynvml.nvmlSystemGetDriverVersion) or "")
        places = [self._ask(pynvml.nvmlDeviceGetPciInfo, handle) for handle in self._handles]
        self.addresses = tuple(_text(place.busId).lower()[-12:] for place in places if place is not None)

    def sample(self) -> tuple[GpuSample, ...] | None:
        """All GPUs now; None where there is no driver to ask."""
        if self._nvml is None:
            return None
        return tuple(self._read(number, handle) for number, handle in enumerate(self._handles))

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _read(self, number: int, handle: Any) -> GpuSample:
        nvml = self._nvml
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        received = self._ask(nvml.nvmlDeviceGetPcieThroughput, handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
        sent = self._ask(nvml.nvmlDeviceGetPcieThroughput, handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
        return GpuSample(
            number=number,
            utilisation=None if rates is None else rates.gpu / 100,
            memory_utilisation=None if rates is None else rates.memory / 100,
            used_bytes=None if memory is None else int(memory.used),
            total_bytes=None if memory is None else int(memory.total),
            sm_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            most_sm_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            throttle_reasons=self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
            power_w=None if power is None else power / 1000,
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            pcie_rx_bytes_per_s=None if received is None else received * 1000,  # NVML counts in KB/s
            pcie_tx_bytes_per_s=None if sent is None else sent * 1000,
        )

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """A driver answers what it knows: a question it does not support is None, not a failure."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def _text(told: object) -> str:
    """What NVML tells: text, or bytes in older versions of its package."""
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
