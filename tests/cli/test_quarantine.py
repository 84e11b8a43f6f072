"""Filters and groups of `headrace quarantine`: which failures pass, and how they are counted."""

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.cli.quarantine import group_samples, key_lines, moment_of, parse_since, passes
from headrace.cli.terminal import printable
from headrace.model import FailureKind, SampleFailure
from headrace.model.samples import OpaqueKey
from headrace.signals import merge_failures

NOW = datetime(2026, 7, 30, 12, tzinfo=UTC)
IMAGE = SampleFailure(
    key=1,
    exception="PIL.UnidentifiedImageError",
    message="cannot identify image file",
    traceback='File "decode.py", line 3',
    file="/data/Straße/a.jpg",
    time="2026-07-30T11:00:00+00:00",
)
LOST = SampleFailure(
    key=("b", 7),
    kind=FailureKind.WORKER_LOST,
    shard="s3://bucket/train-0007.tar",
    offset=512,
    rank=5,
    worker=2,
    time="2026-07-28T11:00:00+00:00",
)


def test_a_failure_passes_if_it_passes_each_filter() -> None:
    table: list[tuple[dict[str, Any], list[SampleFailure]]] = [
        ({}, [IMAGE, LOST]),
        ({"exceptions": ("worker_lost",)}, [LOST]),
        ({"exceptions": ("worker_lost", "UnidentifiedImageError")}, [IMAGE, LOST]),
        ({"exceptions": ("UnidentifiedImageError",)}, [IMAGE]),
        ({"exceptions": ("PIL.UnidentifiedImageError", "OSError")}, [IMAGE]),
        ({"exceptions": ("ImageError",)}, []),
        ({"contains": ("STRASSE",)}, [IMAGE]),  # whatever the case, in any language
        ({"contains": ("decode.py", "identify")}, [IMAGE]),
        ({"contains": ("decode.py", "train")}, []),
        ({"contains": ('["b",7]',)}, [LOST]),
        ({"since": NOW - timedelta(hours=2)}, [IMAGE]),
        ({"since": NOW - timedelta(days=3)}, [IMAGE, LOST]),
        ({"shards": ("train-0007.tar",)}, [LOST]),
        ({"shards": ("s3://bucket/train-0007.tar",)}, [LOST]),
        ({"shards": ("train-00??.tar",)}, [LOST]),
        ({"shards": ("0007",)}, []),
        ({"shards": ("train-0007.tar",), "exceptions": ("hang",)}, []),
    ]
    for given, passing in table:
        assert [failure for failure in (IMAGE, LOST) if passes(failure, **given)] == passing, given


def test_a_time_that_a_person_wrote_is_never_since() -> None:
    failure = SampleFailure(key=1, time="yesterday")
    assert moment_of(failure.time) is None
    assert not passes(failure, since=NOW - timedelta(days=999))
    assert moment_of("2026-07-30 11:00") == moment_of("2026-07-30T11:00:00Z")  # without a zone: as we write, UTC


def test_ages_and_dates_are_moments() -> None:
    assert parse_since("2h", now=NOW) == NOW - timedelta(hours=2)
    assert parse_since(" 1.5 d ", now=NOW) == NOW - timedelta(hours=36)
    assert parse_since("2026-07-30T10:00:00+08:00", now=NOW) == NOW - timedelta(hours=10)
    assert parse_since("2026-07-30", now=NOW) == datetime(2026, 7, 30).astimezone()
    for wrong in ("soon", "2x", "2026-13-01", ""):
        with pytest.raises(ArgumentTypeError, match="is no time"):
            parse_since(wrong, now=NOW)


def test_groups_are_counted_by_sample_the_largest_first() -> None:
    again = [SampleFailure(key=1, exception="ValueError"), SampleFailure(key=1, exception="ValueError")]
    one, *others = merge_failures([*again, IMAGE, LOST, SampleFailure(key=2, exception="PIL.UnidentifiedImageError")])
    # key 1 failed three times: what was said last counts
    assert group_samples([one, *others], "exception") == [
        ("PIL.UnidentifiedImageError", [one, others[1]]),
        ("worker_lost", [others[0]]),
    ]
    assert [(name, len(samples)) for name, samples in group_samples([one, *others], "shard")] == [
        (None, 2),
        ("s3://bucket/train-0007.tar", 1),
    ]


def test_keys_are_lines_of_json() -> None:
    keys: list[Any] = [3, "a\nb", ("病例", 7), OpaqueKey("b'x'"), None]
    lines, num_others = key_lines(merge_failures(SampleFailure(key=key) for key in keys))
    assert lines == ["3", '"a\\nb"', '["病例", 7]']
    assert num_others == 2


def test_nothing_in_a_file_steers_a_terminal() -> None:
    assert printable("\x1b]0;title\x07\x9b31m\r\u202e") == r"\x1b]0;title\x07\x9b31m\r\u202e"
    assert printable("line\n\tline 第二行") == "line\n\tline 第二行"
