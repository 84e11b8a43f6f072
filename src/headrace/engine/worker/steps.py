"""The samples of an iterable data set, one after the other: those that fail are passed over, the rest is not lost."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

from headrace.errors import NotSupported
from headrace.model import describe_error, traceback_of

_log = logging.getLogger(__name__)


class Steps:
    """An iterator that goes on past samples that fail, where the loader's policy does; `tell` is told of each.

    An exception ends a generator: asked again, it says that there is no more, as if all had come. So an end right
    after a failure is an error where the failure came out of a generator, whoever holds that. An iterator without one
    may well fail at its last sample; its end is believed, and the log says so.
    """

    def __init__(self, iterator: Iterator[Any], *, tell: Callable[[Exception], None] | None, whose: str) -> None:
        self._iterator = iterator
        self._tell = tell  # None: what fails is raised, as torch does
        self._whose = whose
        self._failed: Exception | None = None  # what the last answer was, where it was no sample
        self._to_raise: Exception | None = None
        self.taken = self.passed_over = 0
        self.ends_in_doubt = False  # right after a failure

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        if self._to_raise is not None:
            error, self._to_raise, self._iterator = self._to_raise, None, iter(())
            raise error
        while True:
            try:
                sample = next(self._iterator)
            except StopIteration:
                self._end()
                raise
            except Exception as error:
                if self._tell is None:
                    raise
                self._tell(error)
                self._failed, self.passed_over = error, self.passed_over + 1
            else:
                self._failed = None
                self.taken += 1
                return sample

    def pass_over(self, count: int) -> None:
        """Bring the iterator to where that of a dead worker stood; what fails here had failed there too."""
        for _ in range(count):
            try:
                next(self._iterator)
            except StopIteration:
                return
            except Exception as error:
                if self._tell is None:
                    self.fail_with(error)  # going on from here would repeat samples
                    return
                self._failed = error
            else:
                self._failed = None
                self.taken += 1

    def fail_with(self, error: Exception) -> None:
        """Raise this for the next sample that is asked for, whatever the policy; there is none after it."""
        self._to_raise, self._failed = error, None

    def _end(self) -> None:
        failed, self._failed = self._failed, None
        if failed is None:
            return
        self.ends_in_doubt = True
        if came_out_of_generator(failed):
            raise NotSupported(
                f"{self._whose} ended with the error of one sample: a generator cannot go on after an exception, and "
                "what it had yet to give is lost",
                error=describe_error(failed),
                came_before=f"{self.taken} samples",
                next_step="catch the exception inside the generator and continue with the next sample, or write the "
                "iterator as a class with __next__, which can be asked again",
            ) from failed


def say_doubt(whose: str) -> None:
    """Say that an iterator has ended right after a failure."""
    _log.warning("%s ended right after a sample that failed: if that was not its last one, the rest is lost", whose)


def came_out_of_generator(error: BaseException) -> bool:
    """Whether an exception has left a generator on its way, and ended it."""
    trace = traceback_of(error)
    while trace is not None:
        if trace.tb_frame.f_code.co_flags & inspect.CO_GENERATOR:
            return True
        trace = trace.tb_next
    return False
