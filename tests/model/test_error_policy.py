"""What is done about a failed sample, and when there are too many: promises over all counts, not examples alone."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.model import BadTally, ErrorPolicy, Replacement, SampleFailure
from headrace.model.error_policy import is_too_many

FAILURE = SampleFailure(key=7, exception="ValueError", message="bad header")
totals = st.none() | st.integers(1, 10**10)


def test_raise_and_quarantine_are_two_policies() -> None:
    assert ErrorPolicy.of("raise").judge(FAILURE) is headrace.RAISE
    assert ErrorPolicy.of("quarantine").judge(FAILURE) is headrace.SKIP
    assert ErrorPolicy.of().raises_at_once
    assert not ErrorPolicy.of("quarantine").raises_at_once
    assert not ErrorPolicy.of(lambda failure: headrace.RAISE).raises_at_once


def test_a_function_decides() -> None:
    for answer in (headrace.SKIP, headrace.RETRY, headrace.RAISE):
        asked: list[SampleFailure] = []
        policy = ErrorPolicy.of(lambda failure, asked=asked, answer=answer: asked.append(failure) or answer)
        assert policy.judge(FAILURE) is answer
        assert asked == [FAILURE]


def test_what_is_no_decision_is_a_sample() -> None:
    for sample in (0, False, "", (), [1, 2], {"x": 1}, "a caption"):
        assert ErrorPolicy.of(lambda failure, sample=sample: sample).judge(FAILURE) == Replacement(sample)


def test_a_forgotten_return_or_a_word_is_no_sample() -> None:
    for answer in (None, "skip", "retry", "raise", "quarantine"):
        with pytest.raises(TypeError, match=r"sample 7: ValueError: bad header; return headrace\.SKIP"):
            ErrorPolicy.of(lambda failure, answer=answer: answer).judge(FAILURE)


def test_a_function_that_always_retries_does_not_hang_the_epoch() -> None:
    policy = ErrorPolicy.of(lambda failure: headrace.RETRY)
    answers = [policy.judge(SampleFailure(key=7, tries=tries)) for tries in range(1, 1000)]
    assert answers[0] is headrace.RETRY
    assert headrace.RAISE in answers[:20]


def test_an_error_in_the_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        ErrorPolicy.of(lambda failure: 1 / 0).judge(FAILURE)


def test_wrong_arguments_say_what_is_possible() -> None:
    table: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"on_error": "skip"}, ValueError, "choose 'raise', 'quarantine', or a function"),
        ({"on_error": None}, TypeError, "not None"),
        ({"max_bad": True}, TypeError, "not True"),
        ({"max_bad": "5%"}, TypeError, "a share from 0.0 to 1.0"),
        ({"max_bad": -1}, ValueError, "cannot be negative"),
        ({"max_bad": 1.5}, ValueError, "for a number of samples write an int"),
        ({"max_bad": float("nan")}, ValueError, "between 0.0 and 1.0"),
    ]
    for arguments, error, said in table:
        with pytest.raises(error) as caught:
            ErrorPolicy.of(**arguments)
        assert said in str(caught.value)


# ------------------------------------------------------------------------------------ how many are too many


@given(totals)
def test_a_wrong_path_is_noticed_after_a_moment(total: int | None) -> None:
    """Every sample fails: an error after 11 of them, and before the whole data set is condemned."""
    failed = next(bad for bad in range(1, 10**6) if is_too_many(bad, bad, total))
    assert failed <= 11
    if total is not None and total > 1:
        assert failed <= max(2, total // 4 + 1)


@given(st.integers(100, 10**10), st.randoms(use_true_random=False))
def test_three_bad_samples_are_fine_in_any_data_set_that_is_not_tiny(total: int, chance: random.Random) -> None:
    """Wherever in the order they are, and in whichever epoch."""
    seen = chance.randint(3, 20 * total)
    assert not is_too_many(3, seen, total)


@given(st.integers(1, 10**10))
def test_one_in_a_hundred_thousand_is_fine(total: int) -> None:
    for seen in (total // 1000, total // 2, total, 30 * total):
        assert not is_too_many(min(seen, total) // 100_000, seen, total)


@given(st.integers(1000, 10**10), st.integers(1, 50))
def test_a_data_set_with_a_tenth_bad_is_an_error_in_every_epoch(total: int, epoch: int) -> None:
    assert is_too_many(total // 10, epoch * total, total)


@given(st.integers(0, 10**6), st.integers(0, 10**7), totals, st.none() | st.integers(0, 10**6) | st.floats(0, 1))
def test_one_more_bad_sample_never_makes_it_better(bad: int, seen: int, total: int | None, max_bad: Any) -> None:
    seen = max(seen, bad + 1)
    if is_too_many(bad, seen, total, max_bad=max_bad):
        assert is_too_many(bad + 1, seen, total, max_bad=max_bad)
    assert not is_too_many(0, seen, total, max_bad=max_bad)


@given(st.integers(1, 10**6), st.none() | st.integers(0, 10**6) | st.floats(0, 1))
def test_all_is_always_too_many(total: int, max_bad: Any) -> None:
    assert is_too_many(total, total, total, max_bad=max_bad)


@given(st.integers(0, 1000), st.integers(0, 1000), totals)
def test_a_number_is_kept_to(bad: int, max_bad: int, total: int | None) -> None:
    if total is None or bad < total:
        assert is_too_many(bad, bad, total, max_bad=max_bad) == (bad > max_bad)


@given(st.integers(1, 10**6), st.floats(0, 1), st.integers(1, 10**6))
def test_a_share_is_one_of_the_data_set(bad: int, share: float, total: int) -> None:
    if bad < total:
        assert is_too_many(bad, bad, total, max_bad=share) == (bad > share * total)


def test_a_share_of_a_data_set_without_a_length_is_one_of_what_was_tried() -> None:
    assert not is_too_many(10, 10, None, max_bad=0.05)
    assert is_too_many(12, 12, None, max_bad=0.05)
    assert not is_too_many(500, 10_000, None, max_bad=0.05)
    assert is_too_many(511, 10_000, None, max_bad=0.05)


def test_a_tally_stops_a_wrong_path() -> None:
    tally = BadTally(ErrorPolicy.of("quarantine"), total=10**6)
    reasons = [tally.bad() for _ in range(11)]
    assert reasons[:10] == [None] * 10
    assert reasons[10] == "11 bad samples among the first 11 of a data set of 1000000"


def test_a_tally_stops_a_mount_that_is_lost_in_a_later_epoch() -> None:
    """10,010 bad samples would be allowed by then; 100 in a row are a broken source, not broken samples."""
    tally = BadTally(ErrorPolicy.of("quarantine"), total=10**6)
    tally.good(3 * 10**6)
    reasons = [tally.bad() for _ in range(100)]
    assert reasons[:99] == [None] * 99
    assert reasons[99] == "the last 100 samples failed one after the other"


def test_a_limit_that_was_given_knows_no_streak() -> None:
    tally = BadTally(ErrorPolicy.of("quarantine", max_bad=5000), total=10**6)
    assert [tally.bad() for _ in range(5000)] == [None] * 5000
    assert tally.bad() is not None


def test_a_good_sample_ends_a_streak() -> None:
    tally = BadTally(ErrorPolicy.of("quarantine"), total=10**6)
    tally.good(10**6)
    for _ in range(20):
        assert [tally.bad() for _ in range(99)] == [None] * 99
        tally.good(0)  # no sample is no good sample
        tally.good()
