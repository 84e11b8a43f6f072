"""Writing `events.bin`: frames at its end, under its limit, and never half a frame that could be taken back."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .frames import FrameType, file_head, frame, note
from .thinning import Thinner

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_log = logging.getLogger(__name__)


class AppendedFile:
    """A file of one writer that grows in whole pieces; if the disk is full it stops growing and says so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self.num_bytes = 0
        self.num_left_out = 0  # pieces that could not be written
        self._last_error = ""

    def append(self, data: bytes) -> bool:
        """Add a piece, whole or not at all; returns whether it was written."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.num_bytes)
            if not self.num_left_out:
                _log.warning("cannot write %s: %s", self._path, error)
            self.num_left_out += 1
            self._last_error = str(error)
            return False
        self.num_bytes += len(data)
        return True

    @property
    def problems(self) -> list[str]:
        if not self.num_left_out:
            return []
        return [f"{self._path.name} could not be written {self.num_left_out} times ({self._last_error})"]

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class EventFile:
    """The events of a run on disk."""

    def __init__(self, path: Path, *, limit_bytes: int, start_s: float) -> None:
        self._file = AppendedFile(path)
        self._file.append(file_head())
        self._thinner = Thinner(limit_bytes)
        self._start_s = start_s
        self._lanes: dict[int, int] = {}  # of each process, for frames of sums

    @property
    def num_bytes(self) -> int:
        return self._file.num_bytes

    @property
    def problems(self) -> list[str]:
        return self._file.problems

    def write(
        self,
        blocks: Sequence[tuple[int, int, npt.NDArray[np.void]]],
        notes: Sequence[tuple[int, int, dict[str, Any]]],
        *,
        now_s: float,
        is_last: bool = False,
    ) -> None:
        """Add what a drain brought, thinned if need be, in one piece."""
        pieces = [note(lane, process, facts) for lane, process, facts in notes]
        kept = self._thinner.thin(
            [(process, block) for _, process, block in blocks],
            written_bytes=self._file.num_bytes,
            elapsed_s=now_s - self._start_s,
        )
        for (lane, process, _), block in zip(blocks, kept, strict=True):
            self._lanes[process] = lane
            if len(block):
                pieces.append(frame(FrameType.RECORDS, lane, process, len(block), block.tobytes()))
        for process, rows in self._thinner.take_totals(is_last=is_last).items():
            pieces.append(frame(FrameType.TOTALS, self._lanes[process], process, len(rows), rows.tobytes()))
        if pieces:
            self._file.append(b"".join(pieces))

    def close(self) -> None:
        self._file.close()
