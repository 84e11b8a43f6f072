"""An iterable data set in a worker: the samples of its own iterator, one after the other, and where it stands."""

import csv
import gc
import inspect
import io
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from types import CodeType, GeneratorType
from typing import Any, Self

from headrace.errors import NotSupported
from headrace.model import Count, describe_error, traceback_of

from ..memory import Answer, CaughtError, Entry, Head, Work, dump
from .fetch import reachable
from .record import Stopped
from .rows import Placed
from .sharing import Sharing
from .workbench import Workbench

_log = logging.getLogger(__name__)

# what lets go of its iterator when that raises
_ENDED_BY_ERRORS = (itertools.islice, itertools.pairwise, getattr(itertools, "batched", ()))
# what goes on after an error with a part of a row, a number or a group that belongs to another one
_SHIFTED_BY_ERRORS = (zip, enumerate, itertools.compress, itertools.groupby, itertools.zip_longest)
# what loses the lines that it had read, or goes on inside of a record, after an error of its own
_TORN_BY_ERRORS = ((io.TextIOWrapper, UnicodeDecodeError), (type(csv.reader(())), csv.Error))


class Steps:
    """An iterator that goes on past samples that fail, where the loader's policy does; `tell` is told of each.

    An exception ends a generator, and some of `itertools`: asked again, they say that there is no more, as if all had
    come. So a failure that came out of one is an error where the iterator still holds it, wherever inside of it (a
    chain of one for each shard would go on with the next), or ends right after it. An iterator without one may well
    fail at its last sample; its end is believed, and the log says so.
    """

    def __init__(self, iterator: Iterator[Any], *, tell: Callable[[Exception], None] | None, whose: str) -> None:
        self._iterator = iterator
        self._tell = tell  # None: what fails is raised, as torch does
        self._whose = whose
        self._failed: Exception | None = None  # what the last answer was, where it was no sample
        self._to_raise: Exception | None = None
        self.taken = self.passed_over = 0
        self.ends_in_doubt = False  # right after a failure

    def __iter__(self) -> Self:
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
                if cannot_go_on(self._iterator, error):
                    raise self._lost_rest(error) from error
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
        self.ends_in_doubt = self.ends_in_doubt or failed is not None
        if failed is not None and ended_generators(failed):
            raise self._lost_rest(failed) from failed

    def _lost_rest(self, failed: Exception) -> NotSupported:
        return NotSupported(
            f"{self._whose} ended with the error of one sample: a generator or islice (pairwise, batched, reversed, "
            "zip, enumerate, groupby, chain of what fails, a text file with bytes that are no text, a CSV reader) "
            "cannot go on after an exception: what it had yet to give is lost, or would come shifted",
            error=describe_error(failed),
            came_before=f"{Count(self.taken):sample(s)}",
            next_step="catch the exception inside of it and continue with the next sample, or write the "
            "iterator as a class with __next__, which can be asked again",
        )


def say_doubt(whose: str) -> None:
    """Say that an iterator has ended right after a failure."""
    _log.warning("%s ended right after a sample that failed: if that was not its last one, the rest is lost", whose)


def ended_generators(error: BaseException) -> set[CodeType]:
    """The code of the generators that an exception has left on its way, and ended."""
    trace, found = traceback_of(error), set[CodeType]()
    while trace is not None:
        if trace.tb_frame.f_code.co_flags & inspect.CO_GENERATOR:
            found.add(trace.tb_frame.f_code)
        trace = trace.tb_next
    return found


def cannot_go_on(holder: object, error: Exception) -> bool:
    """Whether an iterator, asked again after an error, may lose samples, or give parts of one with those of another.

    A generator that an exception has left has ended, and some of `itertools` likewise; one that was made for a single
    sample, such as the inside of `sum(...)`, is gone with its sample. A `zip` and its like go on with a part of a row:
    they are fine where nothing that they ask can fail. A text file loses what it had read with bytes that are no text,
    and a CSV reader goes on with the next line of a record that it refused.
    """
    codes = ended_generators(error)
    return _is_ended(holder) or any(
        (isinstance(one, GeneratorType) and one.gi_frame is None and one.gi_code in codes)
        or (isinstance(one, _ENDED_BY_ERRORS) and not _asked_by(one))
        or (_may_be_shifted(one) and (_calls(one) or not all(map(_never_fails, _asked_by(one)))))
        or any(isinstance(one, kind) and isinstance(error, own) for kind, own in _TORN_BY_ERRORS)
        for one in reachable(holder)
    )


def _may_be_shifted(iterator: object) -> bool:
    return isinstance(iterator, _SHIFTED_BY_ERRORS) or (isinstance(iterator, map) and len(_asked_by(iterator)) > 1)


def _calls(iterator: object) -> bool:
    """Whether a `groupby` has a function, which may fail in the middle of a group."""
    # its own type is among what it refers to since Python 3.12
    referents = gc.get_referents(iterator) if isinstance(iterator, itertools.groupby) else []
    return any(callable(one) and one is not type(iterator) for one in referents)


def _never_fails(iterator: object) -> bool:
    """Whether an iterator is one over a container, or a file of Python's own, or made of such without any function."""
    kind = type(iterator)
    if kind in (itertools.count, itertools.repeat) or kind.__module__ == "_io":
        return True
    if isinstance(iterator, (*_SHIFTED_BY_ERRORS, *_ENDED_BY_ERRORS, itertools.chain)):
        return not _calls(iterator) and all(map(_never_fails, _asked_by(iterator)))
    if kind.__module__ != "builtins" or kind.__name__ == "callable_iterator":
        return False
    if kind.__name__ == "iterator":  # over any sequence, which may be of the user's own
        return all(type(one).__module__ == "numpy" for one in gc.get_referents(iterator))
    return kind.__name__.endswith("iterator")


