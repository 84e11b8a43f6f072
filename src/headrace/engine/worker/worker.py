"""One worker: takes work from its pipes and gives it to the part that serves it."""

import os
import time
from collections.abc import Callable

from ..memory import ENDED, IDLE, WORK_BYTES, Answer, Board, Entry, Head, Task, Work
from .chunks import Chunks, WholeBatches
from .own_iterator import OwnIterator
from .record import Stopped
from .sharing import Sharing
from .workbench import Workbench

# tasks that belong to a batch, and so to an epoch
_OF_A_BATCH = (Task.CHUNK, Task.WHOLE, Task.NEXT, Task.COLLATE)
# those of them that fetch samples by their keys: they wait while one under suspicion is tried alone
_WITH_SAMPLES = (Task.CHUNK, Task.WHOLE)


class Worker:
    """The life of one worker, in its own process or its own thread of the loader's process."""

    def __init__(self, bench: Workbench) -> None:
        self._plan, self._region = bench.plan, bench.region
        self._words, self._all_words = bench.words, bench.all_words
        self._record, self._teller = bench.record, bench.teller
        self._events = bench.events
        self._sharing = Sharing(bench)
        self._chunks = Chunks(bench, self._sharing)
        self._whole_batches = WholeBatches(bench, self._sharing)
        self._own_iterator = OwnIterator(bench, self._sharing)
        self._init_error: BaseException | None = None
        self._held = b""  # a message for later
        self._is_urgent = False  # the message in hand came before all that waits
        self._trimmed = 0  # the last wish of the training process for memory that nobody uses

    def run(self, prepare: Callable[[], None]) -> None:
        """Work until told to stop or until the training process is gone."""
        words, record, events = self._words, self._record, self._events
        record.open()
        try:
            prepare()
            if self._plan.pool.is_iterable:
                self._own_iterator.begin()
        except Exception as error:
            self._init_error = error
        while not words[Head.STOP]:
            record.set_state(IDLE)
            if events is not None:
                events.begin_idle()
            message = self._next_message()
            if events is not None:
                events.end_idle()
            if len(message) < WORK_BYTES or words[Head.STOP]:
                break
            work = Work.unpack(message)
            if words[Head.TRIM] != self._trimmed:
                self._trimmed = words[Head.TRIM]
                self._region.trim()
            if work.task == Task.RETIRE:
                break
            if work.task != Task.LOOK:
                self._take_up(work)
            if record.is_asked_to_go and not self._held:
                break
            record.weigh_if_asked()
        record.set_state(ENDED)  # not where a sample leaves the process: what it had in hand must stay readable

    def _next_message(self) -> bytes:
        words = self._words
        self._is_urgent = False
        while True:
            if words[Head.URGENT] and self._plan.urgent is not None:
                try:
                    if message := os.read(self._plan.urgent.fd, WORK_BYTES):
                        self._is_urgent = True
                        return message
                except BlockingIOError:
                    pass
            if words[Head.HOLD] and not words[Head.STOP]:
                time.sleep(0.002)  # a sample under suspicion is tried alone: rare, and over soon
            elif self._held:
                message, self._held = self._held, b""
                return message
            else:
                message = os.read(self._plan.work.fd, WORK_BYTES)
                if not words[Head.HOLD] or Work.unpack(message).task not in _WITH_SAMPLES:
                    return message
                self._held = message

    def _take_up(self, work: Work) -> None:
        events = self._events
        if events is None:
            self._serve(work)
            return
        events.begin_task()
        try:
            self._serve(work)
        finally:
            events.end_task(work.rows)

    def _serve(self, work: Work) -> None:
        words = self._words
        entry = Board.entry_at(work.seq)
        started = self._record.begin_task(work)
        if words[Head.HOLD] and work.task in _WITH_SAMPLES and not self._is_urgent:
            # A sample under suspicion goes out alone once nobody has one in hand, and we had not shown ours yet.
            self._held = work.pack()
            return
        if work.task in _OF_A_BATCH:
            if words[entry + Entry.RUN] != words[Head.RUN]:
                self._teller.tell(work, entry, Answer.DROPPED, work.row, work.rows, is_void=True)
                return
            if words[Head.LOSSES] and self._is_stale(work, entry):
                return
        try:
            if self._init_error is not None:
                raise self._init_error
            if work.task == Task.CHUNK:
                self._chunks.serve(work, entry)
            elif work.task == Task.WHOLE:
                self._whole_batches.serve(work, entry)
            elif work.task == Task.NEXT:
                self._own_iterator.serve(work, entry)
            elif work.task == Task.COLLATE:
                self._sharing.collate_shared(work, entry)
            elif work.task == Task.SKIP:
                self._own_iterator.pass_over(work.rows)
            else:
                self._own_iterator.restart()
        except Stopped:
            return
        except Exception as error:
            self._teller.fail(work, entry, work.row, error, is_sample=error is not self._init_error)
        self._record.end_task(started)

    def _is_stale(self, work: Work, entry: int) -> bool:
        """Whether a chunk was given up for lost while it was on its way to us: another worker has it now, or had."""
        if work.task not in (Task.CHUNK, Task.WHOLE) or not work.rows:
            return False
        if self._words[entry + Entry.SEQ] != work.seq:
            return True
        return bool(self._all_words[self._words[entry + Entry.ROW_WORDS] + work.row] != -work.tries)
