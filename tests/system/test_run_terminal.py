"""`headrace run --live` on a real (pseudo) terminal: what is on the screen, and what is left of it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_cli import HEADRACE, _environment

_DEADLINE_S = 100
_ROWS, _COLUMNS = 24, 100
# What makes the terminal on descriptor 0 the one that Ctrl-C comes from, and then the command.
_ON_IT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
# A loop that goes on until it is told to end: nothing depends on how long anything takes.
LOOP = """
import os, sys, time, headrace
print("the script begins", flush=True)
print("a warning of the script", file=sys.stderr, flush=True)
for step in headrace.monitor(range(10**9)):
    time.sleep(0.01)
    if os.path.exists("stop"):
        break
print("the script ends", flush=True)
if os.path.exists("crash"):
    raise ValueError("the script fails")
"""


class Screen:
    """A command on a terminal of its own."""

    def __init__(self, folder: Path, *words: str, term: str = "xterm") -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self.modes = termios.tcgetattr(self.theirs)
        self.said = b""
        self.running = subprocess.Popen(
            [sys.executable, "-c", _ON_IT, HEADRACE, *words],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            cwd=folder,
            env=_environment({"TERM": term}),
            start_new_session=True,
        )

    def read_until(self, wanted: bytes, *, times: int = 1) -> None:
        """Read what is drawn until something was; fails with all of it at the deadline."""
        deadline = time.monotonic() + _DEADLINE_S
        while self.said.count(wanted) < times:
            has_ended = self.running.poll() is not None
            assert self._read(0.2) or not has_ended, self.said[-4000:]
            assert time.monotonic() < deadline, self.said[-4000:]

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Read on until the command has ended; return its code."""
        deadline = time.monotonic() + _DEADLINE_S
        while self.running.poll() is None:
            self._read(0.2)
            assert time.monotonic() < deadline, self.said[-4000:]
        while self._read(0.0):
            pass
        return self.running.returncode

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        self.said += os.read(self._ours, 65536)
        return True

    def close(self) -> None:
        if self.running.poll() is None:
            self.running.kill()
            self.running.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for one in opened:
        one.close()


def show(screens: list[Screen], folder: Path, *options: str, term: str = "xterm") -> Screen:
    (folder / "script.py").write_text(LOOP, encoding="utf-8")
    screen = Screen(folder, "run", "--out", "recorded", *options, "script.py", term=term)
    screens.append(screen)
    return screen


def assert_terminal_is_as_before(screen: Screen) -> None:
    said = screen.said
    assert termios.tcgetattr(screen.theirs) == screen.modes
    assert said.rfind(b"\x1b[?25h") >= said.rfind(b"\x1b[?25l")  # the cursor
    regions = re.findall(rb"\x1b\[(?:\d+;\d+)?r", said)
    assert not regions or regions[-1] == b"\x1b[r"


def test_the_status_line_stands_below_the_scripts_output(tmp_path: Path, screens: list[Screen]) -> None:
    screen = show(screens, tmp_path, "--live")
    screen.read_until(b" steps, ")
    screen.read_until(b"waiting for data")
    (tmp_path / "stop").touch()
    assert screen.end() == 0
    assert b"\x1b[1;23r" in screen.said  # the script scrolls in the rows above
    assert b"\x1b[24;1H" in screen.said
    lines = re.findall(rb"\x1b\[7m(.*?)\x1b\[0m", screen.said)
    assert all(len(line.decode()) < _COLUMNS for line in lines)
    assert b"the script begins\r\n" in screen.said
    assert b"the script ends\r\n" in screen.said
    assert b"recorded in" in screen.said
    assert_terminal_is_as_before(screen)


def test_ctrl_c_ends_the_script_and_leaves_the_terminal_as_it_was(tmp_path: Path, screens: list[Screen]) -> None:
    screen = show(screens, tmp_path, "--live")
    screen.read_until(b" steps, ")
    screen.press(b"\x03")
    assert screen.end() == -2
    assert b"KeyboardInterrupt" in screen.said
    assert b"recorded in" in screen.said
    assert_terminal_is_as_before(screen)


def test_after_a_crash_the_terminal_is_as_it_was_and_the_traceback_is_seen(
    tmp_path: Path, screens: list[Screen]
) -> None:
    screen = show(screens, tmp_path, "--live")
    screen.read_until(b" steps, ")
    (tmp_path / "crash").touch()
    (tmp_path / "stop").touch()
    assert screen.end() == 1
    assert b"ValueError: the script fails" in screen.said
    assert_terminal_is_as_before(screen)


@pytest.mark.slow
def test_a_terminal_that_understands_nothing_gets_lines(tmp_path: Path, screens: list[Screen]) -> None:
    screen = show(screens, tmp_path, "--live", term="dumb")
    screen.read_until(b" steps, ")
    (tmp_path / "stop").touch()
    assert screen.end() == 0
    assert b"\x1b[" not in screen.said.split(b"the script ends")[0]


def test_without_a_terminal_it_says_so_and_the_output_is_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(LOOP, encoding="utf-8")
    (tmp_path / "stop").touch()
    done = subprocess.run(
        [HEADRACE, "run", "--live", "--out", "recorded", "script.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment(None),
        timeout=_DEADLINE_S,
    )
    assert (done.returncode, done.stdout) == (0, "the script begins\nthe script ends\n")
    assert "stderr is no terminal" in done.stderr
    assert "\x1b" not in done.stderr
