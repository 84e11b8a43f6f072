"""What holds for every test: it leaves nothing behind, hypothesis draws the same examples each time, and what measures
time has the machine to itself.
"""

import fcntl
import gc
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell starts what runs in its background, and `nohup` what it runs, with Ctrl-C ignored, and so would be all that
# the tests start: those that press Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Helpers of multiprocessing that live as long as the interpreter, started once by whoever needs them first.
_STAYING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_STAYING_FDS = 4  # and their pipes
_TIME_TO_CLEAN_UP_S = 30.0
# What a process has loaded that may leave something in /dev/shm at any moment: another test run on this machine has it.
_MAKERS = ("libtorch", "_multiprocessing.", "_posixshmem.")
_room: list[Any] = []  # the file that is locked while a test runs, where several processes run them
_crashed: set[str] = set()  # tests that ended the process they ran in
_SHM_BEFORE = pytest.StashKey[set[str]]()
_known_pids: set[int] = {os.getpid()}  # this process and whatever was seen below it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs to be root"))


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[_SHM_BEFORE] = _shm_entries()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[None]:
    """Let what a test said of odd file names reach the process that reports."""
    return _in_utf8((yield))


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(item) for key, item in value.items()}
    return type(value)(map(_in_utf8, value)) if isinstance(value, (list, tuple)) else value


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    _crashed.add(crashitem)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    gc.unfreeze()  # pytest collects once more, and hears what is wrong with the garbage
    # A test that ended its process may have passed in the next one; it failed all the same.
    if failed := session.config.pluginmanager.get_plugin("lfplugin"):
        failed.lastfailed.update(dict.fromkeys(_crashed, True))
    yield
    # While tests run beside each other, nobody knows which of them left what bears no pid; here all of them have ended.
    if session.config.getoption("numprocesses", None):
        left = sorted(_made_here(_shm_entries() - session.stash[_SHM_BEFORE]))
        # torch makes a file and unlinks it at once: a single one is of a process that a test killed between the two.
        if len(left) > 1 or (left and not left[0].startswith("torch_")):
            reporter = session.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line("a test left behind: " + ", ".join(f"/dev/shm/{name}" for name in left), red=True)
            session.exitstatus = pytest.ExitCode.INTERRUPTED


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout's: no test's time goes by while it waits
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Let a test that is marked `alone` wait until no test runs beside it, and those after it until it is over.

    Such tests that follow each other keep the machine: each would wait anew for one that came in between.
    """
    if hasattr(item.config, "workerinput") and not _room:  # one of several processes
        folder = Path(item.config.getoption("basetemp")).parent  # of the whole run
        _room.append(open(folder / "room", "a+"))  # noqa: SIM115  # closed below, which ends its lock
        with open(folder / "gate", "a+") as gate:
            fcntl.lockf(gate, fcntl.LOCK_EX)  # who waits for the whole room stands in the gate: nobody passes him
            fcntl.lockf(_room[0], fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)  # no child inherits it
    try:
        return (yield)
    finally:
        if _room and not (_is_alone(item) and _is_alone(nextitem)):
            _room.pop().close()


def _is_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("alone") is not None


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
    left += [f"/dev/shm/{name}" for name in sorted(_made_here(_shm_entries() - shm))]
    now = _open_fds()
    if len(now) > len(fds) + _STAYING_FDS:
        left += [f"open file {fd}: {what}" for fd, what in sorted(now.items()) if fds.get(fd) != what]
    return left


def _children() -> set[int]:
    found: set[int] = set()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is none, as before and after most tests: no need to look through all processes
        return found
    for child in psutil.Process().children(recursive=True):
        _known_pids.add(child.pid)
        try:
            if not any(name in " ".join(child.cmdline()) for name in _STAYING):
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def _shm_entries() -> set[str]:
    """Return the entries of /dev/shm that are not another user's."""
    entries = set()
    for path in Path("/dev/shm").glob("*"):
        try:
            if path.stat().st_uid == os.geteuid():
                entries.add(path.name)
        except FileNotFoundError:
            continue
    return entries


def _made_here(names: set[str]) -> set[str]:
    """Return the entries of /dev/shm that this process or one below it made.

    The name says so where it holds a pid, else who has it mapped. Of one that nobody has mapped and that bears no pid
    of ours nothing is known: it is ours only where no other process on the machine could have made it.
    """
    if not names:
        return set()
    family = _family()
    _known_pids.update(family)
    ours = {name for name in names if _pids_in(name) & _known_pids}
    for pid in family:
        ours |= names & _mapped_in_shm(_maps_of(pid))
    unknown = names - ours
    if unknown:
        known_to_us = family | _ancestors()
        strangers = [_maps_of(pid) for pid in psutil.pids() if pid not in known_to_us]
        if not any(maker in maps for maps in strangers for maker in _MAKERS):
            ours |= unknown.difference(*map(_mapped_in_shm, strangers))
    return ours


def _pids_in(name: str) -> set[int]:
    """Return the numbers in a name that may be a pid: torch says where it stands (torch_PID_RANDOM_COUNT)."""
    numbers = re.findall(r"\d+", name)
    return set(map(int, numbers[:1] if name.startswith("torch_") else numbers))


def _maps_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def _mapped_in_shm(maps: str) -> set[str]:
    return set(re.findall(r"/dev/shm/(\S+)", maps))


def _family() -> set[int]:
    return {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}


def _ancestors() -> set[int]:
    return {parent.pid for parent in psutil.Process().parents()}


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
