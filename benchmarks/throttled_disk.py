"""A disk that brings so many bytes a second and no more, each read after a delay: a real limit, removed at the end.

The bytes a second are limited by the kernel: an ext4 on a loop device, and a control group with a limit on reads of
that device (blkio.throttle in version 1, io.max in version 2). The delay of each read that misses the page cache is
added by a small library before the C library (LD_PRELOAD), compiled on first use; reads wait side by side, as on an
SSD behind a network. Where there is no compiler, a limit of 1 / delay reads a second takes its place, as on a hard
disk. Needs to be root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long delay_us = -1;
static dev_t slow_device;

/* Whether a read goes to the slow disk: the first byte is not in the page cache. */
static void wait_for_disk(int fd, off_t offset) {
    struct stat facts;
    char byte;
    struct iovec one = {&byte, 1};
    int kept = errno;
    if (delay_us < 0) {
        const char *us = getenv("SLOW_DISK_US"), *device = getenv("SLOW_DISK_DEVICE");
        slow_device = device ? strtoull(device, 0, 10) : 0;
        delay_us = us ? atol(us) : 0;
    }
    if (delay_us && !fstat(fd, &facts) && S_ISREG(facts.st_mode) && facts.st_dev == slow_device) {
        if (offset < 0) offset = lseek(fd, 0, SEEK_CUR);
        if (preadv2(fd, &one, 1, offset, RWF_NOWAIT) < 0 && errno == EAGAIN) usleep(delay_us);
    }
    errno = kept;
}

#define REAL(kind, name, ...) static kind (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)
ssize_t read(int fd, void *to, size_t size) {
    REAL(ssize_t, "read", int, void *, size_t);
    wait_for_disk(fd, -1);
    return real(fd, to, size);
}
ssize_t pread64(int fd, void *to, size_t size, off64_t at) {
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    wait_for_disk(fd, at);
    return real(fd, to, size, at);
}
ssize_t preadv64(int fd, const struct iovec *to, int count, off64_t at) {
    REAL(ssize_t, "preadv64", int, const struct iovec *, int, off64_t);
    wait_for_disk(fd, at);
    return real(fd, to, count, at);
}
ssize_t preadv64v2(int fd, const struct iovec *to, int count, off64_t at, int flags) {
    REAL(ssize_t, "preadv64v2", int, const struct iovec *, int, off64_t, int);
    if (!(flags & RWF_NOWAIT)) wait_for_disk(fd, at);
    return real(fd, to, count, at, flags);
}
ssize_t pread(int fd, void *to, size_t size, off_t at) { return pread64(fd, to, size, at); }
ssize_t preadv(int fd, const struct iovec *to, int count, off_t at) { return preadv64(fd, to, count, at); }
"""


@dataclass(frozen=True)
class SlowDisk:
    """A mounted disk. What a process reads of it is slow once the process has entered the group."""

    folder: Path
    group: Path
    environment: dict[str, str]  # for processes whose reads are to be delayed
    how: str

    def enter(self) -> None:
        """Put this process, and those that it starts, under the limit."""
        (self.group / "cgroup.procs").write_text(str(os.getpid()))


@contextlib.contextmanager
def slow_disk(*, size_bytes: int, bytes_per_s: int, delay_s: float) -> Iterator[SlowDisk]:
    """Make a slow disk, and remove it at the end, however that comes (but for SIGKILL)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as undo:
        work = Path(tempfile.mkdtemp(prefix="headrace-slow-disk-"))
        undo.callback(shutil.rmtree, work, ignore_errors=True)
        image, folder = work / "disk.img", work / "mount"
        folder.mkdir()
        with image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", str(image))
        device = _run("losetup", "--find", "--show", "--direct-io=on", str(image)).strip()
        undo.callback(_run, "losetup", "--detach", device)
        Path("/sys/block", Path(device).name, "queue", "read_ahead_kb").write_text("128")  # Linux's default
        _run("mount", "-o", "noatime", device, str(folder))
        undo.callback(_unmount, folder)
        number = os.stat(device).st_rdev
        name = f"{os.major(number)}:{os.minor(number)}"
        library = _compile(work)
        reads_per_s = None if library else round(1 / delay_s)
        group = undo.enter_context(_group(name, bytes_per_s, reads_per_s))
        environment = {}
        how = f"{bytes_per_s / 1e6:.0f} MB/s by a control group's limit on a loop device"
        if library:
            environment = {
                "LD_PRELOAD": str(library),
                "SLOW_DISK_US": str(round(delay_s * 1e6)),
                "SLOW_DISK_DEVICE": str(os.stat(folder).st_dev),
            }
            how += f"; {delay_s * 1e3:g} ms before each read that misses the page cache, by LD_PRELOAD"
        else:
            how += f"; {reads_per_s} reads a second"
        yield SlowDisk(folder, group, environment, how)


def why_not() -> str | None:
    """Why a slow disk cannot be made here; None: it can."""
    missing = [tool for tool in ("mkfs.ext4", "losetup", "mount") if shutil.which(tool) is None]
    if os.geteuid() != 0:
        return "it needs to be root"
    if missing:
        return f"{', '.join(missing)} not found"
    return None if _parent_group() else "no control group for reads that can be written"


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _unmount(folder: Path) -> None:
    for _ in range(50):
        if subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    _run("umount", "--lazy", str(folder))


def _compile(work: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = work / "slow.c", work / "slow.so"
    source.write_text(_SHIM)
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, check=False)
    return library if done.returncode == 0 else None


def _parent_group() -> tuple[Path, int] | None:
    for folder, version in ((Path("/sys/fs/cgroup/blkio"), 1), (Path("/sys/fs/cgroup"), 2)):
        name = "blkio.throttle.read_bps_device" if version == 1 else "cgroup.subtree_control"
        if os.access(folder / name, os.W_OK):
            return folder, version
    return None


@contextlib.contextmanager
def _group(device: str, bytes_per_s: int, reads_per_s: int | None) -> Iterator[Path]:
    found = _parent_group()
    assert found is not None
    parent, version = found
    if version == 2:
        with contextlib.suppress(OSError):
            (parent / "cgroup.subtree_control").write_text("+io")
    folder = parent / f"headrace-slow-disk-{os.getpid()}"
    folder.mkdir()
    try:
        if version == 1:
            (folder / "blkio.throttle.read_bps_device").write_text(f"{device} {bytes_per_s}")
            if reads_per_s:
                (folder / "blkio.throttle.read_iops_device").write_text(f"{device} {reads_per_s}")
        else:
            reads = f" riops={reads_per_s}" if reads_per_s else ""
            (folder / "io.max").write_text(f"{device} rbps={bytes_per_s}{reads}")
        yield folder
    finally:
        for _ in range(50):
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)
