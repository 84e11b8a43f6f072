"""Byte counts are read as people write them and shown with three digits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1), ("512", 512), ("1b", 1), ("1 KiB", 1024), ("1k", 1024), ("1kb", 1000), ("8GiB", 8 << 30),
        ("8gib", 8 << 30), ("8 GB", 8 * 10**9), (" 1.5g ", 3 << 29), ("0.5MiB", 1 << 19), ("2T", 2 << 40), (4096, 4096),
    ],
)  # fmt: skip
def test_sizes_as_people_write_them(text: int | str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "8 GiBs", "8 G B", "1,5g", "inf", "0", 0, -5, "0.1b", "١٢x"])
def test_what_is_no_size_is_refused_by_name(text: int | str) -> None:
    with pytest.raises(ValueError, match="budget"):
        parse_bytes(text, name="budget")


@pytest.mark.parametrize("value", [None, 1.5, True, b"8", [8]])
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="memory"):
        parse_bytes(value)


@given(st.integers(1, 2**49))
def test_a_shown_size_reads_back_within_its_digits(value: int) -> None:
    text = format_bytes(value)
    assert parse_bytes(text) == pytest.approx(value, rel=0.006)
    assert len(text.split()[0].replace(".", "")) <= 4


@given(st.integers(1, 2**60))
def test_plain_numbers_are_taken_as_they_are(value: int) -> None:
    assert parse_bytes(value) == parse_bytes(str(value)) == value
