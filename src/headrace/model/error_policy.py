"""What a loader does about a sample that failed: tried again, left out or raised, and how many are too many."""

import errno
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from .failures import RAISE, RETRY, SKIP, Decision, SampleFailure

_NAMED = {"raise": RAISE, "quarantine": SKIP}
_MOST_TRIES = 10  # an `on_error` function that always says "again" would hang the epoch

# The default of `max_bad`; the reasons are in `is_too_many`.
_FREE_SAMPLES = 10
_SHARE_OF_SEEN = 0.01
_LONGEST_STREAK = 100


@dataclass(frozen=True)
class Replacement:
    """A sample that an `on_error` function gave to be used instead."""

    sample: Any


@dataclass(frozen=True, kw_only=True)
class ErrorPolicy:
    """`on_error=` and `max_bad=`, checked.

    >>> policy = ErrorPolicy.of("quarantine", max_bad=20)
    >>> policy.judge(SampleFailure(key=3)), policy.limit_text
    (headrace.SKIP, 'max_bad=20')
    """

    on_error: str | Callable[[SampleFailure], Any] = "raise"
    max_bad: int | float | None = None

    @classmethod
    def of(cls, on_error: Any = "raise", max_bad: Any = None) -> Self:
        """Check both arguments as a user wrote them; raise `TypeError` or `ValueError` that says what is possible."""
        if isinstance(on_error, str) and on_error not in _NAMED:
            raise ValueError(f"on_error={on_error!r}: choose 'raise', 'quarantine', or a function of a SampleFailure")
        if not isinstance(on_error, str) and not callable(on_error):
            raise TypeError(f"on_error takes 'raise', 'quarantine' or a function of a SampleFailure, not {on_error!r}")
        if max_bad is not None:
            if isinstance(max_bad, bool) or not isinstance(max_bad, (int, float)):
                raise TypeError(f"max_bad takes a number of samples, or a share from 0.0 to 1.0, not {max_bad!r}")
            if isinstance(max_bad, float) and not 0 <= max_bad <= 1:
                raise ValueError(
                    f"max_bad={max_bad!r}: a share lies between 0.0 and 1.0; for a number of samples write an int"
                )
            if max_bad < 0:
                raise ValueError(f"max_bad={max_bad!r}: a number of samples cannot be negative")
        return cls(on_error=on_error, max_bad=max_bad)

    @property
    def raises_at_once(self) -> bool:
        """Whether a failure ends the run, as under torch, so that nothing need be kept in order to go on."""
        return self.on_error == "raise"

    @property
    def limit_text(self) -> str:
        """The limit in the words of the arguments, for an error or a log."""
        return "max_bad not given" if self.max_bad is None else f"max_bad={self.max_bad!r}"

    def judge(self, failure: SampleFailure) -> Decision | Replacement:
        """Return what to do with a sample that failed.

        An `on_error` function that raises, raises here. One that returns nothing, or a word where it means a
        decision, is an error: `None` would otherwise travel on as a sample.
        """
        if isinstance(self.on_error, str):
            return _NAMED[self.on_error]
        answer = self.on_error(failure)
        if answer is RETRY and failure.tries >= _MOST_TRIES:
            return RAISE
        if isinstance(answer, Decision):
            return answer
        if answer is None or answer is Decision or (isinstance(answer, str) and answer in _WORDS):
            raise TypeError(
                f"on_error returned {answer!r} for {failure}; "
                f"return headrace.SKIP, headrace.RETRY, headrace.RAISE, or a sample to use instead"
            )
        return Replacement(answer)


_WORDS = frozenset({*_NAMED, *(decision.value for decision in Decision)})


def is_too_many(bad: int, seen: int, total: int | None, *, max_bad: int | float | None = None) -> bool:
    """Whether `bad` samples, of `seen` that were tried, of a data set of `total`, are too many to go on.

    `max_bad` as a number: more than so many. As a share: more than that share of the data set; where its length is
    not known, of the samples tried so far, and 10 for the start.

    By default (`None`) 10 samples and a hundredth of those tried so far are allowed:

    - *A wrong path must not quarantine a data set*: every sample fails, and the 11th is an error, after a moment, not
      after a hundredth of a billion samples. That is why the share is one of the samples tried.
    - *A few bad samples in a small data set are fine*: 3 of 200 are 1.5 %, but fewer than 10. Of fewer than 40 samples,
      a quarter is allowed (and one at least), or 10 would be most of it.
    - *A large data set has bad samples*: one in a hundred thousand of a billion is 10,000, and far below 1 %.
    - *All is always too many*, whatever `max_bad` says: there is nothing left to fill a batch with.

    Samples of a second epoch are not new ones: at most `total` count as tried.

    >>> is_too_many(11, 11, 10**9), is_too_many(3, 200, 200), is_too_many(10_000, 10**9, 10**9)
    (True, False, False)
    """
    if bad == 0:
        return False
    if total is not None:
        seen = min(seen, total)
        if bad >= total:
            return True
    if isinstance(max_bad, int):
        return bad > max_bad
    if max_bad is not None:
        allowed = max_bad * total if total is not None else _FREE_SAMPLES + max_bad * seen
        return bad > allowed
    free = _FREE_SAMPLES if total is None else min(_FREE_SAMPLES, max(1, total // 4))
    return bad > free + _SHARE_OF_SEEN * seen


class BadTally:
    """Counts good and bad samples of a loader through its life, and says when there are too many bad ones.

    Besides `is_too_many` it knows one thing more: with the default limit, 100 samples that fail one after the
    other, with no good one between them, are too many. A mount that is lost in the tenth epoch, when a hundredth
    of the data set is allowed, would otherwise condemn that hundredth: samples that are good.

    >>> tally = BadTally(ErrorPolicy.of("quarantine"), total=1000)
    >>> tally.good(500)
    >>> tally.bad() is None, tally
    (True, BadTally(bad=1, seen=501, total=1000, streak=1))
    """

    def __init__(self, policy: ErrorPolicy, total: int | None) -> None:
        self._policy = policy
        self._total = total
        self.num_bad = self.num_seen = self._streak = 0

    def good(self, count: int = 1) -> None:
        if count:
            self.num_seen += count
            self._streak = 0

    def bad(self) -> str | None:
        """Count a sample that is left out or replaced; return why that is one too many, or `None` if it is not."""
        self.num_bad += 1
        self.num_seen += 1
        self._streak += 1
        if is_too_many(self.num_bad, self.num_seen, self._total, max_bad=self._policy.max_bad):
            of = "" if self._total is None else f" of a data set of {self._total}"
            return f"{self.num_bad} bad samples among the first {min(self.num_seen, self._total or self.num_seen)}{of}"
        if self._policy.max_bad is None and self._streak >= _LONGEST_STREAK:
            return f"the last {self._streak} samples failed one after the other"
        return None

    def __repr__(self) -> str:
        return f"BadTally(bad={self.num_bad}, seen={self.num_seen}, total={self._total}, streak={self._streak})"


# ------------------------------------------------------------------ errors that may pass by themselves

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
    behind: list[object] = [error.__cause__]
    if not error.__suppress_context__:
        behind.append(error.__context__)
    behind.append(getattr(error, "reason", None))  # urllib's URLError
    if isinstance(error, BaseExceptionGroup):
        behind += error.exceptions
    return [link for link in behind if isinstance(link, BaseException)]
