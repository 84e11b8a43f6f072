"""A log as clean lines with their time stamps: from a file, a compressed file or standard input."""

import bz2
import codecs
import gzip
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import date
from functools import lru_cache
from math import isnan
from pathlib import Path
from typing import IO

from headrace.errors import UnusableInput

NAN = float("nan")
_CHUNK_BYTES = 1 << 18
_Readable = IO[bytes] | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
_PACKED: dict[bytes, Callable[[str], _Readable]] = {  # by how such a file begins
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_STDIN = "-"
_NO_TEXT = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b\x08\x07\x00"))
# Colours, cursor movements, window titles: what a terminal would have obeyed.
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LONGEST_BYTES = 1 << 16  # a longer line is a dump of something; its beginning is enough
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_CLOCK = r"(?P<h>\d{1,2}):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?(?!\d|:\d)"
_SHAPES = (
    re.compile(rf"(?<!\d)(?P<Y>\d{{4}})[-/.年](?P<M>\d{{1,2}})[-/.月](?P<D>\d{{1,2}})(?:[ T_-]+|日\s*){_CLOCK}"),
    re.compile(rf"(?<![\d/.-])(?P<M>\d\d)[-/](?P<D>\d\d)[-/](?P<Y>\d{{4}})[ T]+{_CLOCK}"),  # 11/15/2025, accelerate
    re.compile(rf"(?<![\d/.-])(?P<Y>\d\d)[-/](?P<M>\d\d)[-/](?P<D>\d\d)[ T]+{_CLOCK}"),  # 25-11-15, BasicSR
    re.compile(rf"(?<![\d/.-])(?P<M>\d\d)[-/](?P<D>\d\d)[ T]+{_CLOCK}"),  # 11/15, mmengine
    re.compile(rf"^\[(?P<M>\d\d)\.(?P<D>\d\d)\.(?P<Y>\d\d)\|{_CLOCK}"),  # [11.15.25|, ST-GCN
    re.compile(rf"^[IWEF](?P<M>\d\d)(?P<D>\d\d)\s+{_CLOCK}"),  # glog, absl
    re.compile(rf"\b(?P<M>[A-Z][a-z]{{2}})\s+(?P<D>\d{{1,2}}),?\s+{_CLOCK}(?:\s+(?P<Y>\d{{4}}))?"),  # syslog, ctime
    re.compile(rf"^\s*(?:[A-Z]+\s+)?[\[(]?{_CLOCK}[\])]?(?=[\s:|,-]|$)"),  # the time of day alone
    # seconds, or milliseconds, since 1970
    re.compile(r"^\s*[\[(]?(?P<E>1[4-9]\d{8}(?:\.\d{1,9}|\d{3})?)[\])]?(?=[\s:|,-]|$)"),
    re.compile(r"(?:^:::MLL |time_ms['\"]: )(?P<E>1[4-9]\d{8}(?:\.\d+|\d{3})?)\b"),  # MLPerf's
)
_MAY_BE_STAMPED = re.compile(r"\d:\d\d:\d\d|1[4-9]\d{8}")
_LOOK_AT = 96  # characters of a line; a time further to the right belongs to the message
_DAY_S = 86400.0


def read_chunks(path: str) -> Iterator[bytes]:
    """Yield a log in chunks. `-` is standard input; gzip, bzip2, xz and UTF-16 are undone.

    Raises `UnusableInput` where the file cannot be read, or is no text.
    """
    name = "standard input" if path == _STDIN else path
    try:
        with _opened(path) as stream:
            chunk, decoder = stream.read(_CHUNK_BYTES), None
            if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell's `>` writes
                decoder = codecs.getincrementaldecoder("utf-16")("replace")
            elif is_binary(chunk):
                raise UnusableInput(f"{name} is not text", next_step="give the log that the training wrote, as text")
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
            while chunk:
                yield chunk if decoder is None else decoder.decode(chunk).encode()
                chunk = stream.read(_CHUNK_BYTES)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        damaged = "it is damaged: unpack it yourself, as far as that goes, and give the text"
        raise UnusableInput(
            f"cannot read {name}: {getattr(error, 'strerror', None) or error}",
            next_step="check the path and its permissions" if getattr(error, "errno", None) else damaged,
        ) from error


def _opened(path: str) -> AbstractContextManager[_Readable]:
    if path == _STDIN:
        return nullcontext(sys.stdin.buffer)
    if Path(path).is_dir():
        raise UnusableInput(f"{path} is a folder", next_step=f"name its logs, for example {path.rstrip('/')}/*.log")
    with Path(path).open("rb") as file:
        magic = file.read(6)
    unpack = next((one for head, one in _PACKED.items() if magic.startswith(head)), None)
    return unpack(path) if unpack else Path(path).open("rb")


def is_binary(sample: bytes) -> bool:
    r"""Whether bytes look like anything but a log: control characters that no logger writes.

    >>> is_binary("进度 50% \x1b[32m".encode()), is_binary(bytes(range(256)) * 4)
    (False, True)
    """
    seen = sample[:65536].replace(b"\0", b"")  # a log truncated in place begins with a hole of them
    if not seen:
        return len(sample) > 0
    odd = len(seen) - len(seen.translate(None, _NO_TEXT))
    return odd > 0.02 * len(seen) or sample[:65536].count(0) > 0.3 * len(sample[:65536]) + 4096


class LineCutter:
    r"""Lines of a stream of bytes, each with its number; a carriage return ends one too, but does not count as one.

    >>> cutter = LineCutter()
    >>> cutter.cut(b"\x1b[32mstep 1\x1b[0m\r\nste"), cutter.cut(b"p 2\rstep 3"), cutter.rest()
    ([(1, 'step 1')], [(2, 'step 2')], [(2, 'step 3')])
    """

    def __init__(self) -> None:
        self.num_lines = 0  # that ended
        self.num_bytes = self.num_bytes_read = 0
        self._begun = b""

    def cut(self, chunk: bytes, *, is_read: bool = True) -> list[tuple[int, str]]:
        """Return the lines that this chunk completes, without the empty ones; where it is not read, only count them."""
        self.num_bytes += len(chunk)
        self.num_bytes_read += len(chunk) * is_read
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        whole, self._begun = (self._begun + chunk[:end], b"") if end else (b"", self._begun)
        self._begun = (self._begun + chunk[end:])[:_LONGEST_BYTES]
        if not is_read:
            self.num_lines += whole.count(b"\n")
            return []
        return self._numbered(whole)

    def rest(self) -> list[tuple[int, str]]:
        """Return the last line, which nothing ended."""
        begun, self._begun = self._begun, b""
        return self._numbered(begun)

    def _numbered(self, whole: bytes) -> list[tuple[int, str]]:
        if b"\x1b" in whole:
            whole = _ANSI.sub(b"", whole)
        # a log truncated in place begins with a hole of zeros
        pieces = whole.replace(b"\0", b"").decode("utf-8", "replace").split("\n")
        first = self.num_lines + 1
        self.num_lines += len(pieces) - 1
        numbered = enumerate(pieces, start=first)
        return [(number, part) for number, piece in numbered for part in piece.split("\r") if part]


class Stamps:
    """Reads the time stamp of each line; keeps the shape that this log uses, and counts midnights.

    >>> stamps = Stamps()
    >>> a = stamps.read("2025-11-15 19:26:27,537 WARNING: slow"); b = stamps.read("2025-11-15 19:26:50,852 INFO: x")
    >>> round(b - a, 3), stamps.resolution_s, stamps.read("no time here")
    (23.315, 0.001, nan)
    """

    def __init__(self) -> None:
        self.resolution_s = 1.0
        self._shapes = list(_SHAPES)
        self._last_clock_s = -1.0
        self._midnights = 0
        self._is_day_first = False  # 13/03 for the 13th of March

    def read(self, line: str) -> float:
        """Return the line's time in seconds, on a scale that only differences of have a meaning; NaN: it has none."""
        head = line[:_LOOK_AT]
        if _MAY_BE_STAMPED.search(head) is None:
            return NAN
        for index, shape in enumerate(self._shapes):
            match = shape.search(head)
            if match is not None and not isnan(seconds := self._seconds(match.groupdict())):
                if index:  # a log keeps to its shape: look for this one first from now on
                    self._shapes.insert(0, self._shapes.pop(index))
                return seconds
        return NAN

    def _seconds(self, told: dict[str, str | None]) -> float:
        if epoch := told.get("E"):
            self.resolution_s = 0.001 if len(epoch) > 10 else self.resolution_s
            return float(epoch) if len(epoch.partition(".")[0]) == 10 else float(epoch) / 1000
        hour, minute, second = (int(told[name] or 0) for name in "hms")
        if hour > 23 or minute > 59 or second > 60:
            return NAN
        clock_s = 3600.0 * hour + 60 * minute + second
        if fraction := told["f"]:
            clock_s += int(fraction) / 10 ** len(fraction)
            self.resolution_s = min(self.resolution_s, 10.0 ** -min(3, len(fraction)))
        if month := told.get("M"):
            self._is_day_first |= month.isdigit() and int(month) > 12
            days = (told["D"] or "", month) if self._is_day_first else (month, told["D"] or "")
            return _day_s(told.get("Y"), *days) + clock_s
        self._midnights += clock_s < self._last_clock_s - _DAY_S / 2
        self._last_clock_s = clock_s
        return self._midnights * _DAY_S + clock_s


@lru_cache(maxsize=64)
def _day_s(year: str | None, month: str, day: str) -> float:
    """Return the seconds at which a day begins; without a year 2024 serves, which has a 29 February."""
    try:
        number = _MONTHS.index(month.lower()) + 1 if month.isalpha() else int(month)
        return _DAY_S * date(int(year or 2024) % 2000 + 2000, number, int(day)).toordinal()
    except ValueError:
        return NAN
