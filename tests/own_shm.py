"""A /dev/shm of its own for what a test starts: nothing that other tests leave in theirs is laid to its charge."""

import os
import shutil
import subprocess

_MOUNT_AND_GO_ON = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
_SMALL_BYTES = 64 << 20  # one of at most this size is filled as it is, whoever else uses it


def _with_own_shm() -> tuple[str, ...]:
    """Return what stands before a command that is to have its own, or nothing where this system refuses that."""
    before = ("unshare", "--mount", "sh", "-c", _MOUNT_AND_GO_ON, "sh")
    if os.geteuid() or shutil.which("unshare") is None:
        return ()
    return () if subprocess.run([*before, "true"], capture_output=True).returncode else before


WITH_OWN_SHM = _with_own_shm()
# Loaders whose /dev/shm is filled have their own as well, for the machine's is not: `get_small_shm` of `doctor.chaos`.
FILLS_ITS_OWN = bool(WITH_OWN_SHM) and os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize > _SMALL_BYTES
