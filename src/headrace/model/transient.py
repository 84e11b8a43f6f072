"""Errors that may pass by themselves, and how long to wait before the next try."""

import errno
import random
import re
from collections.abc import Iterator

_TRANSIENT_ERRNOS = frozenset(
    {
        # storage that may come back: a disk's read error, a file server that moved a file or was restarted
        *(errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.EBUSY),
        # not now
        *(errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.ENOBUFS, errno.ETIME),
        # the network between
        *(errno.ECONNRESET, errno.ECONNABORTED, errno.ECONNREFUSED, errno.EPIPE, errno.ENOTCONN, errno.ESHUTDOWN),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOLINK),
        *(errno.ECOMM, errno.EPROTO),
        -3,  # EAI_AGAIN of a name server, as `socket.gaierror` carries it
    }
)
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})  # of HTTP: later, please
_LONGEST_CHAIN = 32  # a chain of causes may be a ring
# HDF5 keeps the number in its text: "…file read failed: time = …, errno = 5, error message = 'Input/output error'…"
_ERRNO_IN_TEXT = re.compile(r"\berrno = (\d+)\b")

_FIRST_WAIT_S = 0.1  # a dropped packet or a busy server is over by then
_GROWTH = 3.0
_NUM_RETRIES = 5  # 0.1 + 0.3 + 0.9 + 2.7 + 8.1 s: a restarted file server is back, and no hang is suspected (a minute)


def is_transient(error: BaseException) -> bool:
    """Whether the same read may succeed later: the disk, the network or a server failed, not the sample.

    The first error in the chain of causes that knows decides: `ValueError` knows nothing, so its cause is asked;
    "no such file", "permission denied" and "disk full" are final, whatever lies behind them. Being wrong here
    costs a few seconds of waiting, never a sample. One that raises when it is asked knows nothing.

    >>> is_transient(TimeoutError()), is_transient(FileNotFoundError(2, "no such file")), is_transient(ValueError())
    (True, False, False)
    """
    asked: set[int] = set()
    to_ask: list[BaseException] = [error]
    while to_ask and len(asked) < _LONGEST_CHAIN:
        link = to_ask.pop(0)
        if id(link) in asked:
            continue
        asked.add(id(link))
        try:
            answer = _answer_of(link)
            if answer is not None:
                return answer
            to_ask += _behind(link)
        except BaseException:  # foreign code: what it raises now must not take the place of the error itself
            continue
    return False


def backoff_s(*, seed: int = 0, num_retries: int = _NUM_RETRIES, first_s: float = _FIRST_WAIT_S) -> Iterator[float]:
    """Yield how long to wait before each further try: three times longer each time, then the end: give up.

    Each wait is shortened by up to a third, by `seed` (give each sample its own), so that a hundred workers that
    lost one server together do not all come back at once. The generators of the data set are not touched.

    >>> [round(wait_s, 1) for wait_s in backoff_s(seed=7)]
    [0.1, 0.3, 0.7, 2.6, 6.7]
    """
    draw = random.Random(seed)
    for number in range(num_retries):
        yield first_s * _GROWTH**number * (1 - draw.random() / 3)


def _answer_of(error: BaseException) -> bool | None:
    """Return whether this error alone, without its causes, is transient; `None` if it cannot say."""
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if not isinstance(error, OSError):
        return None
    number = error.errno
    if number is None:
        in_text = _ERRNO_IN_TEXT.search(str(error))
        number = int(in_text.group(1)) if in_text else None
    if isinstance(number, int):
        return number in _TRANSIENT_ERRNOS
    status = getattr(error, "code", None)  # urllib's HTTPError
    if status is None:
        status = getattr(getattr(error, "response", None), "status_code", None)  # that of requests
    return status in _TRANSIENT_STATUSES if isinstance(status, int) else None


def _behind(error: BaseException) -> list[BaseException]:
    """Return the errors that this one came from."""
    behind: list[object] = [error.__cause__]
    if not error.__suppress_context__:
        behind.append(error.__context__)
    behind.append(getattr(error, "reason", None))  # urllib's URLError
    if isinstance(error, BaseExceptionGroup):
        behind += error.exceptions
    return [link for link in behind if isinstance(link, BaseException)]
