"""What an exception of foreign code says of itself, as plain text, whatever its own methods do.

`str`, `args`, `__notes__`, `__cause__`, even the name of its class may be code that raises. Whoever tells of a failed
sample must not fail over that: the reason would be lost, and another sample might get the blame.
"""

import errno
import linecache
import os
import shlex
import signal
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

_LONGEST_TEXT = 1 << 16  # characters of a message or a traceback: one may hold a whole file
_WRITE_STEPS = {
    "ENOSPC EDQUOT": "make room: `df -h {folder}` shows what is left",
    "ENOENT": "`mkdir -p {folder}`, or a folder that is there",
    "ENOTDIR EEXIST": "another folder: a file has that name",
    "EACCES EPERM": "`ls -la {folder}` shows who may read and write there",
    "EROFS": "a folder that is not mounted read-only, as {folder} is",
    "EISDIR": "a file: a folder has that name",
    "ELOOP": "another path: links in it lead back to themselves",
    "ENAMETOOLONG": "a shorter name",
    "EFBIG": "a larger `ulimit -f`",
    "EMFILE ENFILE": "a larger `ulimit -n`",
}
# read past whatever a class, or its metaclass, puts in their place
_NAME, _QUALNAME, _MODULE = (type.__dict__[name] for name in ("__name__", "__qualname__", "__module__"))
_TRACEBACK = BaseException.__dict__["__traceback__"]


@dataclass(frozen=True)
class ErrorText:
    """An exception as text: built-in strings only, of bounded length.

    >>> str(describe_error(KeyError("label")))
    "KeyError: 'label'"
    """

    name: str  # of its type
    type_name: str  # the same with its module
    message: str
    traceback: str
    file: str | None = None  # where it names one, as `OSError.filename` does

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def describe_error(error: BaseException) -> ErrorText:
    """Return what an exception says of itself. Never raises, not even what is no `Exception`."""
    kind = type_name(type(error))
    message = _message_of(error)
    return ErrorText(error_name(type(error)), kind, message, _traceback_of(error, kind, message), _file_of(error))


def error_name(kind: type) -> str:
    """Return a type's own name: `ValueError`."""
    return str.__str__(_NAME.__get__(kind))


def type_name(cls: type) -> str:
    """Return a type's name as a traceback shows it.

    >>> type_name(ValueError), type_name(ErrorText)
    ('ValueError', 'headrace.model.error_text.ErrorText')
    """
    name = str.__str__(_QUALNAME.__get__(cls))
    try:
        module: Any = _MODULE.__get__(cls)
    except AttributeError:  # a class may be made without one
        return name
    if type(module) is not str or module in ("builtins", "__main__"):
        return name
    return f"{module}.{name}"


def traceback_of(error: BaseException) -> TracebackType | None:
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    return trace


def is_from_signal(error: BaseException) -> bool:
    """Whether an exception was raised by a signal handler, and so has nothing to do with what it interrupted."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(traceback_of(error)))


def write_step(error: OSError, path: str | os.PathLike[str]) -> str:
    """Return what to do about a file that cannot be written, by what the system said; empty where that tells nothing.

    >>> write_step(OSError(errno.ENOENT, ""), "/data/runs/bad.jsonl")
    '`mkdir -p /data/runs`, or a folder that is there'
    """
    # the folder as it was given: `missing/..` is none that is there
    name, folder = errno.errorcode.get(error.errno or 0), shlex.quote(os.path.dirname(path) or ".")
    return next((step.format(folder=folder) for names, step in _WRITE_STEPS.items() if name in names.split()), "")


def shorten(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return a text with its middle left out, and said to be, where it is longer than so many characters."""
    left_out = len(text) - longest
    if left_out <= 0:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"


def _message_of(error: BaseException) -> str:
    try:
        return shorten(str.__str__(str(error)))
    except BaseException as failed:
        return f"(its str() raised {error_name(type(failed))})"


def _spare_odd_files(error: BaseException) -> None:
    """Let nobody read the source of frames that is no plain file: of /dev/stdin or a device there may be no end."""
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        for frame, _ in traceback.walk_tb(traceback_of(one)):
            name = frame.f_code.co_filename
            if os.path.exists(name) and not os.path.isfile(name):
                linecache.cache[name] = (0, None, [], name)  # as if it had been read
        one = one.__cause__ or one.__context__


def _traceback_of(error: BaseException, kind: str, message: str) -> str:
    try:
        _spare_odd_files(error)
        return shorten("".join(traceback.format_exception(error)))
    except BaseException:  # its causes, its notes or the name of its class: where it was raised is known all the same
        said = f"{kind}: {message}\n" if message else f"{kind}\n"
    try:
        frames = traceback.format_tb(traceback_of(error))
    except BaseException:
        frames = []
    return shorten("".join(["Traceback (most recent call last):\n", *frames, said]))


def _file_of(error: BaseException) -> str | None:
    try:
        file = getattr(error, "filename", None)
        return shorten(str.__str__(file)) if isinstance(file, str) else None
    except BaseException:
        return None
