"""The training process's side of the reader: starts it, tells it what comes, and ends it."""

import contextlib
import dataclasses
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from multiprocessing import reduction
from pathlib import Path
from typing import Any

from headrace.model import ReaderStats

from .block_table import BlockTable, HeadWord, Row, State
from .extents import Extent, Source, install_source
from .reader_process import ReaderSettings

_log = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[2]
# bytes of plans that wait because the reader does not listen: it is stuck, and will not need them
_MOST_BACKLOG = 16 << 20

# The packages' faces would import what the reader has no use for: NumPy, and whatever is added there.
_START = """
import sys, types
root = sys.argv.pop(1)
for name in ("headrace", "headrace.storage", "headrace.storage.reading"):
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = ["/".join([root, *name.split(".")[1:]])]
from headrace.storage.reading.reader_process import main
main()
"""


# Words whose names are those of figures in `ReaderStats`.
_OF_THE_READER = (
    *(HeadWord.BYTES_READ, HeadWord.READS, HeadWord.FAILED_READS, HeadWord.VAIN_BYTES),
    *(HeadWord.FILES, HeadWord.FILE_BYTES),
)
_OF_WORKERS = (Row.HITS, Row.HIT_BYTES, Row.WAITS, Row.SELF_READS)

_source_lock = threading.Lock()


def _renew_lock() -> None:
    global _source_lock
    _source_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # a thread that held it is not there any more


class BlockAccess:
    """What a worker needs to find blocks; travels to its process under every start method."""

    def __init__(self, table: BlockTable) -> None:
        self._table = table
        self._source: Any = None  # one for each process
        self._source_pid = 0

    def attach(self) -> None:
        """Let `read_extent` of this process look into the blocks first."""
        install_source(self.source())

    def source(self) -> Source:
        """What gives extents out of the blocks, in this process."""
        from .block_source import BlockSource

        with _source_lock:
            if self._source is None or self._source_pid != os.getpid():
                self._source, self._source_pid = BlockSource(self._table), os.getpid()
            source: Source = self._source
            return source

    def __getstate__(self) -> tuple[Any, int]:
        return reduction.DupFd(self._table.fd), self._table.space_bytes

    def __setstate__(self, state: tuple[Any, int]) -> None:
        self.__init__(BlockTable(state[0].detach(), state[1]))  # type: ignore[misc]  # as if made here


class BlockReader:
    """A reader process. `close()` ends it and may be called twice; nothing but speed depends on it."""

    def __init__(self, settings: ReaderSettings) -> None:
        self.settings = settings
        self.table = BlockTable.create(settings.space_bytes)
        self.access = BlockAccess(self.table)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._backlog = bytearray()
        self._owner_pid = os.getpid()
        self.table.words[HeadWord.PASSED] = -1
        try:
            self._start()
        except OSError as error:
            said = str(error)  # its traceback would hold us, wherever the log is kept
            _log.warning("the reader could not be started (%s): workers read for themselves", said)
            self.table.words[HeadWord.STATE] = State.GONE

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            for end in (ours, theirs):
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    with contextlib.suppress(OSError):
                        end.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
            ours.setblocking(False)
            self._control = ours
            numbers = (self.table.fd, theirs.fileno(), os.getpid(), *dataclasses.astuple(self.settings))
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, str(_PACKAGE), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(self.table.fd, theirs.fileno()),
            )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def plan(self, seq: int, extents: Iterable[Extent]) -> int:
        """Say which extents a batch will need, in their order; returns their bytes. `seq` grows from batch to batch."""
        wanted = [(path, offset, size) for path, offset, size in extents]  # plain tuples: the reader knows no others
        self._send("extents", seq, wanted)
        return sum(size for _, _, size in wanted)

    def plan_files(self, seq: int, paths: list[str]) -> None:
        self._send("files", seq, paths)

    def passed(self, seq: int) -> None:
        """Say that all batches up to this one are over."""
        if self._owner_pid == os.getpid():
            self.table.words[HeadWord.PASSED] = max(self.table.words[HeadWord.PASSED], seq)
            self._flush()

    def _send(self, *order: Any) -> None:
        # the words of a forked child would mix with ours; and advice that nobody takes is not piled up
        if self._control is None or self._owner_pid != os.getpid() or len(self._backlog) > _MOST_BACKLOG:
            return
        self._backlog += pickle.dumps(order, 5)
        self._flush()

    def _flush(self) -> None:
        while self._backlog and self._control is not None:
            try:
                del self._backlog[: self._control.send(self._backlog)]
            except BlockingIOError:
                return
            except OSError:  # it is gone
                self._give_up()

    def _give_up(self) -> None:
        """The reader is gone without being asked to: workers read for themselves from here on."""
        self._hang_up()
        self._backlog.clear()
        code = self._process.poll() if self._process is not None else None
        _log.warning("the reader (process %s) is gone, exit code %s: workers read for themselves", self.pid, code)

    def _hang_up(self) -> None:
        self.table.words[HeadWord.STATE] = State.GONE
        if self._control is not None:
            self._control.close()
            self._control = None

    def stats(self) -> ReaderStats:
        words, depth = self.table.words, self.table.words[HeadWord.DEPTH] or self.settings.depth
        wait_ns, *counts = self.table.totals(Row.WAIT_NS, *_OF_WORKERS)
        figures = {word.name.lower(): words[word] for word in _OF_THE_READER}
        figures |= {field.name.lower(): count for field, count in zip(_OF_WORKERS, counts, strict=True)}
        known = {"depth": depth, "block_bytes": self.settings.block_bytes, **figures}
        return ReaderStats(is_alive=self.is_alive, wait_s=wait_ns / 1e9, **known)

    def close(self) -> None:
        """End the reader. Views that somebody holds stay valid."""
        if self._owner_pid != os.getpid():
            return
        process, self._process = self._process, None
        self._hang_up()
        if process is not None:
            process.kill()  # it has nothing to put in order
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                _log.warning("the reader (process %d) does not end: its read stands still in the kernel", process.pid)
        self.table.close()
