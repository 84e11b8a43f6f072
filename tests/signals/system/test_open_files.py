"""Open files of a process: where each stands, and for what it was opened."""

import os
from pathlib import Path

from headrace.signals.system import read_open_files


def test_position_and_flags_are_those_of_the_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(100))
    with path.open("rb", buffering=0) as reading, path.open("ab") as adding:
        reading.seek(40)
        found = {one.fd: one for one in read_open_files(os.getpid())}
        one, other = found[reading.fileno()], found[adding.fileno()]
        assert (one.path, one.position, one.size, one.kind) == (str(path), 40, 100, "file")
        assert one.flags & os.O_ACCMODE == os.O_RDONLY
        assert other.flags & os.O_ACCMODE == os.O_WRONLY
        assert other.flags & os.O_APPEND
