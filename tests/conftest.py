"""What holds for every test: it leaves nothing behind, and hypothesis draws the same examples each time."""

import gc
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Helpers of multiprocessing that live as long as the interpreter, started once by whoever needs them first.
_STAYING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_STAYING_FDS = 4  # and their pipes
_TIME_TO_CLEAN_UP_S = 5.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs to be root"))


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a child process, a /dev/shm entry or open files behind."""
    if request.node.get_closest_marker("leaves_behind"):
        yield
        return
    children_before, shm_before, fds_before = _children(), _shm_entries(), _open_fds()
    yield
    deadline = time.monotonic() + _TIME_TO_CLEAN_UP_S
    while True:
        gc.collect()  # an iterator in a reference cycle is a leak only if it survives this
        left = _left_behind(children_before, shm_before, fds_before)
        if not left:
            return
        if time.monotonic() > deadline:
            pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)
        time.sleep(0.05)  # workers end on their own; this is the pause between two looks at them


def _left_behind(children: set[int], shm: set[str], fds: dict[int, str]) -> list[str]:
    left = []
    for pid in sorted(_children() - children):
        try:
            left.append(f"process {pid}: {' '.join(psutil.Process(pid).cmdline())}")
        except psutil.NoSuchProcess:
            continue
    left += [f"/dev/shm/{name}" for name in sorted(_shm_entries() - shm)]
    now = _open_fds()
    if len(now) > len(fds) + _STAYING_FDS:
        left += [f"open file {fd}: {what}" for fd, what in sorted(now.items()) if fds.get(fd) != what]
    return left


def _children() -> set[int]:
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if not any(name in " ".join(child.cmdline()) for name in _STAYING):
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def _shm_entries() -> set[str]:
    """Return the entries of /dev/shm that may be ours: not another user's, and not another living process's."""
    entries = set()
    for path in Path("/dev/shm").glob("*"):
        owner = path.name.split("_")[1] if path.name.startswith("torch_") else ""
        is_others = owner.isdigit() and int(owner) not in _family() and psutil.pid_exists(int(owner))
        try:
            if path.stat().st_uid == os.geteuid() and not is_others:
                entries.add(path.name)
        except FileNotFoundError:
            continue
    return entries


def _family() -> set[int]:
    return {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}


def _open_fds() -> dict[int, str]:
    fds = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
            fds[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the one that listed the folder
            continue
        if stat.S_ISDIR(mode):
            fds[int(name)] += "/"
    return fds
