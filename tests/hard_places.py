"""A forked child in a hard place: on a full disk, as a user without a name, where /proc hides, under other clocks."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOBODY = 54321  # has no name, no home
_NEW_MOUNTS, _NEW_PIDS, _NEW_TIME = 0x00020000, 0x20000000, 0x80


def in_hard_place(
    act: Callable[[], Any],
    *,
    full: Path | None = None,
    read_only: tuple[Path, ...] = (),
    hides_pids: bool = False,
    has_proc: bool = True,
    monotonic_s: int = 0,
) -> Any:
    """What a function returns in a forked child of its own; what it raises is raised here."""
    if os.geteuid() != 0:
        pytest.skip("needs to be root")
    with tempfile.TemporaryFile() as answer:
        pid = os.fork()
        if pid == 0:
            said, is_there = None, False
            try:
                _unshare(_NEW_MOUNTS)
                _mount("--make-rprivate", "/")
                # the next process to be forked is the first one in the new spaces of pids and clocks
                _unshare((_NEW_PIDS if hides_pids else 0) | (_NEW_TIME if monotonic_s else 0))
                if monotonic_s:
                    offsets = "".join(f"{clock} {monotonic_s} 0\n" for clock in ("monotonic", "boottime"))
                    Path("/proc/self/timens_offsets").write_text(offsets)
                inner = os.fork()
                if inner:
                    os.waitpid(inner, 0)
                    os._exit(0)
                _arrange(full, read_only, hides_pids)
                if not has_proc:
                    _mount("-t", "tmpfs", "no-proc", "/proc")
                is_there = True
                said = act()
            except BaseException as error:
                said = error  # type: ignore[assignment]
            finally:
                pickle.dump((is_there, said), answer)
                answer.flush()
                os._exit(0)
        os.waitpid(pid, 0)
        answer.seek(0)
        is_there, said = pickle.load(answer)
    if not is_there:
        pytest.skip(f"such a place cannot be made here: {said}")
    if isinstance(said, BaseException):
        raise said
    return said


def _unshare(kinds: int) -> None:
    if kinds and ctypes.CDLL(None, use_errno=True).unshare(kinds):
        raise OSError(ctypes.get_errno(), "unshare")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _arrange(full: Path | None, read_only: tuple[Path, ...], hides_pids: bool) -> None:
    if full is not None:
        kept = {path.name: path.read_bytes() for path in full.iterdir()}
        _mount("-t", "tmpfs", "-o", "size=64k", "full", str(full))
        for name, data in kept.items():
            (full / name).write_bytes(data)
        with (full / "fill").open("wb", buffering=0) as file:
            try:
                for _ in range(64):  # no more than the small disk: whatever else goes wrong, no real one is filled
                    file.write(bytes(4096))
            except OSError:
                pass
    for folder in read_only:
        _mount("-t", "tmpfs", "-o", "ro", "read-only", str(folder))
    if hides_pids:
        _mount("-t", "proc", "-o", "hidepid=2", "proc", "/proc")  # of the new pids: the machine's own stays as it is


def become_nobody() -> None:
    """Go on as a user without a name and a home; who may not read this Python's modules has to have them by now."""
    os.environ.pop("HOME", None)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
