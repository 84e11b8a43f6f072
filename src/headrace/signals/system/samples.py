"""What the system around a training looks like at one moment: plain values. Counters grow; rates are for the reader."""

from dataclasses import dataclass
from typing import NamedTuple


class ProcessSample(NamedTuple):
    """One process of the tree. None: the kernel or our rights do not tell, or it was not looked at this time."""

    pid: int
    parent: int
    name: str
    state: str  # R running or ready, S asleep, D in the kernel and not to be woken, T stopped, Z ended
    wait_channel: str  # the kernel function that it sleeps in; empty: none, or not told
    threads: int
    cpu_user_s: float
    cpu_system_s: float
    run_delay_s: float | None  # of the main thread: ready to run, without a processor
    block_io_s: float  # waited for disks, where the kernel accounts for it
    rss_bytes: int
    pss_bytes: int | None  # shared pages divided between those who share them; seldom looked at, for it is dear
    uss_bytes: int | None  # pages that are this process's alone
    swap_bytes: int | None
    minor_faults: int
    major_faults: int
    read_bytes: int | None  # from disks
    write_bytes: int | None
    read_calls_bytes: int | None  # through system calls, page cache included
    write_calls_bytes: int | None
    voluntary_switches: int | None
    involuntary_switches: int | None
    main_cpu_s: float | None = None  # of the main thread: on a processor
    cpu_children_s: float | None = None  # of its children that have ended, and theirs


class DiskSample(NamedTuple):
    """Counters of one block device since it was there."""

    name: str
    reads: int
    read_bytes: int
    read_s: float  # summed over requests
    writes: int
    write_bytes: int
    write_s: float
    in_flight: int
    busy_s: float  # at least one request was in flight; its growth over a span is the utilisation
    queue_s: float  # busy time weighted by requests in flight


class PressureSample(NamedTuple):
    """One pressure file (PSI): shares of time from 0 to 1. `some`: a task waited; `full`: all did at once."""

    resource: str  # "cpu", "memory", "io"
    scope: str  # "machine" or "group"
    some_avg10: float
    full_avg10: float
    some_total_s: float
    full_total_s: float


class MemoryGroupSample(NamedTuple):
    """One memory control group that holds for the training, the innermost first."""

    version: int
    depth: int  # 0: the innermost
    used_bytes: int
    limit_bytes: int | None
    throttle_bytes: int | None  # v2 `memory.high`
    inactive_file_bytes: int
    active_file_bytes: int
    peak_bytes: int | None
    swap_bytes: int | None
    limit_hits: int | None  # v2 `max`, v1 `failcnt`: the limit was reached and memory was reclaimed
    throttle_hits: int | None  # v2 `high`
    ooms: int | None  # v2 `oom`
    kills: int | None
    refault_pages: int | None = None  # of files, read again shortly after memory was too short to keep them


class CpuGroupSample(NamedTuple):
    """One CPU control group with a quota, the innermost first."""

    version: int
    depth: int
    quota_cores: float | None
    periods: int
    throttled_periods: int
    throttled_s: float


class MachineSample(NamedTuple):
    cpu_user_s: float
    cpu_system_s: float
    cpu_idle_s: float
    cpu_iowait_s: float
    cpu_steal_s: float
    running: int
    blocked: int
    total_bytes: int
    available_bytes: int
    free_bytes: int
    page_cache_bytes: int
    dirty_bytes: int
    writeback_bytes: int
    shared_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    swap_in_pages: int
    swap_out_pages: int
    major_faults: int
    read_ahead_bytes: int  # bytes that the page cache brought in from disks (`pgpgin`)
    shm_total_bytes: int | None
    shm_free_bytes: int | None
    refault_pages: int | None = None  # of files, read again shortly after memory was too short to keep them


class GpuSample(NamedTuple):
    """One GPU. None: the driver does not tell."""

    number: int
    utilisation: float | None  # share of the last moments with a kernel running
    memory_utilisation: float | None
    used_bytes: int | None
    total_bytes: int | None
    sm_mhz: int | None
    most_sm_mhz: int | None
    throttle_reasons: int | None  # NVML's bits
    power_w: float | None
    temperature_c: int | None
    pcie_rx_bytes_per_s: int | None
    pcie_tx_bytes_per_s: int | None


@dataclass(frozen=True, kw_only=True)
class SystemSample:
    """One look at everything, on the clock of the events."""

    at_ns: int
    machine: MachineSample | None
    processes: tuple[ProcessSample, ...] = ()
    disks: tuple[DiskSample, ...] = ()
    pressures: tuple[PressureSample, ...] = ()
    memory_groups: tuple[MemoryGroupSample, ...] = ()
    cpu_groups: tuple[CpuGroupSample, ...] = ()
    gpus: tuple[GpuSample, ...] | None = None  # None: not to be read here; the facts say why

    def process(self, pid: int) -> ProcessSample | None:
        return next((one for one in self.processes if one.pid == pid), None)

    def pressure(self, resource: str, scope: str = "machine") -> PressureSample | None:
        return next((one for one in self.pressures if (one.resource, one.scope) == (resource, scope)), None)
