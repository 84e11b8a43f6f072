"""Which libraries a waiting thread is in, from its stack alone."""

import struct
from pathlib import Path

from headrace.signals.system import Call

_PID = 4711
_STACK = 0x1000
_MAPS = """\
7f14fe000000-7f1501000000 r-xp 00000000 08:01 1 /usr/lib/libopenblas.so.0
7f1501e00000-7f1502000000 r-xp 00000000 08:01 2 /usr/lib/libc.so.6
7f1502000000-7f1502400000 r-xp 00000000 08:01 3 /usr/lib/libpython3.11.so.1.0
7f1502400000-7f1502500000 rw-p 00000000 08:01 3 /usr/lib/libpython3.11.so.1.0
"""


def libraries(tmp_path: Path, *words: int) -> tuple[str, ...]:
    folder = tmp_path / "proc" / str(_PID)
    folder.mkdir(parents=True)
    (folder / "maps").write_text(_MAPS)
    (folder / "mem").write_bytes(bytes(_STACK) + struct.pack(f"{len(words)}Q", *words))
    call = Call(name="futex", args=(0, 0x189, 0, 0, 0, 0), stack_pointer=_STACK, code_pointer=0x7F1501E80000)
    return call.libraries(_PID, root=tmp_path)


def test_the_innermost_comes_first(tmp_path: Path) -> None:
    found = libraries(tmp_path, 12, 0x7F1501EAED90, 0x7F14FE123456, 0x7F14FE123456, 0x7F15022A9370, 0x7F1502400010)
    assert found == ("libc.so.6", "libopenblas.so.0", "libpython3.11.so.1.0")


def test_half_of_an_old_pointer_is_no_address(tmp_path: Path) -> None:
    found = libraries(tmp_path, 0x7F1500000189, 0x7F1500000000, 0x7F15022A9370)
    assert found == ("libc.so.6", "libpython3.11.so.1.0")
