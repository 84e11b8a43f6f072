"""A batch may be issued with rows that are done already: only the others go out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.epoch.scheduler import Scheduler
from headrace.engine.memory.messages import Answer, Result


@given(data=st.data(), num_rows=st.integers(1, 40), chunk=st.integers(1, 12))
def test_chunks_hold_each_missing_row_once_and_no_other(data: st.DataObject, num_rows: int, chunk: int) -> None:
    done = data.draw(st.lists(st.integers(0, num_rows - 1), unique=True).map(sorted))
    at = data.draw(st.lists(st.integers(1, num_rows), unique=True).map(sorted))
    gaps = [(row, shift + 1) for shift, row in enumerate(at) if row < num_rows]
    scheduler = Scheduler()
    works = scheduler.issue(num_rows, 100, chunk, gaps=gaps, done=done)
    rows = [row for work in works for row in range(work.row, work.row + work.rows)]
    assert rows == [row for row in range(num_rows) if row not in done]
    assert all(0 < work.rows <= chunk for work in works)
    (batch,) = scheduler.batches.values()
    for row in range(num_rows):
        shift = max((shift for first, shift in gaps if first <= row), default=0)
        assert batch.position_of(row) == 100 + row + shift
    assert batch.is_settled == (not works)
    for work in works:
        assert scheduler.ready() is None
        scheduler.note(Result(work.seq, 0, work.row, work.rows, 0, Answer.ROWS))
    assert scheduler.ready() is batch
