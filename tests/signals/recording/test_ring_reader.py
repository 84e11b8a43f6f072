"""Every record is delivered once or counted as lost, whatever the rhythm of writing and reading."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.signals.recording.area import LANE_HEAD_BYTES, MOST_LAPS, RECORD, RECORD_BYTES, LaneMemory, Word
from headrace.signals.recording.lanes import Lane
from headrace.signals.recording.recorder import RingReader, read_names

RECORDS = 64


class Ring:
    """A lane in private memory, with the real writer at one end and the real reader at the other."""

    def __init__(self) -> None:
        self.memory = LaneMemory(memoryview(bytearray(LANE_HEAD_BYTES + RECORDS * RECORD_BYTES)), 0, RECORDS)
        self.lane = Lane(_One(self.memory))  # type: ignore[arg-type]
        self.reader = RingReader(self.memory)
        self.written = 0

    def write(self, count: int, *, in_bulk: bool = False) -> None:
        most = 64 if in_bulk else 1  # as many as kept events are written together
        while count:
            size = min(count, most)
            if in_bulk:
                numbers = range(self.written, self.written + size)
                block = bytearray(b"".join(RECORD.pack(number, 1, 0, 0, 0, 41, 0) for number in numbers))
                self.lane.write_block(block, size, 0)
            else:
                self.lane.write(41, self.written, 1)
            self.written += size
            count -= size


class _One:
    """An area of one lane."""

    def __init__(self, memory: LaneMemory) -> None:
        self._memory = memory

    def claim(self) -> LaneMemory:
        return self._memory

    def close(self) -> None:
        pass


_rhythm = st.lists(st.tuples(st.integers(0, 3 * RECORDS), st.booleans()), max_size=12)


@given(_rhythm)
def test_what_is_read_is_the_newest_and_the_rest_is_counted(rhythm: list[tuple[int, bool]]) -> None:
    ring, num_read = Ring(), 0
    for count, in_bulk in rhythm:
        before = ring.reader.num_lost
        ring.write(count, in_bulk=in_bulk)
        block = ring.reader.read()
        kept = min(count, RECORDS)
        assert block["start_ns"].tolist() == list(range(ring.written - kept, ring.written))
        assert ring.reader.num_lost - before == count - kept
        assert not block["lap"].any()
        num_read += len(block)
    assert num_read + ring.reader.num_lost == ring.written


def test_laps_come_round() -> None:
    ring = Ring()
    for _ in range(3 * MOST_LAPS):
        ring.write(RECORDS - 1, in_bulk=True)
        assert len(ring.reader.read()) == RECORDS - 1
    assert ring.reader.num_lost == 0


@given(st.integers(0, 3 * RECORDS), st.integers(1, 20))
def test_a_cursor_that_lags_hides_nothing_at_the_end(before: int, hidden: int) -> None:
    ring = Ring()
    ring.write(before)
    ring.reader.read()
    ring.write(hidden)
    ring.memory.words[Word.CURSOR] = ring.written - hidden  # its writer was killed before it could say so
    assert len(ring.reader.read()) == 0
    assert ring.reader.read(is_last=True)["start_ns"].tolist() == list(range(before, before + hidden))


@given(st.integers(0, RECORDS - 1), st.integers(0, RECORDS))
def test_a_late_record_is_delivered_by_the_next_look(hole: int, after: int) -> None:
    ring = Ring()
    ring.write(RECORDS)
    lap = ring.memory.ring[hole * RECORD_BYTES + RECORD_BYTES - 1]
    ring.memory.ring[hole * RECORD_BYTES + RECORD_BYTES - 1] = 0  # taken, not filled
    assert len(ring.reader.read()) == RECORDS - 1
    ring.memory.ring[hole * RECORD_BYTES + RECORD_BYTES - 1] = lap
    ring.write(after)
    found = ring.reader.read()["start_ns"].tolist()
    is_overwritten = after > hole
    assert (hole in found) is not is_overwritten
    assert ring.reader.num_lost == int(is_overwritten)
    assert len(found) + ring.reader.num_lost == after + 1


@given(st.lists(st.text(max_size=20), max_size=20), st.integers(0, 20))
def test_names_are_read_in_two_parts_as_in_one(texts: list[str], split: int) -> None:
    ring = Ring()
    wanted = list(dict.fromkeys(texts))
    known = 0
    found: list[str] = []
    for number, text in enumerate(wanted, 1):
        assert ring.lane.name(text) == number
        if number == split:
            found, known = read_names(ring.memory, 0)
    more, _ = read_names(ring.memory, known)
    assert [*found, *more] == [text.encode("utf-8", "replace").decode() for text in wanted]
