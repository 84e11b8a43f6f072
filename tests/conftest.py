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
_TIME_TO_CLEAN_UP_S = 30.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs to be root"))


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # pytest collects once more, and hears what is wrong with the garbage


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a child process, a /dev/shm entry or open files behind."""
    if request.node.get_closest_marker("leaves_behind"):
        yield
        return
    # what lives before a test is not its garbage, and to look through torch's objects takes a sixth of a second
    gc.freeze()
    children_before, shm_before, fds_before = _children(), _shm_entries(), _open_fds()
    yield
    deadline = time.monotonic() + _TIME_TO_CLEAN_UP_S
    while True:
        gc.collect()  # an iterator in a reference cycle is a leak only if it survives this
        left = _left_behind(children_before, shm_before, fds_before)
        if not left:
            return
        gc.unfreeze()  # it may hang on something older
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
    new_entries = _shm_entries() - shm
    if new_entries:
        left += [f"/dev/shm/{name}" for name in sorted(new_entries - _mapped_by_others())]
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
    family: set[int] | None = None
    for path in Path("/dev/shm").glob("*"):
        owner = path.name.split("_")[1] if path.name.startswith("torch_") else ""
        is_others = False
        if owner.isdigit():
            family = _family() if family is None else family
            is_others = int(owner) not in family and psutil.pid_exists(int(owner))
        try:
            if path.stat().st_uid == os.geteuid() and not is_others:
                entries.add(path.name)
        except FileNotFoundError:
            continue
    return entries


def _mapped_by_others() -> set[str]:
    """Return the entries of /dev/shm that processes of no concern to the test have mapped: another run's semaphores."""
    family, mapped = _family(), set()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) in family:
            continue
        try:
            lines = (process / "maps").read_text().splitlines()
        except OSError:
            continue
        mapped |= {line.partition("/dev/shm/")[2].split()[0] for line in lines if "/dev/shm/" in line}
    return mapped


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