def _is_of_c(iterator: object) -> bool:
    return type(iterator).__module__ in ("builtins", "itertools") and not isinstance(iterator, GeneratorType)


def _is_ended(iterator: object) -> bool:
    """Whether what gives a `chain` its iterables has failed, as `map(open, paths)` may, or an item of a `reversed`.

    Not inside of a class: there it may have been used up before.
    """
    asked = _asked_by(iterator) if _is_of_c(iterator) else []
    return any(map(_is_ended, asked)) if asked else isinstance(iterator, (itertools.chain, reversed))


def _asked_by(iterator: object) -> list[object]:
    """The iterators that one of C asks; `map` and `zip` keep theirs in a tuple. `reversed` asks what need be none."""
    held = gc.get_referents(iterator)
    if isinstance(iterator, reversed):
        return held
    for one in [one for one in held if type(one) is tuple]:  # it may have holes, and is told from its end
        held += reversed(gc.get_referents(one))
    return [one for one in held if isinstance(one, Iterator)]


class OwnIterator:
    """Serves batches of an iterable data set, as torch's fetcher does."""

    def __init__(self, bench: Workbench, sharing: Sharing) -> None:
        self._plan, self._words, self._dataset = bench.pool, bench.words, bench.dataset
        self._arena, self._region, self._record = bench.arena, bench.region, bench.record
        self._placer, self._teller, self._sharing = bench.placer, bench.teller, sharing
        self._worker, self._events = bench.plan.worker, bench.events
        self._steps = self._steps_of(iter(()))
        self._work: Work | None = None  # what is being served
        self._is_ended = False

    def begin(self) -> None:
        """Ask the data set for its iterator."""
        self._steps = self._steps_of(iter(self._dataset))

    def restart(self) -> None:
        """Begin the next epoch."""
        self._is_ended = False
        try:
            self.begin()
        except Exception as error:  # there is no batch to fail yet: the first one that is asked for does
            self._steps.fail_with(error)

    def pass_over(self, count: int) -> None:
        """Bring the iterator to where that of a dead worker stood."""
        self._steps.pass_over(count)

    def _steps_of(self, iterator: Iterator[Any]) -> Steps:
        tell = self._tell_aside if self._plan.goes_on else None
        return Steps(iterator, tell=tell, whose=f"the iterator of worker {self._worker}")

    def serve(self, work: Work, entry: int) -> None:
        """The next samples of this worker's own iterator, as torch's fetcher takes them."""
        if self._is_ended:
            self._tell_end(work)
            return
        self._work = work
        if not self._plan.is_batched:
            try:
                sample = self._next()
            except StopIteration:
                self._is_ended = True
                self._tell_end(work)
                return
            self._teller.answer(work, Answer.SHARED)
            self._sharing.collate_and_send(work, entry, sample)
            return
        texts: list[Any] = []
        aside: list[Any] | None = None if self._plan.uses_slots else []
        row = 0
        while row < work.rows:
            started = self._record.begin_sample(self._words[entry + Entry.FIRST_POSITION] + row)
            try:
                sample = self._next()
            except StopIteration:
                self._is_ended = True
                break
            except Exception as error:
                self._teller.fail(work, entry, row, error, rows=work.rows)  # the row says how many came before
                return
            fetched = time.perf_counter_ns()
            if aside is None:
                done: list[Placed] = []
                self._placer.place(entry, [sample], row, done)
                if self._events is not None:
                    self._events.handed_over(fetched)
                if done[0][0] is Answer.ROWS:
                    texts.append(done[0][3])
                else:
                    aside = self._placer.rows_back(entry, row, texts)
            if aside is not None:
                aside.append(sample)
            del sample
            row += 1
            self._record.note(fetched - started, time.perf_counter_ns() - started, 1)
        if row == 0 or (self._plan.drop_last and row < work.rows):
            self._tell_end(work)
        elif aside is None:
            joined = [[t for column in leaf for t in column] for leaf in zip(*texts, strict=True)]
            block = dump(joined, self._region, self._arena)[0] if joined else 0
            self._teller.answer(work, Answer.ROWS, block=block, row=0, rows=row)
        else:
            self._teller.answer(work, Answer.SHARED, row=0, rows=row)
            self._sharing.collate_and_send(work, entry, aside)

    def _next(self) -> Any:
        events = self._events
        if events is None:
            return next(self._steps)
        events.begin_sample()
        try:
            return next(self._steps)
        finally:
            events.end_sample(-1)

    def _tell_end(self, work: Work) -> None:
        self._teller.answer(work, Answer.END, row=int(self._steps.ends_in_doubt))

    def _tell_aside(self, error: Exception) -> None:
        """Tell of a sample that failed; the iterator is asked for the next one, for as long as anybody wants it."""
        assert self._work is not None
        if self._words[Head.STOP]:
            raise Stopped
        caught = CaughtError.from_exception(error, self._worker)
        block, _ = dump(caught, self._region, self._arena)
        self._teller.answer(self._work, Answer.PASSED_OVER, block=block, row=0, rows=0)
        self._record.begin_again()
