"""Which errors are worth another try, and how long to wait for it."""

import concurrent.futures
import errno
import random
import socket
import urllib.error
from email.message import Message
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.model import backoff_s, is_transient

# Tables are walked within one test: each test also looks for what it left behind, which takes longer than these.
COMES_BACK = [
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ECONNRESET, errno.ECONNREFUSED, errno.EINTR),
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EREMOTEIO, errno.EPIPE),
]
STAYS = [
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EISDIR, errno.ENOTDIR, errno.EINVAL),
    *(errno.EMFILE, errno.EROFS, errno.ENAMETOOLONG, errno.ENOMEM),
]


def test_disk_and_network_may_come_back_and_a_missing_file_does_not() -> None:
    assert [number for number in COMES_BACK + STAYS if is_transient(OSError(number, "no"))] == COMES_BACK


def http_error(status: int) -> urllib.error.HTTPError:
    error = urllib.error.HTTPError("http://store/x", status, "no", Message(), None)
    error.close()
    return error


def test_transient_in_other_clothes() -> None:
    for error in [
        TimeoutError(),
        concurrent.futures.TimeoutError("timed out"),
        ConnectionResetError("peer"),
        BrokenPipeError(),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        urllib.error.URLError(TimeoutError("timed out")),
        http_error(503),
        OSError("Unable to open file (unable to lock file, errno = 5, error message = 'Input/output error')"),
        ExceptionGroup("two reads", [ValueError("half a file"), ConnectionAbortedError()]),
    ]:
        assert is_transient(error), repr(error)


def test_not_transient() -> None:
    for error in [
        ValueError("bad header"),
        KeyError(5),  # 5 is EIO, and here a key
        MemoryError(),
        OSError("image file is truncated (3 bytes not processed)"),
        OSError("Unable to open file (unable to open file: name = 'a.h5', errno = 2, error message = 'No such file')"),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        urllib.error.URLError("unknown url type"),
        http_error(404),
    ]:
        assert not is_transient(error), repr(error)


def raised_from(outer: Exception, inner: BaseException) -> Exception:
    try:
        raise outer from inner
    except Exception as error:
        return error


def raised_while_handling(outer: Exception, inner: Exception) -> Exception:
    try:
        try:
            raise inner
        except Exception:
            raise outer  # noqa: B904 - the implicit context is what is tested
    except Exception as error:
        return error


def test_the_cause_behind_a_library_error_decides() -> None:
    stale = OSError(errno.ESTALE, "stale file handle")
    assert is_transient(raised_from(ValueError("cannot decode"), stale))
    assert is_transient(raised_while_handling(ValueError("cannot decode"), stale))
    assert is_transient(raised_from(RuntimeError("shard"), raised_from(ValueError("cannot decode"), stale)))
    assert not is_transient(raised_from(ValueError("cannot decode"), OSError(errno.ENOENT, "no such file")))


def test_the_outermost_error_that_knows_decides() -> None:
    missing = FileNotFoundError(errno.ENOENT, "not in the cache either")
    assert not is_transient(raised_while_handling(missing, TimeoutError()))


def test_a_context_that_was_suppressed_is_not_asked() -> None:
    error = raised_while_handling(ValueError("bad header"), TimeoutError())
    error.__suppress_context__ = True
    assert not is_transient(error)


def test_a_ring_of_causes_ends() -> None:
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    assert not is_transient(one)


@given(st.integers(), st.integers(0, 8), st.floats(0.001, 1))
def test_waits_grow_and_end(seed: int, num_retries: int, first_s: float) -> None:
    waits_s = list(backoff_s(seed=seed, num_retries=num_retries, first_s=first_s))
    assert len(waits_s) == num_retries
    assert waits_s == sorted(waits_s)
    assert all(later >= 2 * wait * 0.999 for wait, later in pairwise(waits_s))
    assert all(wait_s <= first_s * 3**number for number, wait_s in enumerate(waits_s))


@given(st.integers())
def test_all_waits_together_stay_far_below_a_minute(seed: int) -> None:
    """A sample that takes a minute is suspected to hang; one that waits for its server must not be."""
    assert 5 < sum(backoff_s(seed=seed)) < 15


def test_samples_do_not_come_back_together_and_no_generator_is_touched() -> None:
    before = random.getstate()
    assert len({next(backoff_s(seed=seed)) for seed in range(100)}) == 100
    assert list(backoff_s(seed=5)) == list(backoff_s(seed=5))
    assert random.getstate() == before
