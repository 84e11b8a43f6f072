"""A file of events reads back what was written, up to the byte where it was cut off."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.signals.recording.event_file import (
    FrameType,
    StoredFrame,
    Torn,
    file_head,
    frame,
    note,
    read_file_head,
    read_frames,
)

_frames = st.lists(
    st.tuples(st.sampled_from(FrameType), st.integers(0, 65535), st.integers(0, 2**32 - 1), st.binary(max_size=100)),
    max_size=8,
)


def written(frames: list[tuple[FrameType, int, int, bytes]]) -> bytes:
    return file_head() + b"".join(frame(kind, lane, process, 1, body) for kind, lane, process, body in frames)


def read(data: bytes) -> tuple[list[tuple[int, int, int, bytes]], list[Torn]]:
    found = list(read_frames(memoryview(data)))
    whole = [(one.type, one.lane, one.process, bytes(one.body)) for one in found if isinstance(one, StoredFrame)]
    return whole, [one for one in found if isinstance(one, Torn)]


@given(_frames)
def test_frames_round_trip(frames: list[tuple[FrameType, int, int, bytes]]) -> None:
    assert read(written(frames)) == (frames, [])


@given(_frames, st.data())
def test_a_file_cut_off_anywhere_gives_all_whole_frames(
    frames: list[tuple[FrameType, int, int, bytes]], data: st.DataObject
) -> None:
    ends = [len(written(frames[:count])) for count in range(len(frames) + 1)]
    cut = data.draw(st.integers(ends[0], ends[-1]))
    whole, torn = read(written(frames)[:cut])
    assert whole == [one for one, end in zip(frames, ends[1:], strict=True) if end <= cut]
    assert sum(one.size for one in torn) == cut - max(end for end in ends if end <= cut)
    assert all(one.is_at_end for one in torn)


@given(_frames.filter(bool), st.data())
def test_one_damaged_byte_costs_one_frame(frames: list[tuple[FrameType, int, int, bytes]], data: st.DataObject) -> None:
    broken = data.draw(st.integers(0, len(frames) - 1))
    start, end = len(written(frames[:broken])), len(written(frames[: broken + 1]))
    file = bytearray(written(frames))
    file[data.draw(st.integers(start, end - 1))] ^= data.draw(st.integers(1, 255))
    whole, torn = read(bytes(file))
    assert whole == [one for number, one in enumerate(frames) if number != broken]
    assert [(one.at, one.size) for one in torn] == [(start, end - start)]


def test_a_note_is_json_of_any_text() -> None:
    (found,) = read_frames(memoryview(file_head() + note(3, 1, {"names": ["卷", "bad \udc80"]})))
    assert isinstance(found, StoredFrame)
    assert json.loads(bytes(found.body)) == {"names": ["卷", "bad \udc80"]}


def test_a_file_of_another_kind_is_known() -> None:
    assert read_file_head(file_head()) == 1
    assert read_file_head(b"PK\x03\x04" + bytes(60)) is None
    assert read_file_head(b"") is None
