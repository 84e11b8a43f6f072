"""What a process used between two looks at the system, and the file that it is at. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.signals.system import Call, OpenFile, ProcessSample

# Files that a process has open for reasons of its own.
_NOT_DATA = ("/dev/", "/memfd:", "/proc/", "/sys/", "/tmp/pymp-", "anon_inode:")
_NOT_DATA_ENDS = (".so", ".py", ".pyc", ".log", ".out", ".err", " (deleted)")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a process holds, and what it used per second."""

    cpu_share: float = 0.0  # of one processor; more than 1 with several threads
    rss_bytes: int = 0
    pss_bytes: int | None = None  # shared pages divided among their holders; asked seldom
    swap_bytes: int = 0
    read_bytes_per_s: float | None = None  # by read calls, from wherever; None where it is not ours to see
    disk_bytes_per_s: float | None = None  # of it, what had to come from a disk


def rates_between(first: ProcessSample | None, second: ProcessSample | None, seconds: float) -> Rates:
    """What was used between two samples; without a first one only what is held now."""
    if second is None:
        return Rates()
    if first is None or seconds <= 0:
        return Rates(rss_bytes=second.rss_bytes, pss_bytes=second.pss_bytes, swap_bytes=second.swap_bytes or 0)
    return Rates(
        cpu_share=max(0.0, _cpu_s(second) - _cpu_s(first)) / seconds,
        rss_bytes=second.rss_bytes,
        pss_bytes=second.pss_bytes,
        swap_bytes=second.swap_bytes or 0,
        read_bytes_per_s=_per_s(first.read_calls_bytes, second.read_calls_bytes, seconds),
        disk_bytes_per_s=_per_s(first.read_bytes, second.read_bytes, seconds),
    )


def moved_bytes(sample: ProcessSample | None) -> int | None:
    """Bytes read and written so far, through pipes too: every task and every batch makes it grow."""
    if sample is None or sample.read_calls_bytes is None or sample.write_calls_bytes is None:
        return None
    return sample.read_calls_bytes + sample.write_calls_bytes


def _cpu_s(sample: ProcessSample) -> float:
    return sample.cpu_user_s + sample.cpu_system_s


def _per_s(first: int | None, second: int | None, seconds: float) -> float | None:
    return None if first is None or second is None else max(0, second - first) / seconds


def file_of(call: Call | None, files: Sequence[OpenFile]) -> OpenFile | None:
    """The file that a system call works on, where its first argument is a descriptor."""
    return next((file for file in files if call is not None and file.fd == call.descriptor), None)


def data_file(
    files: Sequence[OpenFile], earlier: Sequence[OpenFile] = (), *, inherited: Collection[str] = ()
) -> OpenFile | None:
    """The open file that looks like data: the one whose position moved, else the last one opened.

    `inherited`: paths that the parent has open too; a worker got them with the fork and reads none of them.
    """
    data = [
        file
        for file in files
        if file.kind == "file" and file.fd > 2 and file.path not in inherited and not _is_not_data(file.path)
    ]
    before = {(file.fd, file.path): file.position for file in earlier}
    moved = [file for file in data if before.get((file.fd, file.path), file.position) != file.position]
    known = moved or data
    return known[-1] if known else None


def _is_not_data(path: str) -> bool:
    return path.startswith(_NOT_DATA) or path.endswith(_NOT_DATA_ENDS)
